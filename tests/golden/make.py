"""Makes a golden folder: drives one `askd` binary, its stand-ins of Slack and WhatsApp, and an agent that is nothing but files.

    make.py BINARY FOLDER

BINARY is an `askd` of the wanted version with the feature `demo` (and so `askd sim`). FOLDER gets `state/`, `ipc/` and
`made.json`. It is kept to be read: it need not run with later versions. Takes about a minute.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

BINARY, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
CHANNEL, ALICE, BOB = "C0AGENTS", "U0ALICE", "U0BOB"
ADA, GRACE = "15550001111", "15550002222"  # Ada has written to the business before, Grace has not.
DATA = pathlib.Path(tempfile.mkdtemp(prefix="askd-golden-")) / "data"
IPC, STATE = DATA / "ipc", DATA / "state"
WEEK = 604_800_000
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("ASK") and k != "RUST_LOG"}


def until(what, look):
    end = time.monotonic() + 45
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise SystemExit(f"waited for {what}\n" + (DATA.parent / "log").read_text()[-4000:])


def http(method, url, body=None, token=None):
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
        text = response.read()
    return json.loads(text) if text else None


class Sim:
    def __init__(self, *options):
        command = [BINARY, "sim", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=CLEAN)
        self.is_ = json.loads(self.process.stdout.readline())

    def control(self, **order):
        return http("POST", self.is_["url"] + "/control", order)

    def said_to(self, who):
        return http("GET", f"{self.is_['url']}/control/messages?who={who}")

    def seen(self, user=ALICE, channel=CHANNEL):
        return http("GET", f"{self.is_['url']}/page/state?channel={channel}&user={user}")["messages"]

    def person(self, what, user=ALICE, **fields):
        return http("POST", f"{self.is_['url']}/page/{what}", {"user": user, "channel": CHANNEL} | fields)


slack = Sim("slack", "--pace", "0")
people = [{"wa_id": ADA, "name": "Ada"}, {"wa_id": GRACE, "name": "Grace"}]
template = {"name": "wake", "language": "en", "body": "A question waits for you. Reply to see it."}
(DATA.parent / "sim.json").write_text(json.dumps({"people": people, "templates": [template], "pair_every_ms": 0}))
phone = Sim("whatsapp", "--config", str(DATA.parent / "sim.json"))

SLACK = f'{{ channel = "slack", chat = "{CHANNEL}", responders = ["{ALICE}", "{BOB}"] }}'
TO_ADA, TO_GRACE = (f'{{ channel = "whatsapp", chat = "{who}" }}' for who in (ADA, GRACE))
WEB = '{ channel = "web" }'
STARTS = 'session = { start = { command = ["/bin/true"] } }'
FAILS = 'session = { start = { command = ["/bin/false"] } }'
STOPS = 'session = { stop = { command = ["/bin/true"] } }'
GROUPS = {
    "inbox": f"routes = [{WEB}]",
    "inbox-blocks": f"routes = [{WEB}]\nmax_attempts = 1",
    "team": f"routes = [{SLACK}, {WEB}]\n{STARTS}",
    "team-blocks": f"routes = [{SLACK}]\nmax_attempts = 1",
    "ada": f"routes = [{TO_ADA}, {WEB}]\n{STARTS}",
    "pair": f"routes = [{TO_ADA}]",
    "grace": f"routes = [{TO_GRACE}, {WEB}]",
    "broken": f"routes = [{SLACK}]\n{FAILS}",
    "stopped": f"routes = [{SLACK}]\n{STOPS}",
    "lost": 'routes = [{ channel = "slack", chat = "C0NOWHERE", responders = ["U0ALICE"] }]',
}
config = f"""data_dir = "{DATA}"
[http]
listen = "127.0.0.1:0"
[asks]
pickup_timeout = "1s"
remind_after = "10m"
[slack]
bot_token = "{slack.is_['bot_token']}"
app_token = "{slack.is_['app_token']}"
api_url = "{slack.is_['api_url']}"
pace = "0s"
[whatsapp]
access_token = "{phone.is_['token']}"
app_secret = "{phone.is_['app_secret']}"
verify_token = "{phone.is_['verify_token']}"
phone_number_id = "{phone.is_['phone_number_id']}"
api_url = "{phone.is_['api_url']}"
template = "wake"
""" + "".join(f"[groups.{name}]\n{text}\n" for name, text in GROUPS.items())
(DATA.parent / "askd.toml").write_text(config)
log = open(DATA.parent / "log", "ab")
daemon = subprocess.Popen(
    [BINARY, "serve", "--config", str(DATA.parent / "askd.toml")], stdout=subprocess.PIPE, stderr=log, text=True, env=CLEAN
)
URL = "http://" + daemon.stdout.readline().split("/")[2]
TOKEN = (STATE / "web_token").read_text().strip()
phone.control(do="webhook", url=f"{URL}/whatsapp/webhook")
phone.control(do="handshake")


def api(method, path, body=None):
    return http(method, f"{URL}/api/v1{path}", body, TOKEN)


def select(text, *labels, **more):
    return {"question": text, "options": list(labels), **more}


def ask(group, request_id, *questions, timeout=WEEK, **more):
    tasks = IPC / group / "tasks"
    until("a folder", tasks.is_dir)
    request = {"type": "ask_user:ask", "request_id": request_id, "questions": list(questions), "timeoutMs": timeout} | more
    (tasks / f".{request_id}.tmp").write_text(json.dumps(request))
    (tasks / f".{request_id}.tmp").rename(tasks / f"{request_id}.json")
    requests[request_id] = request


def cancel(group, request_id):
    tasks = IPC / group / "tasks"
    (tasks / ".c.tmp").write_text(json.dumps({"type": "ask_user:cancel", "request_id": request_id}))
    (tasks / ".c.tmp").rename(tasks / f"cancel-{request_id}.json")


requests = {}


def records():
    for path in [*STATE.glob("pending_questions/*/*.json"), *STATE.glob("settled/*/*.json")]:
        try:
            yield json.loads(path.read_text())
        except FileNotFoundError:
            pass


def record(request_id, *, stage=None, has=None):
    """Waits until the ask of this request is stored at that stage, and (a function of its record) has something."""

    def look():
        for found in records():
            if any(waiter["request_id"] == request_id for waiter in found["waiters"]):
                if (stage is None or found["stage"]["name"] == stage) and (has is None or has(found)):
                    return found
        return None

    return until(f"{request_id} at {stage}", look)


def after(found):
    """What follows the decision: each format has it in another place."""
    return found.get("after") or found["stage"].get("follow_up") or {}


def start(found):
    return after(found).get("wake") or after(found).get("start") or {}


def after_timeout(found):
    """What a timeout leads to, as format 3 names it."""
    follows = after(found)
    late, stop = follows.get("late", {}).get("name"), follows.get("stop")
    return {"open": "answerable"}.get(late) or {"done": "stopped"}.get(stop) or follows.get("after_timeout", {}).get("name")


def block(found):
    return found.get("block") or after(found).get("block")


def widget(found):
    """How far the first widget is, and how many messages it has."""
    first = found["widgets"][0]
    return first.get("phase") or first["state"]["name"], len(first.get("messages") or first.get("posts") or [])


def shown(request_id):
    return record(request_id, stage="open", has=lambda found: found["message_id"] or found["channel_name"] == "web")


def response(group, request_id, take=False):
    path = IPC / group / "responses" / f"{request_id}.json"
    until(f"the response of {request_id}", path.exists)
    text = path.read_text()
    responses[request_id] = json.loads(text)
    if take:
        path.unlink()
    return responses[request_id]


responses = {}


def answer(request_id, answers):
    return api("POST", f"/asks/{record(request_id)['id']}/answer", {"answers": answers})


def click(request_id, action, user=ALICE):
    card = until("the card", lambda: next((m for m in slack.seen() if m["ts"] == record(request_id)["message_id"]), None))
    block = next(b for b in card["blocks"] if any(e.get("action_id") == action for e in b.get("elements", []) + [b.get("element", {})]))
    slack.person("act", user, ts=card["ts"], block_id=block["block_id"], action_id=action, act="click")


def says(text, who=ADA, quotes=None):
    return phone.control(do="says", who=who, text=text, quotes=quotes)["id"]


FRAMEWORK = select("Which framework?", {"label": "React", "description": "the old one"}, "Vue", header="Web")
SURE = {"question": "Sure?", "type": "confirm"}
WHY = {"question": "Why?", "required": False, "placeholder": "a line"}
MANY = select("Which targets?", "staging", "prod", multiSelect=True)

# Open: in the inbox, in Slack (buttons, a form), on WhatsApp; each with what joins a repeated call.
ask("inbox", "inbox-open", FRAMEWORK, title="Title", context="Context", session_id="s1", opCode="op-1", process="p1")
shown("inbox-open")
ask("inbox", "inbox-joined", FRAMEWORK, title="Title", context="Context", session_id="s1", opCode="op-2")
record("inbox-joined", stage="open")
ask("inbox", "inbox-form", FRAMEWORK, MANY, SURE, WHY, idempotency_key="key-1")
shown("inbox-form")
ask("inbox", "inbox-plain", {"question": "What is its name?"}, timeoutPolicy="return_cancel")
shown("inbox-plain")
ask("team", "team-open", FRAMEWORK, session_id="s1")
shown("team-open")
ask("team", "team-form", MANY, SURE, WHY)
shown("team-form")

# WhatsApp: the person writes first, so that the chat is open. Half answered: one question of three.
first = says("hello")
until("the chat to be open", lambda: (STATE / "channels/whatsapp.json").exists() and first in (STATE / "channels/whatsapp.json").read_text())
ask("ada", "ada-half", FRAMEWORK, SURE, WHY)
shown("ada-half")
time.sleep(2.1)  # Whole seconds are compared.
says("2", quotes=record("ada-half")["message_id"])
record("ada-half", has=lambda found: found.get("so_far"))
record("ada-half", has=lambda found: widget(found)[1] > 1)
ask("pair", "pair-open", select("Deploy now?", "yes", "no"))
shown("pair-open")
# Grace has not written within a day: a template asks her to, and the question is held.
ask("grace", "grace-held", FRAMEWORK)
record("grace-held", has=lambda found: widget(found)[0] == "held")

# Decided.
ask("team", "team-clicked", select("Merge?", "merge", "wait"), session_id="s2")
shown("team-clicked")
click("team-clicked", "pick:0:0")
response("team", "team-clicked", take=True)
record("team-clicked", stage="settled")
ask("inbox", "inbox-answered", FRAMEWORK, MANY, SURE, WHY, title="All of it")
shown("inbox-answered")
answer("inbox-answered", {"Which framework?": "Svelte", "Which targets?": ["prod", "staging"], "Sure?": "Yes"})
response("inbox", "inbox-answered", take=True)
ask("inbox", "inbox-dismissed", {"question": "Dismiss this?", "type": "confirm"})
api("POST", f"/asks/{shown('inbox-dismissed')['id']}/dismiss")
response("inbox", "inbox-dismissed", take=True)
ask("inbox", "inbox-withdrawn", {"question": "Withdraw this?", "type": "confirm"})
shown("inbox-withdrawn")
cancel("inbox", "inbox-withdrawn")
response("inbox", "inbox-withdrawn", take=True)
ask("inbox", "inbox-timeout", {"question": "Too late?", "type": "confirm"}, timeout=10_000)
ask("stopped", "stopped-timeout", {"question": "Stop it?", "type": "confirm"}, timeout=10_000, timeoutPolicy="abort_task")
ask("lost", "lost-undelivered", {"question": "Where to?", "type": "confirm"}, maxRetries=0)
response("lost", "lost-undelivered", take=True)

# Late: still open in Slack, on WhatsApp; answered, and the agent was started; answered, and it cannot be started.
ask("team", "team-late", select("Late in Slack?", "yes", "no"), timeout=10_000, session_id="s3")
ask("ada", "ada-late", select("Late on WhatsApp?", "yes", "no"), timeout=10_000)
ask("team", "team-late-answered", select("Answered late?", "yes", "no"), timeout=10_000)
ask("broken", "broken-late-answered", select("Answered late, no start?", "yes", "no"), timeout=10_000)
for group, request_id in [("inbox", "inbox-timeout"), ("stopped", "stopped-timeout"), ("team", "team-late"), ("ada", "ada-late"),
                          ("team", "team-late-answered"), ("broken", "broken-late-answered")]:
    response(group, request_id, take=True)
for request_id in ["team-late", "ada-late", "team-late-answered", "broken-late-answered"]:
    record(request_id, has=lambda found: after_timeout(found) == "answerable")
answer("team-late-answered", {"Answered late?": "yes"})
answer("broken-late-answered", {"Answered late, no start?": "no"})
record("team-late-answered", has=lambda found: start(found).get("name") == "started")
record("broken-late-answered", has=lambda found: start(found).get("tries"))
record("stopped-timeout", has=lambda found: after_timeout(found) == "stopped")

# Uncollected: the response lies there; it was withdrawn and the agent was started; or it is kept for the next start.
ask("inbox", "inbox-uncollected", select("Uncollected?", "yes", "no"), session_id="s4")
shown("inbox-uncollected")
answer("inbox-uncollected", {"Uncollected?": "yes"})
response("inbox", "inbox-uncollected")
ask("broken", "broken-uncollected", select("Uncollected, no start?", "yes", "no"), session_id="s4")
shown("broken-uncollected")
click("broken-uncollected", "pick:0:1", BOB)
record("broken-uncollected", has=lambda found: start(found).get("tries"))

# Blocked: in the inbox and in Slack; one of them allowed again.
for group, request_id in [("inbox-blocks", "inbox-blocked"), ("team-blocks", "team-blocked"), ("inbox-blocks", "inbox-allowed")]:
    question = select(f"Again and again, {request_id}?", "yes", "no")
    ask(group, request_id + "-1", question)
    shown(request_id + "-1")
    cancelled = api("POST", f"/asks/{record(request_id + '-1')['id']}/dismiss")
    response(group, request_id + "-1", take=True)
    ask(group, request_id, question, session_id="s5")
    response(group, request_id, take=True)
    ask(group, request_id + "-2", question, session_id="s5")
    response(group, request_id + "-2", take=True)
subprocess.run(
    [BINARY, "reset", record("inbox-allowed")["id"], "--url", URL, "--token", TOKEN], check=True, env=CLEAN, stdout=subprocess.DEVNULL
)
record("inbox-allowed", has=lambda found: block(found)["lifted"])
record("team-blocked", has=lambda found: block(found)["times"] == 3 and widget(found)[0] == "up")


def of_the_agent(name, arguments, say=b""):
    """What the agent's side of this version puts into its folder when it asks, byte for byte, and nobody claims it."""
    folder = DATA.parent / name
    for part in ["tasks", "responses", "briefings"]:
        (folder / part).mkdir(parents=True)
    env = CLEAN | {"ASKD_SESSION_ID": "s-agent", "ASKD_IPC_DIR": str(folder)}
    agent = subprocess.Popen([BINARY, *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    agent.stdin.write(say)
    agent.stdin.flush()
    request = until(f"the request of {name}", lambda: next(folder.glob("tasks/[!.]*.json"), None))
    until("a sign of life", lambda: list(folder.glob("tasks/.alive*")))
    files = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
    agent.kill()
    agent.wait()
    return {"request": str(request.relative_to(folder)), "files": files}


def line(**message):
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "golden", "version": "1"}}
call = {"name": "ask_user", "arguments": {"title": "Title", "questions": [FRAMEWORK, SURE]}}
agents = {
    "ask": of_the_agent("agent-ask", ["ask", "Deploy now?", "--option", "yes", "--option", "no=not today", "--title", "Release"]),
    "mcp": of_the_agent("agent-mcp", ["mcp"], line(id=1, method="initialize", params=hello)
                        + line(method="notifications/initialized") + line(id=2, method="tools/call", params=call)),
}

time.sleep(2)
daemon.send_signal(signal.SIGKILL)
daemon.wait()
made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
for sim in (slack, phone):
    sim.process.stdin.close()
    sim.process.wait()
if FOLDER.exists():
    shutil.rmtree(FOLDER)
FOLDER.mkdir(parents=True)
for kind in ["pending_questions", "settled", "groups", "channels"]:
    if (STATE / kind).exists():
        shutil.copytree(STATE / kind, FOLDER / "state" / kind)
shutil.copytree(IPC, FOLDER / "ipc")
for path in FOLDER.rglob("*"):
    path.chmod(0o755 if path.is_dir() else 0o644)
    if path.is_file():
        text = path.read_text()
        for secret in [TOKEN, str(DATA.parent)]:
            if secret in text:
                raise SystemExit(f"{path} has something of this machine")
# What the agents sent and were given, and by when: what the stories ask again and compare.
made = {"version": subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.strip(), "made_at": made_at,
        "requests": requests, "responses": responses, "agents": agents,
        "asks": {found["id"]: [waiter["request_id"] for waiter in found["waiters"]] for found in records()}}
(FOLDER / "made.json").write_text(json.dumps(made, indent=2, sort_keys=True) + "\n")
shutil.rmtree(DATA.parent)
