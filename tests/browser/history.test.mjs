// The history, and people with tokens of their own, in a real browser against the real daemon.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { card, done, LOOKS, sample, shoot, until } from './harness.mjs';
import { accessible, button, connectionLine, daemon, FRAMEWORK, noSidewaysScroll, open, page, settings, visible } from './inbox.mjs';

const ANN = 'ann-0123456789abcdef';

settings(() => `[web]\npeople = [{ name = "ann", token = "${ANN}", groups = ["writer"] }]\n`);

const entries = () => page.locator('#history-list li.done');

async function answered() {
  const release = await daemon.asked({
    title: 'Release 2.4', context: 'All **green**.',
    questions: [{ question: 'Which targets?', type: 'multi-select', options: ['staging', 'prod'] }, { question: 'Tell the customers?', type: 'confirm' }],
  }, 'deploy-bot');
  await daemon.answerElsewhere(release, { 'Which targets?': ['staging', 'prod'], 'Tell the customers?': 'Yes' });
  const title = await daemon.asked({ questions: [{ question: 'Which title?', options: ['=1+1', 'Two'] }] }, 'writer');
  await daemon.answerElsewhere(title, { 'Which title?': '=1+1' });
  const dismissed = await daemon.asked({ questions: [{ question: 'Rename the branch?', type: 'confirm' }] }, 'writer');
  await daemon.api(`/api/v1/asks/${dismissed.id}/dismiss`, { by: 'cli' });
  return { release, title, dismissed };
}

test('the history says what was asked and answered, by day, with filters, a trail and exports', async () => {
  const { release, title } = await answered();
  await open();
  await page.getByRole('link', { name: 'History' }).click();
  await until('three entries', async () => (await entries().count()) === 3);
  await visible(page.getByRole('heading', { name: 'Today' }));
  const first = page.locator(`#history-list li#ask-${release.id}`);
  assert.match(await first.innerText(), /Release 2\.4[\s\S]*Which targets\?\s+staging, prod\s+Tell the customers\?\s+Yes/);
  await first.getByText('Details').click();
  await visible(first.locator('.trail').getByText(/answered by the operator in a terminal/));
  await accessible('the history');
  await noSidewaysScroll();
  await shoot(page, 'history');

  await page.locator('[name=group]').fill('writer');
  await button(page, 'Search').click();
  await until('two entries', async () => (await entries().count()) === 2);
  await page.getByLabel('Words').fill('TITLE');
  await page.getByLabel('Outcome').selectOption('answered');
  await until('one entry', async () => (await entries().count()) === 1);
  const downloading = page.waitForEvent('download');
  await button(page, 'CSV').click();
  const csv = await readFile(await (await downloading).path(), 'utf8');
  assert.match(csv, new RegExp(`^id,group,[\\s\\S]*\\n${title.id},writer,[^\\n]*,Which title\\?,"'=1\\+1",cli,operator,\\r\\n$`));
  await page.getByLabel('Words').fill('nothing like it');
  await button(page, 'Search').click();
  await visible(page.getByText('No matches.'));
  await page.getByRole('link', { name: 'Inbox' }).click();
  await visible(page.getByText('No open questions.'));
});

test('a daemon that cannot read its questions says so, and is asked again', async () => {
  const ask = await daemon.asked({ questions: [FRAMEWORK] });
  const problem = { title: 'Not readable', detail: 'askd cannot read the stored questions; its log says why.' };
  const broken = (route) => route.fulfill({ status: 503, json: problem, contentType: 'application/problem+json' });
  const lists = /api\/v1\/asks\?/;
  await open({ expected: [/503/], before: (fresh) => fresh.route(lists, broken) });
  await until('the reason', async () => (await connectionLine().textContent()) === `${problem.detail} Trying again…`);
  await page.unroute(lists);
  await visible(card(page, ask));
  assert.equal(await connectionLine().textContent(), '');

  await page.getByRole('link', { name: 'History' }).click();
  await page.route(/api\/v1\/export/, broken);
  await button(page, 'CSV').click();
  await visible(page.locator('#history-found', { hasText: problem.detail }));
});

test('a person sees and answers the questions of their groups, and is named', async () => {
  await daemon.asked({ questions: [{ question: 'Sell the company?', type: 'confirm' }] }, 'board');
  const ask = await daemon.asked({ questions: [FRAMEWORK] }, 'writer');
  await open({ url: `${daemon.url}/#token=${ANN}` });
  await visible(card(page, ask));
  assert.equal(await page.getByText('Sell the company?').count(), 0);
  const later = await daemon.asked({ questions: [{ question: 'Buy it back?', type: 'confirm' }] }, 'board');
  await page.getByText('Settings', { exact: true }).click();
  await visible(page.getByText('Signed in as ann.'));
  await shoot(page, 'signed-in', { fullPage: false });
  await page.keyboard.press('Escape');
  await button(card(page, ask), 'Vue').click();
  await visible(done(page, ask).getByText('Answered by ann in the inbox'));
  assert.deepEqual((await daemon.response(ask.request_id, 'writer')).answered_by, { channel: 'web', id: 'ann', name: null });
  assert.equal(await page.getByText(later.questions[0].question).count(), 0, 'not even as it happens');
});

test('a notice on the other pages leads to the question in the inbox', async () => {
  await open();
  for (const place of ['History', 'Health']) {
    await page.getByRole('link', { name: place }).click();
    const ask = await daemon.asked({ questions: [{ ...FRAMEWORK, question: `Which one for ${place}?` }] }, 'writer');
    await button(page, 'Go to it').click();
    await visible(card(page, ask));
    await until('the focus on it', () => page.evaluate((id) => document.activeElement.id === `ask-${id}`, ask.id));
    assert.equal(page.url(), `${daemon.url}/`);
  }
});

// What is wrong, and what waits: on top of what the daemon says.
function withTroubles(report, { id, short_id: code }) {
  const since = new Date().toISOString();
  const wrong = { kind: 'channel', about: 'slack', since, line: 'Slack is not connected: invalid_auth', fix: 'copy the Bot User OAuth Token (xoxb-...) of the app again' };
  return {
    ...report,
    state: 'degraded', problems: [wrong],
    channels: [{ name: 'slack', title: 'Slack', connected: false, since, why: 'invalid_auth', fix: wrong.fix }, { name: 'whatsapp', title: 'WhatsApp', connected: true, since: null, why: null, fix: null }],
    uncollected: [{ id, short_id: code, group: 'writer', since, line: 'Answered: staging by operator' }],
    stuck_cards: [{ id, short_id: code, group: 'writer', channel: 'slack', chat: 'C0123', since, why: null }],
  };
}

for (const { look, viewport, dark } of sample(LOOKS)) {
  test(`history, health and settings have no accessibility faults and fit: ${look}`, async () => {
    const { title } = await answered();
    const report = withTroubles(await daemon.api('/api/v1/status'), title);
    await open({ viewport, dark, before: (fresh) => fresh.route('**/api/v1/status', (route) => route.fulfill({ json: report })) });
    await visible(page.getByRole('link', { name: 'Health' }));
    await page.getByText('Settings', { exact: true }).click();
    await visible(page.getByText('Signed in as the operator.'));
    await accessible('the settings');
    await shoot(page, `settings-${look}`, { fullPage: false });
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'History' }).click();
    await until('three entries', async () => (await entries().count()) === 3);
    await entries().nth(1).getByText('Details').click();
    await accessible('the history');
    await noSidewaysScroll();
    await shoot(page, `history-${look}`);
    await page.getByRole('link', { name: 'Health' }).click();
    await visible(page.locator('#health').getByText('askd keeps trying.'));
    await accessible('the health page');
    await noSidewaysScroll();
    await shoot(page, `health-${look}`);
  });
}

test('the link to the health page, which comes later than the cards, moves nothing', async () => {
  await open();
  await visible(page.getByRole('link', { name: 'Health' }));
  for (let width = 320; width <= 800; width += 20) {
    await page.setViewportSize({ width, height: 640 });
    const [without, with_] = await page.evaluate(() => [true, false].map((hidden) => {
      document.getElementById('to-health').hidden = hidden;
      return document.querySelector('header.top').getBoundingClientRect().height;
    }));
    assert.equal(with_, without, `at ${width} px`);
  }
});

test('the health page and the strip say what is wrong and how to fix it', async () => {
  const ask = await daemon.asked({ questions: [FRAMEWORK] }, 'writer');
  const report = withTroubles(await daemon.api('/api/v1/status'), ask);
  await open({ before: (fresh) => fresh.route('**/api/v1/status', (route) => route.fulfill({ json: report })) });
  const strip = page.getByRole('region', { name: 'What is wrong' });
  await visible(strip.getByText('Slack is not connected: invalid_auth.'));
  await visible(strip.getByText(/^Fix: copy the Bot User OAuth Token/));
  await shoot(page, 'strip');
  await accessible('an inbox with a strip');
  await page.getByRole('link', { name: 'Health' }).click();
  for (const words of ['not connected: invalid_auth', 'no heartbeat since askd started', 'Answered: staging by operator', 'askd keeps trying.']) await visible(page.locator('#health').getByText(words).first());
});
