// Builds elements. Text only ever becomes a text node here: there is deliberately no way to pass markup, so nothing
// that an agent writes can turn into an element, a link or a script.

let counter = 0;

export const byId = (id) => document.getElementById(id);

export const uniqueId = (prefix) => `${prefix}-${(counter += 1)}`;

// Characters that reverse what follows could make `rm` of `mr`, and those that nobody sees hide what a word says.
const TURNS = /[\u202a-\u202e\u2066-\u206f]|(?![\t\n])\p{Cc}/gu;
const HIDDEN = /[\r\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2060-\u2064\u2800\u3164\ufeff\uffa0\u{e0000}-\u{e007f}]/gu;
const visible = (child) => (typeof child === 'string' ? child.replace(HIDDEN, '').replace(TURNS, '\ufffd') : child);

// Attributes and children that are null or undefined are left out, false attributes too; `onclick` and the like become
// listeners.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined).map(visible));
  return node;
}

// Whether a person sees the middle of a control, or of the row that it stands in.
export function isInSight(control) {
  const target = control.closest('label') ?? control;
  const { left, top, width, height } = target.getBoundingClientRect();
  return target.contains(document.elementFromPoint(left + width / 2, top + height / 2));
}

// What an agent or a person wrote. `dir=auto` and the isolation in the style sheet keep right-to-left marks in it from
// reordering the words of askd around it.
export const said = (tag, text, kind = '') => el(tag, { class: `said ${kind}`.trim(), dir: 'auto' }, text);
