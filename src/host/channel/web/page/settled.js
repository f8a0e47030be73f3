// One ask that is over, as an entry to look up: who asked what, how it ended, by whom and when, and what became of that. It
// deliberately offers nothing to press but its details: an outcome is for ever, only the note below it changes.

import { trailOf } from './api.js';
import { el, said } from './dom.js';
import { background } from './markdown.js';
import { ago, answersOf, byWhom, clockTime, ending, exact, happened, noteOf, outcomeOf } from './words.js';

// `trail`: its details say what happened to it, too.
export function settledItem(ask, { trail = false } = {}) {
  const outcome = outcomeOf(ask);
  const { word, mark, kind } = ending(outcome);
  const when = el('time', { datetime: outcome.at, title: exact(outcome.at) }, ago(outcome.at));
  const [first] = ask.questions;
  const note = el('p', { class: 'own after' });
  const more = trail || ask.questions.length > 1 || ask.context || ask.title;
  const single = ask.questions.length === 1;
  const element = el(
    'li',
    { class: `done ${kind}`, id: `ask-${ask.id}`, tabindex: -1 },
    el(
      'p',
      { class: 'own meta' },
      el('span', {}, el('span', { class: 'group' }, ask.group), ' asked', el('code', {}, ask.short_id ?? ask.id.slice(0, 8))),
      when,
    ),
    ask.title ? said('p', ask.title, 'title') : null,
    single || !ask.title ? said('p', first?.question ?? '', 'what') : null,
    el('p', { class: 'own ending' }, el('span', { 'aria-hidden': 'true' }, `${mark} `), ended(ask, word)),
    result(ask, outcome, word),
    note,
    more ? details(ask, trail) : null,
  );
  showNote(note, ask);
  return {
    element,
    // Takes a newer state in place, so that opened details stay open. Returns whether it could.
    update(newer) {
      if (allButNote(newer) !== allButNote(ask)) return false;
      showNote(note, newer);
      return true;
    },
    tick() {
      const text = ago(outcome.at);
      if (when.textContent !== text) when.textContent = text;
    },
  };
}

const allButNote = (ask) => JSON.stringify({ ...ask, note: null });

export function showNote(node, ask) {
  const text = noteOf(ask) ?? '';
  if (node.textContent !== text) node.textContent = text;
}

// A block has an end of its own, and a person who made it.
function ended(ask, word) {
  if (!ask.block?.allowed_again) return word + byWhom(outcomeOf(ask));
  const { by } = ask.block.allowed_again;
  return by ? `${word}. Allowed again${byWhom({ by })}` : `${word}. Unblocked`;
}

// The answers one by one, and not the daemon's closing line, which holds them and askd's words in one text: a
// right-to-left mark in an answer would reorder who gave it.
function result(ask, outcome, word) {
  if (outcome.status === 'answered') {
    const answers = answersOf(outcome);
    if (answers.length === 0) return el('p', { class: 'own line' }, 'Skipped');
    if (ask.questions.length === 1) return el('ul', { class: 'line' }, ...answers.map(({ answer }) => said('li', answer)));
    return el('ul', { class: 'line pairs' }, ...answers.map(({ question, answer }) => el('li', { class: 'pair' }, said('span', question, 'asked'), said('span', answer))));
  }
  // Beside the words above, only what they do not say: a reason, or what became of it later.
  const reason = outcome.status === 'undeliverable' ? undelivered(ask) : outcome.line;
  const adds = reason && reason.replace(/\.$/, '') !== word && outcome.status !== 'cancelled' && outcome.status !== 'blocked';
  return adds ? said('p', reason, 'what') : null;
}

// A reason in words takes the place of its short name.
function undelivered({ outcome, cause, cause_line: why }) {
  if (!why) return outcome.error;
  return outcome.error.endsWith(cause) ? why : `${outcome.error.replace(/\.?$/, '.')} ${why}`;
}

function details(ask, trail) {
  const given = new Map(answersOf(outcomeOf(ask)).map(({ question, answer }) => [question, answer]));
  const happenings = el('ul', { class: 'trail own' });
  const read = async () => {
    if (!trail || happenings.childElementCount > 0) return;
    const lines = await trailOf(ask.id).catch(({ message }) => [{ what: message }]);
    happenings.replaceChildren(...lines.map((line) => el('li', {}, line.at ? el('time', { datetime: line.at, title: exact(line.at) }, clockTime(line.at)) : null, ' ', happened(line))));
  };
  return el(
    'details',
    { ontoggle: read },
    el('summary', {}, 'Details'),
    ask.context ? background(ask.context) : null,
    el(
      'dl',
      {},
      ...ask.questions.flatMap(({ question }) => [
        said('dt', question),
        given.has(question) ? said('dd', given.get(question)) : el('dd', { class: 'own' }, 'no answer'),
      ]),
    ),
    trail ? happenings : null,
  );
}
