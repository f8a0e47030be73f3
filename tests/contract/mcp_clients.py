"""askd mcp and MCP by URL against the official clients, with a real daemon and a person who is HTTP.

Run by mcp_run. Each check prints a line; the first that fails ends it with its traceback.
"""

import asyncio
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid

import httpx2
import jsonschema
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

ASKD = os.environ["ASKD_BIN"]
INSPECTOR = os.environ["MCP_INSPECTOR"]
TIMED_OUT = "ask_user timeout: no response. Please decide whether to retry when the user sends a new message."
PENDING = (
    "⏳ Waiting for user confirmation... The question is still open. Retry this exact call, or call ask_user_wait "
    "with this question_id; if the user already answered, it returns at once."
)


class World:
    """A daemon on a temporary folder, and the person at its API. The client starts `askd mcp`."""

    # How often a client hears of progress, in seconds.
    progress = 10
    # The least time that a person gets is five minutes; only askd mcp can be told otherwise.
    checks = ("listed", "answered", "progress", "cut_then_called_again", "cancelled_stays_open", "timed_out", "wrong_arguments")

    def __init__(self, folder):
        self.data = pathlib.Path(folder) / "data"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ASKD", "ASK_USER", "RUST_LOG"))}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.agents = f"127.0.0.1:{free.getsockname()[1]}"
        env = clean | {
            "ASKD__DATA_DIR": str(self.data),
            "ASKD__HTTP__LISTEN": "127.0.0.1:0",
            "ASKD__AGENTS__LISTEN": self.agents,
        }
        log = open(pathlib.Path(folder) / "log", "w")
        self.daemon = subprocess.Popen([ASKD, "serve"], env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        self.url = "http://" + self.daemon.stdout.readline().split("/")[2]
        self.token = (self.data / "state/web_token").read_text().strip()
        self.groups = 0

    def folder(self):
        """A new group's folder, so that checks do not meet."""
        self.groups += 1
        path = self.data / f"ipc/g{self.groups}"
        # The daemon may see the group between two of them, and makes what is missing.
        for name in ("tasks", "responses"):
            (path / name).mkdir(parents=True, exist_ok=True)
        return path

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.url + "/api/v1" + path, method=method)
        request.add_header("authorization", "Bearer " + self.token)
        data = None if body is None else json.dumps(body).encode()
        if data:
            request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, data, timeout=10) as response:
            return json.load(response)

    def open(self, group):
        asks = self.call("GET", "/asks?state=open")["asks"]
        return [ask for ask in asks if ask["group"] == group.name]

    async def one_open(self, group):
        for _ in range(1000):
            if asks := self.open(group):
                return asks[0]
            await asyncio.sleep(0.01)
        raise AssertionError("no ask is open")

    async def nothing_left(self, group):
        """The daemon and the agent's side tidy up a moment after their last word."""
        for _ in range(1000):
            if not (left := list((group / "responses").iterdir())) and not self.open(group):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"left: {left}, {self.open(group)}")

    def answer(self, ask, answers):
        self.call("POST", f"/asks/{ask['id']}/answer", {"answers": answers})

    def server(self, folder, mode, **env):
        env = {"ASKD_IPC_DIR": str(folder), "ASKD_MIN_TIMEOUT": "10s", "RUST_LOG": "warn"} | env
        return StdioServerParameters(command=ASKD, args=["mcp"], env=env)

    def inspected(self, folder):
        """The whole command of the server first, or its arguments are taken for the inspector's."""
        return [ASKD, "mcp", "-e", f"ASKD_IPC_DIR={folder}", "-e", "RUST_LOG=warn"]


class Remote(World):
    """The same, and the client has a token and the URL alone."""

    progress = 30
    checks = tuple(check for check in World.checks if check != "timed_out")

    def opened(self, folder):
        token = self.call("POST", "/tokens", {"group": folder.name})["token"]
        return f"http://{self.agents}/agent/v1/mcp", f"Bearer {token}"

    def server(self, folder, mode, **_env):
        url, token = self.opened(folder)
        headers = {"authorization": token}
        if mode != "legacy":
            headers["askd-session"] = str(uuid.uuid4())
        client = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=120))
        return streamable_http_client(url, http_client=client)

    def inspected(self, folder):
        url, token = self.opened(folder)
        return [url, "--transport", "http", "--header", f"Authorization: {token}"]


def go(**more):
    return {"questions": [{"question": "Go?", "options": ["yes", "no"]}]} | more


def text(result):
    assert len(result.content) == 1, result
    return result.content[0].text


async def fits(client, result):
    tools = (await client.list_tools()).tools
    jsonschema.Draft202012Validator(tools[0].output_schema).validate(result.structured_content)
    return result


async def listed(world, mode):
    async with Client(world.server(world.folder(), mode), mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["ask_user", "ask_user_wait", "ask_user_cancel"]
        for tool in tools:
            for schema in (tool.input_schema, tool.output_schema):
                jsonschema.Draft202012Validator.check_schema(schema)
        questions = tools[0].input_schema["properties"]["questions"]
        assert (questions["minItems"], questions["maxItems"]) == (1, 10)
        return f"protocol {client.protocol_version}"


async def answered(world, mode):
    folder = world.folder()
    async with Client(world.server(folder, mode), mode=mode) as client:
        call = asyncio.create_task(client.call_tool("ask_user", go(title="Release")))
        world.answer(await world.one_open(folder), {"Go?": "yes"})
        result = await fits(client, await call)
        assert not result.is_error and json.loads(text(result))["answers"] == {"Go?": "yes"}, result
        assert result.structured_content["answered_by"]["id"] == "operator"
        await world.nothing_left(folder)


async def progress(world, mode):
    heard, every = [], world.progress

    async def hear(sofar, total, message):
        heard.append((sofar, message))

    async with Client(world.server(world.folder(), mode), mode=mode) as client:
        result = await client.call_tool("ask_user", go(waitMs=(every + 5) * 1000), progress_callback=hear)
        assert text(result) == PENDING and not result.is_error
        assert len(heard) == 1 and every - 1 < heard[0][0] < every + 5, heard
        await fits(client, result)


async def cut_then_called_again(world, mode):
    folder = world.folder()
    async with Client(world.server(folder, mode, ASKD_MAX_WAIT="0"), mode=mode) as client:
        try:
            await client.call_tool("ask_user", go(), read_timeout_seconds=1.5)
            raise AssertionError("the client was to lose patience")
        except AssertionError:
            raise
        except Exception as error:
            assert "imed out" in str(error) or "imeout" in str(error), error
        ask = await world.one_open(folder)
        await asyncio.sleep(0.3)
        assert len(world.open(folder)) == 1, "out of patience is not withdrawn"
        world.answer(ask, {"Go?": "no"})
        result = await fits(client, await client.call_tool("ask_user", go(), read_timeout_seconds=30))
        assert json.loads(text(result))["answers"] == {"Go?": "no"}


async def a_minutes_patience(world, mode):
    """As most clients are: they cut at 60 s. With no setting at all the call returns before."""
    folder = world.folder()
    async with Client(world.server(folder, mode), mode=mode) as client:
        begun = time.monotonic()
        if mode != "legacy":
            # A client of the new revision makes the call again by itself, and its model hears of the answer alone.
            call = asyncio.create_task(client.call_tool("ask_user", go(), read_timeout_seconds=60))
            ask = await world.one_open(folder)
            await asyncio.sleep(50)
            assert len(world.open(folder)) == 1 and not call.done()
            world.answer(ask, {"Go?": "yes"})
            result = await fits(client, await call)
            assert json.loads(text(result))["answers"] == {"Go?": "yes"}
            return f"answered after {time.monotonic() - begun:.0f} s in one call of the model"
        first = await fits(client, await client.call_tool("ask_user", go(), read_timeout_seconds=60))
        assert text(first) == PENDING and not first.is_error, first
        took = time.monotonic() - begun
        assert 44 < took < 60, took
        asks = world.open(folder)
        assert len(asks) == 1, asks
        world.answer(asks[0], {"Go?": "yes"})
        result = await fits(client, await client.call_tool("ask_user", go(), read_timeout_seconds=60))
        assert json.loads(text(result))["answers"] == {"Go?": "yes"}
        assert result.structured_content["request_id"] == first.structured_content["question_id"]
        return f"pending after {took:.0f} s"


async def cancelled_stays_open(world, mode):
    folder = world.folder()
    async with Client(world.server(folder, mode, ASKD_MAX_WAIT="0"), mode=mode) as client:
        call = asyncio.create_task(client.call_tool("ask_user", go()))
        ask = await world.one_open(folder)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await client.list_tools()
        assert len(world.open(folder)) == 1
        withdrawn = await client.call_tool("ask_user_cancel", {"question_id": ask["request_id"]})
        assert not withdrawn.is_error and withdrawn.structured_content["status"] == "cancelled", withdrawn
        await fits(client, withdrawn)
        await world.nothing_left(folder)


async def timed_out(world, mode):
    async with Client(world.server(world.folder(), mode), mode=mode) as client:
        result = await client.call_tool("ask_user", go(timeoutMs=10_000))
        assert result.is_error and text(result) == TIMED_OUT, result
        assert result.structured_content["timedOut"] and not result.structured_content["answered"]
        await fits(client, result)


async def wrong_arguments(world, mode):
    async with Client(world.server(world.folder(), mode), mode=mode) as client:
        for arguments, says in (
            ({"questions": []}, "Error: No questions provided"),
            ({"questions": "Go?"}, 'Error: questions: must be a list, not the string "Go?".'),
            (go(maxRetries=9), "Error: maxRetries is 9; it must be between 0 and 5."),
        ):
            result = await client.call_tool("ask_user", arguments)
            assert result.is_error and text(result) == says, result
            await fits(client, result)


async def inspector(world):
    folder = world.folder()

    def run(*arguments):
        command = [INSPECTOR, "--cli", *world.inspected(folder), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    listed, said = (child := run("--method", "tools/list", "--strict")).communicate(timeout=60)
    assert child.returncode == 0, said
    assert "warning" not in said.lower().replace("npm warn", ""), said
    tools = json.loads(listed)["tools"]
    assert [tool["name"] for tool in tools] == ["ask_user", "ask_user_wait", "ask_user_cancel"]

    questions = json.dumps(go()["questions"])
    call = run("--method", "tools/call", "--tool-name", "ask_user", "--tool-arg", f"questions={questions}")
    ask = await world.one_open(folder)
    world.answer(ask, {"Go?": "yes"})
    printed, said = call.communicate(timeout=60)
    assert call.returncode == 0, (printed, said)
    result = json.loads(printed)
    assert result["structuredContent"]["answers"] == {"Go?": "yes"}, result
    jsonschema.Draft202012Validator(tools[0]["outputSchema"]).validate(result["structuredContent"])
    # A client that has read its answer and goes leaves nothing.
    await world.nothing_left(folder)

    printed, said = run(
        "--method", "tools/call", "--tool-name", "ask_user", "--tool-arg", "questions=[]"
    ).communicate(timeout=60)
    assert "Error: No questions provided" in printed + said, (printed, said)


async def checked(world):
    by = "url" if isinstance(world, Remote) else "stdio"
    modes = ("legacy", "2026-07-28")
    patient = [asyncio.create_task(a_minutes_patience(world, mode)) for mode in modes]
    for mode in (*modes, "auto"):
        for check in world.checks if mode != "auto" else world.checks[:2]:
            begun = time.monotonic()
            more = await globals()[check](world, mode)
            more = f" ({more})" if more else ""
            print(f"ok  python {by:5} {mode:10} {check}{more}  {time.monotonic() - begun:.1f} s", flush=True)
    for mode, check in zip(modes, patient):
        print(f"ok  python {by:5} {mode:10} a_minutes_patience ({await check})", flush=True)
    if INSPECTOR:
        begun = time.monotonic()
        await inspector(world)
        print(f"ok  inspector {by}: tools/list --strict, tools/call  {time.monotonic() - begun:.1f} s", flush=True)


async def main():
    with tempfile.TemporaryDirectory() as stdio, tempfile.TemporaryDirectory() as url:
        worlds = [World(stdio), Remote(url)]
        try:
            await asyncio.gather(*(checked(world) for world in worlds))
        finally:
            for world in worlds:
                world.daemon.terminate()
                world.daemon.wait()
    print("All MCP clients agree.")


asyncio.run(main())
