// One ask that is over, as a line to look up: who asked what, how it ended, by whom and when. It deliberately offers
// nothing to press but its details: an outcome is for ever.

import { el, said } from '/dom.js';
import { ago, answersOf, byWhom, ending, exact } from '/words.js';

export function settledItem(ask) {
  const { outcome } = ask;
  const { word, mark, kind } = ending(outcome);
  const when = el('time', { datetime: outcome.at, title: exact(outcome.at) }, ago(outcome.at));
  const answers = answersOf(outcome);
  const [first] = ask.questions;
  const hidden = ask.questions.length > 1 || ask.context || (ask.title && ask.title !== first?.question);
  const element = el(
    'li',
    { class: `done ${kind}`, id: `ask-${ask.id}`, tabindex: -1 },
    el(
      'p',
      { class: 'own meta' },
      el('span', { class: 'badge' }, el('span', { 'aria-hidden': 'true' }, `${mark} `), word + byWhom(outcome)),
      when,
    ),
    el('p', { class: 'asker own' }, el('span', { class: 'group' }, ask.group), ' asked ', el('code', {}, ask.short_id ?? ask.id.slice(0, 8))),
    said('p', ask.title || first?.question || '', 'what'),
    said('p', outcome.line || word, 'line'),
    hidden ? details(ask, answers) : null,
  );
  return {
    element,
    tick() {
      const text = ago(outcome.at);
      if (when.textContent !== text) when.textContent = text;
    },
  };
}

function details(ask, answers) {
  const given = new Map(answers.map(({ question, answer }) => [question, answer]));
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
