// Speaks the daemon's HTTP API and keeps the inbox token. askd itself deliberately uses no cookie: a token in a header cannot
// be sent by another site's page, and localStorage is kept apart per port, which cookies are not. A proxy that signs people in
// may need the cookie or the password that it has given the browser, so calls carry them.

const TOKEN_KEY = 'askd.token';
const SIGNED_OUT_KEY = 'askd.signed-out';

// A call that hangs longer than this has failed as far as the person in front of it is concerned.
const CALL_LIMIT_MS = 20000;

let token = null;
let verified = false;
// Whom the daemon takes this page for.
let name = null;

// What went wrong, in a sentence for people. `status` is 0 when there was no reply at all.
export class Problem extends Error {
  constructor(status, detail, ask = null, isOurs = false) {
    super(detail);
    this.status = status;
    this.ask = ask;
    // askd itself says so, and no proxy before it.
    this.isOurs = isOurs;
  }
}

function remembered() {
  try {
    return localStorage.getItem(TOKEN_KEY);
  } catch {
    return null;
  }
}

function remember(value) {
  try {
    if (value === null) localStorage.removeItem(TOKEN_KEY);
    else localStorage.setItem(TOKEN_KEY, value);
  } catch {
    // Storage is switched off: the token then lasts as long as this page.
  }
}

// Takes a bare token or a whole link. Returns whether there was one that can stand in a header.
export function useToken(entered) {
  const candidate = (/[#&]token=([^&\s]+)/.exec(entered)?.[1] ?? entered).trim();
  if (!/^[\x21-\x7e]+$/.test(candidate)) return false;
  token = candidate;
  verified = false;
  return true;
}

// Returns whether there is a token to try. The fragment goes at once, so that the token stays in no history or bookmark.
export function findToken() {
  const { hash, pathname, search } = window.location;
  const linked = hash.includes('token=');
  if (linked) window.history.replaceState(null, '', pathname + search);
  return (linked && useToken(hash)) || useToken(remembered() ?? '');
}

// Other tabs are told, too. A token that was refused tells them nothing: each keeps what was typed in it until somebody signs in.
export function forgetToken() {
  token = null;
  verified = false;
  remember(null);
  try {
    localStorage.setItem(SIGNED_OUT_KEY, `${Date.now()}`);
  } catch {
    // Storage is switched off: no other tab has the token either.
  }
}

// An outdated link must not lock out a browser whose kept token is good. Returns whether there is another one to try.
export function tryRememberedToken() {
  const kept = remembered();
  if (kept === null) return false;
  if (kept !== token) return useToken(kept);
  remember(null);
  return false;
}

export function onForgottenElsewhere(react) {
  window.addEventListener('storage', (event) => {
    if (token !== null && (event.key === SIGNED_OUT_KEY || event.key === null)) react();
  });
}

// Takes the token that another tab has proved good, where this one `wants` it.
export function onSignedInElsewhere(wants, react) {
  window.addEventListener('storage', ({ key, newValue }) => {
    if (key === TOKEN_KEY && newValue !== null && wants() && useToken(newValue)) react();
  });
}

// The raw reply; rejects only if there is none. A token is kept once it has proved good.
export async function request(path, options = {}) {
  const used = token;
  // Without a token a proxy may say who calls.
  const headers = { ...options.headers, ...(used === null ? {} : { authorization: `Bearer ${used}` }) };
  // Under a policy that sends no referrer some browsers state `Origin: null`, which the daemon refuses as another site's.
  const always = { cache: 'no-store', credentials: 'same-origin', redirect: 'error', referrerPolicy: 'same-origin' };
  const reply = await fetch(path, { ...options, ...always, headers });
  if (reply.ok && used !== null && used === token && !verified) {
    verified = true;
    remember(used);
  }
  return reply;
}

export async function problemOf(reply) {
  const body = await reply.json().catch(() => ({}));
  return new Problem(reply.status, body.detail || body.title || `askd replied with status ${reply.status}.`, body.ask ?? null, Boolean(body.detail));
}

async function call(path, options = {}) {
  let reply;
  try {
    reply = await request(path, { ...options, signal: AbortSignal.timeout(CALL_LIMIT_MS) });
    if (reply.ok) return { reply, body: reply.status === 204 ? null : await reply.json() };
  } catch {
    throw new Problem(0, "Couldn't reach askd.");
  }
  throw await problemOf(reply);
}

const post = async (path, body) =>
  (await call(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ ...body, by: 'web' }) })).body;

const askPath = (id, verb) => `api/v1/asks/${encodeURIComponent(id)}/${verb}`;

// Asks that are read at a time: the most that a page may hold.
const PAGE = 1000;
// Of the first page, so that there is soon something to answer.
const FIRST_PAGE = 100;

// One page of a list: `{ asks, total, next, date }`; `date` is the daemon's clock as its reply states it.
export async function listPage(query, after) {
  const { reply, body } = await call(`api/v1/asks?${query}${after === undefined ? '' : `&after=${encodeURIComponent(after)}`}`);
  return { ...body, date: reply.headers.get('date') };
}

// All open asks, and the first of the settled ones: those that need attention, and the newest. What moves meanwhile may
// come twice.
export async function* listAsks() {
  for (let next = null; next !== undefined;) {
    const page = await listPage(`state=open&limit=${next === null ? FIRST_PAGE : PAGE}`, next ?? undefined);
    next = page.next;
    yield page;
  }
  for (let next = null, left = PAGE; next !== undefined && left > 0;) {
    const page = await listPage(`state=settled&limit=${left}`, next ?? undefined);
    [next, left] = [page.next, left - page.asks.length];
    yield page;
  }
}

// Who this page speaks for: `{ name, groups, push_key }`; no name if nobody is let in without a token.
export async function whoAmI() {
  const { body } = await call('api/v1/me');
  name = body.name;
  return body;
}

// The name under which this page's answers are recorded; `null` until the daemon has told it.
export const ownName = () => name;

// Whether this page signs in by itself, and no proxy in front of askd does it.
export const hasToken = () => token !== null;

// What tells the pages of one person from those of another.
export const caller = () => token ?? name;

export const status = async () => (await call('api/v1/status')).body;

export const trailOf = async (id) => (await call(`api/v1/asks/${encodeURIComponent(id)}/trail`)).body.trail;

// The token rides in a header, so a plain link could not fetch it.
export async function download(path, name) {
  const reply = await request(path);
  if (!reply.ok) throw await problemOf(reply);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await reply.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// A push subscription of this browser, as the browser states it.
const device = (method, body) => call('api/v1/push', { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
export const addDevice = (subscription) => device('POST', subscription);
export const dropDevice = (endpoint) => device('DELETE', { endpoint });

export const oneAsk = async (name) => (await call(`api/v1/asks/${encodeURIComponent(name)}`)).body;
export const answerAsk = (id, answers) => post(askPath(id, 'answer'), { answers });
export const dismissAsk = (id) => post(askPath(id, 'dismiss'), {});
export const allowAgain = (id) => post(askPath(id, 'reset'), {});
export const reportTyping = (id) => post(askPath(id, 'typing'), {});
export const reportShown = (id) => post(askPath(id, 'shown'), {});
