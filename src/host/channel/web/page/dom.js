// Builds elements. Text only ever becomes a text node here: there is deliberately no way to pass markup, so nothing
// that an agent writes can turn into an element, a link or a script.

let counter = 0;

export const byId = (id) => document.getElementById(id);

export const uniqueId = (prefix) => `${prefix}-${(counter += 1)}`;

// Attributes and children that are null or undefined are left out, false attributes too; `onclick` and the like become
// listeners.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// What an agent or a person wrote. `dir=auto` and the isolation in the style sheet keep right-to-left marks in it from
// reordering the words of askd around it.
export const said = (tag, text, kind = '') => el(tag, { class: `said ${kind}`.trim(), dir: 'auto' }, text);
