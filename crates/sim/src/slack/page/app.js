// The page of the stand-in: a channel as one person sees it, live. State lives on the server; this only draws it and tells it what is done.
import { block, make, mrkdwn } from './blocks.js';

const $ = (id) => document.getElementById(id);
const params = new URLSearchParams(location.search);
let channel = params.get('channel') ?? '';
let user = params.get('user') ?? '';
let thread = params.get('thread');
let state = null;
let shown = new Map();

async function post(what, fields) {
  const response = await fetch(`page/${what}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ user, channel, ...fields }),
  });
  const answer = await response.json();
  if (answer.error) toast(answer.error);
  return answer;
}

function toast(text) {
  $('toast').textContent = text;
  $('toast').hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => ($('toast').hidden = true), 4000);
}

// Acts go out one after the other, so that what was typed is there when the button is clicked.
let queue = Promise.resolve();
const waiting = new Map();

function send(job) {
  queue = queue.then(job, job);
  return queue;
}

function flush() {
  for (const { timer, job } of waiting.values()) {
    clearTimeout(timer);
    send(job);
  }
  waiting.clear();
}

function confirmed(dialog) {
  if (!dialog) return Promise.resolve(true);
  return new Promise((resolve) => {
    const answer = (yes) => () => {
      $('dialog').close();
      resolve(yes);
    };
    $('dialog').replaceChildren(
      make('h2', {}, dialog.title?.text ?? 'Are you sure?'),
      make('div', { class: 'dialog-text' }, dialog.text.type === 'mrkdwn' ? mrkdwn(dialog.text.text, names()) : dialog.text.text),
      make('div', { class: 'dialog-actions' },
        make('button', { class: 'button', onclick: answer(false) }, dialog.deny?.text ?? 'Cancel'),
        make('button', { class: `button ${dialog.style ?? 'primary'}`, onclick: answer(true) }, dialog.confirm?.text ?? 'OK')),
    );
    $('dialog').oncancel = () => resolve(false);
    $('dialog').showModal();
  });
}

const names = () => Object.fromEntries([...state.users.map((one) => [one.id, one.name]), [state.bot_user, state.app]]);

function context(message) {
  const where = (element, one) => ({ ts: message.ts, block_id: one.block_id, action_id: element.action_id });
  return {
    names: names(),
    values: message.values,
    act: async (element, one, what) => {
      if (!(await confirmed(element.confirm))) return;
      flush();
      send(() => post('act', { ...where(element, one), ...what }));
    },
    type: (element, one, box) => {
      const key = `${message.ts}/${one.block_id}/${element.action_id}`;
      clearTimeout(waiting.get(key)?.timer);
      const job = () => post('act', { ...where(element, one), act: 'type', text: box.value });
      const timer = setTimeout(() => {
        waiting.delete(key);
        send(job);
      }, 200);
      waiting.set(key, { timer, job });
    },
  };
}

const clock = (ts) => new Date(Number(ts) * 1000).toLocaleTimeString([], { hour: 'numeric', minute: '2-digit' });

function avatar(message) {
  const sum = [...message.user].reduce((total, letter) => total + letter.charCodeAt(0), 0);
  return make('div', { class: `avatar ${message.by_app ? 'app' : `c${sum % 5}`}`, 'aria-hidden': true }, (message.name ?? '?')[0].toUpperCase());
}

function draw(message, inThread) {
  const body = make('div', { class: 'body' });
  if (message.only_for) body.append(make('div', { class: 'only-you' }, 'Only visible to you'));
  if (message.in_thread && !inThread) {
    body.append(make('button', { class: 'link', onclick: () => openThread(message.in_thread) }, 'replied to a thread'));
  }
  body.append(make('div', { class: 'byline' },
    make('strong', {}, message.name ?? message.user),
    message.by_app && make('span', { class: 'badge' }, 'APP'),
    make('time', {}, clock(message.ts))));
  const content = make('div', { class: 'content' });
  if (message.by_app && message.blocks?.length) {
    const ctx = context(message);
    content.append(...message.blocks.map((one) => block(one, ctx)));
  } else {
    content.append(make('div', { class: 'block' }, mrkdwn(message.text, names())));
  }
  if (message.edits > 0) content.append(make('span', { class: 'edited' }, '(edited)'));
  body.append(content);
  if (message.warning) body.append(make('div', { class: 'warning', role: 'alert' }, '⚠ ', message.warning));
  if (message.reactions?.length) {
    body.append(make('div', { class: 'reactions' }, ...message.reactions.map((one) => make('span', {}, `:${one.name}: ${one.count}`))));
  }
  if (!inThread && !message.only_for && !message.in_thread) {
    const count = message.reply_count ?? 0;
    const label = count ? `${count} ${count === 1 ? 'reply' : 'replies'}` : 'Reply in thread';
    body.append(make('button', { class: `link ${count ? '' : 'quiet'}`, onclick: () => openThread(message.ts) }, label));
  }
  return make('article', { class: `message ${message.only_for ? 'ephemeral' : ''}`, 'data-ts': message.ts }, avatar(message), body);
}

function fill(list, messages, inThread) {
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  const active = document.activeElement;
  const key = list.contains(active) ? active?.dataset?.key : undefined;
  const nodes = messages.map((message) => {
    const id = `${inThread}/${message.ts}`;
    const { values, ...rest } = message;
    const looks = JSON.stringify([user, rest]);
    const old = shown.get(id);
    const same = old && old.looks === looks;
    const own = same && (old.values === JSON.stringify(values) || old.node.contains(active));
    if (own) return old.node;
    const node = draw(message, inThread);
    shown.set(id, { looks, values: JSON.stringify(values), node });
    return node;
  });
  const unchanged = nodes.length === list.children.length && nodes.every((node, index) => list.children[index] === node);
  if (!unchanged) {
    const caret = active?.selectionStart;
    list.replaceChildren(...nodes);
    const again = key && list.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (again) {
      again.focus();
      if (typeof caret === 'number') again.setSelectionRange(caret, caret);
    }
    if (atEnd) list.scrollTop = list.scrollHeight;
  }
}

function drawWho() {
  const chips = state.users.map((one) => make('label', {},
    make('input', { type: 'radio', name: 'who', value: one.id, checked: one.id === user, onchange: () => go({ user: one.id }) }),
    make('span', {}, one.name)));
  $('who').replaceChildren(make('legend', {}, 'Acting as'), ...chips);
}

function drawChannels() {
  $('channels').replaceChildren(...state.channels.map((one) => make('li', {},
    make('button', { 'aria-current': one.id === channel ? 'page' : undefined, onclick: () => go({ channel: one.id, thread: null }) }, `# ${one.name}`))));
  $('channel-pick').replaceChildren(...state.channels.map((one) => make('option', { value: one.id, selected: one.id === channel }, `# ${one.name}`)));
  const now = state.channels.find((one) => one.id === channel);
  $('title').textContent = now ? `# ${now.name}` : '';
  const way = state.sockets ? `Socket Mode: ${state.sockets} connected` : state.http ? 'Request URL' : 'No app is connected';
  $('mode').textContent = way;
}

function drawView() {
  const view = state.views.at(-1);
  const dialog = $('dialog');
  if (!view) {
    if (dialog.dataset.view) dialog.close();
    delete dialog.dataset.view;
    return;
  }
  if (dialog.dataset.view === view.id) return;
  dialog.dataset.view = view.id;
  const values = {};
  const keep = (element, one, value) => ((values[one.block_id] ??= {})[element.action_id] = { type: element.type, ...value });
  const find = (element, picked) => element.options.filter((entry) => picked.includes(entry.value));
  const ctx = {
    names: names(),
    values: {},
    act: (element, one, what) => {
      if (what.act !== 'choose') return;
      const options = find(element, what.values);
      const many = element.type === 'checkboxes' || element.type === 'multi_static_select';
      keep(element, one, many ? { selected_options: options } : { selected_option: options[0] ?? null });
    },
    type: (element, one, box) => keep(element, one, { value: box.value || null }),
  };
  const close = () => post('view', { view_id: view.id });
  const submit = async (event) => {
    event.preventDefault();
    const { answer } = await post('view', { view_id: view.id, values });
    if (answer?.response_action !== 'errors') return;
    ctx.values = values;
    ctx.errors = answer.errors;
    fillDialog();
  };
  const fillDialog = () => dialog.replaceChildren(make('form', { onsubmit: submit }, make('h2', {}, view.title.text), ...view.blocks.map((one) => block(one, ctx)),
    make('div', { class: 'dialog-actions' },
      make('button', { type: 'button', class: 'button', onclick: close }, view.close?.text ?? 'Cancel'),
      view.submit && make('button', { class: 'button primary' }, view.submit.text))));
  fillDialog();
  dialog.oncancel = close;
  if (!dialog.open) dialog.showModal();
}

function render() {
  drawWho();
  drawChannels();
  const all = state.messages;
  fill($('messages'), all.filter((one) => !one.in_thread || one.broadcast || (one.only_for && !thread)), false);
  $('thread').hidden = !thread;
  document.body.classList.toggle('threaded', Boolean(thread));
  if (thread) fill($('thread-messages'), all.filter((one) => one.ts === thread || one.in_thread === thread), true);
  drawView();
}

async function load() {
  const response = await fetch(`page/state?${new URLSearchParams({ channel, user })}`);
  state = await response.json();
  user ||= state.users[0]?.id ?? '';
  channel ||= state.channels[0]?.id ?? '';
}

let loading = null;
let again = false;
function refresh() {
  if (loading) {
    again = true;
    return loading;
  }
  loading = (async () => {
    do {
      again = false;
      const asked = `${user}/${channel}`;
      await load();
      if (asked !== `${user}/${channel}`) again = true;
      else render();
    } while (again);
    loading = null;
  })();
  return loading;
}

function go(to) {
  flush();
  ({ user, channel, thread } = { user, channel, thread, ...to });
  shown = new Map();
  const query = new URLSearchParams({ channel, user, ...(thread ? { thread } : {}) });
  history.replaceState(null, '', `?${query}`);
  refresh();
}

function openThread(ts) {
  go({ thread: ts });
  $('reply').elements.text.focus();
}

function composer(form, more) {
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const text = form.elements.text.value.trim();
    if (!text) return;
    form.elements.text.value = '';
    await post('say', { text, ...more() });
  });
}

composer($('composer'), () => ({}));
composer($('reply'), () => ({ thread_ts: thread }));
$('close-thread').addEventListener('click', () => go({ thread: null }));
$('channel-pick').addEventListener('change', (event) => go({ channel: event.target.value, thread: null }));
// A page that is out of view holds no connection: a browser has six for one address.
let changes = null;
function follow() {
  changes?.close();
  changes = null;
  if (document.visibilityState !== 'visible') return;
  changes = new EventSource('page/changes');
  changes.addEventListener('message', refresh);
}
document.addEventListener('visibilitychange', follow);
follow();
refresh();
