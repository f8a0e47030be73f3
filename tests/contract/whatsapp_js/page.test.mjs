// The phone page in Chromium: what a person does with it reaches the stand-in, what the business sends is
// seen with its formatting, and nothing breaks the content policy. Skipped without Chromium; screenshots
// go to $ASKD_SHOTS when that is set.
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { after, before, test } from "node:test";

import { open } from "./browser.mjs";
import { start } from "./stand_in.mjs";

const onPath = (name) => (process.env.PATH ?? "").split(delimiter).map((folder) => join(folder, name)).find(existsSync);
const chromium = process.env.CHROMIUM ?? ["chromium", "chromium-browser", "google-chrome"].map(onPath).find(Boolean);
const why = chromium && typeof WebSocket === "function" ? false : "no Chromium or no WebSocket";
const ADA = "15550001111";
let sim, page;

const shot = async (name) => {
  if (!process.env.ASKD_SHOTS) return;
  mkdirSync(process.env.ASKD_SHOTS, { recursive: true });
  await page.screenshot(join(process.env.ASKD_SHOTS, `whatsapp-${name}.png`));
};
const click = (selector) => page.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`);
const type = (text) => page.evaluate(`(() => { const t = document.getElementById("text"); t.value = ${JSON.stringify(text)};
  document.getElementById("composer").requestSubmit(); })()`);
const seen = (text) => page.until(`[...document.querySelectorAll(".bubble")].some((b) => b.textContent.includes(${JSON.stringify(text)}))`);

before(async () => {
  if (why) return;
  sim = await start({
    verified_name: "Build agents",
    templates: [{ name: "q", language: "en_US", body: "{{1}} has a question for you.", buttons: ["Show it"] }],
    people: [
      { wa_id: ADA, name: "Ada Lovelace" },
      { wa_id: "15550002222", name: "Grace Hopper", username: "grace", number_hidden: true },
    ],
  });
  page = await open(sim.url, chromium);
  await page.size(375, 812);
});
after(async () => {
  try {
    await page?.close();
  } finally {
    await sim?.stop();
  }
});

test("a person asks, reads, quotes, taps and reacts", { skip: why }, async () => {
  await page.until(`document.getElementById("business").textContent === "Build agents"`);
  await shot("empty");
  await type("Hello, agent \u{1f44b}");
  await seen("Hello, agent");
  const question = [
    "*Deploy* to production", "The agent \"research\" is asking: Which auth strategy?", "1. JWT tokens - _stateless_, signed",
    "2. Session cookies", "3. ~OAuth 1.0~ OAuth 2.0", "", "Reply with a number or type your own answer.",
  ].join("\n");
  await sim.send({ to: ADA, type: "text", text: { body: question } });
  await seen("Which auth strategy?");
  assert.equal(await page.evaluate(`document.querySelector(".bubble strong").textContent`), "Deploy");
  assert.equal(await page.evaluate(`document.querySelector(".bubble em").textContent`), "stateless");
  await page.until(`document.querySelector(".row.in .ticks").className.includes("read")`);
  await click(".row.in .act");
  await page.until(`!document.getElementById("quote").hidden`);
  await shot("quoting");
  await type("2");
  await page.until(`document.querySelector(".row.out .quoted")?.textContent.includes("Which auth strategy?")`);
  await click(".row.in .act:nth-child(2)");
  await page.until(`document.querySelector(".reaction")?.textContent === "\u{1f44d}"`);
  const buttons = ["Yes", "No", "Later"].map((title) => ({ type: "reply", reply: { id: title, title } }));
  await sim.send({ to: ADA, type: "interactive", interactive: { type: "button", body: { text: "Go on?" }, action: { buttons } } });
  await page.until(`document.querySelectorAll(".tap").length === 3`);
  await click(".tap:nth-of-type(1)");
  await page.until(`[...document.querySelectorAll(".row.out .body")].some((b) => b.textContent === "Yes")`);
  await shot("chat");
  const messages = await sim.list(`messages?who=${ADA}`);
  assert.equal(messages.find((m) => m.text === "2").quotes, messages.find((m) => m.outgoing).id);
});

test("an injection is seen as what it does, and as nothing else", { skip: why }, async () => {
  const body = "<img src=x onerror=alert(1)> <b>no</b>\n*<img src=x onerror=alert(2)>* `<i>`\n```rm -rf /```\n> *askd* says: all fine\nhttps://evil.example/login and evil.dev";
  await sim.send({ to: ADA, type: "text", text: { body } });
  await seen("<img src=x onerror=alert(1)> <b>no</b>");
  assert.equal(await page.evaluate(`document.querySelectorAll(".bubble img, .bubble b:not(.quoted b, .voice b)").length`), 0);
  assert.deepEqual(await page.evaluate(`[...document.querySelectorAll(".link")].map((l) => l.textContent)`), ["https://evil.example/login", "evil.dev"]);
  assert.equal(await page.evaluate(`document.querySelector(".bubble pre").textContent`), "rm -rf /");
  assert.equal(await page.evaluate(`document.querySelector(".bubble blockquote strong").textContent`), "askd");
  await shot("injection");
});

test("stickers, voice notes, pictures; a phone that is off; the window", { skip: why }, async () => {
  await click("#attach");
  await shot("tray");
  for (const kind of ["sticker", "voice", "image"]) {
    await click(`[data-send=${kind}]`);
    await page.until(`document.querySelector(".row.out .${kind === "voice" ? "audio" : kind}") !== null`);
  }
  await click("#on");
  await page.until(`!document.getElementById("off").hidden`);
  await sim.send({ to: ADA, type: "text", text: { body: "Are you there?" } });
  await page.until(`document.querySelector(".missing") !== null`);
  await shot("off");
  await click("#on");
  await page.until(`document.querySelector(".missing") === null`);
  await click("#more");
  await click("[data-advance='86400']");
  await page.until(`document.getElementById("window").className.includes("shut")`);
  await sim.send({ to: ADA, type: "text", text: { body: "Too late" } });
  await page.until(`document.querySelector(".why")?.textContent.includes("131047")`);
  await shot("menu");
  await click("#more");
  const parameters = [{ type: "text", text: "research" }];
  await sim.send({ to: ADA, type: "template", template: { name: "q", language: { code: "en_US" }, components: [{ type: "body", parameters }] } });
  await seen("research has a question for you.");
  await page.until(`[...document.querySelectorAll(".tap")].some((t) => t.textContent === "Show it")`);
  await shot("late");
});

test("another person on a wide screen, light and dark", { skip: why }, async () => {
  await page.size(1280, 800);
  await sim.tell({ do: "says", who: "15550002222", text: "Which agents are waiting?" });
  await page.until(`document.querySelectorAll(".people li").length === 2`);
  await click(".people li:nth-child(2) button");
  await seen("Which agents are waiting?");
  const rows = ["JWT tokens", "Session cookies"].map((title, i) => ({ id: `r${i}`, title, description: "The second line of a row" }));
  await sim.send({
    recipient: "US.915550002222", type: "interactive",
    interactive: { type: "list", body: { text: "Which auth strategy?" }, action: { button: "Choose", sections: [{ rows }] } },
  });
  await page.until(`document.querySelectorAll(".tap").length === 2`);
  await shot("wide");
  await page.scheme("dark");
  await click(".people li:nth-child(1) button");
  await seen("research has a question for you.");
  await shot("wide-dark");
});

test("nothing breaks the content policy, nothing throws, nothing sticks out", { skip: why }, async () => {
  await page.size(375, 812);
  const { scrollWidth, scrollHeight } = await page.evaluate(`(({ scrollWidth, scrollHeight }) => ({ scrollWidth, scrollHeight }))(document.documentElement)`);
  assert.deepEqual([scrollWidth, scrollHeight], [375, 812]);
  assert.deepEqual(page.problems, []);
});
