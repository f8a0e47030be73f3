"""A collector that takes what OTLP/HTTP with JSON may be, by OpenTelemetry's own classes, and nothing else.

One question is asked, answered and collected from a real daemon; its four spans have to come, in one trace.
"""

import base64
import http.server
import json
import os
import pathlib
import queue
import subprocess
import tempfile
import threading
import time
import urllib.request

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TAKEN = queue.Queue()


def parsed(body):
    """Ids are hex in OTLP, where protobuf's JSON has base64. A field that is not in the schema is refused."""
    value = json.loads(body)
    for spans in (scope["spans"] for resource in value["resourceSpans"] for scope in resource["scopeSpans"]):
        for span in spans:
            for field, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
                raw = bytes.fromhex(span[field])
                assert len(raw) == size or (field == "parentSpanId" and not raw), span
                assert any(raw) or not raw, "an id of zeros is invalid"
                span[field] = base64.b64encode(raw).decode()
    return json_format.ParseDict(value, trace_service_pb2.ExportTraceServiceRequest())


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            assert self.path == "/v1/traces", self.path
            assert self.headers["content-type"].split(";")[0] == "application/json", self.headers["content-type"]
            TAKEN.put(parsed(body))
            reply = json_format.MessageToJson(trace_service_pb2.ExportTraceServiceResponse()).encode()
            self.send_response(200)
        except Exception as error:
            TAKEN.put(error)
            reply = b"{}"
            self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


def spans_of_one_question(folder, collector):
    data = pathlib.Path(folder)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ASKD__", "ASK_USER", "RUST_LOG"))}
    env |= {"ASKD__DATA_DIR": folder, "ASKD__HTTP__LISTEN": "127.0.0.1:0", "ASKD__TRACES__ENDPOINT": collector}
    binary = os.environ["ASKD_BIN"]
    daemon = subprocess.Popen([binary, "serve"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = "http://" + daemon.stdout.readline().split("/")[2] + "/api/v1/asks"
        token = (data / "state/web_token").read_text().strip()

        def call(path, body=None):
            request = urllib.request.Request(url + path, body and json.dumps(body).encode())
            request.add_header("authorization", "Bearer " + token)
            request.add_header("content-type", "application/json")
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.loads(response.read() or b"null")

        for name in ("tasks", "responses"):
            (data / "ipc/g" / name).mkdir(parents=True, exist_ok=True)
        agent = subprocess.Popen([binary, "ask", "Deploy now?", "--confirm", "--ipc", str(data / "ipc/g")], env=env)
        while not (found := call("?state=open")["asks"]):
            assert agent.poll() is None
            time.sleep(0.05)
        ask = found[0]
        call(f"/{ask['id']}/shown", {})
        call(f"/{ask['id']}/answer", {"answers": {"Deploy now?": "Yes"}})
        assert agent.wait(timeout=30) == 0
        spans, resources = [], []
        while len(spans) < 4:
            taken = TAKEN.get(timeout=30)
            if isinstance(taken, Exception):
                raise taken
            resources += [resource.resource for resource in taken.resource_spans]
            spans += [span for resource in taken.resource_spans for scope in resource.scope_spans for span in scope.spans]
        return ask, spans, resources
    finally:
        daemon.terminate()
        daemon.wait(timeout=20)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as folder:
    ask, spans, resources = spans_of_one_question(folder, f"http://127.0.0.1:{server.server_port}")
for resource in resources:
    assert [(it.key, it.value.string_value) for it in resource.attributes] == [("service.name", "askd")], resource
by_name = {span.name: span for span in spans}
assert sorted(by_name) == ["answer", "ask", "deliver", "show"], by_name
root = by_name["ask"]
assert root.parent_span_id == b""
for span in spans:
    assert span.trace_id.hex() == ask["id"] and span.kind == Span.SPAN_KIND_INTERNAL, span
    assert span is root or span.parent_span_id == root.span_id, span
    assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano, span
print("4 spans of one question, read by opentelemetry-proto: one trace, nothing that OTLP does not know")
