// Two client libraries of the registry against the stand-in. What they build is accepted; at every limit
// of a message library and stand-in agree, from both sides; and the second library also verifies and reads
// the stand-in's webhooks. The libraries know Meta and not this project.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, beforeEach, test } from "node:test";

import { WhatsAppClient } from "@kapso/whatsapp-cloud-api";
import { WhatsAppAPI } from "whatsapp-api-js";
import * as build from "whatsapp-api-js/messages";

import { start } from "./stand_in.mjs";

const ADA = "15550001111";
let sim, kapso, api, id;

before(async () => {
  const template = { name: "agent_question", language: "en_US", body: "{{1}} has a question", buttons: ["Show it"] };
  sim = await start({ templates: [template], people: [{ wa_id: ADA, name: "Ada" }], pair_every_ms: 0, throughput: 0 });
  id = sim.phone_number_id;
  kapso = new WhatsAppClient({ baseUrl: sim.url, graphVersion: "v25.0", accessToken: sim.token });
  const toStandIn = (url, options) => fetch(String(url).replace("https://graph.facebook.com", sim.url), options);
  api = new WhatsAppAPI({
    token: sim.token, appSecret: sim.app_secret, webhookVerifyToken: sim.verify_token, v: "v25.0", ponyfill: { fetch: toStandIn },
  });
});
after(() => sim?.stop());
beforeEach(() => sim.tell({ do: "says", who: ADA, text: "open" }));

const x = (n) => "x".repeat(n);
const row = (i, more = {}) => ({ id: `r${i}`, title: `Row ${i}`, ...more });
const rows = (n) => Array.from({ length: n }, (_, i) => row(i));
const list = (sections, more = {}) => ({ type: "list", body: { text: "?" }, action: { button: "Choose", sections }, ...more });
const reply = (i, title = `Button ${i}`, key = `b${i}`) => ({ type: "reply", reply: { id: key, title } });
const buttons = (replies, more = {}) => ({ type: "button", body: { text: "?" }, action: { buttons: replies }, ...more });

const ofKapso = {
  text: (body) => kapso.messages.sendText({ phoneNumberId: id, to: ADA, body }),
  interactive: (it) => {
    const common = { phoneNumberId: id, to: ADA, bodyText: it.body.text, footerText: it.footer?.text, header: it.header };
    return it.type === "list"
      ? kapso.messages.sendInteractiveList({ ...common, buttonText: it.action.button, sections: it.action.sections })
      : kapso.messages.sendInteractiveButtons({ ...common, buttons: it.action.buttons.map((b) => b.reply) });
  },
};
const ofApi = {
  text: (body) => api.sendMessage(id, ADA, new build.Text(body)),
  interactive: (it) => {
    const header = it.header && new build.Header(it.header.text);
    const footer = it.footer && new build.Footer(it.footer.text);
    const action = it.type === "list"
      ? new build.ActionList(it.action.button, ...it.action.sections.map((s) => new build.ListSection(s.title, ...s.rows.map((r) => new build.Row(r.id, r.title, r.description)))))
      : new build.ActionButtons(...it.action.buttons.map((b) => new build.Button(b.reply.id, b.reply.title)));
    return api.sendMessage(id, ADA, new build.Interactive(action, new build.Body(it.body.text), header, footer));
  },
};

/** Whether a library's own message arrives; a throw of the library and a refusal of the stand-in are both no. */
async function through(send) {
  try {
    const answer = await send();
    return typeof answer.messages?.[0]?.id === "string";
  } catch {
    return false;
  }
}

// [what, message, whether it is within the limits]
const LIMITS = [
  ["text of 4096", "text", x(4096), true],
  ["text of 4097", "text", x(4097), false],
  ["no text", "text", "", false],
  ["emoji at the limit", "text", "\u{1f600}".repeat(2048), true],
  ["1 button", "interactive", buttons([reply(1)]), true],
  ["3 buttons", "interactive", buttons([1, 2, 3].map((i) => reply(i))), true],
  ["4 buttons", "interactive", buttons([1, 2, 3, 4].map((i) => reply(i))), false],
  ["button title of 20", "interactive", buttons([reply(1, x(20))]), true],
  ["button title of 21", "interactive", buttons([reply(1, x(21))]), false],
  ["button id of 256", "interactive", buttons([reply(1, "a", x(256))]), true],
  ["button id of 257", "interactive", buttons([reply(1, "a", x(257))]), false],
  ["same button id twice", "interactive", buttons([reply(1, "a", "k"), reply(2, "b", "k")]), false],
  ["same button title twice", "interactive", buttons([reply(1, "a"), reply(2, "a")]), false],
  ["body of 1024", "interactive", buttons([reply(1)], { body: { text: x(1024) } }), true],
  ["body of 1025", "interactive", buttons([reply(1)], { body: { text: x(1025) } }), false],
  ["footer of 60", "interactive", buttons([reply(1)], { footer: { text: x(60) } }), true],
  ["footer of 61", "interactive", buttons([reply(1)], { footer: { text: x(61) } }), false],
  ["header of 60", "interactive", buttons([reply(1)], { header: { type: "text", text: x(60) } }), true],
  ["header of 61", "interactive", buttons([reply(1)], { header: { type: "text", text: x(61) } }), false],
  ["10 rows", "interactive", list([{ title: "All", rows: rows(10) }]), true],
  ["11 rows", "interactive", list([{ title: "All", rows: rows(11) }]), false],
  ["2 sections with titles", "interactive", list([{ title: "A", rows: [row(1)] }, { title: "B", rows: [row(2)] }]), true],
  ["section title of 24", "interactive", list([{ title: x(24), rows: [row(1)] }]), true],
  ["section title of 25", "interactive", list([{ title: x(25), rows: [row(1)] }]), false],
  ["row title of 24", "interactive", list([{ title: "A", rows: [row(1, { title: x(24) })] }]), true],
  ["row title of 25", "interactive", list([{ title: "A", rows: [row(1, { title: x(25) })] }]), false],
  ["row id of 200", "interactive", list([{ title: "A", rows: [row(1, { id: x(200) })] }]), true],
  ["row id of 201", "interactive", list([{ title: "A", rows: [row(1, { id: x(201) })] }]), false],
  ["row description of 72", "interactive", list([{ title: "A", rows: [row(1, { description: x(72) })] }]), true],
  ["row description of 73", "interactive", list([{ title: "A", rows: [row(1, { description: x(73) })] }]), false],
  ["list button of 20", "interactive", list([{ title: "A", rows: [row(1)] }], { action: { button: x(20), sections: [{ title: "A", rows: [row(1)] }] } }), true],
  ["list button of 21", "interactive", list([{ title: "A", rows: [row(1)] }], { action: { button: x(21), sections: [{ title: "A", rows: [row(1)] }] } }), false],
];

// What askd itself sends.
const CARDS = new URL("../../../docs/cards/", import.meta.url);
for (const name of readdirSync(CARDS).filter((name) => name.startsWith("whatsapp-"))) {
  LIMITS.push([name, "interactive", JSON.parse(readFileSync(new URL(name, CARDS))), true]);
}

for (const [what, type, message, within] of LIMITS) {
  test(`limit: ${what} is ${within ? "taken" : "refused"}`, async () => {
    const raw = await sim.send({ to: ADA, type, [type]: type === "text" ? { body: message } : message });
    assert.equal(raw.error === undefined, within, JSON.stringify(raw));
    if (!within) assert.equal(raw.error.code, 100);
    if (within) {
      assert.ok(await through(() => ofKapso[type](message)), "kapso's message is accepted");
      assert.ok(await through(() => ofApi[type](message)), "whatsapp-api-js's message is accepted");
    } else {
      const [one, other] = [await through(() => ofKapso[type](message)), await through(() => ofApi[type](message))];
      assert.deepEqual([one, other], [false, false]);
    }
  });
}

test("templates of both, and a refusal for one that was never approved", async () => {
  const [body, payload] = [new build.BodyComponent(new build.BodyParameter("research")), new build.PayloadComponent("k7")];
  const one = await api.sendMessage(id, ADA, new build.Template("agent_question", "en_US", body, payload), undefined, "tok-1");
  assert.match(one.messages[0].id, /^wamid\./);
  const components = [{ type: "body", parameters: [{ type: "text", text: "research" }] }];
  const template = { name: "agent_question", language: { code: "en_US" }, components };
  const two = await kapso.messages.sendTemplate({ phoneNumberId: id, to: ADA, template });
  assert.equal(two.contacts[0].waId ?? two.contacts[0].wa_id, ADA);
  const unknown = await api.sendMessage(id, ADA, new build.Template("other", "en_US"));
  assert.equal(unknown.error.code, 132001);
  const kept = (await sim.list("messages")).find((m) => m.id === one.messages[0].id);
  assert.deepEqual([kept.text, kept.taps[0].id, kept.opaque], ["research has a question", "k7", "tok-1"]);
});

test("errors are read by kapso as what they are", async () => {
  for (const [code, retry] of [[131056, "retry_after"], [130429, "retry_after"], [190, "refresh_token"], [131031, "do_not_retry"]]) {
    await sim.tell({ do: "fault", fault: { code }, times: 1 });
    const error = await ofKapso.text("x").then(() => null, (e) => e);
    assert.equal(error?.code, code);
    assert.equal(typeof error.fbtraceId, "string", String(Object.keys(error)));
    assert.equal(error.retry?.action, retry, String(code));
  }
});

test("marking as read", async () => {
  const said = await sim.tell({ do: "says", who: ADA, text: "see this" });
  assert.deepEqual(await api.markAsRead(id, said.id, "text"), { success: true });
  assert.equal((await kapso.messages.markRead({ phoneNumberId: id, messageId: said.id })).success, true);
});

test("whatsapp-api-js verifies and reads the webhooks", async () => {
  const seen = [];
  api.on.message = ({ message, from, name, user_id }) => { seen.push({ message, from, name, user_id }); };
  api.on.status = ({ status, id: of, biz_opaque_callback_data, error }) => { seen.push({ status, of, opaque: biz_opaque_callback_data, error }); };
  const hook = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const url = new URL(request.url, sim.url);
    try {
      if (request.method === "GET") {
        response.end(api.get(Object.fromEntries(url.searchParams)));
      } else {
        const raw = Buffer.concat(chunks).toString();
        await api.post(JSON.parse(raw), raw, request.headers["x-hub-signature-256"]);
        response.end();
      }
    } catch (error) {
      response.statusCode = 403;
      response.end(String(error));
    }
  });
  await new Promise((done) => hook.listen(0, "127.0.0.1", done));
  const until = async (like) => {
    for (let i = 0; i < 400; i++) {
      const found = seen.find(like);
      if (found) return found;
      await new Promise((done) => setTimeout(done, 10));
    }
    throw new Error(`never came; ${JSON.stringify(seen)}; ${JSON.stringify((await sim.list("webhooks")).slice(-3))}`);
  };
  try {
    await sim.tell({ do: "webhook", url: `http://127.0.0.1:${hook.address().port}/` });
    await sim.tell({ do: "handshake" });
    const text = "naïve 🤔 a/b <b> 5% me@x";
    await sim.tell({ do: "says", who: ADA, text });
    const said = await until((s) => s.message?.text?.body === text);
    assert.deepEqual([said.from, said.name], [ADA, "Ada"]);
    const sent = await api.sendMessage(id, ADA, new build.Text("hi"), undefined, "tok-2");
    const status = await until((s) => s.of === sent.messages[0].id && s.status === "delivered");
    assert.equal(status.opaque, "tok-2");
    await sim.tell({ do: "reachable", who: "15550009999", on: false });
    const lost = await api.sendMessage(id, "15550009999", new build.Text("hi"));
    assert.equal((await until((s) => s.of === lost.messages[0].id)).error.code, 131026);
  } finally {
    await sim.tell({ do: "webhook", url: null });
    hook.close();
  }
});
