// Keeps the stream of events open and says when it is lost and back. It reads the stream with fetch, because an
// EventSource cannot send the Authorization header. A browser opens six connections to a host and no more, so one tab holds the
// stream for all tabs of the same person, and passes on what comes. It deliberately does not know what an ask is.

import { caller, problemOf, request } from './api.js';
import { joinTabs } from './tabs.js';

// The daemon sends a comment every 15 s; two missed ones and some slack mean that nobody is there.
const SILENCE_MS = 40000;
const CONNECT_MS = 10000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;
// How long a new tab waits for word from the tab that holds the stream.
const PATIENCE_MS = 2000;
const IS_ANYBODY_THERE = 'anybody?';

const isVisible = () => document.visibilityState === 'visible';

// Splits a stream of server-sent events; calls `onEvent(name, data)` for each whole one.
export function eventParser(onEvent) {
  let rest = '';
  let name = 'message';
  let data = [];
  const line = (text) => {
    if (text === '') {
      if (data.length > 0) onEvent(name, data.join('\n'));
      name = 'message';
      data = [];
    } else if (text.startsWith('event:')) name = text.slice(6).trim();
    else if (text.startsWith('data:')) data.push(text.slice(5).replace(/^ /, ''));
  };
  return (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    for (const text of lines) line(text.replace(/\r$/, ''));
  };
}

// `onEvent(name, data)`, `onDenied(problem)` for a token that is not taken (the connection then stops by itself),
// `onLost(since, problem)` after a failed try (`problem` is null if there was no reply), `onUp()` from `settled()`.
export function connection({ onEvent, onDenied, onLost, onUp }) {
  let tabs = null;
  let current = null;
  let timer = null;
  let wait = FIRST_WAIT_MS;
  let lostSince = null;
  let heard = 0;
  // The last notice of a lost connection, as the other tabs get it.
  let lost = null;
  let welcomed = false;
  // The stream has ended since the last `resync`: a list that was asked for before does not say that askd is there.
  let outdated = false;

  function pass(name, data) {
    if (name === 'resync') outdated = false;
    onEvent(name, data);
  }

  function tellLost(what) {
    outdated = true;
    lost = what;
    lostSince = what.since;
    onLost(what.since, what.problem);
  }

  async function read(body, tell) {
    const decoder = new TextDecoder();
    const reader = body.getReader();
    let events;
    const parse = eventParser((...event) => events.push(event));
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard = Date.now();
      events = [];
      parse(decoder.decode(value, { stream: true }));
      // Even without an event: the other tabs hear that the stream is alive.
      tell({ events });
      for (const event of events) pass(...event);
    }
  }

  async function run() {
    clearTimeout(timer);
    const mine = new AbortController();
    const { say } = tabs;
    current?.abort();
    current = mine;
    let problem = null;
    let opened = false;
    heard = Date.now() - SILENCE_MS + CONNECT_MS;
    try {
      const reply = await request('api/v1/events', { headers: { accept: 'text/event-stream' }, signal: mine.signal });
      if (!reply.ok) problem = await problemOf(reply);
      else {
        opened = true;
        heard = Date.now();
        await read(reply.body, say);
      }
    } catch {
      // No connection, or an aborted one: what follows is the same as for a stream that ended.
    }
    if (current !== mine) return;
    const gaveUp = mine.signal.aborted;
    mine.abort();
    if (problem?.status === 401) {
      stop();
      onDenied(problem);
      return;
    }
    outdated = true;
    lostSince ??= Date.now();
    // A stream that the other side ended is tried once more before anybody is told: a proxy may cut it now and then.
    if (!opened || gaveUp) tellLost({ since: lostSince, problem: problem && { ...problem, message: problem.message } });
    // The timers of a hidden tab sleep, so a visible tab tries instead.
    say({ events: [], lost, yields: !isVisible() });
    timer = setTimeout(run, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }

  // What the tab with the stream says.
  function hear({ events, lost: theirs, yields }) {
    // A tab that slept may have missed something.
    if (Date.now() - heard > SILENCE_MS) welcomed = false;
    heard = Date.now();
    if (theirs) tellLost(theirs);
    if (yields && isVisible()) tabs.takeOver();
    else if (!welcomed && !theirs) {
      clearTimeout(timer);
      welcomed = true;
      pass('resync', '{}');
    }
    for (const event of events) pass(...event);
  }

  function start() {
    stop();
    heard = Date.now();
    welcomed = false;
    const mine = joinTabs(`${new URL('api/v1/events', document.baseURI)} ${caller()}`, {
      lead() {
        welcomed = true;
        // Without locks, `lead()` runs before `joinTabs` has returned.
        queueMicrotask(() => tabs === mine && run());
      },
      follow() {
        clearTimeout(timer);
        heard = Date.now();
        drop();
      },
      hear(message) {
        if (message !== IS_ANYBODY_THERE) {
          if (!mine.leads()) hear(message);
        } else if (mine.leads()) mine.say({ events: [], lost });
      },
    });
    tabs = mine;
    mine.say(IS_ANYBODY_THERE);
    timer = setTimeout(() => welcomed || mine.takeOver(), PATIENCE_MS);
  }

  function drop() {
    const last = current;
    current = null;
    last?.abort();
  }

  function stop() {
    clearTimeout(timer);
    drop();
    tabs?.leave();
    tabs = null;
    lost = null;
    lostSince = null;
    wait = FIRST_WAIT_MS;
  }

  // No reply came, or nothing for too long: the stream is opened anew, here.
  function fail() {
    outdated = true;
    if (tabs?.leads()) current?.abort();
    else tabs?.takeOver();
  }

  // Timers sleep while a tab is hidden or a laptop is closed: look at once when somebody may be looking again.
  const hurry = () => {
    if (!tabs || !(tabs.leads() || isVisible())) return;
    if (lostSince !== null && tabs.leads()) run();
    else if (lostSince !== null || Date.now() - heard > SILENCE_MS / 2) fail();
  };
  window.addEventListener('online', hurry);
  // The browser may keep a page that is left for the back button; meanwhile another tab has the stream.
  let left = false;
  window.addEventListener('pagehide', () => {
    left = tabs !== null;
    stop();
  });
  window.addEventListener('pageshow', () => {
    if (left) start();
    left = false;
  });
  document.addEventListener('visibilitychange', () => {
    if (isVisible()) hurry();
  });
  setInterval(() => {
    if (tabs && Date.now() - heard > SILENCE_MS) fail();
  }, 2000);

  return {
    start,
    stop,
    fail,
    // The list has been read after `resync`: now what the page shows is true again.
    settled() {
      if (outdated) return;
      lost = null;
      lostSince = null;
      wait = FIRST_WAIT_MS;
      onUp();
    },
  };
}
