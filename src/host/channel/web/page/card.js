// One ask that can be answered: askd's own line, the agent's words and the form, sending, and what is shown when it was
// settled elsewhere. One that timed out keeps its form for as long as a late answer is taken. It deliberately never
// replaces its form until then: updates touch askd's own lines only.

import { answerAsk, dismissAsk, ownName, reportTyping } from './api.js';
import { el, said, uniqueId } from './dom.js';
import { draftOf, keepDraft } from './drafts.js';
import { buildForm } from './form.js';
import { wording } from './notify.js';
import { showNote } from './settled.js';
import { ago, answersOf, at, byWhom, ending, exact, isLate, left, NOT_TAKEN, now, OUT_OF_SIGHT, outcomeOf, place, until } from './words.js';

const time = () => el('time', {});

function setTime(node, instant, text) {
  if (node.textContent !== text) node.textContent = text;
  if (node.dateTime === instant) return;
  node.dateTime = instant;
  node.title = exact(instant);
}

// With less time left than this, an answer that is sent by itself may come late; the page's clock is not much better.
const SURE_MS = 5000;

// With less time left than this, words that were not sent ask for more; the daemon gives it once.
const HURRY_MS = 60000;
// That call is made again if it may not have got through.
const HURRY_AGAIN_MS = 2000;
// How long a link says that it was copied.
const COPIED_MS = 2000;
const COPY_LINK = 'Copy link';

// `settled(ask, { here, focused })`: it is over and the card can go (`here`: by this card; `focused`: the focus was in it);
// `unreached(problem)`: a call got no reply, or the token is not taken any more.
export function openCard(firstAsk, { settled, unreached }) {
  let ask = firstAsk;
  let state = 'open';
  let settledMeanwhile = null;
  // What got no reply, to be sent again when askd is back; that is done once. After the timeout it would start the agent, so only a person
  // sends it then.
  let unsent = null;
  let resent = false;
  // Whether an earlier call got no reply, or may not have been stored: it may have counted all the same.
  let doubtful = false;
  let hurried = false;

  const age = time();
  const rest = time();
  const deadline = el('p', { class: 'left' }, rest);
  const retry = el('p', { class: 'retry own', hidden: true });
  const trouble = el('p', { class: 'retry own', hidden: true });
  const asks = el('span', {}, 'asks');
  const heading = el('h3', { id: uniqueId('ask') }, el('span', { class: 'group' }, ask.group), ' ', asks);
  const channel = el('span', {});
  const strip = el(
    'header',
    { class: 'strip own' },
    heading,
    deadline,
    el('p', { class: 'meta' }, el('span', {}, 'asked ', age), channel, el('span', {}, 'id ', el('code', {}, ask.short_id ?? ask.id.slice(0, 8)))),
    retry,
    trouble,
  );

  const form = buildForm(ask, { send: (answers, again) => send(() => answerAsk(ask.id, answers), again), unfit: () => problem.replaceChildren() });
  const sending = el('p', { class: 'sending own', role: 'status' });
  const problem = el('div', { class: 'problem own', role: 'alert' });
  const dismissNow = () => send(() => dismissAsk(ask.id), { run: dismissNow, words: 'Dismiss', dismisses: true });
  const { element: foot, setBusy: setFootBusy, press: askToDismiss } = dismissal(dismissNow, ask);
  const late = lateLine();
  const note = el('p', { class: 'own after' });
  const body = el(
    'div',
    { class: 'body' },
    ask.title ? said('p', ask.title, 'title') : null,
    form.element,
    problem,
    sending,
  );
  const element = el('article', { class: 'card', id: `ask-${ask.id}`, tabindex: -1, 'aria-labelledby': heading.id }, strip, body, isLate(ask) ? late.element : foot);

  const focused = () => element.contains(document.activeElement);
  // A disabled control has dropped the focus; a person who has gone elsewhere meanwhile is not called back.
  const stays = (focus) => focus !== null && (focused() || document.activeElement === document.body);

  function busy(on) {
    form.setBusy(on);
    setFootBusy(on);
    sending.textContent = on ? 'Sending…' : '';
    if (on) problem.replaceChildren();
  }

  async function send(call, again) {
    // Two quick clicks arrive before the first has disabled anything.
    if (state !== 'open') return;
    const focus = focused() ? document.activeElement : null;
    const late = isLate(ask);
    state = 'sending';
    unsent = null;
    busy(true);
    try {
      const after = await call();
      state = 'closed';
      keepDraft(ask.id, null);
      settled(after, { here: true, focused: stays(focus) });
    } catch (failure) {
      failed(failure, { ...again, late }, focus);
    }
  }

  function failed(failure, again, focus) {
    const over = failure.status === 409 && failure.ask ? failure.ask : settledMeanwhile;
    if (over && isLate(over)) stayLate(over);
    else if (over) {
      const wasRefused = failure.status === 409 && !doubtful;
      notice(over, { lost: wasRefused || isNotOurs(over), focus: stays(focus) });
      return;
    }
    if (failure.status === 0 || failure.status >= 500) doubtful = true;
    state = 'open';
    settledMeanwhile = null;
    busy(false);
    const mayRepeat = (failure.status === 0 || failure.status >= 500) && !(isLate(ask) && again.dismisses);
    if (failure.status === 0) unsent = again;
    const resends = unsent !== null && !again.dismisses && !resent;
    problem.replaceChildren(...complaint(explanation(failure, resends), mayRepeat ? again : null));
    // A person on the keyboard would have to start from the top.
    if (stays(focus)) (focus.isConnected ? focus : element).focus({ preventScroll: true });
    if (failure.status === 0 || failure.status === 401) unreached(failure);
  }

  // The card stays where it is and says how it ended, because somebody was busy with it.
  function notice(over, { lost = false, focus = focused() } = {}) {
    const entered = form.entered();
    state = 'closed';
    ask = over;
    update();
    const close = () => {
      keepDraft(ask.id, null);
      settled(ask, { here: false, focused: true });
    };
    const what = ask.questions.length === 1 ? ask.questions[0].question : ask.title;
    const words = el('p', { class: 'lead' }, ...sentence(outcomeOf(over), lost ? 'Already ' : ''));
    showNote(note, over);
    // One that comes later must not move the buttons.
    const atOnce = note.textContent !== '';
    body.replaceChildren(el(
      'div',
      { class: 'notice', role: 'status', tabindex: -1 },
      what ? said('p', what, 'asked') : null,
      words,
      atOnce ? note : null,
      lost ? el('p', {}, 'Yours was not used.') : null,
      ...(entered ? leftover(entered) : []),
      el('div', { class: 'actions' }, entered ? copyButton(entered) : null, el('button', { type: 'button', class: 'secondary', onclick: close }, 'Close')),
      atOnce ? null : note,
    ));
    foot.remove();
    late.element.remove();
    element.classList.add('over');
    if (focus) body.firstChild.focus({ preventScroll: true });
  }

  // It timed out, but can still be answered. What says so takes the place of Dismiss below the form, because nothing
  // that somebody is typing in may move.
  function stayLate(over) {
    const lost = foot.contains(document.activeElement);
    if (foot.isConnected) foot.replaceWith(late.element);
    update(over);
    if (lost) element.focus({ preventScroll: true });
  }

  function update(newer = ask) {
    ask = newer;
    const open = ask.state === 'open';
    // It was only gone from here.
    if (open) settledMeanwhile = null;
    asks.textContent = open ? 'asks' : 'asked';
    // Where else it stands; the inbox is here, and what could not be shown there stands here alone.
    channel.hidden = ask.channel === 'web' || (open && Boolean(ask.cause_line));
    channel.textContent = channel.hidden ? '' : `also ${place(ask.channel)}`;
    if (isLate(ask)) element.setAttribute('aria-describedby', late.lineId);
    else element.removeAttribute('aria-describedby');
    retry.hidden = !(open && ask.attempt > 1 && !ask.viewed);
    retry.textContent = retry.hidden ? '' : wording(ask).body;
    trouble.hidden = !(open && ask.cause_line);
    trouble.textContent = trouble.hidden ? '' : `${ask.cause_line} You can answer here.`;
    tick();
  }

  function tick() {
    setTime(age, ask.created_at, ago(ask.created_at));
    const open = ask.state === 'open';
    if (isLate(ask)) late.tick(ask);
    deadline.hidden = !open && !isLate(ask);
    if (deadline.hidden) return;
    if (!open) {
      const { text, soon } = left(ask.late_until);
      element.classList.toggle('soon', soon);
      setTime(rest, ask.late_until, soon ? `Ends soon: ${text}` : until(ask.late_until));
      return;
    }
    if (!ask.answer_by) {
      rest.textContent = 'not shown anywhere yet';
      return;
    }
    askForTime();
    const { text, soon } = left(ask.answer_by);
    element.classList.toggle('soon', soon);
    setTime(rest, ask.answer_by, soon ? `Ends soon: ${text}` : text);
  }

  function askForTime() {
    if (hurried || Date.parse(ask.answer_by) - now() > HURRY_MS || !form.entered()) return;
    hurried = true;
    // The stream tells what came of it.
    reportTyping(ask.id).catch(({ status }) => {
      if (status === 0 || status >= 500) setTimeout(() => { hurried = false; }, HURRY_AGAIN_MS);
    });
  }

  // A click that the page did not take says so.
  function clickNotTaken() {
    if (state === 'open') sending.textContent = NOT_TAKEN;
  }

  // What is being changed is not sent by itself.
  element.addEventListener('input', () => {
    unsent = null;
    if (state !== 'closed') keepDraft(ask.id, form.entered() ? form.fields() : null);
  });
  const kept = draftOf(ask.id);
  if (kept) form.restore(kept);

  // askd is back. Somebody may have changed their mind about ending an ask; an answer is sent as it was, or kept for a person to send.
  function reconnected() {
    if (state !== 'open' || !unsent) return;
    const again = unsent;
    const inTime = again.late || (!isLate(ask) && (!ask.answer_by || Date.parse(ask.answer_by) - now() > SURE_MS));
    problem.replaceChildren();
    if (again.dismisses) unsent = null;
    else if (resent || !inTime) {
      const why = isLate(ask) && !again.late ? 'Your answer did not reach askd in time.' : 'Your answer has not reached askd.';
      problem.replaceChildren(...complaint(why, again, 'Send it now'));
    } else {
      resent = true;
      again.run();
    }
  }

  // It ended without this page. Returns whether the card keeps its place to say so.
  function settledElsewhere(over) {
    if (state === 'closed') {
      ask = over;
      showNote(note, over);
      return true;
    }
    if (state === 'sending') {
      // Our own call may be the one that settled it: its reply decides what to say.
      settledMeanwhile = over;
      return true;
    }
    const wasLate = isLate(ask);
    const lost = unsent !== null && isNotOurs(over);
    if (!lost && !form.entered() && !focused() && !(wasLate && isLate(over))) return false;
    if (isLate(over)) stayLate(over);
    else notice(over, { lost });
    return true;
  }

  update();
  return {
    element,
    update,
    tick,
    settledElsewhere,
    reconnected,
    clickNotTaken,
    isOpen: () => state !== 'closed',
    choose(number) {
      if (state !== 'open') return;
      const taken = form.choose(number);
      if (taken === false) sending.textContent = OUT_OF_SIGHT;
      else if (sending.textContent === OUT_OF_SIGHT) sending.textContent = '';
    },
    other: () => state === 'open' && form.other(),
    dismiss: () => state === 'open' && foot.isConnected && askToDismiss(),
    isUnsent: () => state !== 'closed' && unsent !== null && !unsent.dismisses,
    isInUse: () => state === 'sending' || unsent !== null || focused() || form.entered() !== '',
  };
}

// Whether what counted did not come from this page. If this person answered in the inbox, it may be the answer whose reply was
// lost, so the page does not say that theirs was not used.
function isNotOurs(ask) {
  const { by } = outcomeOf(ask);
  return by?.channel !== 'web' || (ownName() !== null && by.id !== ownName());
}

function explanation(failure, resends) {
  return {
    0: resends
      ? "Couldn't reach askd. Keep this page open: your answer is sent when askd is back, unless you change it or the time is up by then."
      : "Couldn't reach askd, so your answer may not have been saved. Nothing you typed is lost.",
    503: `Not stored: ${failure.message} What you entered is kept here.`,
  }[failure.status] ?? failure.message;
}

function complaint(text, again, press = 'Try again') {
  const line = el('p', { dir: 'auto', class: 'said' }, text);
  if (!again) return [line];
  const words = again.words === null ? [] : [': ', said('span', again.words)];
  return [line, el('button', { type: 'button', class: 'secondary', 'data-at-once': true, onclick: again.run }, press, ...words)];
}

// `Timed out at 14:32. You can still answer: ...`, where the card of an open ask has its Dismiss.
function lateLine() {
  const when = el('time', {});
  const words = 'You can still answer: the agent will be started with it.';
  const lineId = uniqueId('late');
  const line = el('p', { id: lineId }, el('strong', {}, 'Timed out ', when, '.'), ` ${words}`);
  return {
    lineId,
    element: el('footer', { class: 'foot own late-foot' }, line),
    tick: (ask) => setTime(when, ask.outcome.at, at(ask.outcome.at)),
  };
}

// `Answered by alice in Slack: React`, with the agent's and the person's words kept apart from askd's.
function sentence(outcome, before) {
  const { word } = ending(outcome);
  const answers = answersOf(outcome);
  const start = before ? before + word.toLowerCase() : word;
  const own = `${start}${byWhom(outcome)}`;
  if (answers.length === 0) return [`${own}.`];
  if (answers.length === 1) return [`${own}: `, said('strong', answers[0].answer)];
  return [`${own}:`, el('span', { class: 'pairs' }, ...answers.map(({ question, answer }) => el('span', { class: 'pair' }, said('span', question, 'asked'), said('strong', answer))))];
}

function leftover(entered) {
  const area = el('textarea', { readonly: true, rows: Math.min(8, entered.split('\n').length + 1), dir: 'auto', id: uniqueId('leftover') });
  area.value = entered;
  return [el('label', { for: area.id }, 'What you had entered here:'), area];
}

// Copies a text, and says on a control what came of it. Outside of HTTPS and the host itself there is no clipboard.
async function copyTo(control, text, sorry) {
  try {
    await navigator.clipboard.writeText(text);
    control.textContent = 'Copied';
  } catch {
    control.textContent = sorry;
  }
}

// What was not copied can be selected by hand.
function copyButton(entered) {
  const copy = ({ currentTarget: button }) => copyTo(button, entered, 'Could not copy');
  return el('button', { type: 'button', class: 'secondary', onclick: copy }, 'Copy');
}

async function copyLink(event) {
  // With a key it opens in another tab or window.
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const link = event.currentTarget;
  const name = link.getAttribute('aria-label');
  link.removeAttribute('aria-label');
  await copyTo(link, link.href, 'Copy it from the menu of this link');
  setTimeout(() => {
    link.textContent = COPY_LINK;
    if (name) link.setAttribute('aria-label', name);
  }, COPIED_MS);
}

// Ends the whole ask for the agent, so it takes a second, separate press.
function dismissal(run, { id, short_id: code }) {
  const element = el('footer', { class: 'foot own' });
  const telling = 'The agent is told that you don’t want to answer.';
  const first = el('button', { type: 'button', class: 'quiet', title: `Dismiss: ${telling}`, onclick: ask }, 'Dismiss…');
  const link = el('a', { href: `#ask-${code ?? id}`, class: 'quiet', 'aria-label': `${COPY_LINK} to ${code ?? id}`, onclick: copyLink }, COPY_LINK);
  const keep = el('button', { type: 'button', class: 'secondary', onclick: back }, 'Keep');
  const really = el('button', { type: 'button', class: 'danger', 'data-at-once': true, onclick: run }, 'Dismiss');
  const step = el(
    'div',
    { class: 'really', role: 'group', 'aria-label': 'Really dismiss?', onkeydown: (event) => event.key === 'Escape' && back() },
    el('p', {}, el('strong', {}, 'Really dismiss?'), ` ${telling}`),
    el('div', { class: 'actions' }, keep, really),
  );
  function ask() {
    element.replaceChildren(step);
    keep.focus();
  }
  function back() {
    element.replaceChildren(first, link);
    first.focus();
  }
  element.append(first, link);
  return {
    element,
    press: ask,
    setBusy(busy) {
      for (const button of [first, keep, really]) button.disabled = busy;
    },
  };
}
