// One ask that is over, as an entry to look up: who asked what, how it ended, by whom and when, and what became of that. It
// deliberately offers nothing to press but its details: an outcome is for ever, only the note below it changes.

import { el, said } from './dom.js';
import { ago, answersOf, byWhom, ending, exact, noteOf, outcomeOf } from './words.js';

export function settledItem(ask) {
  const outcome = outcomeOf(ask);
  const { word, mark, kind } = ending(outcome);
  const when = el('time', { datetime: outcome.at, title: exact(outcome.at) }, ago(outcome.at));
  const [first] = ask.questions;
  const note = el('p', { class: 'own after' });
  const more = ask.questions.length > 1 || ask.context || ask.title;
  const element = el(
    'li',
    { class: `done ${kind}`, id: `ask-${ask.id}`, tabindex: -1 },
    el(
      'p',
      { class: 'own meta' },
      el('span', {}, el('span', { class: 'group' }, ask.group), ' asked', el('code', {}, ask.short_id ?? ask.id.slice(0, 8))),
      when,
    ),
    said('p', ask.title || first?.question || '', 'what'),
    el('p', { class: 'own ending' }, el('span', { 'aria-hidden': 'true' }, `${mark} `), ended(ask, word)),
    result(ask, outcome, word),
    note,
    more ? details(ask) : null,
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
  return by ? `${word}. Allowed again${byWhom({ by })}` : `${word}. It may be asked again`;
}

// The answers one by one, and not the daemon's closing line, which holds them and askd's words in one text: a
// right-to-left mark in an answer would reorder who gave it.
function result(ask, outcome, word) {
  if (outcome.status === 'answered') {
    const answers = answersOf(outcome);
    if (answers.length === 0) return el('p', { class: 'own line' }, 'Skipped');
    return el('ul', { class: 'line' }, ...answers.map(({ answer }) => said('li', answer)));
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

function details(ask) {
  const given = new Map(answersOf(outcomeOf(ask)).map(({ question, answer }) => [question, answer]));
  return el(
    'details',
    {},
    el('summary', {}, 'Details'),
    ask.context ? said('p', ask.context, 'context') : null,
    el(
      'dl',
      {},
      ...ask.questions.flatMap(({ question }) => [
        said('dt', question),
        given.has(question) ? said('dd', given.get(question)) : el('dd', { class: 'own' }, 'no answer'),
      ]),
    ),
  );
}
