// A question that was asked too often, as an item with one button. The number is askd's and grows in place; nothing here
// decides who may allow it again or what that means.

import { allowAgain } from './api.js';
import { el, said, uniqueId } from './dom.js';
import { ago, exact, NOT_TAKEN } from './words.js';

export const isBlocked = (ask) => Boolean(ask.block) && !ask.block.allowed_again;

const TELLING = 'The agent was told to wait for your guidance. It cannot ask this again until you allow it.';

// `allowed(ask, { focused })`: the block has ended here; `unreached(problem)`: a call got no reply, or the token is not taken.
export function blockedItem(firstAsk, { allowed, unreached }) {
  let ask = firstAsk;
  let busy = false;
  const times = el('strong', { class: 'times' });
  const when = el('time', { datetime: ask.created_at, title: exact(ask.created_at) });
  const heading = el('h3', { id: uniqueId('blocked') }, el('span', { class: 'group' }, ask.group), ' asked this ', times, ' without an answer');
  const problem = el('div', { class: 'problem own', role: 'alert' });
  const hint = el('p', { class: 'sending own', role: 'status' });
  const button = el('button', { type: 'button', class: 'secondary', 'data-at-once': true, onclick: press }, 'Allow again');
  const questions = ask.questions.length === 1
    ? said('p', ask.questions[0].question, 'question')
    : el('ul', { class: 'blocked-questions' }, ...ask.questions.map(({ question }) => said('li', question, 'question')));
  const element = el(
    'article',
    { class: 'card blocked', id: `ask-${ask.id}`, tabindex: -1, 'aria-labelledby': heading.id },
    el('header', { class: 'strip own' }, heading, el('p', { class: 'meta' }, el('span', {}, 'blocked ', when), el('span', {}, 'id ', el('code', {}, ask.short_id)))),
    el('div', { class: 'body' }, questions, el('p', { class: 'own telling' }, TELLING), problem, el('div', { class: 'actions' }, button), hint),
  );

  async function press() {
    if (busy) return;
    busy = true;
    const focused = element.contains(document.activeElement);
    button.disabled = true;
    // A button that is disabled drops the focus, and the block may be gone before the reply is there.
    if (focused) element.focus({ preventScroll: true });
    problem.replaceChildren();
    hint.textContent = '';
    try {
      allowed(await allowAgain(ask.id), { focused });
    } catch (failure) {
      busy = false;
      button.disabled = false;
      const text = failure.status === 0 ? "Couldn't reach askd, so this may not have been saved." : failure.message;
      problem.replaceChildren(el('p', { dir: 'auto', class: 'said' }, text));
      if (focused) button.focus({ preventScroll: true });
      if (failure.status === 0 || failure.status === 401) unreached(failure);
    }
  }

  function update(newer) {
    ask = newer;
    const text = `${ask.block.times} times`;
    if (times.textContent !== text) times.textContent = text;
  }

  function tick() {
    const text = ago(ask.created_at);
    if (when.textContent !== text) when.textContent = text;
  }

  // A click that the page did not take says so.
  function clickNotTaken() {
    if (!busy) hint.textContent = NOT_TAKEN;
  }

  // askd is back: what it did not reply to can be pressed again.
  function reconnected() {
    if (!busy) problem.replaceChildren();
  }

  update(ask);
  tick();
  return { element, update, reconnected, clickNotTaken, tick, focused: () => element.contains(document.activeElement) };
}
