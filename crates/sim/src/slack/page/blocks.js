// Draws Slack's text and blocks as DOM. Never as HTML: text stays text, so what looks like a mention or a link here would be one in Slack.

export function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const EMOJI = {
  tada: '🎉', warning: '⚠️', white_check_mark: '✔', x: '❌', eyes: '👀', thumbsup: '👍', '+1': '👍', question: '❓', hourglass: '⌛', no_entry_sign: '⊘', bell: '🔔', rocket: '🚀', smile: '😄',
};
const emoji = (text) => text.replace(/:([a-z0-9_+-]+):/g, (whole, name) => EMOJI[name] ?? whole);
const unescaped = (text) => emoji(text.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&'));

const INLINE = new RegExp(
  [
    '`([^`\\n]+)`',
    '<([^<>\\n]+)>',
    '(https?://[^\\s<>|]+)',
    '(?<![\\w*])\\*(?=\\S)([^*\\n]*?\\S)\\*(?![\\w*])',
    '(?<![\\w_])_(?=\\S)([^_\\n]*?\\S)_(?![\\w_])',
    '(?<![\\w~])~(?=\\S)([^~\\n]*?\\S)~(?![\\w~])',
  ].join('|'),
  'g',
);

// As Slack draws `<!date^1763713992^{date_short_pretty} at {time}|fallback>`: in the reader's own time zone.
function date(seconds, format) {
  const then = new Date(seconds * 1000);
  if (Number.isNaN(then.getTime())) return null;
  const days = Math.round((new Date(then).setHours(0, 0, 0, 0) - new Date().setHours(0, 0, 0, 0)) / 86400000);
  const pretty = { '-1': 'Yesterday', 0: 'Today', 1: 'Tomorrow' }[days];
  const day = (month, weekday) => then.toLocaleDateString('en-US', { weekday, month, day: 'numeric', year: 'numeric' });
  const time = (second) => then.toLocaleTimeString('en-US', { hour: 'numeric', minute: '2-digit', second });
  const words = {
    date_num: then.toLocaleDateString('en-CA'), date: day('long'), date_short: day('short'), date_long: day('long', 'long'),
    date_pretty: pretty ?? day('long'), date_short_pretty: pretty ?? day('short'), date_long_pretty: pretty ?? day('long', 'long'),
    time: time(), time_secs: time('2-digit'),
  };
  return format.replace(/\{(\w+)\}/g, (whole, name) => words[name] ?? whole);
}

function angle(inside, names) {
  const [target, label] = inside.split(/\|(.*)/s);
  const mention = (text) => make('span', { class: 'mention' }, text);
  if (target.startsWith('@')) return mention(`@${names[target.slice(1)] ?? target.slice(1)}`);
  if (target.startsWith('#')) return mention(`#${label ?? target.slice(1)}`);
  if (target.startsWith('!')) {
    const [word, ...rest] = target.slice(1).split('^');
    if (word === 'date') return date(Number(rest[0]), rest[1] ?? '') ?? label ?? '';
    const loud = make('span', { class: 'mention loud' }, label ?? `@${word}`);
    return loud;
  }
  if (/^(https?:|mailto:|tel:)/.test(target)) return link(target, label);
  return `<${unescaped(inside)}>`;
}

function link(target, label) {
  // Not followed on a click: the stand-in leads nowhere.
  return make('a', { href: target, title: target, rel: 'noreferrer', onclick: (event) => event.preventDefault() }, unescaped(label ?? target));
}

function inline(text, names) {
  const out = document.createDocumentFragment();
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    out.append(unescaped(text.slice(at, match.index)));
    const [whole, code, inside, url, bold, italic, strike] = match;
    if (code !== undefined) out.append(make('code', {}, unescaped(code)));
    else if (inside !== undefined) out.append(angle(inside, names));
    else if (url !== undefined) out.append(link(url));
    else if (bold !== undefined) out.append(make('strong', {}, inline(bold, names)));
    else if (italic !== undefined) out.append(make('em', {}, inline(italic, names)));
    else out.append(make('s', {}, inline(strike, names)));
    at = match.index + whole.length;
  }
  out.append(unescaped(text.slice(at)));
  return out;
}

/** Text with Slack's marks. */
export function mrkdwn(text, names) {
  const out = document.createDocumentFragment();
  for (const [index, part] of text.split(/```\n?([\s\S]*?)\n?```/).entries()) {
    if (index % 2 === 1) {
      out.append(make('pre', {}, unescaped(part)));
      continue;
    }
    let quote = null;
    const lines = part.split('\n');
    for (const [row, line] of lines.entries()) {
      const quoted = line.match(/^(?:&gt;|>) ?(.*)/);
      if (quoted) {
        quote ??= out.appendChild(make('blockquote'));
        if (quote.childNodes.length) quote.append(make('br'));
        quote.append(inline(quoted[1], names));
        continue;
      }
      if (row > 0 && !quote) out.append(make('br'));
      quote = null;
      out.append(inline(line, names));
    }
  }
  return out;
}

function text(object, names) {
  if (!object) return '';
  if (typeof object === 'string') return object;
  return object.type === 'mrkdwn' ? mrkdwn(object.text, names) : emoji(object.text);
}

let serial = 0;

function option(kind, name, entry, on, change, names) {
  const id = `o${(serial += 1)}`;
  const box = make('input', { type: kind, name, id, value: entry.value, checked: on, onchange: change });
  const label = make('label', { for: id }, text(entry.text, names));
  if (entry.description) label.append(make('span', { class: 'description' }, text(entry.description, names)));
  return make('div', { class: 'option' }, box, label);
}

const sames = (values, entry) => (values ?? []).some((value) => value.value === entry.value);

function choices(element, block, ctx) {
  const many = element.type === 'checkboxes';
  const now = ctx.values?.[block.block_id]?.[element.action_id] ?? {};
  const chosen = many ? now.selected_options : [now.selected_option].filter(Boolean);
  const group = make('div', { class: 'choices', role: many ? 'group' : 'radiogroup' });
  const name = `n${(serial += 1)}`;
  const change = () => {
    const values = [...group.querySelectorAll('input:checked')].map((box) => box.value);
    ctx.act(element, block, { act: 'choose', values });
  };
  for (const entry of element.options) group.append(option(many ? 'checkbox' : 'radio', name, entry, sames(chosen, entry), change, ctx.names));
  return group;
}

function select(element, block, ctx) {
  const many = element.type === 'multi_static_select';
  const now = ctx.values?.[block.block_id]?.[element.action_id] ?? {};
  const chosen = many ? now.selected_options : [now.selected_option].filter(Boolean);
  const change = (event) => {
    const values = [...event.target.selectedOptions].map((entry) => entry.value).filter(Boolean);
    if (values.length || many) ctx.act(element, block, { act: 'choose', values });
  };
  const box = make('select', { multiple: many, onchange: change, 'aria-label': element.placeholder?.text ?? 'Select' });
  if (!many) box.append(make('option', { value: '' }, element.placeholder?.text ?? 'Select an item'));
  const fill = (into, options) => {
    for (const entry of options) into.append(make('option', { value: entry.value, selected: sames(chosen, entry) }, text(entry.text, ctx.names)));
  };
  if (element.options) fill(box, element.options);
  for (const group of element.option_groups ?? []) {
    const part = box.appendChild(make('optgroup', { label: group.label.text }));
    fill(part, group.options);
  }
  return box;
}

function textInput(element, block, ctx) {
  const now = ctx.values?.[block.block_id]?.[element.action_id]?.value ?? '';
  const box = make(element.multiline ? 'textarea' : 'input', {
    class: 'field',
    'data-key': `${block.block_id}/${element.action_id}`,
    maxlength: element.max_length ?? 3000,
    placeholder: element.placeholder?.text,
    autocomplete: 'off',
    rows: element.multiline ? 3 : undefined,
  });
  box.value = now;
  box.addEventListener('input', () => ctx.type(element, block, box));
  box.addEventListener('change', () => ctx.type(element, block, box));
  box.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing) return;
    if (element.multiline && !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    ctx.act(element, block, { act: 'enter' });
  });
  return box;
}

function button(element, block, ctx) {
  const press = () => ctx.act(element, block, { act: 'click' });
  return make('button', { type: 'button', class: `button ${element.style ?? ''}`, 'aria-label': element.accessibility_label, onclick: press }, text(element.text));
}

function overflow(element, block, ctx) {
  const change = (event) => event.target.value && ctx.act(element, block, { act: 'choose', values: [event.target.value] });
  const box = make('select', { class: 'overflow', 'aria-label': 'More', onchange: change }, make('option', { value: '' }, '…'));
  for (const entry of element.options) box.append(make('option', { value: entry.value }, text(entry.text)));
  return box;
}

function element(one, block, ctx) {
  switch (one.type) {
    case 'button': return button(one, block, ctx);
    case 'radio_buttons':
    case 'checkboxes': return choices(one, block, ctx);
    case 'static_select':
    case 'multi_static_select': return select(one, block, ctx);
    case 'plain_text_input': return textInput(one, block, ctx);
    case 'overflow': return overflow(one, block, ctx);
    case 'image': return make('span', { class: 'image' }, one.alt_text);
    default: return make('span', { class: 'unknown' }, one.type);
  }
}

function input(block, ctx) {
  const label = make('div', { class: 'label' }, text(block.label));
  if (block.optional) label.append(make('span', { class: 'optional' }, ' (optional)'));
  const hint = block.hint && make('div', { class: 'hint' }, text(block.hint));
  const error = ctx.errors?.[block.block_id] && make('div', { class: 'warning', role: 'alert' }, ctx.errors[block.block_id]);
  const body = element(block.element, block, ctx);
  if (body.matches('.field, select, .choices')) body.setAttribute('aria-label', block.label.text);
  const enter = block.dispatch_action && block.element.type === 'plain_text_input' && make('div', { class: 'hint' }, block.element.multiline ? 'Press Ctrl+Enter to send' : 'Press Enter to send');
  return make('div', { class: 'block input' }, label, body, hint, enter, error);
}

function section(block, ctx) {
  const body = make('div', { class: 'section-text' });
  if (block.text) body.append(text(block.text, ctx.names));
  if (block.fields) body.append(make('div', { class: 'fields' }, ...block.fields.map((field) => make('div', {}, text(field, ctx.names)))));
  const accessory = block.accessory && make('div', { class: 'accessory' }, element(block.accessory, block, ctx));
  return make('div', { class: 'block section' }, body, accessory);
}

/** Markdown, as far as agents write it, by the marks of Slack. */
function markdown(text, names) {
  const parts = text.split(/(```[\s\S]*?```|`[^`\n]+`)/);
  const marks = (part) => part
    .replace(/\*\*(?=\S)(.+?)\*\*/g, '\u0001$1\u0001')
    .replace(/(?<![\w*])\*(?=\S)([^*\n]*?\S)\*(?![\w*])/g, '_$1_')
    .replaceAll('\u0001', '*')
    .replace(/~~(.+?)~~/g, '~$1~')
    .replace(/^#{1,6} +(.+)$/gm, '*$1*')
    .replace(/^(\s*)[-*] +/gm, '$1• ');
  const slack = parts.map((part, index) => (index % 2 ? part.replace(/^```\w+\n/, '```\n') : marks(part)));
  return mrkdwn(slack.join(''), names);
}

/** One block. `ctx`: names of people, values of elements, `act(element, block, what)`, `type(element, block, box)`. */
export function block(one, ctx) {
  switch (one.type) {
    case 'section': return section(one, ctx);
    case 'header': return make('div', { class: 'block header', role: 'heading', 'aria-level': 3 }, text(one.text));
    case 'divider': return make('hr');
    case 'context': {
      const parts = one.elements.map((part) => make('span', {}, part.type === 'image' ? element(part, one, ctx) : text(part, ctx.names)));
      return make('div', { class: 'block context' }, ...parts);
    }
    case 'actions': return make('div', { class: 'block actions' }, ...one.elements.map((part) => element(part, one, ctx)));
    case 'input': return input(one, ctx);
    case 'image': return make('div', { class: 'block' }, make('span', { class: 'image' }, one.alt_text));
    case 'markdown': return make('div', { class: 'block' }, markdown(one.text, ctx.names));
    default: return make('div', { class: 'block unknown' }, `${one.type} (not drawn here)`);
  }
}
