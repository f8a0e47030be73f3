// After the timeout, in a real browser against the real daemon: a question that can still be answered, and what becomes of
// outcomes that nobody collected. The agent that is started is a script, which goes on when a test says so.
//
// ASKD_BIN: the daemon (default: the debug build). CHROMIUM: the browser. ASKD_SCREENSHOTS: a folder for pictures.

import assert from 'node:assert/strict';
import { chmod, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import './failed.mjs';
import { card, Daemon, DESKTOP, done, launch, NO_WORKER, openPage, PHONE, shoot, SMALL_PHONE, submit, tabTo, until } from './harness.mjs';

// Each waits for a timeout: with ASKD_SAMPLE only what became of an outcome is played.
const whole = process.env.ASKD_SAMPLE ? test.skip : test;

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const FRAMEWORK = { question: 'Which framework?', options: [{ label: 'React', description: 'what the rest of the product uses' }, 'Svelte', 'Vue'] };
const NOTE = { question: 'What should the note say?' };
const HOSTILE = {
  title: `"><img src=x onerror=alert(1)> \u202Etxet ${'W'.repeat(90)}`.slice(0, 100),
  questions: [{ question: `<b>Really?</b> \u202E${'M'.repeat(400)}`, options: [`\u202E${'O'.repeat(70)}`, '<script>alert(1)</script>'] }],
};
// The least there is; every test waits for it. LATER is for those that open the page and do something before.
const SOON = { timeoutMs: 10000 };
const LATER = { timeoutMs: 20000 };
const STILL = 'You can still answer: the agent will be started with it.';
const STARTED = 'The agent was started with the answer.';
const KEPT = 'Nobody collected the answer; it is kept for the agent\'s next start.';

const groups = (folder) => `
[groups.research]
routes = [{ channel = "web" }]
session = { start = { command = ["${folder}/start"] } }
[groups.hurried]
routes = [{ channel = "web" }]
late_answers = "25s"
session = { start = { command = ["${folder}/start"] } }
[groups.kept]
routes = [{ channel = "web" }]
answer_retention = "1s"
[groups.stopped]
routes = [{ channel = "web" }]
on_timeout = "abort_task"
session = { stop = { command = ["/bin/true"] } }
`;

let browser;
let daemon;
let page;
let pages = [];

before(async () => { browser = await launch(); });
after(async () => { await browser?.close(); });
beforeEach(async () => {
  daemon = await Daemon.start({ groups });
  const { folder } = daemon;
  const script = `#!/bin/sh\ncat > ${folder}/given.part && mv ${folder}/given.part ${folder}/given\nwhile [ -d ${folder} ] && [ ! -e ${folder}/go ]; do sleep 0.1; done\n`;
  await writeFile(join(folder, 'start'), script);
  await chmod(join(folder, 'start'), 0o755);
});
afterEach(async () => {
  const last = pages;
  pages = [];
  try {
    for (const one of last) await one.finish();
  } finally {
    await daemon?.end();
  }
});

async function open(options = {}) {
  const { before: more = () => {}, ...rest } = options;
  // Who types is given more time, which none of these questions is to have.
  const before = async (fresh) => {
    await fresh.route('**/typing', (route) => route.fulfill({ status: 204 }));
    await more(fresh);
  };
  page = await openPage(browser, { url: daemon.link, ...rest, before });
  pages.push(page);
  return page;
}

const letTheAgentStart = () => writeFile(join(daemon.folder, 'go'), '');
const given = () => until('the agent to be started', async () => JSON.parse(await readFile(join(daemon.folder, 'given'), 'utf8').catch(() => 'null')), 60000);
const stored = (ask) => daemon.api(`/api/v1/asks/${ask.id}`);
const timedOut = (ask) => until('the timeout', async () => {
  const now = await stored(ask);
  return now.state === 'settled' && now;
}, 60000);

// The agent takes the timeout: what it asks after that is a new question, not one that is given an outcome nobody took.
async function taken(ask) {
  await daemon.response(ask.request_id);
  await rm(join(daemon.folder, 'ipc', ask.group, 'responses', `${ask.request_id}.json`));
}

const button = (scope, name) => scope.getByRole('button', { name, exact: typeof name === 'string' });
const visible = (locator, timeout = 10000) => locator.waitFor({ state: 'visible', timeout });
const gone = (locator, timeout = 10000) => locator.waitFor({ state: 'detached', timeout });
// Pressed and not clicked: a click right after the list has moved is not taken.
const press = (locator) => locator.press('Enter');
const section = (on = page) => on.getByRole('region', { name: /^Timed out, can still be answered/ });
const waiting = (on = page) => on.getByRole('region', { name: /^Waiting for an answer/ });
const stillAnswerable = (ask, on = page) => card(on, ask).getByText(/^Timed out (on .+ )?at \d\d:\d\d\. You can still answer: the agent will be started with it\.$/);
const announced = (words) => until(`"${words}" to be announced`, async () => (await page.locator('#announce').textContent()).includes(words));

async function accessible(on, what) {
  await on.evaluate(AXE);
  const { violations } = await on.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join('; ')}`);
  assert.deepEqual(found, [], `accessibility of ${what}`);
}

async function fits(on, what) {
  const { content, view } = await on.evaluate(() => ({ content: document.documentElement.scrollWidth, view: window.innerWidth }));
  assert.ok(content <= view, `${what} is ${content} px wide in a window of ${view} px`);
  const small = await on.locator('button:visible, label.row, summary:visible, textarea:visible').evaluateAll((nodes) => nodes.filter((node) => node.getBoundingClientRect().height < 44).map((node) => node.outerHTML));
  assert.deepEqual(small, [], `large enough for a thumb: ${what}`);
}

describe('an ask that timed out and can still be answered', () => {
  whole('goes below what waits, says until when, and is answered with the keyboard', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...LATER });
    const other = await daemon.asked({ questions: [NOTE] });
    await open();
    await visible(button(card(page, ask), 'Dismiss…'));
    await visible(stillAnswerable(ask), 60000);
    const { late_until: end, outcome } = await stored(ask);
    const one = card(page, ask);
    assert.equal(await section().locator('article').count(), 1);
    assert.equal(await waiting().locator('article').count(), 1);
    assert.equal(await page.title(), '(1) askd', 'nobody waits for it');
    assert.equal(await button(one, 'Dismiss…').count(), 0);
    const inPage = (instant, options) => page.evaluate(([at, how]) => new Date(at).toLocaleString('en-US', how), [instant, options]);
    assert.match(await stillAnswerable(ask).innerText(), new RegExp(`at ${await inPage(outcome.at, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })}\\.`));
    const day = await inPage(end, { month: 'short', day: 'numeric' });
    await visible(one.getByText(`until ${day}, ${await inPage(end, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })}`));
    await announced(`Timed out. ${STILL}`);
    const described = await one.evaluate((node) => document.getElementById(node.getAttribute('aria-describedby')).textContent);
    assert.ok(described.endsWith(STILL), described);
    await shoot(page, 'late-below');
    await page.keyboard.press('Tab');
    await tabTo(page, `#ask-${ask.id} button.choice`);
    await page.keyboard.press('Enter');
    const item = done(page, ask);
    await visible(item.getByText('Answered after the timeout by the operator in the inbox'));
    await visible(item.getByText('React', { exact: true }));
    assert.ok(await section().isHidden());
    assert.ok(await page.evaluate(() => document.activeElement.matches('h2')), 'the focus is not lost');
    assert.ok(await card(page, other).isVisible());
    assert.match((await given()).text, /The user answered: "React"/);
    assert.equal((await daemon.response(ask.request_id)).status, 'timeout', 'who waited was told of the timeout');
    await item.evaluate((node) => { node.dataset.same = 'yes'; });
    await letTheAgentStart();
    await visible(item.getByText(STARTED));
    assert.equal(await item.getAttribute('data-same'), 'yes', 'changed in place');
    await announced(`research, ${ask.short_id}: ${STARTED}`);
    await shoot(page, 'late-started');
  });

  whole('stays where somebody types in it, and nothing moves', async () => {
    const ask = await daemon.asked({ questions: [NOTE], ...LATER });
    await daemon.asked({ questions: [FRAMEWORK] });
    await open({ viewport: PHONE });
    const field = card(page, ask).getByLabel(NOTE.question);
    await field.pressSequentially('Half a ');
    const place = await field.boundingBox();
    await visible(stillAnswerable(ask), 60000);
    assert.deepEqual(await field.boundingBox(), place);
    assert.equal(await waiting().locator('article').count(), 2);
    assert.equal(await button(card(page, ask), 'Dismiss…').count(), 0);
    await announced(`Timed out. ${STILL}`);
    await page.keyboard.type('thought');
    assert.equal(await field.inputValue(), 'Half a thought');
    await page.keyboard.press('Control+Enter');
    await visible(done(page, ask).getByText('Half a thought'));
    await announced('Answered after the timeout by the operator in the inbox. 1 more waiting.');
    const { late, late_answer: answer } = await stored(ask);
    assert.deepEqual([late, answer.answers], [true, { [NOTE.question]: 'Half a thought' }]);
  });

  whole('goes below from a list of many as soon as somebody goes on to another one', async () => {
    const others = [];
    for (let index = 0; index < 6; index += 1) others.push(await daemon.asked({ questions: [{ ...FRAMEWORK, question: `Which for part ${index}?` }] }));
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...LATER });
    await open();
    const line = (of) => page.locator(`.item[data-ask="${of.id}"] button.brief`);
    await line(ask).press('Enter');
    await visible(stillAnswerable(ask), 60000);
    assert.equal(await line(ask).locator('time').textContent(), 'Timed out');
    await line(others[3]).click();
    await visible(section().locator(`article#ask-${ask.id}`));
    assert.equal(await page.locator('#waiting .item').count(), 6);
    await press(button(card(page, ask), 'Vue'));
    await visible(done(page, ask).getByText('Answered after the timeout'));
  });

  whole('is not dismissed any more, and the focus is not lost with the button', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...LATER });
    await open();
    await press(button(card(page, ask), 'Dismiss…'));
    await visible(button(card(page, ask), 'Keep'));
    await visible(stillAnswerable(ask), 60000);
    assert.equal(await card(page, ask).getByText('Really dismiss?').count(), 0);
    assert.ok(await card(page, ask).evaluate((node) => node === document.activeElement));
    await press(button(card(page, ask), 'Vue'));
    await visible(done(page, ask).getByText('Answered after the timeout'));
  });

  whole('a Dismiss that comes too late is refused in place, and the form stays', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...LATER });
    await open({ expected: [/409/] });
    const one = card(page, ask);
    await one.getByLabel('Other: answer in your own words').fill('Solid');
    await page.route('**/dismiss', async (route) => {
      await timedOut(ask);
      await route.continue();
    });
    await press(button(one, 'Dismiss…'));
    await press(button(one, 'Dismiss'));
    await visible(one.getByRole('alert').getByText('This question has timed out, and the agent was told so.'), 60000);
    await visible(stillAnswerable(ask));
    assert.equal(await button(one, 'Try again').count(), 0, 'there is nothing to dismiss');
    assert.equal(await one.getByLabel('Other: answer in your own words').inputValue(), 'Solid');
    await submit(one);
    await visible(done(page, ask).getByText('Solid'));
  });

  whole('who comes second is told who was first, and what they typed is still there', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...SOON });
    const again = { session_id: 's', questions: [NOTE], ...SOON };
    const repeated = await daemon.asked(again);
    await timedOut(repeated);
    await timedOut(ask);
    await taken(repeated);
    await open({ expected: [/409/] });
    let meanwhile;
    // The stream may tell of it while the call is still out; the reply decides what is said.
    await page.route('**/answer', async (route) => {
      await meanwhile();
      await route.continue();
    });

    meanwhile = () => daemon.answerElsewhere(ask, { 'Which framework?': 'Vue' });
    const one = card(page, ask);
    await one.getByLabel('Other: answer in your own words').fill('Solid');
    await submit(one);
    await visible(one.getByText('Already answered after the timeout by the operator in a terminal: Vue'));
    await visible(one.getByText('Yours was not used.'));
    assert.equal(await one.getByLabel('What you had entered here:').inputValue(), 'Solid');
    assert.equal(await button(one, 'Submit').count(), 0);
    await letTheAgentStart();
    await visible(one.getByText(STARTED));
    await shoot(page, 'late-second');
    await accessible(page, 'the notice of a late answer of somebody else');
    await button(one, 'Close').click();
    await visible(done(page, ask).getByText(STARTED));

    let anew;
    meanwhile = async () => { anew = await daemon.asked({ ...again, timeoutMs: undefined }); };
    const two = card(page, repeated);
    await two.getByLabel(NOTE.question).fill('Faster');
    await submit(two);
    await visible(two.getByText('Already timed out.'));
    await visible(two.getByText('Asked again.'));
    await visible(two.getByText('Yours was not used.'));
    assert.equal(await two.getByLabel('What you had entered here:').inputValue(), 'Faster');
    await visible(card(page, anew).getByLabel(NOTE.question));
    await shoot(page, 'late-asked-again');
  });

  whole('a change elsewhere keeps what somebody is typing, and takes away what nobody uses', async () => {
    const repeated = [{ session_id: 's', questions: [NOTE], ...SOON }, { session_id: 's', questions: [{ question: 'And the title?' }], ...SOON }];
    const typing = await daemon.asked({ questions: [FRAMEWORK], ...SOON });
    const idle = await daemon.asked({ questions: [{ ...FRAMEWORK, question: 'Which one?' }], ...SOON });
    const [typingAgain, idleAgain] = [await daemon.asked(repeated[0]), await daemon.asked(repeated[1])];
    for (const ask of [typing, idle, typingAgain, idleAgain]) await timedOut(ask);
    for (const ask of [typingAgain, idleAgain]) await taken(ask);
    await open();
    await card(page, typing).getByLabel('Other: answer in your own words').fill('Solid');
    await card(page, typingAgain).getByLabel(NOTE.question).fill('Faster');

    await daemon.answerElsewhere(idle, { 'Which one?': 'Vue' });
    await visible(done(page, idle).getByText('Answered after the timeout by the operator in a terminal'));
    assert.equal(await card(page, idle).count(), 0);
    await daemon.answerElsewhere(typing, { 'Which framework?': 'Vue' });
    await visible(card(page, typing).getByText('Answered after the timeout by the operator in a terminal: Vue'));
    assert.equal(await card(page, typing).getByLabel('What you had entered here:').inputValue(), 'Solid');

    for (const request of repeated) await daemon.asked({ ...request, timeoutMs: undefined });
    await visible(done(page, idleAgain).getByText('Asked again.'));
    await visible(card(page, typingAgain).getByText('Asked again.'));
    assert.equal(await card(page, typingAgain).getByLabel('What you had entered here:').inputValue(), 'Faster');
    await until('the new ones to wait', async () => (await waiting().locator('article').count()) === 2);
  });

  whole('an answer that could not be stored is explained, kept, and can be sent again', async () => {
    const ask = await daemon.asked({ questions: [NOTE], ...SOON });
    await timedOut(ask);
    await open({ expected: [/503/, /422/, /ERR_FAILED/] });
    const one = card(page, ask);
    const field = one.getByLabel(NOTE.question);
    await field.fill('Faster');
    const problem = (status, detail) => page.route('**/answer', (route) => route.fulfill({ status, contentType: 'application/problem+json', body: JSON.stringify({ title: 'No', status, detail }) }));
    await problem(503, 'The disk is full.');
    await submit(one);
    await visible(one.getByRole('alert').getByText('Not stored: The disk is full.'));
    assert.equal(await field.inputValue(), 'Faster');
    await page.unroute('**/answer');
    await page.route('**/answer', (route) => route.abort());
    await button(one, 'Try again').click();
    await visible(one.getByRole('alert').getByText("Couldn't reach askd"));
    await page.unroute('**/answer');
    await problem(422, 'That is too long.');
    await button(one, 'Try again').click();
    await visible(one.getByRole('alert').getByText('That is too long.'));
    assert.equal(await field.inputValue(), 'Faster');
    assert.ok(await stillAnswerable(ask).isVisible());
    await page.unroute('**/answer');
    await submit(one);
    await visible(done(page, ask).getByText('Faster'));
    assert.equal((await stored(ask)).late, true);
  });

  whole('an answer that was given while askd was away is not sent late by itself', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...LATER });
    await open({ expected: [/ERR_|Failed to load resource/, NO_WORKER] });
    const one = card(page, ask);
    await visible(one);
    await daemon.kill();
    await visible(page.getByText('No connection to askd since'));
    await press(button(one, 'Vue'));
    await visible(one.getByRole('alert').getByText('Keep this page open: your answer is sent when askd is back'));
    // The person goes on elsewhere.
    await page.evaluate(() => document.activeElement.blur());
    await until('the end of its time', () => one.getByText('Ends soon: time is up').isVisible(), 40000);
    await daemon.run();
    await visible(stillAnswerable(ask), 60000);
    await visible(one.getByRole('alert').getByText('Your answer did not reach askd in time.'));
    assert.equal(await waiting().locator('article').count(), 1, 'it stays where it is');
    assert.equal((await stored(ask)).late, false);
    await shoot(page, 'late-unsent');
    await accessible(page, 'an answer that was not sent');
    await button(one, 'Send it now: Vue').click();
    await visible(done(page, ask).getByText('Answered after the timeout'));
    assert.match((await given()).text, /The user answered: "Vue"/);
  });

  whole('a late answer that got no reply is sent once more', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...SOON });
    await timedOut(ask);
    await open({ expected: [/ERR_|Failed to load resource/, NO_WORKER] });
    const one = card(page, ask);
    await visible(stillAnswerable(ask));
    await daemon.kill();
    await visible(page.getByText('No connection to askd since'));
    await press(button(one, 'Vue'));
    await visible(one.getByRole('alert').getByText('Keep this page open: your answer is sent when askd is back'));
    await daemon.run();
    await visible(done(page, ask).getByText('Answered after the timeout'), 40000);
    assert.deepEqual((await stored(ask)).late_answer.answers, { [FRAMEWORK.question]: 'Vue' });
  });

  whole('a reply that is older than the stream does not hide what became of the answer', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...SOON });
    await timedOut(ask);
    await open();
    await page.route('**/answer', async (route) => {
      const reply = await route.fetch();
      await letTheAgentStart();
      await until('the start to be said', async () => (await stored(ask)).note === STARTED, 60000);
      // The stream keeps its order: a page that shows this one has heard of the start.
      await visible(card(page, await daemon.asked({ questions: [NOTE] })));
      await route.fulfill({ response: reply });
    });
    await press(button(card(page, ask), 'Svelte'));
    await visible(done(page, ask).getByText('Answered after the timeout'), 40000);
    await visible(done(page, ask).getByText(STARTED));
  });

  whole('is over when its time for late answers is', async () => {
    const typing = await daemon.asked({ questions: [NOTE], ...SOON }, 'hurried');
    const idle = await daemon.asked({ questions: [FRAMEWORK], ...SOON }, 'hurried');
    await open();
    await card(page, typing).getByLabel(NOTE.question).fill('Half a thought');
    await visible(stillAnswerable(typing), 60000);
    await visible(card(page, idle).getByText(/^Ends soon: \d+ s left$/), 20000);
    await visible(done(page, idle).getByText('Timed out').first(), 40000);
    assert.ok(await section().isHidden());
    await visible(card(page, typing).getByText('Timed out.', { exact: true }));
    assert.equal(await card(page, typing).getByLabel('What you had entered here:').inputValue(), 'Half a thought');
    assert.equal(await card(page, typing).getByText(STILL).count(), 0);
  });

  whole('only some are shown at first, the newest first, and a click of the mouse answers', async () => {
    const asked = [];
    for (let index = 0; index < 7; index += 1) asked.push(await daemon.asked({ questions: [{ question: `Number ${index}?`, type: 'confirm' }], ...SOON }));
    const over = [];
    for (const ask of asked) over.push(await timedOut(ask));
    over.sort((a, b) => (a.outcome.at < b.outcome.at ? 1 : -1));
    // The page's own order, and not that of the list: most of them it hears of one by one.
    const oldestFirst = (fresh) => fresh.route('**/api/v1/asks', async (route) => {
      const response = await route.fetch();
      const { asks } = await response.json();
      await route.fulfill({ response, json: { asks: asks.reverse() } });
    });
    await open({ before: oldestFirst });
    await visible(section());
    const shown = () => section().locator('article').evaluateAll((nodes) => nodes.map((node) => node.dataset.ask));
    assert.deepEqual(await shown(), over.slice(0, 5).map(({ id }) => id));
    assert.match(await section().getByRole('heading').first().innerText(), /\b7$/);
    await visible(page.getByText('No open questions.'));
    await button(page, 'Show more').click();
    assert.deepEqual(await shown(), over.map(({ id }) => id));
    assert.equal(await page.evaluate(() => document.activeElement.dataset.ask), over[5].id);
    assert.ok(await button(page, 'Show more').isHidden());
    await until('a click to be taken', async () => {
      await button(card(page, over[6]), 'Yes').click({ timeout: 1000 }).catch(() => {});
      return (await done(page, over[6]).count()) === 1;
    });
    assert.deepEqual((await stored(over[6])).late_answer.answers, { [over[6].questions[0].question]: 'Yes' });
  });
});

describe('what became of an outcome', () => {
  test('is said below it as it happens, and opened details stay open', async () => {
    const ask = await daemon.asked({ title: 'New service', context: 'The tests are green.', questions: [FRAMEWORK] }, 'kept');
    await open();
    await visible(card(page, ask));
    await daemon.answerElsewhere(ask, { 'Which framework?': 'Svelte' });
    const item = done(page, ask);
    await visible(item.getByText('Answered by the operator in a terminal'));
    await visible(item.getByText(KEPT), 60000);
    await announced(`kept, ${ask.short_id}: ${KEPT}`);
    await item.getByText('Details').click();
    await visible(item.getByText('The tests are green.'));
    await shoot(page, 'kept');
    await rm(join(daemon.folder, 'ipc', 'kept', 'briefings', `${ask.id}.json`));
    await gone(item.getByText(KEPT), 60000);
    assert.ok(await item.getByText('The tests are green.').isVisible(), 'the details are still open');
  });

  test('a session that was stopped is said once', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], ...SOON }, 'stopped');
    await open();
    const item = done(page, ask);
    await visible(item.getByText('Timed out, cancelled'), 40000);
    assert.equal((await item.innerText()).match(/Timed out/g).length, 1);
    assert.ok(await section().isHidden());
    await shoot(page, 'stopped');
  });
});

whole('all of it is accessible and fits, in light and dark, on desk and phone', async () => {
  const several = await daemon.asked({ title: 'New service', questions: [{ ...FRAMEWORK, header: 'Framework' }, NOTE], ...SOON });
  const hostile = await daemon.asked({ ...HOSTILE, ...SOON });
  const typing = await daemon.asked({ questions: [NOTE], ...SOON });
  const stopped = await daemon.asked({ questions: [FRAMEWORK], ...SOON }, 'stopped');
  const kept = await daemon.asked({ questions: [FRAMEWORK] }, 'kept');
  await daemon.answerElsewhere(kept, { 'Which framework?': 'Svelte' });
  const looks = [false, true].flatMap((dark) => [['desktop', DESKTOP], ['phone', PHONE], ['small phone', SMALL_PHONE]].map(([device, viewport]) => ({ device, viewport, dark })));
  for (const look of looks) {
    look.page = await open(look);
    await card(page, typing).getByLabel(NOTE.question).fill('Half a thought');
  }
  await timedOut(several);
  for (const { page: on, device, dark } of looks) {
    const name = `${device}, ${dark ? 'dark' : 'light'}`;
    for (const ask of [several, hostile, typing]) await visible(stillAnswerable(ask, on), 60000);
    await visible(done(on, stopped).getByText('Timed out, cancelled'), 40000);
    await visible(done(on, kept).getByText(KEPT), 60000);
    assert.equal(await card(on, hostile).locator('img, script, b').count(), 0);
    await accessible(on, name);
    await fits(on, name);
    await on.evaluate(() => window.scrollTo(0, 0));
    await shoot(on, `late-${name.replace(', ', '-').replace(' ', '-')}`);
  }
});
