// Just enough of the DevTools protocol to look at a page in Chromium: start, evaluate, size, screenshot.
// Not a general driver. Used by page.test.mjs; needs Node's --experimental-websocket below Node 22.
import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
  "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
];

export async function open(url, binary) {
  const profile = mkdtempSync(join(tmpdir(), "askd-page-"));
  const child = spawn(binary, [...FLAGS, `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
  const endpoint = await new Promise((done, fail) => {
    let heard = "";
    child.stderr.on("data", (data) => {
      heard += data;
      const found = /DevTools listening on (ws:\/\/\S+)/.exec(heard);
      if (found) done(found[1]);
    });
    child.on("exit", () => fail(new Error(heard)));
  });
  const list = await (await fetch(`http://${new URL(endpoint).host}/json`)).json();
  const socket = new WebSocket(list.find((t) => t.type === "page").webSocketDebuggerUrl);
  await new Promise((done) => { socket.onopen = done; });
  const waiting = new Map();
  const problems = [];
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.id) waiting.get(message.id)?.(message);
    if (message.method === "Runtime.exceptionThrown") problems.push(message.params.exceptionDetails.exception?.description);
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") problems.push(message.params.entry.text);
  };
  let count = 0;
  const call = (method, params = {}) => new Promise((done, fail) => {
    const id = ++count;
    waiting.set(id, (m) => (m.error ? fail(new Error(m.error.message)) : done(m.result)));
    socket.send(JSON.stringify({ id, method, params }));
  });
  for (const domain of ["Page", "Runtime", "Log"]) await call(`${domain}.enable`);
  const page = {
    problems,
    evaluate: async (expression) => {
      const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    },
    // Beside the stories a browser may take ten seconds for what takes one alone.
    until: async (expression) => {
      for (let i = 0; i < 1200; i++) {
        if (await page.evaluate(expression)) return;
        await new Promise((done) => setTimeout(done, 25));
      }
      throw new Error(`never true: ${expression}`);
    },
    size: (width, height) => call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 800 }),
    scheme: (value) => call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] }),
    screenshot: async (file) => {
      const { data } = await call("Page.captureScreenshot", { format: "png" });
      writeFileSync(file, Buffer.from(data, "base64"));
    },
    goto: (to) => call("Page.navigate", { url: to }),
    close: async () => {
      socket.close();
      const gone = new Promise((done) => child.once("exit", done));
      child.kill();
      await gone;
      // Chromium's helpers outlive it for a moment, and write. `rmSync` tries only the outermost folder again.
      await rm(profile, { recursive: true, force: true, maxRetries: 20 });
    },
  };
  await page.goto(url);
  await page.until(`location.href.startsWith(${JSON.stringify(url)}) && document.readyState === "complete"`);
  return page;
}
