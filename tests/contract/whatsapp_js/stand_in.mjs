// Starts the stand-in from $ASKD_BIN and talks to it. Used by the tests beside it.
import { spawn } from "node:child_process";
import { writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export async function start(config = {}) {
  const binary = process.env.ASKD_BIN;
  if (!binary) throw new Error("set ASKD_BIN to the askd binary");
  const folder = mkdtempSync(join(tmpdir(), "askd-sim-"));
  const file = join(folder, "sim.json");
  writeFileSync(file, JSON.stringify(config));
  const child = spawn(binary, ["sim", "whatsapp", "--config", file], { stdio: ["pipe", "pipe", "inherit"] });
  const line = await new Promise((done, fail) => {
    let heard = "";
    child.stdout.on("data", (data) => {
      heard += data;
      if (heard.includes("\n")) done(heard.split("\n")[0]);
    });
    child.on("exit", (code) => fail(new Error(`the stand-in ended with ${code}`)));
  });
  const facts = JSON.parse(line);
  return {
    ...facts,
    tell: async (order) => {
      const body = JSON.stringify(order);
      const answer = await fetch(`${facts.url}/control`, { method: "POST", headers: { "content-type": "application/json" }, body });
      if (!answer.ok) throw new Error(await answer.text());
      return answer.json();
    },
    list: async (what) => (await fetch(`${facts.url}/control/${what}`)).json(),
    send: async (message) => {
      const answer = await fetch(`${facts.api_url}/${facts.phone_number_id}/messages`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${facts.token}` },
        body: JSON.stringify({ messaging_product: "whatsapp", ...message }),
      });
      return answer.json();
    },
    stop: async () => {
      const gone = new Promise((done) => child.once("exit", done));
      child.stdin.end();
      await gone;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
