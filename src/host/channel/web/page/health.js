// How the daemon is: a strip above the questions that names what is wrong and how to fix it, and a page with every channel,
// agent, answer that nobody collected and card that could not be closed. The sentences are those of `askd status`. It
// deliberately stays away for people who see only some groups: the daemon does not tell them.

import { status } from './api.js';
import { byId, el, said } from './dom.js';
import { ago, exact, place } from './words.js';

const EVERY_MS = 30000;
const STRIP = 3;

const when = (instant, words = (text) => text) => (instant ? el('time', { datetime: instant, title: exact(instant) }, words(ago(instant))) : null);
const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

function problem({ line, fix, since }) {
  return el('li', { class: 'trouble' }, said('p', sentence(line), 'wrong'), el('p', { class: 'after' }, when(since, (text) => `Noticed ${text}. `), fix ? el('span', {}, 'Fix: ', said('span', sentence(fix))) : null));
}

const listOf = (entries, make, empty) => (entries.length === 0 ? [el('p', { class: 'note' }, empty)] : [el('ul', { class: 'settled' }, ...entries.map(make))]);
const link = ({ id, short_id: code }) => el('a', { href: `#ask-${id}` }, el('code', {}, code));

const channel = ({ title, connected, since, why }) =>
  el('li', { class: connected ? 'entry good' : 'entry bad' }, el('p', {}, el('strong', {}, title)), el('p', { class: 'ending' }, connected ? '✓ connected' : el('span', {}, '! not connected', why ? `: ${why}` : '', when(since, (text) => `, since ${text}`))));

const agent = ({ name, served, open, uncollected, last_asked: asked, last_heartbeat: alive, problem: trouble }) =>
  el(
    'li',
    { class: trouble ? 'entry bad' : 'entry' },
    el('p', {}, el('span', { class: 'group' }, name), served ? '' : ' (has no routes)'),
    el('p', { class: 'after' }, `${open} open, ${uncollected} not collected`, when(asked, (text) => `, last asked ${text}`), alive ? when(alive, (text) => `, last heartbeat ${text}`) : ', no heartbeat since askd started'),
    trouble ? said('p', sentence(trouble.why), 'ending') : null,
  );

const outcome = (ask) =>
  el('li', { class: 'entry' }, el('p', {}, el('span', { class: 'group' }, ask.group), ' ', link(ask), ' ', said('span', ask.line)), el('p', { class: 'after' }, when(ask.since)));

const stuck = (card) => el('li', { class: 'entry bad' }, el('p', {}, el('span', { class: 'group' }, card.group), ' ', link(card), ` ${place(card.channel)}`), el('p', { class: 'after' }, card.why ? said('span', sentence(card.why)) : 'askd keeps trying.', ' ', when(card.since)));

export function setUpHealth() {
  let allowed = false;
  let timer = null;
  let before = '';

  function show(report) {
    const seen = JSON.stringify({ ...report, groups: report?.groups.map((group) => ({ ...group, last_heartbeat: null })) });
    byId('to-health').hidden = report === null;
    if (seen !== before || !byId('health').hidden) render(report);
    before = seen;
  }

  function render(report) {
    const problems = report?.problems ?? [];
    byId('trouble').hidden = problems.length === 0;
    byId('trouble-list').replaceChildren(...problems.slice(0, STRIP).map(problem));
    byId('trouble-more').hidden = problems.length <= STRIP;
    if (report === null) return;
    byId('health-body').replaceChildren(
      el('h3', { class: 'day' }, 'What is wrong'),
      ...listOf(problems, problem, 'Nothing: askd can take questions and answers.'),
      el('h3', { class: 'day' }, 'Channels'),
      ...listOf(report.channels, channel, 'No channel but this inbox is set up.'),
      el('h3', { class: 'day' }, 'Agents'),
      ...listOf(report.groups, agent, 'No agent has asked yet.'),
      el('h3', { class: 'day' }, 'Answers that nobody collected'),
      ...listOf(report.uncollected, outcome, 'None.'),
      el('h3', { class: 'day' }, 'Cards that need you'),
      ...listOf(report.stuck_cards, stuck, 'None.'),
    );
  }

  async function look() {
    clearTimeout(timer);
    if (allowed && document.visibilityState === 'visible') {
      try {
        const report = await status();
        // Whoever looks at the page now may not be the one who asked.
        if (!allowed) return;
        show(report);
      } catch (failure) {
        // What was said last may still be true; the page says by itself that askd is away.
        if (failure.status === 401 || failure.status === 403) return;
      }
    }
    clearTimeout(timer);
    timer = setTimeout(look, EVERY_MS);
  }
  document.addEventListener('visibilitychange', look);
  return {
    look,
    start() {
      allowed = true;
      look();
    },
    forget() {
      allowed = false;
      clearTimeout(timer);
      show(null);
    },
  };
}
