#!/usr/bin/env python3
"""What agents over HTTP cost and lose: three figures of docs/performance.md and docs/reliability.md, on the real binary.

    tests/gates/over_http.py waits [1000]     memory of waits that are held at once; click to outcome, beside files
    tests/gates/over_http.py tokens [10]      seconds of wrong tokens, as fast as they go, while a good one asks
    tests/gates/over_http.py kills [300]      kill -9 of daemon and agents, half of them over HTTP: each outcome reaches one taker

ASKD_BIN names the binary (else target/debug/askd), ASKD_SEED the seed. It needs Python alone, and ends with 1 if a promise broke.
"""

import contextlib, http.client, json, multiprocessing, os, pathlib, random, shutil, signal, socket, statistics, subprocess, sys
import tempfile, threading, time

BINARY = pathlib.Path(os.environ.get("ASKD_BIN", "target/debug/askd")).resolve()
OPERATOR = "gates-0123456789-0123456789-0123456789"
PER_GROUP = 16  # open questions that a group can have


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(seconds, what, look):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if (found := look()) not in (None, False):
                return found
        time.sleep(0.02)
    raise SystemExit(f"waited too long for {what}")


class Daemon:
    def __init__(self, groups):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="askd-over-http-"))
        self.inbox, self.agents = free_port(), free_port()
        (self.folder / "askd.toml").write_text(
            f'data_dir = "{self.folder}/data"\n[http]\nlisten = "127.0.0.1:{self.inbox}"\n'
            f'[agents]\nlisten = "127.0.0.1:{self.agents}"\n[log]\nfilter = "warn"\n'
            "[asks]\nmax_per_hour_per_group = 1000000\n" + "".join(f"[groups.{group}]\n" for group in groups)
        )
        state = self.folder / "data/state"
        state.mkdir(parents=True, mode=0o700)
        (state / "web_token").write_text(OPERATOR)
        (state / "web_token").chmod(0o600)
        self.start()

    def start(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("ASKD")}
        self.process = subprocess.Popen(
            [BINARY, "serve", "--config", self.folder / "askd.toml"], env=env, stdout=subprocess.DEVNULL, stderr=open(self.folder / "log", "a")
        )
        until(60, "the daemon", lambda: self.operator("GET", "/asks?limit=1")[0] == 200)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def operator(self, method, path, body=None):
        return call(self.inbox, method, f"/api/v1{path}", OPERATOR, body)

    def token(self, group):
        status, made = self.operator("POST", "/tokens", {"group": group, "name": "gate"})
        assert status == 201, made
        return made["token"]

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def call(port, method, path, token, body=None, process="gate", timeout=30):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        text = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {token}", "Askd-Process": process, "Content-Type": "application/json"}
        connection.request(method, path, text, headers)
        reply = connection.getresponse()
        told = reply.read()
        return reply.status, json.loads(told) if told else None
    finally:
        connection.close()


def question(name):
    return {"questions": [{"question": name, "options": ["yes", "no"]}], "timeoutMs": 3_600_000}


def answer(daemon, ask, label="yes"):
    body = {"answers": {ask["questions"][0]["id"]: label}}
    return daemon.operator("POST", f"/asks/{ask['id']}/answer", body)


def all_open(daemon):
    return daemon.operator("GET", "/asks?state=open&limit=1000")[1]["asks"]


def waits(most):
    groups = [f"g{n}" for n in range((most + PER_GROUP - 1) // PER_GROUP)]
    daemon = Daemon([*groups, "files"])
    tokens = {group: daemon.token(group) for group in groups}
    ids = []
    for n in range(most):
        group = groups[n // PER_GROUP]
        status = 429
        while status == 429:
            status, asked = call(daemon.agents, "POST", "/agent/v1/asks", tokens[group], question(f"Case {n}?"))
            time.sleep(0.2 if status == 429 else 0)
        assert status == 201, asked
        ids.append((group, asked["request_id"]))
    time.sleep(5)
    idle = daemon.resident()
    held = {}
    for group, request in ids:
        waiting = socket.create_connection(("127.0.0.1", daemon.agents))
        waiting.sendall(
            f"GET /agent/v1/asks/{request}?wait=300 HTTP/1.1\r\nhost: 127.0.0.1:{daemon.agents}\r\n"
            f"authorization: Bearer {tokens[group]}\r\naskd-process: p{len(held)}\r\n\r\n".encode()
        )
        held[request] = waiting
    time.sleep(5)
    each = (daemon.resident() - idle) / most
    asks = {ask["request_id"]: ask for ask in all_open(daemon)}
    over_http, over_files = [], []
    folder = daemon.folder / "data/ipc/files"
    for n, (_, request) in enumerate(ids[:100]):
        # In turn, so that both meet the same load.
        began = time.monotonic()
        assert answer(daemon, asks[request])[0] == 200
        assert held[request].recv(64).startswith(b"HTTP/1.1 200")
        over_http.append(time.monotonic() - began)
        (folder / "tasks/.tmp").write_text(json.dumps({"type": "ask_user:ask", "request_id": f"f{n}", **question(f"File {n}?")}))
        (folder / "tasks/.tmp").rename(folder / f"tasks/f{n}.json")
        ask = until(20, "the question", lambda: next((ask for ask in all_open(daemon) if ask["request_id"] == f"f{n}"), None))
        response, began = folder / f"responses/f{n}.json", time.monotonic()
        assert answer(daemon, ask)[0] == 200
        while not response.exists():
            time.sleep(0.0001)
        over_files.append(time.monotonic() - began)
        response.unlink()
    daemon.end()
    http_ms, files_ms = statistics.median(over_http) * 1000, statistics.median(over_files) * 1000
    print(f"{most} waits: {each:.1f} KB each above idle ({idle / 1024:.1f} MB); click to outcome {http_ms:.1f} ms, "
          f"with files {files_ms:.1f} ms: {http_ms / files_ms:.2f} times")
    return each <= 40 and http_ms <= 2 * files_ms


def knock(port, end, told):
    """Wrong tokens, a hundred in each write."""
    request = f"GET /agent/v1/briefings HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer askd_0_wrong\r\n\r\n".encode()
    refused, stream = 0, socket.create_connection(("127.0.0.1", port))
    while time.monotonic() < end:
        stream.sendall(request * 100)
        seen, rest = 0, b""
        while seen < 100:
            if not (piece := stream.recv(1 << 16)):
                raise SystemExit("the daemon closed the connection")
            text = rest + piece
            seen += text.count(b"HTTP/1.1 401")
            rest = text[-11:]
        refused += seen
    told.put(refused)


def tokens(seconds):
    daemon = Daemon(["g"])
    token = daemon.token("g")
    told, end = multiprocessing.Queue(), time.monotonic() + seconds
    knocking = [multiprocessing.Process(target=knock, args=(daemon.agents, end, told)) for _ in range(2)]
    for each in knocking:
        each.start()
    took, n = [], 0
    while time.monotonic() < end:
        began = time.monotonic()
        status, asked = call(daemon.agents, "POST", "/agent/v1/asks", token, question(f"Case {n}?"))
        took.append(time.monotonic() - began)
        assert status == 201, (status, asked)
        assert call(daemon.agents, "DELETE", f"/agent/v1/asks/{asked['request_id']}", token)[0] == 204
        n += 1
        time.sleep(0.3)
    refused = sum(told.get() for _ in knocking)
    log = (daemon.folder / "log").read_text()
    daemon.end()
    print(f"wrong tokens: {refused / seconds:.0f} a second refused for {seconds} s; meanwhile {n} good questions, "
          f"{statistics.median(took) * 1000:.1f} ms each, {max(took) * 1000:.0f} ms at most; {len(log.splitlines())} lines of log")
    return n > 0 and len(log.splitlines()) < 10 and "askd_0_wrong" not in log and token not in log


def kills(most):
    dice, daemon = random.Random(int(os.environ.get("ASKD_SEED", time.time_ns()))), Daemon(["far", "near"])
    token = daemon.token("far")
    stop, bad, count = threading.Event(), [], {"daemon": 0, "agents": 0, "taken": 0, "briefed": 0}

    def answering():
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
                for ask in all_open(daemon):
                    answer(daemon, ask)
            time.sleep(0.05)

    threading.Thread(target=answering, daemon=True).start()
    killed = []  # over HTTP: what became of their outcomes is looked at in the end
    ask = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for n in range(most):
        asking = {}
        for way in ["far", "near", "far", "near"]:
            name = f"Case {n} {way} {len(asking)}?"
            env = {**os.environ, "ASKD_URL": f"http://127.0.0.1:{daemon.agents}", "ASKD_TOKEN": token}
            more = [] if way == "far" else ["--ipc", daemon.folder / f"data/ipc/{way}"]
            asking[name] = subprocess.Popen([BINARY, "ask", name, "--option", "yes", "--option", "no", *more], env=env, **ask)
        time.sleep(dice.random() * 0.4)
        victims = set()
        if dice.random() < 0.5:
            daemon.kill()
            count["daemon"] += 1
            daemon.start()
        else:
            name = dice.choice(list(asking))
            asking[name].send_signal(signal.SIGKILL)
            count["agents"] += 1
            victims.add(name)
        for name, agent in asking.items():
            try:
                said, why = agent.communicate(timeout=90)
            except subprocess.TimeoutExpired:
                agent.kill()
                bad.append(f"hangs: {name}")
                continue
            if name in victims and agent.returncode != 0:
                killed.append(name)
            elif (agent.returncode, said) != (0, "yes\n"):
                bad.append(f"lost: {name} {agent.returncode} {said!r} {why!r}")
            else:
                count["taken"] += 1
    # A killed agent's question has a briefing within 60 s and a look, unless it was never asked or was taken before the kill.
    time.sleep(75 if killed else 0)
    stop.set()
    settled, names = {}, set()
    for state in ["open", "settled"]:
        listed = daemon.operator("GET", f"/asks?state={state}&limit=1000")[1]["asks"]
        for each in listed:
            name = each["questions"][0]["question"]
            if name in names:
                bad.append(f"second card: {name}")
            names.add(name)
            settled[name] = each
    briefings = list((daemon.folder / "data/ipc").glob("*/briefings/*.json"))
    briefed = [json.loads(path.read_text())["result"]["request_id"] for path in briefings]
    count["briefed"] = len(briefed)
    by_request = {each.get("request_id"): name for name, each in settled.items()}
    for request in briefed:
        if by_request.get(request) not in killed:
            bad.append(f"twice: {by_request.get(request)} was taken and is a briefing")
    if len(set(briefed)) != len(briefed):
        bad.append("twice: two briefings of one question")
    for name in killed:
        each = settled.get(name)
        if each is not None and each["state"] == "settled" and each.get("request_id") not in briefed:
            status, _ = call(daemon.agents, "GET", f"/agent/v1/asks/{each['request_id']}", token, process="another")
            if " far " in name and status != 410:
                bad.append(f"lost: {name} is neither a briefing nor taken ({status})")
    daemon.end()
    print(f"{most} kills ({count['daemon']} of the daemon, {count['agents']} of agents), half of the agents over HTTP: "
          f"{count['taken']} outcomes taken, {count['briefed']} briefed, {len(bad)} lost or twice")
    for each in bad[:20]:
        print(f"  {each}")
    return not bad


if __name__ == "__main__":
    programs = {"waits": (waits, 1000), "tokens": (tokens, 10), "kills": (kills, 300)}
    name, *rest = sys.argv[1:] or [""]
    if name not in programs:
        sys.exit(__doc__)
    program, rounds = programs[name]
    sys.exit(0 if program(int(rest[0]) if rest else rounds) else 1)
