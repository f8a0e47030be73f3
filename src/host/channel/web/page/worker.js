// The service worker: shows the notices that askd pushes to this browser, and opens the question that one is about. It
// deliberately handles no fetch and keeps no cache: every page comes from the daemon, so nothing secret is left behind in the
// browser, and an upgrade shows with the next load.

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

const pages = () => self.clients.matchAll({ type: 'window', includeUncontrolled: true });

// `over`: somebody has answered, or time is up. Browsers take the permission away from a site whose pushes show nothing, so
// such a notice replaces the first one without a sound and goes with it.
async function tell({ ask, group, text, over }) {
  const tag = `askd-${ask}`;
  const looking = (await pages()).some(({ focused }) => focused);
  const said = over ? 'No answer is needed any more.' : text ?? 'Please answer the question to continue.';
  await self.registration.showNotification(over ? 'Question Closed' : 'Question Received', { tag, body: group ? `${said}\nFrom ${group}` : said, icon: 'icon.png', data: { ask }, silent: over || looking });
  if (!over) return;
  for (const notice of await self.registration.getNotifications({ tag })) notice.close();
}

// One after the other: a browser that was away gets a question's beginning and its end at once, and must be left with the end.
let told = Promise.resolve();

self.addEventListener('push', (event) => {
  told = told.catch(() => {}).then(() => tell(event.data.json()));
  event.waitUntil(told);
});

// A click lets a worker open a window for a second only: all pages are asked at once.
const ANSWERS_MS = 300;

// This page if it is there. One that was left, and that the browser keeps for the way back, is named too and says
// nothing.
const there = (page) => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => resolve(page);
  setTimeout(() => resolve(null), ANSWERS_MS);
  page.postMessage({}, [port2]);
});

async function open(ask) {
  const page = (await Promise.all((await pages()).map(there))).find(Boolean);
  if (page) {
    page.postMessage({ ask });
    return page.focus();
  }
  return self.clients.openWindow(new URL(`./#ask-${ask}`, self.registration.scope).href);
}

self.addEventListener('notificationclick', (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data.ask));
});
