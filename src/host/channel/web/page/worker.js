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
  await self.registration.showNotification(over ? 'Question Closed' : 'Question Received', { tag, body: `${said}\nFrom ${group}`, icon: 'icon.png', data: { ask }, silent: over || looking });
  if (!over) return;
  for (const notice of await self.registration.getNotifications({ tag })) notice.close();
}

self.addEventListener('push', (event) => event.waitUntil(tell(event.data.json())));

async function open(ask) {
  const link = new URL(`./#ask-${ask}`, self.registration.scope).href;
  const [page] = await pages();
  if (!page) return self.clients.openWindow(link);
  page.postMessage({ ask });
  return page.focus();
}

self.addEventListener('notificationclick', (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data.ask));
});
