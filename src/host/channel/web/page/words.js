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

const PLACES = {
  web: 'in the web inbox',
  cli: 'on the command line',
  api: 'through the API',
  slack: 'on Slack',
  whatsapp: 'on WhatsApp',
};

const CHANNELS = { web: 'web inbox', slack: 'Slack', whatsapp: 'WhatsApp' };

export const channelName = (channel) => CHANNELS[channel] ?? channel;

// ` by alice on Slack`, or nothing where nobody did it (a timeout).
export function byWhom(outcome) {
  if (!outcome.by) return '';
  const { channel, id, name } = outcome.by;
  const who = name || (id === 'operator' ? 'the operator' : id);
  return ` by ${who} ${PLACES[channel] ?? `on ${channel}`}`;
}

// One or two words for how it ended, and the mark that goes with them.
export function ending(outcome) {
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

// `Answered by alice on Slack.`
export const endedHow = (outcome) => `${ending(outcome).word}${byWhom(outcome)}.`;

const oneAnswer = (detail) => [...(detail.selected ?? []), ...(detail.text ? [detail.text] : [])].join(', ');

// Pairs of question and answer, without the skipped ones.
export const answersOf = (outcome) =>
  (outcome.details ?? []).map((detail) => ({ question: detail.question, answer: oneAnswer(detail) })).filter(({ answer }) => answer !== '');
