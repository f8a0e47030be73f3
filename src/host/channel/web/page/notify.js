// Tells a person about a new question: toast, title, sound, browser notification. It deliberately puts no word of an agent
// into a notification: those are shown over other windows, where nobody could tell whose words they are.

import { byId, el } from './dom.js';
import { canShow, closeNotice, showNotice, subscribe, unsubscribe } from './push.js';

const SOUND_KEY = 'askd.sound';
const NOTIFY_KEY = 'askd.notify';
const TOAST_MS = 12000;

let audio = null;
let toastTimer = null;
let toastAsk = null;
let pushKey = null;
const shown = new Map();

const load = (key) => {
  try {
    return localStorage.getItem(key) === 'on';
  } catch {
    return false;
  }
};

const save = (key, on) => {
  try {
    localStorage.setItem(key, on ? 'on' : 'off');
  } catch {
    // Storage is switched off: the choice then lasts as long as this page.
  }
};

export function wording(ask) {
  return ask.attempt > 1
    ? { title: 'Question Retry', body: `Previous attempt failed to display. This is retry attempt ${ask.attempt - 1}.` }
    : { title: 'Question Received', body: 'Please answer the question to continue.' };
}

export function setTitle(count) {
  document.title = count > 0 ? `(${count}) askd` : 'askd';
  // On the icon of an installed inbox.
  navigator.setAppBadge?.(count).catch(() => {});
}

// Said to screen readers only: what sighted people see happen on the page.
export function announce(text) {
  byId('announce').textContent = text;
}

function hideToast() {
  clearTimeout(toastTimer);
  toastAsk = null;
  byId('toast').replaceChildren();
  byId('toast').classList.remove('no-place');
}

// Controls that a notice must not cover.
const CONTROLS = 'a, button, input, label, select, summary, textarea';
const GAP_PX = 8;

// Top right, or as far below as no control is under it; not at all where there is no such place.
function place() {
  const node = byId('toast');
  if (toastAsk === null) return;
  node.style.top = '';
  const box = node.getBoundingClientRect();
  const across = ({ left, right }) => left < box.right + GAP_PX && right > box.left - GAP_PX;
  const controls = [...document.querySelectorAll(CONTROLS)]
    // What lies in closed details has a box, too.
    .filter((control) => !node.contains(control) && (control.checkVisibility?.() ?? true))
    .map((control) => control.getBoundingClientRect())
    .filter((other) => other.width > 0 && other.bottom > 0 && other.top < window.innerHeight && across(other))
    .sort((one, other) => one.top - other.top);
  let top = box.top;
  for (const other of controls) {
    if (other.top < top + box.height + GAP_PX && other.bottom > top - GAP_PX) top = other.bottom + GAP_PX;
  }
  node.style.top = `${top}px`;
  node.classList.toggle('no-place', top + box.height > window.innerHeight);
}

let placing = false;
function placeSoon() {
  if (placing || toastAsk === null) return;
  placing = true;
  requestAnimationFrame(() => {
    placing = false;
    place();
  });
}
window.addEventListener('scroll', placeSoon, { passive: true });
window.addEventListener('resize', placeSoon);

function toast(ask, { title, body }, goTo) {
  clearTimeout(toastTimer);
  toastAsk = ask.id;
  const go = () => {
    hideToast();
    goTo(ask.id);
  };
  byId('toast').replaceChildren(
    el('p', {}, el('strong', {}, `${title}:`), ` ${body}`, el('span', { class: 'from' }, 'from ', el('b', {}, ask.group))),
    el(
      'div',
      {},
      el('button', { type: 'button', class: 'link', onclick: go }, 'Go to it'),
      el('button', { type: 'button', class: 'link', onclick: hideToast, 'aria-label': 'Close this notice' }, 'Close'),
    ),
  );
  toastTimer = setTimeout(hideToast, TOAST_MS);
  place();
}

function beep() {
  audio ??= new AudioContext();
  audio.resume();
  [[660, 0], [880, 0.16]].forEach(([frequency, delay]) => {
    const start = audio.currentTime + delay;
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    tone.frequency.value = frequency;
    volume.gain.setValueAtTime(0.0001, start);
    volume.gain.exponentialRampToValueAtTime(0.12, start + 0.02);
    volume.gain.exponentialRampToValueAtTime(0.0001, start + 0.32);
    tone.connect(volume).connect(audio.destination);
    tone.start(start);
    tone.stop(start + 0.34);
  });
}

function browserNotification(ask, { title, body }, goTo) {
  if (canShow()) {
    showNotice(ask, title, body).catch(() => {});
    return;
  }
  try {
    // The tag makes several open tabs show one notification and not one each.
    const notification = new Notification(title, { body, tag: `askd-${ask.id}`, icon: 'icon.png' });
    notification.onclick = () => {
      window.focus();
      notification.close();
      goTo(ask.id);
    };
    shown.set(ask.id, notification);
  } catch {
    // Some phones know the word but allow it to installed apps only.
    byId('notify-note').textContent = 'This browser does not let a page show notifications.';
  }
}

// `asks`: the new ones, oldest first. `goTo(id)` brings one into view; `inView(id)`: it is there already, which needs no
// notice to be seen.
export function tell(asks, { goTo, inView }) {
  if (asks.length === 0) return;
  const { title, body } = wording(asks[asks.length - 1]);
  const unseen = asks.filter(({ id }) => !inView(id));
  if (unseen.length > 0) toast(unseen[unseen.length - 1], wording(unseen[unseen.length - 1]), goTo);
  else announce(`${title}: ${body}`);
  if (byId('sound').checked) beep();
  const looking = document.visibilityState === 'visible' && document.hasFocus();
  if (!byId('notify').checked || looking) return;
  for (const ask of asks) browserNotification(ask, wording(ask), goTo);
}

export function untell(id) {
  if (toastAsk === id) hideToast();
  shown.get(id)?.close();
  shown.delete(id);
  closeNotice(id);
}

export function untellAll() {
  hideToast();
  for (const id of [...shown.keys()]) untell(id);
}

async function switchNotifications(box) {
  const note = byId('notify-note');
  note.textContent = '';
  if (box.checked && (await Notification.requestPermission()) !== 'granted') {
    box.checked = false;
    note.textContent = "This browser does not allow it. You can change that in the browser's settings for this page.";
  }
  save(NOTIFY_KEY, box.checked);
  if (!box.checked) await unsubscribe();
  else note.textContent = (await subscribe(pushKey)) ? 'Notifications arrive even when this page is closed.' : 'Notifications arrive only while this page is open.';
}

// This browser is signed in: from now on askd may push to it. `key`: the daemon's, `null` if it pushes nothing.
export function allowPush(key) {
  pushKey = key;
  if (byId('notify').checked) subscribe(key);
}

export function setUpSwitches() {
  const sound = byId('sound');
  sound.checked = load(SOUND_KEY);
  sound.addEventListener('change', () => {
    save(SOUND_KEY, sound.checked);
    if (sound.checked) beep();
  });
  // Browsers keep audio silent until somebody has touched the page.
  window.addEventListener('pointerdown', () => {
    if (!sound.checked || audio) return;
    audio = new AudioContext();
  });

  const notify = byId('notify');
  if (!('Notification' in window) || !window.isSecureContext) {
    notify.disabled = true;
    byId('notify-note').textContent = window.isSecureContext
      ? 'This browser shows notifications once the inbox is installed: Share, then Add to Home Screen.'
      : 'This browser offers notifications only over HTTPS or on the host itself.';
    return;
  }
  notify.checked = load(NOTIFY_KEY) && Notification.permission === 'granted';
  notify.addEventListener('change', () => switchNotifications(notify));
}
