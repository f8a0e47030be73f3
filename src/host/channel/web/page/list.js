// The open questions, those with the least time left first. A few stand as cards below each other; when there are many, each is
// a line, and one of them is open as a card: below its line, or beside the list where there is room. Search and the agents'
// chips narrow the list down. It deliberately never drops a card that holds unsent words; folding only hides it.

import { byId, el, said } from './dom.js';
import { ending, exact, left, outcomeOf } from './words.js';

// With this many questions the cards fold to lines; they unfold once no more than FEW are left, so that a list around the
// border does not change its shape with each answer.
const MANY = 6;
const FEW = 2;
const BESIDE = window.matchMedia('(min-width: 1000px)');

// `cards`: the cards by id, those of other lists among them; `open(ask)` makes one, `drop(id)` takes one away; `over(ids)`: these
// have left the list because they are not open any more; `watch` observes which items are in view.
export function openList({ cards, open, drop, over, watch, inView }) {
  const items = new Map();
  const chips = new Map();
  let many = false;
  let picked = null;
  let group = null;
  let words = [];
  let asked = false;
  let advanced = -Infinity;

  const list = byId('waiting');
  const filtering = () => group !== null || words.length > 0;
  const fits = ({ ask, text }) =>
    (group === null || ask.group === group) && (words.every((word) => text.includes(word)) || (words.length === 1 && words[0] === ask.short_id));
  const shown = () => [...list.children].map(({ dataset }) => items.get(dataset.ask)).filter((item) => item && !item.element.hidden);
  const inUse = (id) => cards.get(id)?.isInUse() ?? false;

  function take(ask) {
    let item = items.get(ask.id);
    if (!item) {
      item = { element: el('div', { class: 'item', 'data-ask': ask.id }), line: null };
      items.set(ask.id, item);
      watch.observe(item.element);
    }
    const { title, context, questions } = ask;
    const labels = questions.flatMap(({ question, options = [] }) => [question, ...options.map(({ label }) => label)]);
    // A question that was not shown anywhere yet has no end.
    const end = ask.answer_by ? Date.parse(ask.answer_by) : Infinity;
    Object.assign(item, { ask, end, asked: Date.parse(ask.created_at), text: [ask.group, title, context, ...labels].join('\n').toLowerCase() });
    cards.get(ask.id)?.update(ask);
  }

  // It ended, and its card stays to say so, or to be answered late.
  function end(ask) {
    const item = items.get(ask.id);
    if (!item) return;
    item.ask = ask;
    tickOne(item);
  }

  // Takes one away, whichever list it is in. Returns the one that comes in its place in this list, if any.
  function remove(id) {
    advanced = performance.now();
    return takeOut(id);
  }

  function takeOut(id) {
    const item = items.get(id);
    if (!item) return null;
    const order = shown();
    const place = order.indexOf(item);
    const next = order[place + 1] ?? order[place - 1] ?? null;
    watch.unobserve(item.element);
    item.element.remove();
    items.delete(id);
    if (picked === id) picked = next?.ask.id ?? null;
    return next?.ask.id ?? null;
  }

  // ---- Order and shape

  function arrange() {
    const wanted = [...items.values()].sort((one, other) => one.end - other.end || one.asked - other.asked || (one.ask.id < other.ask.id ? -1 : 1));
    let place = list.firstElementChild;
    for (const item of wanted) {
      item.element.hidden = !fits(item);
      if (place === item.element) place = place.nextElementSibling;
      // What is being used stays where it is: moving it would drop the focus and the place in a text.
      else if (!item.element.isConnected || !inUse(item.ask.id)) list.insertBefore(item.element, place);
    }
  }

  function fold() {
    const before = many;
    const busy = [...items.keys()].some(inUse);
    if (filtering() || items.size >= MANY) many = true;
    else if (items.size <= FEW && !busy) many = false;
    const visible = shown();
    const stays = picked === '' || visible.some(({ ask }) => ask.id === picked);
    if (many && !stays && !inUse(picked)) {
      const readers = before ? [] : [visible.find(({ ask }) => inUse(ask.id)), visible.find(({ ask }) => inView(ask.id))];
      picked = (readers.find(Boolean) ?? visible[0])?.ask.id ?? null;
    }
    document.body.classList.toggle('many', many);
    const ended = [];
    for (const [id, item] of items) {
      const stands = !many || id === picked;
      if (many) lineFor(item);
      else if (item.line) item.line = item.line.button.remove();
      if (stands && !cards.has(id)) item.element.append(open(item.ask).element);
      else if (!stands && cards.has(id) && !inUse(id)) {
        if (item.ask.state !== 'open' || !cards.get(id).isOpen()) ended.push(id);
        else drop(id);
      }
      item.element.classList.toggle('picked', many && stands);
      item.line?.button.setAttribute('aria-expanded', `${stands}`);
      if (item.line) item.line.draft.hidden = stands || !cards.has(id);
    }
    for (const id of ended) {
      takeOut(id);
      drop(id);
    }
    if (ended.length > 0) over(ended);
  }

  function lineFor(item) {
    if (item.line) return;
    const { ask } = item;
    const time = el('time', { class: 'left own' });
    const draft = el('span', { class: 'draft own', hidden: true }, 'not sent');
    const more = ask.questions.length > 1 ? el('span', { class: 'own' }, ` +${ask.questions.length - 1}`) : null;
    const button = el(
      'button',
      { type: 'button', class: 'brief', onclick: () => (picked === ask.id && !BESIDE.matches ? pick('') : pick(ask.id, { focus: true })) },
      el('span', { class: 'own who' }, el('span', { class: 'group' }, ask.group), draft, time),
      el('span', { class: 'asking' }, said('span', ask.questions[0].question), more),
    );
    item.line = { button, time, draft };
    item.element.prepend(button);
    tickOne(item);
  }

  function tickOne({ ask, line }) {
    if (!line) return;
    const outcome = ask.state === 'open' ? null : outcomeOf(ask);
    const at = outcome ? outcome.at : ask.answer_by;
    const { text, soon } = !outcome && at ? left(at) : { text: outcome ? ending(outcome).word : 'not shown yet', soon: false };
    if (line.time.textContent === text) return;
    line.time.textContent = text;
    line.time.dateTime = at ?? '';
    line.time.title = at ? exact(at) : '';
    line.button.classList.toggle('soon', soon);
  }

  // ---- The tools above the list

  function showChips() {
    const counts = new Map();
    for (const { ask } of items.values()) counts.set(ask.group, (counts.get(ask.group) ?? 0) + 1);
    if (group !== null && !counts.has(group)) counts.set(group, 0);
    for (const [name, chip] of chips) {
      if (counts.has(name)) continue;
      chip.button.remove();
      chips.delete(name);
    }
    for (const name of [...counts.keys()].sort().reverse()) {
      if (!chips.has(name)) chips.set(name, makeChip(name));
    }
    let place = byId('chips').firstElementChild;
    for (const name of [...chips.keys()].sort()) {
      const { button, count } = chips.get(name);
      if (place === button) place = place.nextElementSibling;
      else byId('chips').insertBefore(button, place);
      if (count.textContent !== `${counts.get(name)}`) count.textContent = `${counts.get(name)}`;
      button.setAttribute('aria-pressed', `${group === name}`);
    }
    byId('chips').hidden = chips.size < 2;
  }

  function makeChip(name) {
    const count = el('b');
    const press = () => {
      group = group === name ? null : name;
      show();
    };
    return { count, button: el('button', { type: 'button', class: 'chip', onclick: press }, name, ' ', count) };
  }

  function show() {
    if (!items.has(picked) && picked !== '') picked = null;
    arrange();
    fold();
    showChips();
    const found = shown().length;
    byId('tools').hidden = !many && !asked;
    byId('found').textContent = filtering() ? `${found} of ${items.size}` : '';
    byId('none-fits').hidden = found > 0 || items.size === 0;
  }

  const search = byId('search');
  // A finger has no keys to press.
  if (window.matchMedia('(hover: none)').matches) search.placeholder = 'Search';
  const look = () => {
    words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    show();
  };
  search.addEventListener('input', look);
  search.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== 'ArrowDown') return;
    event.preventDefault();
    const [first] = shown();
    advanced = -Infinity;
    if (first) focus(first.ask.id);
  });
  byId('show-all').addEventListener('click', () => {
    clear();
    search.focus();
  });
  function clear() {
    group = null;
    search.value = '';
    look();
  }

  // ---- Going from one to another

  function pick(id, { focus: focused = false } = {}) {
    picked = id;
    fold();
    if (id === '') return;
    items.get(id).element.scrollIntoView({ block: BESIDE.matches ? 'nearest' : 'start' });
    if (focused) cards.get(id).element.focus({ preventScroll: true });
  }

  function focus(id) {
    if (items.get(id)?.element.hidden) clear();
    if (many) pick(id, { focus: true });
    else cards.get(id)?.element.focus();
  }

  // The question that a key means: the one with the focus, whether or not it is in this list, else the one that is open beside
  // its line. What is not shown is never meant.
  function current() {
    const focused = document.activeElement?.closest('.item, article, .done');
    if (focused) return focused.dataset.ask ?? focused.id.replace('ask-', '');
    return many && items.get(picked)?.element.hidden === false ? picked : null;
  }

  function move(step) {
    advanced = -Infinity;
    const order = shown();
    const place = order.findIndex(({ ask }) => ask.id === current());
    const next = order[place < 0 ? 0 : Math.min(Math.max(place + step, 0), order.length - 1)];
    if (next) focus(next.ask.id);
  }

  return {
    take,
    end,
    remove,
    show,
    focus,
    move,
    clear,
    has: (id) => items.has(id),
    size: () => items.size,
    box: (id) => items.get(id)?.element.getBoundingClientRect(),
    // A key that comes right after one question has gone was meant for that one.
    current: (guardMs) => (performance.now() - advanced < guardMs ? null : cards.get(current())),
    tick: () => items.forEach(tickOne),
    search() {
      asked = true;
      show();
      search.focus();
      search.select();
    },
  };
}
