// A page that is open for long: what it needs does not grow with what happens. An hour of a busy team, 1,200 questions asked and
// answered elsewhere, comes in one stream; the first such hour fills what the page keeps (1,000 closed questions), the second adds nothing.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from './harness.mjs';
import { daemon, FRAMEWORK, open, page } from './inbox.mjs';

const AN_HOUR = 1200;

test('the memory of the page stays flat over hours of changes', async (t) => {
  const model = await daemon.asked({ questions: [FRAMEWORK] });
  const over = await daemon.answerElsewhere(model, { 'Which framework?': 'Vue' });
  const hour = (number) => Array.from({ length: AN_HOUR }, (_, index) => {
    const id = (number * AN_HOUR + index).toString(16).padStart(32, 'a');
    const at = new Date(Date.parse(over.outcome.at) + number * 3600000 + index).toISOString();
    const known = { id, created_at: at };
    const events = [{ ...model, ...known }, { ...over, ...known, outcome: { ...over.outcome, at } }];
    return events.map((ask) => `event: ask\ndata: ${JSON.stringify(ask)}\n\n`).join('');
  }).join('');
  let streams = [];
  // After each hour the stream ends, and the page asks for the next one.
  await open({
    before: (fresh) => fresh.route('**/api/v1/events', (route) => {
      const body = streams.shift();
      return body === undefined ? route.abort() : route.fulfill({ contentType: 'text/event-stream', body });
    }),
    expected: [/ERR_FAILED/],
  });
  const debug = await page.context().newCDPSession(page);
  const after = async (number) => {
    streams = [`event: resync\ndata: {}\n\n${hour(number)}`];
    const last = `ask-${(number * AN_HOUR + AN_HOUR - 1).toString(16).padStart(32, 'a')}`;
    await until('the hour to be over', () => page.evaluate((id) => document.getElementById(id) !== null, last), 60000);
    await debug.send('HeapProfiler.collectGarbage');
    const { usedSize } = await debug.send('Runtime.getHeapUsage');
    const { nodes } = await debug.send('Memory.getDOMCounters');
    return { megabytes: usedSize / 2 ** 20, nodes };
  };
  const hours = [];
  for (let number = 1; number <= 2; number += 1) hours.push(await after(number));
  t.diagnostic(hours.map(({ megabytes, nodes }) => `${megabytes.toFixed(1)} MB, ${nodes} nodes`).join('; '));
  assert.ok(hours[1].megabytes < hours[0].megabytes * 1.1 + 0.5, JSON.stringify(hours));
  assert.ok(hours[1].nodes < hours[0].nodes * 1.1 + 100, JSON.stringify(hours));
});
