// Says times and outcomes in words. It deliberately knows nothing of elements, so that the same sentence is used
// wherever a fact is shown.

let offset = 0;

// A phone's clock can be minutes off; time left is counted on the daemon's clock. The header has whole seconds, so small
// differences mean nothing.
export function setClock(dateHeader) {
  const difference = Date.parse(dateHeader) - Date.now();
  offset = Number.isFinite(difference) && Math.abs(difference) > 3000 ? difference : 0;
}

export const now = () => Date.now() + offset;

// A click was swallowed, because it was most likely meant for what stood there before.
export const NOT_TAKEN = 'Nothing was sent: the page moved as you clicked. Click again if you meant this question.';

// To a person who pressed the key of an option that is not in view.
export const OUT_OF_SIGHT = 'Nothing was chosen: this option was out of sight. Press the key again if you meant it.';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

// From when on is an ask marked as one that ends soon?
const SOON = 5 * MINUTE;

const pair = (big, bigWord, small, smallWord) => (small > 0 ? `${big} ${bigWord} ${small} ${smallWord}` : `${big} ${bigWord}`);

export function ago(instant) {
  const passed = now() - Date.parse(instant);
  if (passed < 10 * SECOND) return 'just now';
  if (passed < MINUTE) return `${Math.floor(passed / SECOND)} s ago`;
  if (passed < HOUR) return `${Math.floor(passed / MINUTE)} min ago`;
  if (passed < DAY) return `${Math.floor(passed / HOUR)} h ago`;
  const days = Math.floor(passed / DAY);
  return days === 1 ? '1 day ago' : `${days} days ago`;
}

// How long an ask can still be answered: `{ text, soon }`.
export function left(answerBy) {
  const rest = Date.parse(answerBy) - now();
  const soon = rest < SOON;
  if (rest <= 0) return { text: 'time is up', soon };
  if (rest < MINUTE) return { text: `${Math.ceil(rest / SECOND)} s left`, soon };
  if (rest < SOON) return { text: `${pair(Math.floor(rest / MINUTE), 'min', Math.floor((rest % MINUTE) / SECOND), 's')} left`, soon };
  if (rest < HOUR) return { text: `${Math.floor(rest / MINUTE)} min left`, soon };
  if (rest < DAY) return { text: `${pair(Math.floor(rest / HOUR), 'h', Math.floor((rest % HOUR) / MINUTE), 'min')} left`, soon };
  const days = Math.floor(rest / DAY);
  return { text: `${pair(days, days === 1 ? 'day' : 'days', Math.floor((rest % DAY) / HOUR), 'h')} left`, soon };
}

export const exact = (instant) => new Date(instant).toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'medium' });

export const clockTime = (millis) =>
  new Date(millis).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });

// When something was or will be: the time alone today, else with its day. `{ day, time }`, `day` is null for today.
function moment(instant) {
  const date = new Date(instant);
  const today = date.toDateString() === new Date(now()).toDateString();
  return { day: today ? null : date.toLocaleDateString(undefined, { month: 'short', day: 'numeric' }), time: clockTime(date) };
}

// The day of an instant, as a heading.
export function day(instant) {
  const date = new Date(instant);
  const back = Math.round((new Date(now()).setHours(0, 0, 0, 0) - new Date(instant).setHours(0, 0, 0, 0)) / DAY);
  if (back < 2) return back < 1 ? 'Today' : 'Yesterday';
  return date.toLocaleDateString(undefined, { weekday: 'long', month: 'long', day: 'numeric', year: 'numeric' });
}

export function at(instant) {
  const { day, time } = moment(instant);
  return day === null ? `at ${time}` : `on ${day} at ${time}`;
}

export function until(instant) {
  const { day, time } = moment(instant);
  return day === null ? `until ${time}` : `until ${day}, ${time}`;
}

// The words of `Via::place` in the core.
const PLACES = {
  web: 'in the inbox',
  cli: 'in a terminal',
  api: 'through the API',
  slack: 'in Slack',
  whatsapp: 'on WhatsApp',
};

export const place = (channel) => PLACES[channel] ?? `in ${channel}`;

// ` by alice in Slack`, or nothing where nobody did it (a timeout).
export function byWhom(outcome) {
  if (!outcome.by) return '';
  const { channel, id, name } = outcome.by;
  const who = name || (id === 'operator' ? 'the operator' : id);
  return ` by ${who} ${place(channel)}`;
}

// It timed out, but an answer is still taken.
export const isLate = (ask) => ask.state === 'settled' && Boolean(ask.late_until);

// How it ended for people. Whoever waited was told of the timeout; an answer that came after it is what counts here.
export const outcomeOf = (ask) =>
  ask.late_answer ? { ...ask.outcome, ...ask.late_answer, status: 'answered', reason: 'user', late: true } : ask.outcome;

// What became of an outcome that was not collected, or null. A closing line that says the same is not said twice.
export const noteOf = (ask) => (ask.note && ask.note !== ask.outcome?.line ? ask.note : null);

// Under `abort_task` the closing line of a timeout says one thing more.
const STOPPED = 'Timed out, cancelled.';

// A few words for how it ended, and the mark that goes with them.
export function ending(outcome) {
  if (outcome.late) return { word: 'Answered after the timeout', mark: '✓', kind: 'good' };
  if (outcome.line === STOPPED) return { word: 'Timed out, cancelled', mark: '!', kind: 'bad' };
  switch (`${outcome.status}/${outcome.reason}`) {
    case 'answered/user': return { word: 'Answered', mark: '✓', kind: 'good' };
    case 'cancelled/user': return { word: 'Dismissed', mark: '–', kind: 'calm' };
    case 'cancelled/system': return { word: 'Withdrawn', mark: '–', kind: 'calm' };
    case 'timeout/timeout': return { word: 'Timed out', mark: '!', kind: 'bad' };
    case 'undeliverable/system': return { word: 'Could not be shown', mark: '!', kind: 'bad' };
    case 'blocked/system': return { word: 'Asked too often', mark: '–', kind: 'calm' };
    case 'rejected/system': return { word: 'Refused', mark: '!', kind: 'bad' };
    default: return { word: 'Closed', mark: '–', kind: 'calm' };
  }
}

const HAPPENED = {
  asked: 'asked',
  joined: 'another call waits for it',
  call_withdrawn: 'one call was withdrawn',
  call_replaced: 'a later call replaced a call whose process is dead',
  posted: 'posted',
  shown: 'shown',
  not_shown: 'could not be shown',
  reminded: 'people were reminded',
  not_reminded: 'a reminder was left out',
  escalated: 'nobody answered: on to the next route',
  answered: 'answered',
  dismissed: 'dismissed',
  withdrawn: 'withdrawn',
  expired: 'timed out',
  undeliverable: 'given up: it could not be shown',
  blocked: 'blocked: asked too often',
  refused: 'a reply was refused',
  delivered: 'the answer is ready for the agent',
  not_collected: 'the agent did not collect it',
  briefed: 'kept for the next start of the agent',
  briefing_read: 'the agent read it',
  started: 'the agent was started with it',
  start_failed: 'the agent could not be started; trying again',
  start_given_up: 'the agent could not be started',
  answered_late: 'answered after the timeout',
  stopped: 'the session was stopped',
  allowed_again: 'allowed again',
  unblocked: 'the block has ended',
  closed: 'the card was closed',
};

// A line of the trail, in words: `answered by ann in the inbox`.
export function happened({ what, channel, attempt, by, reason }) {
  const where = channel ? ` ${place(channel)}` : '';
  const who = by ? ` by ${by === 'operator' ? 'the operator' : by}` : '';
  const more = [attempt > 1 ? `attempt ${attempt}` : null, what === 'refused' ? reason?.replaceAll('_', ' ') : null].filter(Boolean).join(', ');
  return `${HAPPENED[what] ?? what}${who}${where}${more ? ` (${more})` : ''}`;
}

// `Answered by alice in Slack.`
export const endedHow = (outcome) => `${ending(outcome).word}${byWhom(outcome)}.`;

const oneAnswer = (detail) => [...(detail.selected ?? []), ...(detail.text ? [detail.text] : [])].join(', ');

// Pairs of question and answer, without the skipped ones.
export const answersOf = (outcome) =>
  (outcome.details ?? []).map((detail) => ({ question: detail.question, answer: oneAnswer(detail) })).filter(({ answer }) => answer !== '');
