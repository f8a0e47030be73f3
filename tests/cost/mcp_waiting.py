"""What askd mcp costs while it waits: start, memory, wake-ups, size. Standard library only.

    cargo build -p askd --profile dist --no-default-features --target x86_64-unknown-linux-musl
    python3 tests/cost/mcp_waiting.py [--binary FILE] [--many 200] [--seconds 60]

One process first, then many in one folder, each with one open question and a progress token. The host is this
script: it claims each request and says `.status`, and answers nobody. Wake-ups are voluntary context switches of
all threads. What else the machine does at the time is stated: waits for a disk or a lock count as well.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "cost", "version": "1"}}


class Agent:
    def __init__(self, binary, folder, number):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ASKD", "ASK_USER", "RUST_LOG"))}
        env |= {"ASKD_IPC_DIR": str(folder), "ASKD_MAX_WAIT": "0", "RUST_LOG": "warn"}
        begun = time.monotonic()
        self.process = subprocess.Popen([binary, "mcp"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
        self.process.stdout.readline()
        self.started_after = time.monotonic() - begun
        self.number = number

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self):
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        questions = [{"question": f"Go, {self.number}?", "options": ["yes", "no"]}]
        params = {"name": "ask_user", "arguments": {"questions": questions}, "_meta": {"progressToken": 1}}
        self.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})

    def file(self, name):
        return pathlib.Path(f"/proc/{self.process.pid}/{name}").read_text()

    def switches(self):
        """Of each thread, by its name."""
        threads = {}
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            status = (thread / "status").read_text().splitlines()
            count = next(line for line in status if line.startswith("voluntary_ctxt_switches")).split()[1]
            threads[(thread / "comm").read_text().strip() + " " + thread.name] = int(count)
        return threads

    def processor(self):
        fields = self.file("stat").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kib(self, name, field):
        return sum(int(line.split()[1]) for line in self.file(name).splitlines() if line.startswith(field + ":"))

    def end(self):
        self.process.kill()
        self.process.wait()


def claim(folder, count):
    """As a daemon would: takes each request and says until when it waits."""
    waiting, end = count, time.monotonic() + 60
    while waiting:
        assert time.monotonic() < end, f"{waiting} requests did not come"
        for path in (folder / "tasks").glob("*.json"):
            if path.name.startswith("."):
                continue
            request = json.loads(path.read_text())["request_id"]
            path.unlink()
            temporary = folder / f"responses/.tmp-{request}"
            until = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 1800))
            temporary.write_text(json.dumps({"state": "open", "shown_at": None, "answer_by": until}))
            temporary.rename(folder / f"responses/{request}.status")
            waiting -= 1
        time.sleep(0.02)


def load():
    return os.getloadavg()[0]


def waiting(binary, count, settle, seconds):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for sub in ("tasks", "responses"):
            (folder / sub).mkdir()
        agents = [Agent(binary, folder, number) for number in range(count)]
        try:
            for agent in agents:
                agent.ask()
            claim(folder, count)
            time.sleep(settle)
            before, used, begun = [a.switches() for a in agents], sum(a.processor() for a in agents), time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - begun
            after, used = [a.switches() for a in agents], sum(a.processor() for a in agents) - used
            each = [(sum(now.values()) - sum(then.values())) / took for then, now in zip(before, after)]
            resident = statistics.median(a.kib("status", "VmRSS") for a in agents)
            own = statistics.median(a.kib("smaps_rollup", "Private_Dirty") for a in agents)
            whole = sum(a.kib("smaps_rollup", "Pss") for a in agents)
            print(
                f"{count} waiting, {took:.0f} s, load {load():.1f}: wake-ups per s of each: median "
                f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f}); processor {used / took:.2%} of one "
                f"core in all; VmRSS {resident:.0f} KiB, its own {own:.0f} KiB, Pss of all {whole} KiB"
            )
            first = {name: round((now - before[0].get(name, 0)) / took, 2) for name, now in after[0].items()}
            print(f"   by thread, of the first: {first}")
        finally:
            for agent in agents:
                agent.end()


def started(binary, count):
    with tempfile.TemporaryDirectory() as folder:
        took = []
        for number in range(count):
            agent = Agent(binary, folder, number)
            took.append(agent.started_after)
            agent.end()
        took = [1000 * value for value in took]
        print(
            f"start to the reply to initialize, {count} times, load {load():.1f}: median {statistics.median(took):.1f} ms "
            f"({min(took):.1f} to {max(took):.1f})"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/x86_64-unknown-linux-musl/dist/askd")
    parser.add_argument("--many", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    print(f"{arguments.binary}: {os.path.getsize(arguments.binary) / 1e6:.2f} MB")
    started(arguments.binary, 21)
    waiting(arguments.binary, 1, 5, arguments.seconds)
    if arguments.many > 1:
        # Those for which no watch is left look more often for a minute.
        waiting(arguments.binary, arguments.many, 70, arguments.seconds)


main()
