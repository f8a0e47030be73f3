// Begins the page. If a part of it does not arrive, because the network changed at that moment, nothing else would ever happen
// here: so this says it, and loads the page again once askd replies. It deliberately imports nothing before that.

const PAUSE_MS = 1000;
const TRIES = 3;
const TRIED = 'askd.tried';

// How often this tab has loaded the page again in a row. Where that cannot be kept, only a person loads it again.
function tried(count) {
  try {
    if (count !== undefined) sessionStorage.setItem(TRIED, count);
    return Number(sessionStorage.getItem(TRIED));
  } catch {
    return TRIES;
  }
}

function say(text) {
  const line = document.getElementById('connection');
  line.textContent = text;
  line.className = 'connection lost';
}

async function isThere() {
  await new Promise((resolve) => { setTimeout(resolve, PAUSE_MS); });
  const reply = await fetch('inbox.js', { cache: 'no-store' }).catch(() => null);
  return reply?.ok;
}

import('./inbox.js').then(() => tried(0), async () => {
  if (tried() >= TRIES) {
    say('This page could not be loaded. Please reload it.');
    return;
  }
  say('Part of this page did not load. Retrying…');
  while (!(await isThere()));
  tried(tried() + 1);
  window.location.reload();
});
