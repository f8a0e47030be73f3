// What was asked before: found by agent, outcome, person, channel and words, listed by day with the trail of each, and
// exported. It deliberately asks the daemon for each page: nothing of it is kept while the inbox is shown.

import { download, listPage, Problem } from './api.js';
import { byId, el } from './dom.js';
import { settledItem } from './settled.js';
import { day, outcomeOf } from './words.js';

const AT_ONCE = 50;

export function setUpHistory({ failed }) {
  const form = byId('history-form');
  const list = byId('history-list');
  let next;
  let asked = 0;
  let items = [];

  const query = () => [...new FormData(form)].filter(([, value]) => value !== '').map(([name, value]) => `&${name}=${encodeURIComponent(value)}`).join('');
  const at = ({ ask }) => outcomeOf(ask).at;

  function show() {
    items.sort((one, other) => (at(one) < at(other) ? 1 : -1));
    const days = Map.groupBy(items, (item) => day(at(item)));
    list.replaceChildren(...[...days].flatMap(([name, of]) => [el('h3', { class: 'day' }, name), el('ol', { class: 'settled' }, ...of.map(({ element }) => element))]));
    byId('history-more').hidden = next === undefined;
  }

  async function read(after) {
    const mine = (asked += 1);
    byId('history-found').textContent = 'Searching…';
    try {
      // What was not collected comes first whatever its day, and a search may come to its time before it finds anything.
      const { asks, total, next: rest } = await listPage(`state=settled&limit=${AT_ONCE}${query()}`, after);
      if (mine !== asked) return;
      if (after === undefined) items = [];
      const known = new Set(items.map(({ ask }) => ask.id));
      items.push(...asks.filter(({ id }) => !known.has(id)).map((ask) => ({ ...settledItem(ask, { trail: true }), ask })));
      next = rest;
      show();
      const more = next === undefined ? '' : ' so far';
      byId('history-found').textContent = items.length === 0 && next === undefined ? 'No matches.' : `${items.length} of ${Math.max(total, items.length)}${more}`;
    } catch (failure) {
      if (mine !== asked) return;
      byId('history-found').textContent = failure.message;
      failed(failure);
    }
  }

  async function exportAs(format) {
    try {
      await download(`api/v1/export?format=${format}&state=settled${query()}`, `askd.${format}`);
    } catch (failure) {
      // A download that broke off says nothing that would help.
      byId('history-found').textContent = failure instanceof Problem ? failure.message : 'The export broke off. Please try again.';
      failed(failure);
    }
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    read();
  });
  form.addEventListener('change', () => read());
  byId('history-more').addEventListener('click', () => read(next));
  for (const format of ['csv', 'jsonl']) {
    byId(`export-${format}`).addEventListener('click', () => exportAs(format));
  }

  return {
    open: () => read(),
    // Leaves nothing behind.
    close() {
      asked += 1;
      items = [];
      list.replaceChildren();
    },
  };
}
