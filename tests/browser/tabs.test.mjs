// Many tabs of the inbox in one browser, which opens six connections to a host and no more: one of them holds the stream of
// events, and the others hear from it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { card, done, NO_WORKER, until } from './harness.mjs';
import { button, daemon, FRAMEWORK, open, page, settings, visible } from './inbox.mjs';

const ANN = 'ann-has-a-token-of-her-own';
settings(() => `[web]\npeople = [{ name = "ann", token = "${ANN}", groups = ["writer"] }]\n`);

const MANY = 8;
const AWAY = [/ERR_/, /503/, NO_WORKER];

// The tabs that hold a stream.
const holders = new Map();
async function tab(url, before) {
  const fresh = holders.size === 0 ? await open({ url: null, expected: AWAY }) : await page.context().newPage();
  holders.set(fresh, 0);
  const count = (by) => (call) => call.url().endsWith('/api/v1/events') && holders.set(fresh, holders.get(fresh) + by);
  fresh.on('request', count(1));
  for (const end of ['requestfinished', 'requestfailed']) fresh.on(end, count(-1));
  await before?.(fresh);
  await fresh.goto(url);
  return fresh;
}
const holding = () => [...holders].filter(([one, streams]) => !one.isClosed() && streams > 0).map(([one]) => one);
const oneHolds = (tabs) => until('one stream', () => holding().filter((one) => tabs.includes(one)).length === 1);

async function tabsOf(count, ask) {
  holders.clear();
  const tabs = [];
  for (let index = 0; index < count; index += 1) {
    tabs.push(await tab(index === 0 ? daemon.link : daemon.url));
    await visible(card(tabs[index], ask), 10000);
  }
  return tabs;
}

const asked = (question) => daemon.asked({ questions: [{ ...FRAMEWORK, question }] });

test('any number of tabs shows the questions, hears of new ones and can answer', async () => {
  const tabs = await tabsOf(MANY, await asked('Which for the page?'));
  await oneHolds(tabs);
  const next = await asked('Which for the tool?');
  for (const one of tabs) await visible(card(one, next), 5000);
  for (const one of tabs) assert.equal(await one.title(), '(2) askd');
  await button(card(tabs[3], next), /^React/).press('Enter');
  assert.equal((await daemon.response(next.request_id)).status, 'answered');
  for (const one of tabs) await until('the title', async () => (await one.title()) === '(1) askd', 5000);
});

test('another tab goes on when the one that holds the stream is closed, and all know when askd is away', async () => {
  const ask = await asked('Which for the page?');
  const tabs = await tabsOf(4, ask);
  await oneHolds(tabs);
  const rest = tabs.filter((one) => one !== holding()[0]);
  // The first one ends the check.
  await holding()[0].goto('about:blank');
  await oneHolds(rest);
  const next = await asked('Which for the tool?');
  for (const one of rest) await visible(card(one, next), 5000);

  // A hidden tab leaves it to one that is seen to look for askd.
  const [hidden] = holding();
  await hidden.evaluate(() => Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' }));
  await daemon.kill();
  for (const one of rest) await visible(one.getByText('No connection to askd since'));
  const away = rest.find((one) => one !== hidden && !holding().includes(one));
  await button(card(away, ask), /^Vue/).press('Enter');
  await visible(card(away, ask).getByText("Couldn't reach askd"));
  await daemon.run();
  assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which for the page?': 'Vue' });
  for (const one of rest) await visible(done(one, ask));
  for (const one of rest) await until('no such line', async () => (await one.getByText('No connection to askd since').count()) === 0);
  await oneHolds(rest.filter((one) => one !== hidden));
  assert.equal(holding().length, 1);
});

test('a tab that the browser has put to sleep with the stream keeps it from nobody', async () => {
  holders.clear();
  const [first] = await tabsOf(1, await asked('Which for the page?'));
  const debug = await page.context().newCDPSession(first);
  const other = await tab(daemon.url, (fresh) => fresh.clock.install());
  const next = await asked('Which for the tool?');
  await visible(card(other, next));
  assert.ok(holders.get(first) > 0 && holding().length === 1, 'the first one holds the stream');
  await debug.send('Page.setWebLifecycleState', { state: 'frozen' });
  await until('the stream', async () => {
    await other.clock.fastForward(45000);
    return holders.get(other) > 0;
  });
  const last = await asked('Which for the rest?');
  await visible(card(other, last));
  // It wakes up beside the one that has the stream now.
  await debug.send('Page.setWebLifecycleState', { state: 'active' });
  await visible(card(first, last));
  await oneHolds([first, other]);
  // A tab that is opened while the one with the stream sleeps waits for it no longer than a moment.
  await debug.send('Page.setWebLifecycleState', { state: 'frozen' });
  const third = await tab(daemon.url);
  await visible(card(third, last), 10000);
});

test('tabs of different people share nothing', async () => {
  holders.clear();
  const ours = await asked('Sell the company?');
  const operator = await tab(daemon.link);
  await visible(card(operator, ours));
  const ann = await tab(`${daemon.url}/#token=${ANN}`);
  await visible(ann.getByText('No open questions.'));
  const hers = await daemon.asked({ questions: [FRAMEWORK] }, 'writer');
  const next = await asked('Buy it back?');
  await visible(card(operator, next));
  await visible(card(ann, hers));
  assert.equal(await card(ann, next).count() + await card(ann, ours).count(), 0);
  assert.equal(holding().length, 2);
});

test('a tab that was opened before the first one had signed in does so with it', async () => {
  holders.clear();
  const ask = await asked('Which for the page?');
  // The list of the first one hangs: it does not know yet whether its token is good.
  let reply;
  const held = new Promise((resolve) => { reply = resolve; });
  const first = await tab(daemon.link, (fresh) => fresh.route('**/api/v1/events', (route) => held.then(() => route.continue())));
  const second = await tab(daemon.url);
  await visible(second.getByLabel('Inbox token'));
  reply();
  for (const one of [first, second]) await visible(card(one, ask));
});

test('where pages have no locks, as over plain HTTP to another host, each tab has a stream of its own', async () => {
  holders.clear();
  const ask = await asked('Which for the page?');
  const bare = (fresh) => fresh.addInitScript(() => Object.defineProperty(navigator, 'locks', { value: undefined }));
  const tabs = [await tab(daemon.link, bare), await tab(daemon.url, bare)];
  for (const one of tabs) await visible(card(one, ask));
  const next = await asked('Which for the tool?');
  for (const one of tabs) await visible(card(one, next));
  assert.equal(holding().length, 2);
});
