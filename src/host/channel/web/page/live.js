// Keeps the stream of events open and says when it is lost and back. It reads the stream with fetch, because an
// EventSource cannot send the Authorization header. It deliberately does not know what an ask is.

import { problemOf, request } from './api.js';

// The daemon sends a comment every 15 s; two missed ones and some slack mean that nobody is there.
const SILENCE_MS = 40000;
const CONNECT_MS = 10000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;

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
  let current = null;
  let timer = null;
  let wait = FIRST_WAIT_MS;
  let lostSince = null;
  let heard = 0;

  async function read(body) {
    const decoder = new TextDecoder();
    const reader = body.getReader();
    const parse = eventParser(onEvent);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard = Date.now();
      parse(decoder.decode(value, { stream: true }));
    }
  }

  async function run() {
    clearTimeout(timer);
    const mine = new AbortController();
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
        await read(reply.body);
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
    lostSince ??= Date.now();
    // A stream that the other side ended is tried once more before anybody is told: a proxy may cut it now and then.
    if (!opened || gaveUp) onLost(lostSince, problem);
    timer = setTimeout(run, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }

  const fail = () => current?.abort();

  function stop() {
    clearTimeout(timer);
    const last = current;
    current = null;
    last?.abort();
    lostSince = null;
    wait = FIRST_WAIT_MS;
  }

  const started = () => current !== null;

  // Timers sleep while a tab is hidden or a laptop is closed: look at once when somebody may be looking again.
  const hurry = () => {
    if (!started()) return;
    if (lostSince !== null) run();
    else if (Date.now() - heard > SILENCE_MS / 2) fail();
  };
  window.addEventListener('online', hurry);
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'visible') hurry();
  });
  setInterval(() => {
    if (started() && Date.now() - heard > SILENCE_MS) fail();
  }, 2000);

  return {
    start: run,
    stop,
    fail,
    // The list has been read after `resync`: now what the page shows is true again.
    settled() {
      lostSince = null;
      wait = FIRST_WAIT_MS;
      onUp();
    },
  };
}
