// Starts the stand-in of Slack, and plays people in it by the page's own interface. Binds 127.0.0.1 only; ASKD_BIN names the binary.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

export const ALICE = 'U0ALICE';
export const CHANNEL = 'C0AGENTS';

export async function start(...options) {
  const child = spawn(process.env.ASKD_BIN, ['sim', 'slack', '--pace', '0', ...options], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  const [line] = await once(lines, 'line');
  const slack = JSON.parse(line);
  const person = async (what, fields) => {
    const response = await fetch(`${slack.url}/page/${what}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ user: ALICE, channel: CHANNEL, ...fields }),
    });
    return response.json();
  };
  const seen = async () => {
    const response = await fetch(`${slack.url}/page/state?channel=${CHANNEL}&user=${ALICE}`);
    return (await response.json()).messages;
  };
  const stop = async () => {
    const ended = once(child, 'exit');
    child.stdin.end();
    await ended;
  };
  return { ...slack, person, seen, stop };
}

/** Looks until it finds, or gives up after five seconds. */
export async function until(look) {
  const end = Date.now() + 5000;
  while (Date.now() < end) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error('not found in time');
}
