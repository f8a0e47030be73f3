// The service worker of this page, and the notices that askd pushes through it to this browser, also while no page is open.
// What such a notice says is the worker's to word; who gets which is the daemon's to decide.

import { addDevice, dropDevice } from './api.js';

let registration = null;

// Returns at once; where there is no worker, a page tells of new questions only while it is open.
export function startWorker() {
  if (!('serviceWorker' in navigator)) return;
  const path = 'worker.js';
  const url = window.trustedTypes?.createPolicy('askd', { createScriptURL: () => path }).createScriptURL(path) ?? path;
  navigator.serviceWorker.register(url).catch(() => {});
  navigator.serviceWorker.ready.then((ready) => { registration = ready; });
  // A click on a notice brings one page forward: the worker first asks which of them are there.
  navigator.serviceWorker.addEventListener('message', ({ data, ports }) => {
    if (data.ask) window.location.hash = `ask-${data.ask}`;
    else ports[0].postMessage('here');
  });
}

// A notice of this page. One that is pushed for the same question takes its place, because both have the same tag.
export async function showNotice(ask, title, body) {
  await registration.showNotification(title, { body, tag: `askd-${ask.id}`, icon: 'icon.png', data: { ask: ask.id } });
}

export const canShow = () => registration !== null;

export async function closeNotice(id) {
  for (const notice of (await registration?.getNotifications({ tag: `askd-${id}` })) ?? []) notice.close();
}

const text = (key) => btoa(String.fromCharCode(...new Uint8Array(key))).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');

// Has the daemon push to this browser. `key`: the daemon's, `null` if it pushes nothing. Returns whether it does now.
export async function subscribe(key) {
  if (!key || !('serviceWorker' in navigator) || !('PushManager' in window)) return false;
  try {
    const { pushManager } = await navigator.serviceWorker.ready;
    let known = await pushManager.getSubscription();
    // Made for another key: nothing would come through it any more.
    if (known && text(known.options.applicationServerKey) !== key) {
      await known.unsubscribe();
      known = null;
    }
    known ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
    await addDevice(known.toJSON());
    return true;
  } catch {
    return false;
  }
}

// Ends it. A daemon that cannot be reached does not hold up a person who signs out: it drops this browser when the push
// service says that it is gone.
const PATIENCE_MS = 1000;

export const unsubscribe = () => Promise.race([end(), new Promise((resolve) => { setTimeout(resolve, PATIENCE_MS); })]);

async function end() {
  const known = await registration?.pushManager?.getSubscription();
  if (!known) return;
  await Promise.allSettled([dropDevice(known.endpoint), known.unsubscribe()]);
}
