// The inbox page: signs in, keeps the two lists true to the daemon, and brings new questions forward. It deliberately
// decides nothing about an ask: which answers fit, who was first and when time is up is the daemon's to say.

import { findToken, forgetToken, hasToken, listAsks, onForgottenElsewhere, onSignedInElsewhere, oneAsk, ownName, whoAmI, Problem, reportShown, tryRememberedToken, useToken } from './api.js';
import { blockedItem, isBlocked } from './blocked.js';
import { openCard } from './card.js';
import { byId, el } from './dom.js';
import { draftOf, draftsOwner, forgetDrafts } from './drafts.js';
import { setUpHealth } from './health.js';
import { setUpHistory } from './history.js';
import { setUpKeys } from './keys.js';
import { openList } from './list.js';
import { connection } from './live.js';
import { watchMoves } from './moves.js';
import { allowPush, announce, setTitle, setUpSwitches, tell, untell, untellAll } from './notify.js';
import { startWorker, unsubscribe } from './push.js';
import { settledItem } from './settled.js';
import { clockTime, endedHow, isLate, noteOf, outcomeOf, setClock } from './words.js';

const SETTLED_AT_ONCE = 30;
const LATE_AT_ONCE = 5;
// The history has the others: a page that is open for days does not grow.
const MOST_SETTLED = 1000;
const BACK_NOTICE_MS = 4000;
// How soon a list is asked for again that askd could not read.
const REREAD_MS = 3000;

// A first connection that takes longer than this is worth a line; a shorter one would only flicker.
const SLOW_MS = 700;

// So long after something has moved under the pointer, a click on it is not taken if it would end an ask at once.
const MOVE_GUARD_MS = 400;

// Somebody who pressed or typed something this recently is busy: the page then does not scroll by itself.
const BUSY_MS = 5000;

const asks = new Map();
const cards = new Map();
const items = new Map();
const blocks = new Map();
let loaded = false;
let settledLimit = SETTLED_AT_ONCE;
let lateLimit = LATE_AT_ONCE;
let listing = null;
let rereading = null;
let linked = null;
let lastInput = -Infinity;

// ---- What is displayed is reported, once per page, ask and channel

// A card is in view if at least half of it is inside the window; one that is higher than two windows never is, so it
// has to fill half of the window.
const HALF = 0.5;
const isInView = (ratio, height) => ratio >= HALF || height >= window.innerHeight * HALF;

function isItemInView(id) {
  const box = list.box(id);
  if (!box || document.visibilityState !== 'visible') return false;
  const height = Math.min(box.bottom, window.innerHeight) - Math.max(box.top, 0);
  return isInView(height / box.height, height);
}

const inView = new Set();
const reported = new Set();
const viewer = new IntersectionObserver((entries) => {
  for (const { target, intersectionRatio, intersectionRect } of entries) {
    if (isInView(intersectionRatio, intersectionRect.height)) inView.add(target.dataset.ask);
    else inView.delete(target.dataset.ask);
  }
  report();
}, { threshold: Array.from({ length: 21 }, (_, step) => step / 20) });

function report() {
  if (document.visibilityState !== 'visible') return;
  for (const id of inView) {
    // On another channel it is to be proven anew.
    const key = `${id} ${asks.get(id)?.channel}`;
    if (reported.has(key) || asks.get(id)?.state !== 'open') continue;
    reported.add(key);
    reportShown(id).catch(({ status }) => {
      // Not worth a word to the person; without a reply it is sent again once the connection is back.
      if (status === 0 || status >= 500) reported.delete(key);
    });
  }
}
document.addEventListener('visibilitychange', report);

// ---- The lists

const moves = watchMoves();

const isOpen = (ask) => ask.state === 'open';
const isGone = (ask) => ask?.outcome?.status === 'gone';

// How far an ask is in its life, which goes one way only: open, timed out but still answerable, over, answered after that.
function progress(ask) {
  if (isOpen(ask)) return 0;
  if (isLate(ask)) return 1;
  return ask.late ? 3 : 2;
}

function makeCard(ask) {
  const card = openCard(ask, { settled: whenSettled, unreached: whenUnreached });
  cards.set(ask.id, card);
  if (!isOpen(ask) && !isLate(ask)) card.settledElsewhere(ask);
  return card;
}

function dropCard(id) {
  cards.get(id)?.element.remove();
  cards.delete(id);
}

function whenOver(ids) {
  for (const id of ids) inView.delete(id);
  show();
}

const list = openList({ cards, open: makeCard, drop: dropCard, over: whenOver, watch: viewer, inView: isItemInView });

// Takes an ask off the page. Returns what comes in its place: the id of an open one, or an element.
function removeCard(id) {
  const element = cards.get(id)?.element;
  const sibling = element?.nextElementSibling ?? element?.previousElementSibling;
  const listed = list.has(id);
  const next = list.remove(id);
  inView.delete(id);
  dropCard(id);
  return listed ? next : sibling;
}

// One that timed out goes to the others of its kind, newest first; one that is in use stays where it is.
function addLateCard(ask) {
  const card = makeCard(ask);
  card.element.dataset.ask = ask.id;
  const older = [...byId('late').children].find(({ dataset }) => asks.get(dataset.ask)?.outcome.at < ask.outcome.at);
  byId('late').insertBefore(card.element, older ?? null);
}

function whenSettled(ask, { here, focused }) {
  const next = removeCard(ask.id);
  const known = asks.get(ask.id);
  if (isGone(ask) && known && isOpen(known)) list.take(known);
  // What the stream has said meanwhile is newer than the reply to our own call.
  else if (!known || progress(ask) > progress(known)) asks.set(ask.id, ask);
  show();
  const waiting = openCount();
  if (here) announce(`${endedHow(outcomeOf(ask))} ${waiting === 0 ? 'Nothing else waits for an answer.' : `${waiting} more waiting.`}`);
  if (!focused) return;
  if (list.has(next)) list.focus(next);
  else (next ?? byId('waiting-title')).focus({ preventScroll: true });
}

function whenUnreached({ status, message }) {
  if (status === 401) denied(message);
  else link.fail();
}

// Takes one ask as the daemon states it. Returns whether it is news to be told.
function take(ask) {
  const known = asks.get(ask.id);
  // What this person may see again was only gone from here.
  const wasGone = isGone(known);
  const before = wasGone ? undefined : known;
  // Nothing goes back: a list that was on its way meanwhile can only be older. Neither does the end of a block.
  if (before && progress(ask) < progress(before)) return false;
  if (before?.block && (before.block.times > ask.block.times || (!isBlocked(before) && isBlocked(ask)))) return false;
  asks.set(ask.id, ask);
  const card = cards.get(ask.id);
  if (isOpen(ask)) {
    // Its card says that it is over; another one takes its place, with what was typed.
    if (wasGone && card && !card.isOpen()) dropCard(ask.id);
    list.take(ask);
    return loaded && (!before || (ask.attempt > before.attempt && !ask.viewed));
  }
  untell(ask.id);
  const note = noteOf(ask);
  const newNote = note !== null && note !== noteOf(before ?? ask);
  // It ended while no page was open, and what was typed was not sent.
  if (!card && !loaded && !isBlocked(ask) && !isLate(ask) && draftOf(ask.id)) {
    list.take(ask);
    return false;
  }
  if (!card && list.has(ask.id)) {
    // Its card says so once it is opened, with what was typed.
    if (draftOf(ask.id) && !isBlocked(ask) && !isLate(ask)) list.end(ask);
    else removeCard(ask.id);
  }
  if (!card) {
    if (newNote) announce(`${ask.group}, ${ask.short_id}: ${note}`);
    return false;
  }
  const timedOut = isLate(ask) && !isLate(before);
  if (!card.settledElsewhere(ask)) {
    removeCard(ask.id);
    announce(`${endedHow(outcomeOf(ask))} ${note ?? ''}`.trim());
  } else {
    list.end(ask);
    if (timedOut) announce(`${endedHow(ask.outcome)} ${note ?? ''}`);
  }
  return false;
}

const takePage = (page, newer) => page.filter((ask) => !newer.has(ask.id) && take(ask));

// The whole list has been read: what it did not name is gone.
function dropAbsent(present, newer) {
  for (const [id, ask] of asks) {
    if (present.has(id) || newer.has(id)) continue;
    if (isOpen(ask)) take({ ...ask, state: 'settled', outcome: unknownOutcome() });
    else if (isLate(ask) && cards.has(id) && !cards.get(id).isInUse()) {
      removeCard(id);
      asks.delete(id);
    } else if (!cards.has(id)) asks.delete(id);
  }
}

// askd no longer shows an ask that was open here, for example because its state folder was replaced, or this person sees other groups.
const unknownOutcome = () => ({ status: 'gone', reason: 'gone', answers: {}, details: [], by: null, at: new Date().toISOString(), line: 'askd no longer shows you this question.' });

// Questions that were asked too often stand by themselves as long as they are blocked.
function showBlocked() {
  for (const [id, block] of blocks) {
    if (asks.has(id) && isBlocked(asks.get(id))) continue;
    const next = block.element.nextElementSibling ?? block.element.previousElementSibling;
    const focused = block.focused();
    block.element.remove();
    blocks.delete(id);
    if (focused) (next ?? byId('waiting-title')).focus({ preventScroll: true });
  }
  const standing = [...asks.values()].filter(isBlocked).sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
  for (const ask of standing) {
    if (blocks.has(ask.id)) blocks.get(ask.id).update(ask);
    else {
      const block = blockedItem(ask, { allowed: whenAllowed, unreached: whenUnreached });
      blocks.set(ask.id, block);
      byId('blocked').append(block.element);
      if (loaded) announce(`${ask.group} asked a question too often. It is blocked until you allow it again.`);
    }
  }
  byId('blocked-section').hidden = blocks.size === 0;
}

function whenAllowed(ask, { focused }) {
  take(ask);
  const block = blocks.get(ask.id);
  // The button that had the focus goes away.
  if (focused && block) block.element.focus({ preventScroll: true });
  show();
  announce('Unblocked. The agent can ask again.');
}

const openCount = () => [...asks.values()].filter(isOpen).length;

function showSettled() {
  const over = [...asks.values()].filter((ask) => !isOpen(ask) && !isLate(ask) && !isBlocked(ask) && !cards.has(ask.id)).sort((a, b) => (outcomeOf(a).at < outcomeOf(b).at ? 1 : -1));
  for (const { id } of over.slice(MOST_SETTLED)) asks.delete(id);
  const wanted = over.filter(({ id }, index) => index < settledLimit || id === linked);
  const keep = new Set(wanted.map(({ id }) => id));
  for (const [id, item] of items) {
    if (keep.has(id)) continue;
    item.element.remove();
    items.delete(id);
  }
  let place = byId('settled').firstElementChild;
  for (const ask of wanted) {
    let item = items.get(ask.id);
    if (item && item.from !== ask && !item.update(ask)) {
      if (place === item.element) place = place.nextElementSibling;
      item.element.remove();
      item = null;
    }
    if (item) item.from = ask;
    else {
      item = { ...settledItem(ask), from: ask };
      items.set(ask.id, item);
    }
    if (place === item.element) place = place.nextElementSibling;
    else byId('settled').insertBefore(item.element, place);
  }
  byId('settled-section').hidden = over.length === 0;
  byId('more').hidden = over.length <= settledLimit;
}

function showLate() {
  const late = [...asks.values()].filter(isLate).sort((a, b) => (a.outcome.at < b.outcome.at ? 1 : -1));
  for (const ask of late.slice(0, lateLimit)) {
    if (!cards.has(ask.id)) addLateCard(ask);
  }
  const listed = late.filter(({ id }) => !list.has(id));
  byId('late-count').textContent = listed.length > 0 ? `${listed.length}` : '';
  byId('late-section').hidden = listed.length === 0 && byId('late').childElementCount === 0;
  byId('more-late').hidden = late.every(({ id }) => cards.has(id));
}

function show() {
  const waiting = openCount();
  setTitle(waiting);
  byId('waiting-count').textContent = waiting > 0 ? `${waiting}` : '';
  byId('empty').hidden = !loaded || list.size() > 0;
  list.show();
  showBlocked();
  showLate();
  showSettled();
}

function goTo(id) {
  // From another page, by the link to it.
  if (byId('inbox').hidden) {
    window.location.hash = `ask-${id}`;
    return;
  }
  if (list.has(id)) {
    list.focus(id);
    return;
  }
  const target = cards.get(id)?.element ?? items.get(id)?.element ?? blocks.get(id)?.element;
  if (!target) return;
  const calm = window.matchMedia('(prefers-reduced-motion: reduce)').matches;
  target.scrollIntoView({ block: 'start', behavior: calm ? 'auto' : 'smooth' });
  target.focus({ preventScroll: true });
}

function bringForward(news) {
  show();
  report();
  if (news.length === 0) return;
  const busy = performance.now() - lastInput < BUSY_MS || [...cards.values()].some((card) => card.isInUse());
  if (!busy && !document.body.classList.contains('many')) {
    const { scrollY } = window;
    cards.get(news[0].id)?.element.scrollIntoView({ block: 'nearest' });
    if (window.scrollY !== scrollY) moves.scrolled();
  }
  tell(news, { goTo, inView: isItemInView });
}

// ---- The other pages: `/#history`, `/#health`

const health = setUpHealth();
const history = setUpHistory({ failed: (failure) => failure.status === 401 && denied() });

const PLACES = ['inbox', 'history', 'health'];

function showPlace() {
  const open = byId('sign-in').hidden;
  const here = PLACES.find((place) => window.location.hash === `#${place}`) ?? 'inbox';
  byId('places').hidden = !open;
  for (const place of PLACES) {
    byId(place).hidden = !open || place !== here;
    if (place === here) byId(`to-${place}`).setAttribute('aria-current', 'page');
    else byId(`to-${place}`).removeAttribute('aria-current');
  }
  if (open) health.look();
  if (open && here === 'history') {
    byId('groups').replaceChildren(...[...new Set([...asks.values()].map(({ group }) => group))].sort().map((group) => el('option', { value: group })));
    history.open();
  } else history.close();
}

// ---- A link to one question: `/#ask-m5`, by its short id or its whole one

async function followLink() {
  const [, name] = /^#ask-([\w-]+)$/.exec(window.location.hash) ?? [];
  if (!name || !loaded) return;
  window.history.replaceState(null, '', window.location.pathname + window.location.search);
  const known = [...asks.values()].find(({ id, short_id: code }) => id === name || code === name);
  if (known && (list.has(known.id) || cards.has(known.id))) {
    goTo(known.id);
    return;
  }
  try {
    const ask = await oneAsk(name);
    take(ask);
    linked = ask.id;
    show();
    goTo(ask.id);
  } catch ({ status, message }) {
    line(status === 404 ? `There is no question ${name} here: askd has forgotten it, or you do not see its agent.` : message);
    lineTimer = setTimeout(() => line(''), BACK_NOTICE_MS);
  }
}

// ---- The connection

let lineTimer = null;

function line(text, kind = '') {
  clearTimeout(lineTimer);
  const node = byId('connection');
  if (node.textContent !== text) node.textContent = text;
  node.className = `connection ${kind}`.trim();
}

async function readList() {
  const mine = { newer: new Set() };
  clearTimeout(rereading);
  listing = mine;
  try {
    const present = new Set();
    const news = [];
    for await (const { asks: page, date } of listAsks()) {
      if (listing !== mine) return;
      setClock(date);
      for (const { id } of page) present.add(id);
      news.push(...takePage(page, mine.newer));
      if (byId('places').hidden) line('');
      openInbox();
      show();
    }
    listing = null;
    dropAbsent(present, mine.newer);
    loaded = true;
    link.settled();
    bringForward(news);
    followLink();
  } catch (failure) {
    if (listing === mine) whenUnread(failure);
    if (!(failure instanceof Problem)) throw failure;
  }
}

// What a daemon says that is there and cannot do it now. What a proxy says is not its word.
function reasonOf(problem) {
  return problem?.status === 503 && problem.isOurs ? `${problem.message.replace(/ Try again[^.]*\.$/, '')} Trying again…` : null;
}

function whenUnread(problem) {
  const reason = reasonOf(problem);
  if (reason === null) {
    link.fail();
    return;
  }
  line(reason);
  rereading = setTimeout(readList, REREAD_MS);
}

const link = connection({
  onEvent(name, data) {
    if (name === 'resync') readList();
    if (name !== 'ask') return;
    const ask = JSON.parse(data);
    listing?.newer.add(ask.id);
    const news = take(ask);
    bringForward(news ? [ask] : []);
  },
  onDenied: ({ message }) => denied(message),
  onLost(since, problem) {
    const why = problem?.status === 403 ? ` askd refuses this address: ${problem.message}` : '';
    line(reasonOf(problem) ?? `No connection to askd since ${clockTime(since)}.${why} Trying again…`, 'lost');
  },
  onUp() {
    const wasLost = byId('connection').classList.contains('lost');
    line(wasLost ? 'Connected again.' : '', wasLost ? 'back' : '');
    if (wasLost) lineTimer = setTimeout(() => line(''), BACK_NOTICE_MS);
    for (const item of [...cards.values(), ...blocks.values()]) item.reconnected();
  },
});

// ---- Signing in and out

function openInbox() {
  if (byId('sign-in').hidden && !byId('places').hidden) return;
  byId('sign-in').hidden = true;
  byId('settings').hidden = false;
  // Whoever is named by a proxy signs out there.
  byId('forget').hidden = !hasToken();
  showPlace();
  whoAmI().then(greet, () => {});
  byId('token').value = '';
  byId('sign-in-problem').textContent = '';
}

function greet({ name, groups, push_key: key }) {
  allowPush(key);
  // How the whole daemon is concerns those who see all groups.
  if (groups === null) health.start();
  else health.forget();
  byId('who').textContent = `Signed in as ${name === 'operator' ? 'the operator' : name}.`;
}

// The next look at who signs in.
let starting = null;

function openSignIn(problem) {
  clearTimeout(rereading);
  clearTimeout(starting);
  listing = null;
  line('');
  for (const place of [...PLACES, 'places']) byId(place).hidden = true;
  setTitle(0);
  history.close();
  health.forget();
  byId('settings').hidden = true;
  byId('settings').open = false;
  byId('sign-in').hidden = false;
  byId('sign-in-problem').textContent = problem;
  byId('token').setAttribute('aria-invalid', problem ? 'true' : 'false');
  byId('token').focus();
}

// Cards stay as they are behind the form: a new token must not cost anybody what they typed.
function denied() {
  link.stop();
  if (tryRememberedToken()) connect();
  else openSignIn("That token isn't valid. Paste the current one.");
}

async function forget(problem = '') {
  // Needs the token still; a browser that is signed out gets no notice.
  await unsubscribe();
  forgetToken();
  link.stop();
  forgetAsks();
  openSignIn(problem);
}

function forgetAsks() {
  forgetDrafts();
  listing = null;
  untellAll();
  for (const id of asks.keys()) removeCard(id);
  list.clear();
  asks.clear();
  loaded = false;
  show();
}

function connect() {
  line('');
  lineTimer = setTimeout(() => line('Connecting to askd…', 'quiet-line'), SLOW_MS);
  start(ownName());
}

// What stands behind the form is only for whom it was shown to, `before`; and what was typed, for whoever did so.
async function start(before) {
  clearTimeout(starting);
  const whose = before ?? draftsOwner();
  if (whose !== null || asks.size > 0) {
    try {
      const who = await whoAmI();
      if (who.name !== whose) {
        forgetAsks();
        greet(who);
      }
    } catch (problem) {
      if (problem.status !== 401) {
        line(reasonOf(problem) ?? `${problem.message} Trying again…`, 'lost');
        starting = setTimeout(() => start(before), REREAD_MS);
        return;
      }
    }
  }
  link.start();
}

byId('sign-in-form').addEventListener('submit', (event) => {
  event.preventDefault();
  if (useToken(byId('token').value)) connect();
  else openSignIn('Please paste the token, or the link that askd printed.');
});
byId('forget').addEventListener('click', () => forget());
onForgottenElsewhere(() => forget());
onSignedInElsewhere(() => !byId('sign-in').hidden, connect);
byId('more').addEventListener('click', () => {
  const last = byId('settled').lastElementChild;
  settledLimit += SETTLED_AT_ONCE;
  showSettled();
  last?.nextElementSibling?.focus({ preventScroll: true });
});

byId('more-late').addEventListener('click', () => {
  const before = new Set(byId('late').children);
  lateLimit = before.size + LATE_AT_ONCE;
  showLate();
  [...byId('late').children].find((element) => !before.has(element))?.focus({ preventScroll: true });
});

const guard = (event) => {
  // `detail` is 0 for the keyboard, which moves its focus along and cannot hit the wrong thing.
  const control = event.target.closest('[data-at-once]');
  if (event.detail === 0 || !control || !moves.justMoved(control, MOVE_GUARD_MS)) return;
  event.preventDefault();
  event.stopPropagation();
  const id = control.closest('article').id.replace('ask-', '');
  (cards.get(id) ?? blocks.get(id)).clickNotTaken();
};
byId('inbox').addEventListener('click', guard, { capture: true });
for (const kind of ['pointerdown', 'keydown', 'wheel', 'touchmove']) {
  window.addEventListener(kind, () => { lastInput = performance.now(); }, { passive: true, capture: true });
}

const settings = byId('settings');
document.addEventListener('click', ({ target }) => {
  if (!settings.contains(target)) settings.open = false;
});
settings.addEventListener('keydown', ({ key }) => {
  if (key !== 'Escape' || !settings.open) return;
  settings.open = false;
  settings.firstElementChild.focus();
});

window.addEventListener('hashchange', () => {
  if (window.location.hash.includes('token=') && findToken()) connect();
  else if (byId('sign-in').hidden) {
    showPlace();
    followLink();
  }
});

// An answer that waits for the connection goes with its page.
window.addEventListener('beforeunload', (event) => {
  if ([...cards.values()].some((card) => card.isUnsent())) event.preventDefault();
});

setInterval(() => {
  list.tick();
  for (const card of cards.values()) card.tick();
  for (const block of blocks.values()) block.tick();
  for (const item of items.values()) item.tick();
}, 1000);

// Without a token a proxy in front of askd may say who this is; or another tab signs in meanwhile.
async function begin() {
  if (findToken() || (await whoAmI().catch(() => ({ name: null }))).name !== null || findToken()) connect();
  else openSignIn('');
}

startWorker();
setUpSwitches();
setUpKeys(list);
begin();
