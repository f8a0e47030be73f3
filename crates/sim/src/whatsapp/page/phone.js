// The phone: shows one person's chat and does what a thumb does. All state is the stand-in's; this page
// only asks for it again whenever the stream says that something changed.
import { show } from "./markup.js";

const $ = (id) => document.getElementById(id);
const make = (tag, className, ...children) => {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
};
const NAMES = { sticker: "Sticker", audio: "Voice note", image: "Picture", unsupported: "Poll", reaction: "Reaction" };
const TICKS = { accepted: "◷", sent: "✓", delivered: "✓✓", read: "✓✓", failed: "!" };

let all = { chats: [], now: 0 };
let who = location.hash.slice(1);
let quoting = null;
let drawn = "";
let atEnd = true;

const chat = () => all.chats.find((c) => c.person.wa_id === who);
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
const preview = (m) => m.text || NAMES[m.kind] || m.kind;

async function tell(order) {
  const answer = await fetch("control", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(order),
  });
  return answer.json();
}

// --- looking

let looking = false, again = false;
async function look() {
  if (looking) { again = true; return; }
  looking = true;
  try {
    all = await (await fetch("control/chats")).json();
    if (!chat()) who = all.chats[0]?.person.wa_id ?? "";
    const messages = who ? await (await fetch(`control/messages?who=${who}`)).json() : [];
    draw(messages);
    const here = document.visibilityState === "visible" && chat()?.phone_on;
    if (here && messages.some((m) => m.outgoing && m.stage === "delivered")) tell({ do: "opens", who });
  } finally {
    looking = false;
    if (again) { again = false; look(); }
  }
}

function draw(messages) {
  const state = JSON.stringify([who, messages, all.chats, all.business]);
  if (state === drawn) return;
  drawn = state;
  drawPeople();
  drawBar();
  const list = $("chat");
  const typing = chat()?.typing ? [make("li", "row in", make("div", "bubble dots", make("i", ""), make("i", ""), make("i", "")))] : [];
  const known = new Map(messages.map((m) => [m.id, m]));
  const shownOnes = messages.filter((m) => m.kind !== "reaction");
  const rows = shownOnes.map((m) => row(m, known));
  // Else nobody sees why a chat begins with the person's own message.
  if (rows.length > 0 && !shownOnes[0].outgoing) rows.splice(1, 0, make("li", "notice", "WhatsApp lets a business write only within 24 hours after you wrote."));
  list.replaceChildren(...rows, ...typing);
  if (shownOnes.length === 0) list.append(make("li", "notice", who ? "Nothing yet. Say hello." : "Nobody here yet. Add a person in the menu ⋮"));
  toEnd();
}

/** Stays at the newest message while the person is there. */
function toEnd(really = atEnd) {
  atEnd = really;
  if (really) $("chat").scrollTop = $("chat").scrollHeight;
}

function drawPeople() {
  $("people").replaceChildren(...all.chats.map((c) => {
    const button = make("button", c.person.wa_id === who ? "here" : "",
      face(c.person.name, c.person.wa_id),
      make("span", "name", c.person.name || c.person.wa_id),
      make("span", "last", c.last ? preview(c.last) : c.person.number_hidden ? `@${c.person.username ?? "hidden"}` : `+${c.person.wa_id}`),
      ...(c.unread ? [make("span", "unread", String(c.unread))] : []),
      ...(c.phone_on ? [] : [make("span", "dark", "off")]));
    button.type = "button";
    button.onclick = () => go(c.person.wa_id);
    return make("li", "", button);
  }));
  $("who").replaceChildren(...all.chats.map((c) => {
    const option = make("option", "", `${c.person.name} (${c.person.number_hidden ? "number hidden" : `+${c.person.wa_id}`})`);
    option.value = c.person.wa_id;
    option.selected = c.person.wa_id === who;
    return option;
  }));
}

function drawBar() {
  const c = chat();
  $("face").replaceWith(Object.assign(face(all.business ?? "?", all.number ?? ""), { id: "face" }));
  $("business").textContent = all.business ?? "";
  $("state").textContent = c?.typing ? "typing…" : c ? `${c.person.name}’s phone` : "business account";
  $("on").checked = c?.phone_on ?? false;
  $("on").disabled = !c;
  $("off").hidden = !c || c.phone_on;
  document.querySelector(".phone").classList.toggle("dead", Boolean(c) && !c.phone_on);
  const open = c?.window_open;
  $("window").textContent = open ? `24-hour window open until ${new Date(c.window_until).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" })}`
    : "24-hour window closed: only templates get through until this person writes";
  $("window").classList.toggle("shut", !open);
}

function face(name, key) {
  const sum = [...key].reduce((n, ch) => (n * 31 + ch.codePointAt(0)) % 6, 3);
  return make("span", `face c${sum}`, [...(name || "?")][0].toUpperCase());
}

// --- one bubble

function row(m, known) {
  const missing = m.outgoing && !["delivered", "read"].includes(m.stage);
  const item = make("li", `row ${m.outgoing ? "in" : "out"}${missing ? " missing" : ""}`);
  const bubble = make("div", `bubble ${m.kind}`);
  if (m.quotes) {
    const q = known.get(m.quotes);
    bubble.append(make("div", "quoted", make("b", "", q && !q.outgoing ? "You" : all.business), q ? preview(q) : "A message that is not here"));
  }
  bubble.append(body(m), foot(m));
  if (m.reaction) bubble.append(make("span", "reaction", m.reaction));
  item.append(bubble);
  if (m.outgoing && !missing) {
    item.append(...m.taps.map((t) => tap(m, t)));
    item.append(thumb(m));
  }
  return item;
}

function glyph(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("class", "glyph");
  svg.append(use);
  return svg;
}

function body(m) {
  if (m.kind === "sticker") return make("div", "big", glyph("sticker"));
  if (m.kind === "audio") return make("div", "voice", make("b", "", "▶"), make("i", "wave"), "0:03");
  if (m.kind === "unsupported") return make("div", "body poll", glyph("unsupported"), "Poll");
  const text = make("div", "body");
  if (m.kind === "image") text.append(make("div", "picture", glyph("image")));
  text.append(m.outgoing || m.kind === "text" ? show(m.text) : m.text);
  if (m.list_label) text.append(make("div", "listlabel", `☰ ${m.list_label}`));
  return text;
}

function foot(m) {
  const ticks = make("span", `ticks ${m.stage}`, m.outgoing || m.stage === "accepted" ? TICKS[m.stage] : TICKS.delivered);
  ticks.title = m.outgoing ? `The business was told: ${m.stage}` : m.stage === "read" ? "Read by the business" : m.stage === "accepted" ? "Waits for the phone" : "Sent";
  const foot = make("div", "foot", clock(m.at), " ", ticks);
  if (m.stage === "failed") foot.prepend(make("span", "why", `not delivered, ${m.error} · `));
  else if (m.outgoing && !["delivered", "read"].includes(m.stage)) foot.prepend(make("span", "why", "not on this phone yet · "));
  return foot;
}

function tap(m, t) {
  const button = make("button", "tap", make("span", "", t.title), ...(t.description ? [make("small", "", t.description)] : []));
  button.type = "button";
  button.onclick = () => tell({ do: "tap", who, on: m.id, id: t.id });
  return button;
}

function thumb(m) {
  const reply = make("button", "act", "↩ Reply");
  reply.onclick = () => quote(m);
  const emoji = m.reaction ? "" : "👍";
  const react = make("button", "act", m.reaction ? "Take back" : "React");
  react.setAttribute("aria-label", m.reaction ? "Take the reaction back" : "React with thumbs up");
  react.onclick = () => tell({ do: "reaction", who, on: m.id, emoji });
  reply.type = react.type = "button";
  return make("div", "acts", reply, react);
}

// --- doing

function go(wa_id) {
  who = wa_id;
  history.replaceState(null, "", `#${who}`);
  quote(null);
  toEnd(true);
  look();
}

function quote(m) {
  quoting = m?.id ?? null;
  $("quote").hidden = !m;
  $("quotewho").textContent = m ? all.business : "";
  $("quotetext").textContent = m ? preview(m) : "";
  if (m) $("text").focus();
}

function fold(button, panel, open = panel.hidden) {
  panel.hidden = !open;
  button.setAttribute("aria-expanded", String(open));
}

async function send(order) {
  if (!who) return;
  const quotes = quoting ? { quotes: quoting } : {};
  quote(null);
  fold($("attach"), $("tray"), false);
  toEnd(true);
  await tell({ who, ...order, ...(order.do === "unsupported" ? {} : quotes) });
}

function grow() {
  $("text").rows = Math.min(5, $("text").value.split("\n").length);
}

$("composer").onsubmit = (event) => {
  event.preventDefault();
  const text = $("text").value;
  if (text.trim() === "") return;
  $("text").value = "";
  grow();
  send({ do: "says", text });
};
$("text").oninput = grow;
$("text").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  }
};
$("attach").onclick = () => fold($("attach"), $("tray"));
$("more").onclick = () => fold($("more"), $("menu"));
$("unquote").onclick = () => quote(null);
$("on").onchange = () => tell({ do: "phone", who, on: $("on").checked });
$("who").onchange = () => { go($("who").value); fold($("more"), $("menu"), false); };
document.querySelectorAll("[data-send]").forEach((b) => { b.onclick = () => send({ do: b.dataset.send }); });
document.querySelectorAll("[data-advance]").forEach((b) => { b.onclick = () => tell({ do: "advance", seconds: Number(b.dataset.advance) }); });
$("newcomer").onsubmit = async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const hidden = form.has("hidden");
  const person = { wa_id: form.get("wa_id"), name: form.get("name"), number_hidden: hidden, username: hidden ? form.get("name").toLowerCase() : null };
  await tell({ do: "person", ...person });
  event.target.reset();
  fold($("more"), $("menu"), false);
  go(person.wa_id);
};
$("chat").onscroll = () => { atEnd = $("chat").scrollHeight - $("chat").scrollTop - $("chat").clientHeight < 80; };
new ResizeObserver(() => toEnd()).observe($("chat"));

// A page that is out of view holds no connection: a browser has six for one address.
let live = null;
function follow() {
  live?.close();
  live = null;
  if (document.visibilityState !== "visible") return;
  live = new EventSource("live");
  live.onmessage = look;
}
document.addEventListener("visibilitychange", follow);
follow();
look();
