// The fields of an ask: shows its questions, reads what was entered, points out what is missing. It deliberately sends
// nothing and never rebuilds itself, so that what a person typed cannot be lost to an update.

import { el, isInSight, said, uniqueId } from './dom.js';
import { background, inline } from './markdown.js';

const OPTIONAL = 'optional – leave empty to skip';
// Where "No answer" is one of the choices.
const OPTIONAL_CHOICE = 'optional';

const CHOICES = ['select', 'confirm'];

// A text field that grows where the browser knows how. Enter is a newline, as in every other text of several lines.
const textArea = (attributes) => el('textarea', { rows: 1, dir: 'auto', ...attributes });

function legend(question, index, total) {
  return el(
    'legend',
    {},
    total > 1 ? el('span', { class: 'own counter' }, `Question ${index + 1} of ${total}`) : null,
    question.header ? said('span', question.header, 'header') : null,
    el('span', { class: 'said question', dir: 'auto' }, ...inline(question.question)),
    question.required ? null : el('span', { class: 'own optional' }, total > 1 && CHOICES.includes(question.type) ? OPTIONAL_CHOICE : OPTIONAL),
  );
}

// The words of one option, and how they name and describe its control.
function optionWords(option) {
  const label = said('span', option.label, 'label');
  label.id = uniqueId('label');
  const description = option.description ? said('span', option.description, 'description') : null;
  if (description) description.id = uniqueId('description');
  return { label, description, names: { 'aria-labelledby': label.id, 'aria-describedby': description?.id } };
}

// The frame of every question: a group named by its text, with a place for what is missing.
function frame(question, index, total, attributes, ...children) {
  const complaint = el('p', { class: 'complaint', id: uniqueId('complaint'), hidden: true });
  const element = el('fieldset', { class: `field ${question.type}`, ...attributes }, legend(question, index, total), ...children, complaint);
  const complain = (text, marked) => {
    complaint.textContent = text ?? '';
    complaint.hidden = !text;
    element.classList.toggle('missing', Boolean(text));
    for (const control of marked) {
      if (text) control.setAttribute('aria-invalid', 'true');
      else control.removeAttribute('aria-invalid');
      const others = (control.getAttribute('aria-describedby') ?? '').split(' ').filter((id) => id && id !== complaint.id);
      if (text) others.push(complaint.id);
      if (others.length > 0) control.setAttribute('aria-describedby', others.join(' '));
      else control.removeAttribute('aria-describedby');
    }
  };
  return { element, complain };
}

// A field has: `read()` (a value, or undefined for nothing), `fault()` (a sentence, or null), `complain(text)`,
// `entered()` (what would be lost, as text lines), `focus()` and, beside options, `options` (their controls).

function textField(question, index, total) {
  const area = textArea({ rows: 3, placeholder: question.placeholder });
  const { element, complain } = frame(question, index, total, {}, area);
  // Named by the question itself and not by the group around it, which screen readers announce only once.
  const words = element.querySelector('.question');
  words.id = uniqueId('question');
  area.setAttribute('aria-labelledby', words.id);
  const value = () => area.value.trim() || undefined;
  return {
    element,
    read: value,
    fault: () => (question.required && !value() ? 'Please write an answer.' : null),
    complain: (text) => complain(text, [area]),
    entered: () => (value() ? [value()] : []),
    focus: () => area.focus(),
  };
}

// One click is the answer. `choose(label)` is called for an option, `submit()` for the text.
function buttonsField(question, { choose, submit }) {
  const buttons = question.options.map((option) => {
    // Named by all of its words: who speaks to a computer says what stands on the button.
    const { label, description } = optionWords(option);
    const kind = ['primary', 'danger'].includes(option.style) ? ` ${option.style}` : '';
    return el('button', { type: 'button', class: `choice${kind}`, 'data-at-once': true, onclick: () => choose(option.label) }, label, description);
  });
  const area = question.custom ? textArea({ id: uniqueId('other'), placeholder: question.placeholder }) : null;
  const other = area && el(
    'div',
    { class: 'other' },
    el('label', { for: area.id, class: 'own' }, 'Other: answer in your own words'),
    el('div', { class: 'beside' }, area, el('button', { type: 'button', class: 'secondary', 'data-at-once': true, onclick: submit }, 'Submit')),
  );
  const { element, complain } = frame(question, 0, 1, {}, el('div', { class: 'choices' }, ...buttons), other);
  const value = () => area?.value.trim() || undefined;
  return {
    element,
    read: value,
    fault: () => (value() ? null : 'Please choose an option or write an answer.'),
    complain: (text) => complain(text, area ? [area] : []),
    entered: () => (value() ? [value()] : []),
    focus: () => (area ?? buttons[0]).focus(),
    options: buttons,
  };
}

function row(control, ...words) {
  return el('label', { class: 'row' }, control, el('span', { class: 'words' }, ...words));
}

function radioField(question, index, total) {
  const group = uniqueId('choice');
  const radio = (attributes) => el('input', { type: 'radio', name: group, ...attributes });
  const picks = question.options.map((option) => {
    const { label, description, names } = optionWords(option);
    const control = radio(names);
    return { control, label: option.label, element: row(control, label, description) };
  });
  const none = question.required ? null : radio({ checked: true });
  // An agent may have options of these names.
  const own = (name, instead) => (picks.some(({ label }) => label.trim().toLowerCase() === name.toLowerCase()) ? instead : name);
  const titles = { other: own('Other', 'In your own words'), none: own('No answer', 'Leave it open') };
  const otherRadio = question.custom ? radio({}) : null;
  const area = question.custom ? textArea({ placeholder: question.placeholder, 'aria-label': 'Other: your own words' }) : null;
  area?.addEventListener('input', () => {
    if (area.value.trim()) otherRadio.checked = true;
  });
  otherRadio?.addEventListener('change', () => area.focus());
  const { element, complain } = frame(
    question, index, total, { role: 'radiogroup' },
    ...picks.map((pick) => pick.element),
    otherRadio && el('div', { class: 'other' }, row(otherRadio, el('span', { class: 'own label' }, titles.other)), area),
    none && row(none, el('span', { class: 'own label' }, titles.none)),
  );
  const words = () => area?.value.trim() || undefined;
  const value = () => (otherRadio?.checked ? words() : picks.find((pick) => pick.control.checked)?.label);
  return {
    element,
    read: value,
    fault() {
      if (otherRadio?.checked && !words()) return 'Please write your own answer, or choose another option.';
      if (!otherRadio?.checked && words()) return `You have also entered words of your own. Choose “${titles.other}” to send them, or clear them.`;
      return question.required && !value() ? 'Please choose an option.' : null;
    },
    complain: (text) => {
      complain(null, [element, area].filter(Boolean));
      complain(text, otherRadio?.checked || words() ? [area] : [element]);
    },
    entered: () => [picks.find((pick) => pick.control.checked)?.label, words()].filter(Boolean),
    focus: () => (otherRadio?.checked || words() ? area : picks.find((pick) => pick.control.checked)?.control ?? picks[0].control).focus(),
    options: picks.map((pick) => pick.control),
  };
}

function checkField(question, index, total) {
  const picks = question.options.map((option) => {
    const { label, description, names } = optionWords(option);
    const control = el('input', { type: 'checkbox', ...names });
    return { control, label: option.label, element: row(control, label, description) };
  });
  const area = question.custom ? textArea({ id: uniqueId('other'), placeholder: question.placeholder }) : null;
  const { element, complain } = frame(
    question, index, total, {},
    ...picks.map((pick) => pick.element),
    area && el('div', { class: 'other' }, el('label', { for: area.id, class: 'own' }, 'Other: add your own words'), area),
  );
  const values = () => [...picks.filter((pick) => pick.control.checked).map((pick) => pick.label), area?.value.trim()].filter(Boolean);
  return {
    element,
    read: () => (values().length > 0 ? values() : undefined),
    fault: () => (question.required && values().length === 0 ? 'Please choose at least one option.' : null),
    complain: (text) => complain(text, [...picks.map((pick) => pick.control), ...(area ? [area] : [])]),
    entered: values,
    focus: () => picks[0].control.focus(),
    options: picks.map((pick) => pick.control),
  };
}

const FIELDS = { text: textField, select: radioField, confirm: radioField, 'multi-select': checkField };

// `send(answers, retry)` gets complete answers keyed by question id; `retry` is what a button to try again should do and
// say: `{ run, words }`. `unfit()`: the form itself says what is missing, so what was said of the last try is over.
export function buildForm(ask, { send, unfit }) {
  const { questions } = ask;
  const [first] = questions;
  const instant = questions.length === 1 && (first.type === 'select' || first.type === 'confirm');
  let fields;

  const submit = () => {
    const faults = fields.map((field) => field.fault());
    fields.forEach((field, index) => field.complain(faults[index]));
    const missing = faults.findIndex(Boolean);
    if (missing >= 0) {
      unfit();
      fields[missing].focus();
      return;
    }
    const answers = {};
    questions.forEach((question, index) => {
      const value = fields[index].read();
      if (value !== undefined) answers[question.id] = value;
    });
    send(answers, { run: submit, words: null });
  };
  // Sends this at once, unless an answer of the person's own would be lost by it.
  const instead = (answers, words, run) => {
    const [field] = fields;
    const typed = field.entered().length > 0;
    field.complain(typed ? `You have also entered an answer of your own. Submit that, or clear it and press “${words}” again.` : null);
    if (typed) field.focus();
    else send(answers, { run, words });
  };
  const choose = (label) => instead({ [first.id]: label }, label, () => choose(label));
  const skip = () => instead({}, 'Skip', skip);

  fields = instant
    ? [buttonsField(first, { choose, submit })]
    : questions.map((question, index) => (FIELDS[question.type] ?? textField)(question, index, questions.length));

  const element = el(
    'form',
    {
      novalidate: true,
      onsubmit(event) {
        event.preventDefault();
        submit();
      },
      onkeydown(event) {
        if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
        event.preventDefault();
        if (event.target.tagName === 'TEXTAREA' || !instant) submit();
      },
    },
    ...fields.map((field) => field.element),
  );
  // Background stands below the question, or before all of them where there are several.
  if (ask.context && questions.length === 1) element.querySelector('legend').after(background(ask.context));
  else if (ask.context) element.prepend(background(ask.context));
  const typed = questions.some((question) => question.type === 'text' || question.custom);
  const buttons = [
    instant ? null : el('button', { type: 'submit', class: 'primary', 'data-at-once': true }, 'Submit'),
    questions.length === 1 && !first.required ? el('button', { type: 'button', class: 'secondary', 'data-at-once': true, onclick: skip }, 'Skip') : null,
    typed && !instant ? el('span', { class: 'note keys' }, 'Ctrl or ⌘ + Enter submits') : null,
  ].filter(Boolean);
  if (buttons.length > 0) element.append(el('div', { class: 'actions' }, ...buttons));

  const controls = () => [...element.querySelectorAll('textarea, input')];
  return {
    element,
    // What all controls hold, to be put back after a reload.
    fields: () => controls().map((control) => (control.tagName === 'TEXTAREA' ? control.value : control.checked)),
    restore(kept) {
      controls().forEach((control, index) => {
        if (control.tagName === 'TEXTAREA' && typeof kept[index] === 'string') control.value = kept[index];
        else if (typeof kept[index] === 'boolean') control.checked = kept[index];
      });
    },
    // The option with this number, of the question with the focus or of the first one without an answer.
    // Returns whether that was taken; `null`: there is no such option. What is out of sight is brought into it, and not chosen.
    choose(number) {
      const open = fields.filter(({ options }) => options?.length >= number);
      const field = open.find((one) => one.element.contains(document.activeElement)) ?? open.find((one) => one.read() === undefined) ?? open[0];
      if (!field) return null;
      const option = field.options[number - 1];
      const seen = isInSight(option);
      if (!seen) option.scrollIntoView({ block: 'center' });
      option.focus({ preventScroll: true });
      if (seen) option.click();
      return seen;
    },
    other: () => element.querySelector('textarea')?.focus(),
    // What a person has entered so far, as text to copy; empty if nothing.
    entered() {
      const parts = fields.map((field, index) => ({ question: questions[index].question, lines: field.entered() }));
      const filled = parts.filter(({ lines }) => lines.length > 0);
      if (questions.length === 1) return filled.flatMap(({ lines }) => lines).join('\n');
      return filled.map(({ question, lines }) => `${question}\n${lines.join('\n')}`).join('\n\n');
    },
    setBusy(busy) {
      for (const control of element.querySelectorAll('button, input')) control.disabled = busy;
      for (const area of element.querySelectorAll('textarea')) area.readOnly = busy;
    },
  };
}
