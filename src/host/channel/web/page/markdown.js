// Lays out what an agent wrote as background: paragraphs, lists, quotes, code and diffs of Markdown, folded when it is long.
// It deliberately makes text nodes only, and no link or picture: what it does not know stays as it was written.

import { el } from './dom.js';

// Deeper quotes and lists are not laid out: each level is an element in an element, and thousands of them crash a browser's tab.
const DEEPEST = 8;

// `s`: a line may contain a Unicode line separator. Without `s`, the search fails there and begins anew at each space before it.
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}#{1,6}\s+(.*?)\s*#*$/s;
const ITEM = /^(\s*)(?:([-*+•])|(\d{1,9})[.)])\s+(.*)$/s;
const QUOTE = /^ {0,3}>\s?(.*)$/s;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const TABLE = /^\s*\|.*\|\s*$/;
const INDENTED = /^(?: {4}|\t)/;
const DIFF_START = /^(?:diff --git |@@ .*@@|--- \S)/;
const DIFF_LINE = /^(?:[ +\-\\]|@@|diff |index |new file|deleted file|similarity|rename |old mode|new mode)/;

// Code, bold and emphasis, in this order: what stands in code means itself. Only `**` at the edge of words is left out. Any
// other mark may be part of a pattern or a name (`*.log`, `__init__`) and stays: nobody is to approve other words than the agent's.
const CODE = /(?<ticks>`+)(?!`)(?<code>.+?)(?<!`)\k<ticks>(?!`)/.source;
const BEFORE = /(?<![^\s([{"'“‘«¡¿—–])/.source;
const BOLD = /\*\*(?=[\p{L}\p{N}\p{Sc}"'“‘«([`])(?<bold>[^*]*[^\s*])\*\*/u.source;
const EMPHASIS = /(?<mark>[*_])(?=[\p{L}\p{N}])[^*_\n]*[^\s*_]\k<mark>/u.source;
const AFTER = /(?=[)\]}"'”’».,;:!?…]*(?:[\s—–]|$)|[؟،؛。、，．：；！？」』）])/.source;
const SPAN = new RegExp(`${CODE}|${BEFORE}(?:${BOLD}|${EMPHASIS})${AFTER}`, 'su');

export function inline(text) {
  const parts = [];
  for (let rest = text; rest !== '';) {
    const match = SPAN.exec(rest);
    parts.push(match ? rest.slice(0, match.index) : rest);
    if (!match) break;
    const [whole] = match;
    const { code, bold } = match.groups;
    if (code) parts.push(el('code', {}, code));
    else if (bold) parts.push(el('strong', {}, ...inline(bold)));
    else parts.push(el('em', {}, whole));
    rest = rest.slice(match.index + whole.length);
  }
  return parts.filter((part) => part !== '');
}

const said = (tag, attributes, ...children) => el(tag, { dir: 'auto', ...attributes, class: `said ${attributes.class ?? ''}`.trim() }, ...children);

const kindOf = (line) => {
  if (/^(?:@@|diff |index )/.test(line)) return 'hunk';
  if (/^\+(?!\+\+ )/.test(line)) return 'added';
  return /^-(?!-- )/.test(line) ? 'removed' : null;
};

function code(lines, isDiff) {
  const children = isDiff ? lines.flatMap((line) => [el('span', { class: kindOf(line) }, line), '\n']) : [lines.join('\n')];
  return said('pre', { tabindex: 0, role: 'group', 'aria-label': isDiff ? 'Changes' : 'Code' }, el('code', {}, ...children));
}

// The blocks of these lines. Each branch takes its lines off `at`.
function blocks(lines, depth = 0) {
  const made = [];
  let at = 0;
  const isQuote = (line) => depth < DEEPEST && QUOTE.test(line);
  const take = (fits) => {
    const from = at;
    while (at < lines.length && fits(lines[at], at)) at += 1;
    return lines.slice(from, at);
  };
  const starts = (line, index) =>
    FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || isQuote(line) || RULE.test(line) || TABLE.test(line) || startsDiff(line, index);
  const startsDiff = (line, index) => DIFF_START.test(line) && (!line.startsWith('--- ') || /^\+\+\+ \S/.test(lines[index + 1] ?? ''));
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (line.trim() === '') at += 1;
    else if (fence) {
      at += 1;
      const inside = take((text) => !text.trimStart().startsWith(fence[1]));
      at += 1;
      // It names the language, or is a command whose author forgot the line break.
      const info = fence[2].trim();
      const [language, ...more] = info.split(/\s+/);
      if (more.length > 0 || inside.every((text) => text.trim() === '')) inside.unshift(info);
      made.push(code(inside, /^(?:diff|patch)$/.test(language) || inside.some((text) => /^@@ .*@@/.test(text))));
    } else if (startsDiff(line, at)) made.push(code(take((text) => DIFF_LINE.test(text)), true));
    else if (INDENTED.test(line)) made.push(code(take((text) => INDENTED.test(text)), false));
    else if (TABLE.test(line)) made.push(code(take((text) => TABLE.test(text)), false));
    else if (HEADING.test(line)) {
      made.push(said('p', { class: 'heading' }, ...inline(HEADING.exec(line)[1])));
      at += 1;
    } else if (RULE.test(line)) {
      made.push(el('hr'));
      at += 1;
    } else if (isQuote(line)) made.push(el('div', { class: 'quoted' }, ...blocks(take(isQuote).map((text) => QUOTE.exec(text)[1]), depth + 1)));
    else if (ITEM.test(line)) made.push(list(take((text) => ITEM.test(text) || (/^\s+\S/.test(text) && !FENCE.test(text)))));
    else made.push(said('p', {}, ...inline(take((text, index) => text.trim() !== '' && (text === line || !starts(text, index))).join('\n'))));
  }
  return made;
}

// Items as deep as the first one, each with what is indented further below it.
function list(lines, depth = 0) {
  const [, indent, , number] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && (items.length === 0 || depth === DEEPEST || item[1].length <= indent.length)) items.push({ number: item[3], text: [item[4]], inner: [] });
    else if (item || items.at(-1).inner.length > 0) items.at(-1).inner.push(line);
    else items.at(-1).text.push(line.trim());
  }
  const made = items.map((one) => said('li', { value: one.number }, ...inline(one.text.join('\n')), one.inner.length > 0 ? list(one.inner, depth + 1) : null));
  return number === undefined ? el('ul', {}, ...made) : el('ol', {}, ...made);
}

// Background in a box that shows its first lines, with a button for the rest where there is more.
export function background(text) {
  const body = el('div', { class: 'context folded' }, ...blocks(text.split(/\r\n?|\n/)));
  const more = el('button', { type: 'button', class: 'quiet unfold', hidden: true, 'aria-expanded': 'false' });
  const name = (open) => {
    more.textContent = open ? 'Show less' : 'Show all';
    more.setAttribute('aria-expanded', `${open}`);
  };
  more.addEventListener('click', () => name(!body.classList.toggle('folded')));
  name(false);
  new ResizeObserver(() => {
    if (body.classList.contains('folded')) more.hidden = body.scrollHeight <= body.clientHeight + 4;
  }).observe(body);
  return el('div', { class: 'background' }, body, more);
}
