// The keyboard: moves between the open questions and answers the one that is open. It deliberately does nothing while
// somebody types, and only what a click on the same card would do.

import { byId } from './dom.js';

const OFF_KEY = 'askd.keys';
// A key that is pressed twice by accident must not answer the question that comes next.
const GUARD_MS = 400;

const TYPING = 'textarea, select, input:not([type="radio"], [type="checkbox"])';

export function setUpKeys(list) {
  const help = byId('help');
  const on = byId('keys');
  try {
    on.checked = localStorage.getItem(OFF_KEY) !== 'off';
  } catch {
    // Storage is switched off: the keys are on.
  }
  on.addEventListener('change', () => {
    try {
      localStorage.setItem(OFF_KEY, on.checked ? 'on' : 'off');
    } catch {
      // The choice lasts as long as this page.
    }
  });
  byId('show-help').addEventListener('click', () => help.showModal());
  byId('close-help').addEventListener('click', () => help.close());

  const does = {
    j: () => list.move(1),
    k: () => list.move(-1),
    o: () => list.current(GUARD_MS)?.other(),
    d: () => list.current(GUARD_MS)?.dismiss(),
    '/': () => list.search(),
    '?': () => help.showModal(),
  };
  document.addEventListener('keydown', (event) => {
    const { key, target, repeat, ctrlKey, metaKey, altKey, isComposing } = event;
    if (key === 'Escape' && target === byId('search')) target.blur();
    if (!on.checked || ctrlKey || metaKey || altKey || isComposing || help.open || byId('inbox').hidden) return;
    if (target.closest?.(TYPING)) return;
    const act = /^[1-9]$/.test(key) ? () => list.current(GUARD_MS)?.choose(Number(key)) : does[key];
    if (!act || (repeat && key !== 'j' && key !== 'k')) return;
    event.preventDefault();
    act();
  });
}
