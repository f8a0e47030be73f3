// What a page shows while something is away: Slack, or askd itself.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import './failed.mjs';
import { Daemon, DESKTOP, PHONE, card, done, launch, NO_WORKER, openPage, shoot, until } from './harness.mjs';

const FRAMEWORK = { question: 'Which framework?', options: ['React', 'Vue'] };
// Nothing listens there.
const SLACK_AWAY = () => `[slack]
bot_token = "xoxb-1-secret"
signing_secret = "0123456789abcdef0123456789abcdef"
api_url = "http://127.0.0.1:9/api"
pace = "0s"
[groups.research]
max_retries = 1
routes = [{ channel = "slack", chat = "C0AGENTS", responders = ["U0ALICE"] }]
`;

// A daemon that starts again says so for a moment.
const AWAY = [/ERR_/, /503/, NO_WORKER];

let browser;
let daemon;
let page;

before(async () => { browser = await launch(); });
after(() => browser.close());
afterEach(async () => {
  try {
    await page.finish();
  } finally {
    await daemon.end();
  }
});

describe('Slack is away', () => {
  beforeEach(async () => { daemon = await Daemon.start({ groups: SLACK_AWAY }); });

  for (const [name, options] of [['desk', { viewport: DESKTOP }], ['phone', { viewport: PHONE, dark: true }]]) {
    test(`a card in view says so, stays and is answered: ${name}`, async () => {
      page = await openPage(browser, { url: daemon.link, ...options });
      await until('the inbox', () => page.getByText('No open questions.').isVisible());
      const ask = await daemon.asked({ questions: [FRAMEWORK] });
      await card(page, ask).getByText('Slack cannot be reached. You can answer here.').waitFor();
      assert.ok(await card(page, ask).getByText('also in Slack').isHidden(), 'it stands here alone');
      await page.getByRole('region', { name: 'What is wrong' }).getByText('network, DNS, firewall, CA certificates (askd uses no proxy). askd keeps trying.').waitFor({ timeout: 60000 });
      await until('the view', async () => (await daemon.known(ask.request_id)).viewed);
      // Its retries are used up after a second.
      await until('the last try', async () => (await daemon.known(ask.request_id)).attempt === 3);
      assert.equal(await card(page, ask).getByText(/retry attempt/).count(), 0);
      await shoot(page, `slack-away-${name}`);
      await card(page, ask).getByRole('button', { name: 'Vue' }).click();
      assert.equal((await daemon.response(ask.request_id)).status, 'answered');
    });
  }

  test('a page that nobody looks at keeps nothing open', async () => {
    const hidden = () => Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' });
    page = await openPage(browser, { url: daemon.link, before: (fresh) => fresh.addInitScript(hidden) });
    await until('the inbox', () => page.getByText('No open questions.').isVisible());
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    const result = await daemon.response(ask.request_id);
    assert.deepEqual([result.status, result.cause], ['undeliverable', 'slack: no connection']);
    await done(page, ask).getByText('Max retries exceeded. Slack cannot be reached.').waitFor();
    await shoot(page, 'slack-away-over');
  });
});

describe('askd is away', () => {
  beforeEach(async () => { daemon = await Daemon.start(); });

  // The line that says so moves the cards: a click at that moment is not taken.
  const dies = async () => {
    await daemon.kill();
    await page.getByText('No connection to askd since').waitFor();
    await sleep(500);
  };

  test('an answer that got no reply is sent once more when askd is back', async () => {
    page = await openPage(browser, { url: daemon.link, viewport: PHONE, expected: AWAY });
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await card(page, ask).waitFor();
    await dies();
    await card(page, ask).getByRole('button', { name: 'Vue' }).click();
    await card(page, ask).getByText("Couldn't reach askd").waitFor();
    await shoot(page, 'no-reply');
    await daemon.run();
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which framework?': 'Vue' });
    await done(page, ask).getByText('Vue').waitFor();
    assert.equal(await page.getByText("Couldn't reach askd").count(), 0);
  });

  test('an answer that another one was given instead of says so', async () => {
    page = await openPage(browser, { url: daemon.link, expected: AWAY });
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await card(page, ask).waitFor();
    // Out of reach for this page alone.
    const away = (route) => route.abort();
    await page.route('**/api/v1/**', away);
    await card(page, ask).getByRole('button', { name: 'Vue' }).click();
    await card(page, ask).getByText("Couldn't reach askd").waitFor();
    await page.evaluate(() => document.activeElement.blur());
    await daemon.answerElsewhere(ask, { 'Which framework?': 'React' });
    await page.unroute('**/api/v1/**', away);
    await card(page, ask).getByText('Already answered by the operator in a terminal: React').waitFor();
    await card(page, ask).getByText('Yours was not used.').waitFor();
  });

  test('a list that was asked for before the connection was lost sends nothing', async () => {
    let letGo;
    const held = new Promise((resolve) => { letGo = resolve; });
    const slow = (fresh) => fresh.route('**/asks?state=settled**', async (route) => {
      const reply = await route.fetch();
      await held;
      await route.fulfill({ response: reply });
    });
    page = await openPage(browser, { url: daemon.link, before: slow, expected: AWAY });
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await card(page, ask).waitFor();
    let tries = 0;
    const away = (route) => {
      if (route.request().url().endsWith('/answer')) tries += 1;
      return route.abort();
    };
    await page.route(/\/answer$|\/events$/, away);
    await card(page, ask).getByRole('button', { name: 'Vue' }).click();
    await card(page, ask).getByText("Couldn't reach askd").waitFor();
    const listed = page.waitForResponse(/state=settled/);
    letGo();
    await (await listed).finished();
    await page.getByText('No connection to askd since').waitFor();
    await sleep(500);
    assert.equal(tries, 1);
    await page.unroute(/\/answer$|\/events$/, away);
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which framework?': 'Vue' });
    await done(page, ask).getByText('Vue').waitFor();
  });

  test('an answer that got no reply twice is kept for the person to send', async () => {
    page = await openPage(browser, { url: daemon.link, expected: AWAY });
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await card(page, ask).waitFor();
    await page.route('**/answer', (route) => route.abort());
    await card(page, ask).getByRole('button', { name: 'Vue' }).click();
    await card(page, ask).getByText('Your answer has not reached askd.').waitFor();
    await page.unroute('**/answer');
    await card(page, ask).getByRole('button', { name: 'Send it now: Vue' }).press('Enter');
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which framework?': 'Vue' });
  });

  test('the box goes away when askd is back, and nobody is dismissed for it', async () => {
    page = await openPage(browser, { url: daemon.link, expected: AWAY });
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await card(page, ask).getByRole('button', { name: 'Dismiss…' }).click();
    await dies();
    await card(page, ask).getByRole('button', { name: 'Dismiss', exact: true }).click();
    await card(page, ask).getByText("Couldn't reach askd").waitFor();
    await daemon.run();
    await until('no box', async () => (await page.getByText("Couldn't reach askd").count()) === 0);
    assert.equal((await daemon.known(ask.request_id)).state, 'open');
  });

  test('a part of the page that did not arrive is loaded again, or a person is told to do it', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    let missing = 1;
    const cutOff = (route) => (missing-- > 0 ? route.abort() : route.continue());
    const before = (fresh) => fresh.route('**/list.js', cutOff);
    page = await openPage(browser, { url: daemon.link, before, expected: [/Failed to load resource/] });
    await page.getByText('Part of this page did not load. Retrying…').waitFor();
    await card(page, ask).waitFor();
    missing = Infinity;
    await page.reload();
    await page.getByText('This page could not be loaded. Please reload it.').waitFor();
    await shoot(page, 'not-loaded');
    missing = 0;
    await page.reload();
    await card(page, ask).waitFor();
    // Without any script.
    await page.route('**/start.js', (route) => route.abort());
    await page.reload();
    await page.getByText('If nothing else appears here, please reload the page.').waitFor();
    await shoot(page, 'no-script');
  });
});
