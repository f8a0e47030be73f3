// The inbox page in a real browser against the real daemon: what a person sees and presses, and what the agent then
// finds in its folder. It deliberately looks at the page only through roles, labels and words, as people do.
//
// ASKD_BIN: the daemon (default: the debug build). CHROMIUM: the browser. ASKD_SCREENSHOTS: a folder for pictures.

import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { card, Daemon, DESKTOP, done, launch, openPage, PHONE, shoot, SMALL_PHONE, tabTo, until } from './harness.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const FRAMEWORK = { question: 'Which framework?', options: [{ label: 'React', description: 'what the rest of the product uses' }, 'Svelte', 'Vue'] };
const SEVERAL = {
  title: 'New service',
  context: 'The tests are green.\nNothing else waits in the queue.',
  questions: [
    { question: 'Which targets?', header: 'Targets', type: 'multi-select', options: [{ label: 'staging', description: 'the small one' }, 'prod'] },
    { question: 'Which region?', options: ['eu', 'us'] },
    { question: 'What is it called?' },
    { question: 'Anything else?', required: false },
  ],
};

let browser;
let daemon;
let page;

before(async () => { browser = await launch(); });
after(async () => { await browser?.close(); });
beforeEach(async () => { daemon = await Daemon.start(); });
afterEach(async () => {
  const last = page;
  page = null;
  // The page goes first: a daemon that dies under it would be one more, unmeant complaint.
  try {
    await last?.finish();
  } finally {
    await daemon?.end();
  }
});

async function open(options = {}) {
  page = await openPage(browser, { url: daemon.link, ...options });
  return page;
}

const button = (scope, name) => scope.getByRole('button', { name, exact: typeof name === 'string' });
const visible = (locator, timeout = 30000) => locator.waitFor({ state: 'visible', timeout });
const gone = (locator, timeout = 30000) => locator.waitFor({ state: 'detached', timeout });
const connectionLine = () => page.locator('#connection');

const noSidewaysScroll = async () => {
  const { content, view } = await page.evaluate(() => ({ content: document.documentElement.scrollWidth, view: window.innerWidth }));
  assert.ok(content <= view, `the page is ${content} px wide in a window of ${view} px`);
};

async function accessible(what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join('; ')}`);
  assert.deepEqual(found, [], `accessibility of ${what}`);
}

const posts = (verb) => {
  const seen = [];
  page.on('request', (request) => {
    if (request.method() === 'POST' && request.url().endsWith(`/${verb}`)) seen.push(request);
  });
  return seen;
};

describe('opening the inbox', () => {
  test('asks for the token, refuses a wrong one, takes the right one and forgets it on request', async () => {
    await open({ url: daemon.url, expected: [/401/] });
    const field = page.getByLabel('Inbox token');
    await visible(field);
    assert.match(await page.locator('main').innerText(), /state\/web_token/);
    await shoot(page, 'token-form');

    await button(page, 'Open').click();
    await visible(page.getByRole('alert').getByText('Please paste the token'));
    await field.fill('not-the-token');
    await field.press('Enter');
    await visible(page.getByText('askd does not take this token.'));
    assert.equal(await page.evaluate(() => localStorage.getItem('askd.token')), null, 'a wrong token is not kept');
    await shoot(page, 'token-wrong');

    await field.fill(daemon.token);
    await field.press('Enter');
    await visible(page.getByText('Nothing waits for an answer.'));
    await page.reload();
    await visible(page.getByText('Nothing waits for an answer.'));

    await page.getByText('Settings', { exact: true }).click();
    await button(page, 'Forget this browser').click();
    await visible(field);
    assert.equal(await page.evaluate(() => localStorage.getItem('askd.token')), null);
    await page.reload();
    await field.fill(daemon.link);
    await field.press('Enter');
    await visible(page.getByText('Nothing waits for an answer.'));
  });

  test('takes the token from the link, clears it from the address, and an outdated link does no harm', async () => {
    await open({ expected: [/401/] });
    await visible(page.getByText('Nothing waits for an answer.'));
    assert.equal(page.url(), `${daemon.url}/`);
    assert.match(await page.locator('#empty').innerText(), /askd ask "Deploy now\?" --option yes --option no/);
    assert.equal(await page.title(), 'askd');
    assert.deepEqual(await page.context().cookies(), []);

    for (const before of [daemon.url, 'about:blank']) {
      await page.goto(before);
      const refused = page.waitForResponse((response) => response.status() === 401);
      const taken = page.waitForResponse((response) => response.status() === 200 && response.url().endsWith('/events'));
      await page.goto(`${daemon.url}/#token=0123456789abcdef`);
      await refused;
      await taken;
      await visible(page.getByText('Nothing waits for an answer.'));
      assert.ok(await page.getByLabel('Inbox token').isHidden());
    }
    assert.equal(await page.evaluate(() => localStorage.getItem('askd.token')), daemon.token);
  });
});

describe('answering', () => {
  test('a single choice takes one click of the mouse', async () => {
    const ask = await daemon.asked({ title: 'Admin page', context: 'Needed by Friday.', questions: [FRAMEWORK] });
    await open({ viewport: DESKTOP });
    const one = card(page, ask);
    await visible(one.getByText('Which framework?'));
    for (const words of ['research asks', 'Admin page', 'Needed by Friday.', 'what the rest of the product uses', 'just now', '29 min left', ask.short_id]) {
      assert.ok((await one.innerText()).includes(words), `${words} in:\n${await one.innerText()}`);
    }
    assert.equal(await page.title(), '(1) askd');
    assert.equal(await one.locator('.left time').getAttribute('datetime'), ask.answer_by);
    await button(one, /^React/).click();
    const result = await daemon.response(ask.request_id);
    assert.deepEqual(result.answers, { 'Which framework?': 'React' });
    assert.equal(result.status, 'answered');
    assert.equal(result.answered_by.channel, 'web');
    await visible(done(page, ask).getByText('Answered by the operator in the web inbox'));
    assert.equal(await done(page, ask).locator('.line').innerText(), 'React');
    assert.match(await done(page, ask).innerText(), /research asked/);
    await visible(page.getByText('Nothing waits for an answer.'));
    await until('the title without a number', async () => (await page.title()) === 'askd');
    const announced = 'Answered by the operator in the web inbox. Nothing else waits for an answer.';
    await until('the announcement', async () => (await page.locator('[aria-live]').innerText()) === announced);
  });

  test('a single choice is answered on a phone with the keyboard alone, and the focus moves on', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    const next = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] });
    await open({ viewport: PHONE });
    await visible(card(page, next));
    await tabTo(page, `#ask-${ask.id} .choice:nth-child(2)`);
    await shoot(page, 'keyboard-focus', { fullPage: false });
    await page.keyboard.press('Enter');
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which framework?': 'Svelte' });
    await visible(done(page, ask));
    await until('focus on the next card', () => page.evaluate((id) => document.activeElement.id === `ask-${id}`, next.id));
    await page.keyboard.press('Tab');
    await page.keyboard.press('Space');
    assert.deepEqual((await daemon.response(next.request_id)).answers, { 'Deploy now?': 'Yes' });
    await noSidewaysScroll();
  });

  test('confirm offers its two options, renamed ones too, and no text', async () => {
    const plain = await daemon.asked({ questions: [{ question: 'Delete the old index?', type: 'confirm' }] });
    const renamed = await daemon.asked({ questions: [{ question: 'And now?', type: 'confirm', options: ['Ship it', 'Hold it'] }] });
    await open();
    await visible(card(page, renamed));
    assert.equal(await page.getByRole('textbox').count(), 0);
    await button(card(page, plain), 'No').click();
    assert.deepEqual((await daemon.response(plain.request_id)).answers, { 'Delete the old index?': 'No' });
    await gone(card(page, plain));
    await sleep(500);
    await button(card(page, renamed), 'Ship it').click();
    assert.deepEqual((await daemon.response(renamed.request_id)).answers, { 'And now?': 'Ship it' });
  });

  test('free text: Enter makes a line, Ctrl+Enter submits, empty is pointed out', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?', placeholder: 'One or two sentences' }] });
    await open();
    const field = card(page, ask).getByLabel('What should the note say?');
    await visible(field);
    assert.equal(await field.getAttribute('placeholder'), 'One or two sentences');
    await button(card(page, ask), 'Submit').click();
    await visible(card(page, ask).getByText('Please write an answer.'));
    assert.equal(await field.getAttribute('aria-invalid'), 'true');
    await field.pressSequentially('Faster');
    await field.press('Enter');
    await field.pressSequentially('and smaller');
    assert.equal(await card(page, ask).count(), 1);
    await field.press('Control+Enter');
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'Faster\nand smaller' });
  });

  test('Other takes the place of the options', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open();
    const one = card(page, ask);
    await button(one, 'Submit').click();
    await visible(one.getByText('Please choose an option or write an answer.'));
    await one.getByLabel('Other: answer in your own words').fill('Solid');
    await button(one, 'Submit').click();
    const result = await daemon.response(ask.request_id);
    assert.deepEqual(result.answers, { 'Which framework?': 'Solid' });
    assert.equal(result.details[0].text, 'Solid');
    await visible(done(page, ask).getByText('Solid', { exact: true }));
  });

  test('multi-select takes several options and one text', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'Which targets?', type: 'multi-select', options: ['staging', 'canary', 'prod'] }] });
    await open();
    const one = card(page, ask);
    await one.getByLabel('staging').check();
    await one.getByLabel('prod').check();
    await one.getByLabel('Other: add your own words').fill('the laptop in the corner');
    await button(one, 'Submit').click();
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which targets?': ['staging', 'prod', 'the laptop in the corner'] });
  });

  test('Other in a form: typing chooses it, and another choice outdoes it', async () => {
    const both = (name) => ({ questions: [{ question: `Which region, ${name}?`, options: ['eu', 'us'] }, { question: 'Sure?', type: 'confirm' }] });
    const own = await daemon.asked(both('own'));
    const chosen = await daemon.asked(both('chosen'));
    await open();
    for (const ask of [own, chosen]) {
      await card(page, ask).getByLabel('Other: your own words').fill('mars');
      assert.ok(await card(page, ask).getByRole('radio', { name: 'Other' }).isChecked());
      await card(page, ask).getByLabel('Yes').check();
    }
    await card(page, chosen).getByLabel('us', { exact: true }).check();
    await button(card(page, own), 'Submit').click();
    assert.deepEqual((await daemon.response(own.request_id)).answers, { 'Which region, own?': 'mars', 'Sure?': 'Yes' });
    await gone(card(page, own));
    await button(card(page, chosen), 'Submit').click();
    assert.deepEqual((await daemon.response(chosen.request_id)).answers, { 'Which region, chosen?': 'us', 'Sure?': 'Yes' });
  });

  test('several questions: what is missing is pointed out, nothing is lost, the optional one may stay empty', async () => {
    const ask = await daemon.asked(SEVERAL);
    await open();
    const one = card(page, ask);
    await visible(one.getByText('Question 4 of 4'));
    assert.match(await one.innerText(), /optional – leave empty to skip/);
    const sent = posts('answer');
    await one.getByLabel('prod').check();
    await one.getByRole('radio', { name: 'Other' }).check();
    await one.getByLabel('What is it called?').fill('atlas');
    await button(one, 'Submit').click();
    await visible(one.getByText('Please write your own answer, or choose another option.'));
    const own = one.getByLabel('Other: your own words');
    assert.ok(await own.evaluate((field) => field === document.activeElement), 'the first missing one has the focus');
    assert.equal(await own.getAttribute('aria-invalid'), 'true');
    assert.equal(sent.length, 0, 'nothing is sent while something is missing');
    await shoot(page, 'missing');
    await accessible('a form with a missing answer');
    assert.equal(await one.getByLabel('What is it called?').inputValue(), 'atlas');
    assert.ok(await one.getByLabel('prod').isChecked());

    await own.fill('mars');
    await one.getByRole('radio', { name: 'eu' }).check();
    await button(one, 'Submit').click();
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which targets?': ['prod'], 'Which region?': 'eu', 'What is it called?': 'atlas' });
    await visible(done(page, ask));
    await done(page, ask).getByText('Details').click();
    await visible(done(page, ask).getByText('no answer'));
    await shoot(page, 'answered-details');
  });

  test('an answer that the daemon refuses is explained and kept', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await open({ expected: [/422/] });
    const one = card(page, ask);
    const field = one.getByLabel('What should the note say?');
    await field.fill('x'.repeat(3001));
    await button(one, 'Submit').click();
    await visible(one.getByRole('alert').getByText('3001'));
    assert.equal((await field.inputValue()).length, 3001);
    await field.fill('short');
    await button(one, 'Submit').click();
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'short' });
  });

  test('two quick clicks send one answer and do not hit the next ask', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'First?', type: 'confirm' }] });
    const next = await daemon.asked({ questions: [{ question: 'Second?', type: 'confirm' }] });
    await open();
    const sent = posts('answer');
    await visible(card(page, next));
    const { x, y, width, height } = await button(card(page, ask), 'Yes').boundingBox();
    const [left, top] = [x + width / 2, y + height / 2];
    await page.mouse.dblclick(left, top);
    await gone(card(page, ask));
    await page.mouse.click(left, top);
    await daemon.response(ask.request_id);
    await sleep(600);
    assert.equal(sent.length, 1);
    assert.equal((await daemon.known(next.request_id)).state, 'open');
    await page.mouse.click(left, top);
    assert.deepEqual((await daemon.response(next.request_id)).answers, { 'Second?': 'Yes' }, 'a later click is meant');
  });

  test('an optional question can be skipped', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'Any wishes?', required: false }] });
    const choice = await daemon.asked({ questions: [{ ...FRAMEWORK, required: false }] });
    await open();
    await visible(card(page, choice));
    await button(card(page, ask), 'Skip').click();
    const result = await daemon.response(ask.request_id);
    assert.equal(result.status, 'answered');
    assert.deepEqual(result.answers, {});
    await gone(card(page, ask));
    await sleep(500);
    await button(card(page, choice), 'Skip').click();
    assert.deepEqual((await daemon.response(choice.request_id)).answers, {});
    await visible(done(page, choice).getByText('Skipped'));
  });

  test('dismiss takes two presses and ends the ask', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open();
    const one = card(page, ask);
    await button(one, 'Dismiss…').click();
    await visible(one.getByText('Really dismiss?'));
    await visible(one.getByText('The agent is told that you don’t want to answer.'));
    await shoot(page, 'dismiss');
    await button(one, 'Keep').click();
    assert.equal(await one.getByText('Really dismiss?').count(), 0);
    assert.equal((await daemon.known(ask.request_id)).state, 'open');
    await button(one, 'Dismiss…').click();
    await page.keyboard.press('Escape');
    assert.equal(await one.getByText('Really dismiss?').count(), 0);
    await button(one, 'Dismiss…').click();
    await button(one, 'Dismiss').click();
    const result = await daemon.response(ask.request_id);
    assert.equal(result.status, 'cancelled');
    assert.equal(result.reason, 'user');
    await visible(done(page, ask).getByText('Dismissed by the operator in the web inbox'));
  });
});

describe('when something happens meanwhile', () => {
  test('an ask settled elsewhere while somebody is typing keeps the words to copy', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    const other = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] });
    await open();
    const one = card(page, ask);
    await one.getByLabel('Other: answer in your own words').pressSequentially('Half a thou');
    await daemon.answerElsewhere(other, { 'Deploy now?': 'Yes' });
    await visible(done(page, other).getByText('Answered by the operator on the command line'));
    assert.equal(await one.getByLabel('Other: answer in your own words').inputValue(), 'Half a thou');
    await daemon.answerElsewhere(ask, { 'Which framework?': 'React' });
    await visible(one.getByText('Answered by the operator on the command line: React'));
    assert.equal(await one.getByLabel('What you had entered here:').inputValue(), 'Half a thou');
    assert.equal(await button(one, 'Submit').count(), 0);
    await shoot(page, 'settled-while-typing');
    await accessible('the notice of an ask settled elsewhere');
    await button(one, 'Close').click();
    await visible(done(page, ask));
    await visible(page.getByText('Nothing waits for an answer.'));
  });

  test('live updates leave a text that is being typed alone', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await daemon.asked(SEVERAL);
    await open({ viewport: PHONE });
    const field = card(page, ask).getByLabel('What should the note say?');
    await field.pressSequentially('Half a ');
    const place = await page.evaluate(() => window.scrollY);
    const fresh = await daemon.asked({ questions: [FRAMEWORK] });
    await visible(card(page, fresh));
    await sleep(200);
    assert.equal(await page.evaluate(() => window.scrollY), place, 'the page stays where somebody types');
    await page.keyboard.type('thought');
    assert.equal(await field.inputValue(), 'Half a thought');
    assert.ok(await field.evaluate((node) => node === document.activeElement));
  });

  test('who comes second is told who was first', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open({ expected: [/409/] });
    await page.route('**/answer', async (route) => {
      await daemon.answerElsewhere(ask, { 'Which framework?': 'Vue' });
      await sleep(300);
      await route.continue();
    });
    await button(card(page, ask), /^React/).click();
    await visible(card(page, ask).getByText('Already answered by the operator on the command line: Vue'));
    await visible(card(page, ask).getByText('Yours was not used.'));
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which framework?': 'Vue' });
  });

  test('a refusal says by whom and where it was answered, before the stream does', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open({ expected: [/409/] });
    const outcome = {
      status: 'answered', reason: 'user', answers: { 'Which framework?': 'Vue' }, details: [{ id: ask.questions[0].id, question: 'Which framework?', selected: ['Vue'], text: null }],
      by: { channel: 'slack', id: 'U123', name: 'alice' }, at: new Date().toISOString(), error: null, line: 'Answered: Vue by alice',
    };
    const body = JSON.stringify({ title: 'Settled', status: 409, detail: 'Answered already.', ask: { ...ask, state: 'settled', stage: 'settled', outcome } });
    await page.route('**/answer', (route) => route.fulfill({ status: 409, contentType: 'application/problem+json', body }));
    await card(page, ask).getByLabel('Other: answer in your own words').fill('Solid');
    await button(card(page, ask), 'Submit').click();
    await visible(card(page, ask).getByText('Already answered by alice on Slack: Vue'));
    assert.equal(await card(page, ask).getByLabel('What you had entered here:').inputValue(), 'Solid');
  });

  test('an answer that could not be stored can be sent again', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await open({ expected: [/503/, /ERR_FAILED/] });
    const one = card(page, ask);
    await one.getByLabel('What should the note say?').fill('Faster');
    await page.route('**/answer', (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: JSON.stringify({ title: 'Not stored', status: 503, detail: 'The disk is full.' }) }));
    await button(one, 'Submit').click();
    await visible(one.getByRole('alert').getByText('Not stored: The disk is full.'));
    assert.equal(await one.getByLabel('What should the note say?').inputValue(), 'Faster');
    assert.ok(await one.getByLabel('What should the note say?').isEditable());
    await shoot(page, 'not-stored');
    await page.unroute('**/answer');
    await page.route('**/answer', (route) => route.abort());
    await button(one, 'Try again').click();
    await visible(one.getByRole('alert').getByText('Your answer is sent again when askd is back'));
    await page.unroute('**/answer');
    await button(one, 'Try again').click();
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'Faster' });
  });

  test('a killed daemon is said to be gone, and words that were changed meanwhile are sent by the person alone', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await open({ expected: [/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/] });
    const one = card(page, ask);
    const field = one.getByLabel('What should the note say?');
    await field.fill('Faster');
    await daemon.kill('SIGKILL');
    await visible(page.getByText(/^No connection to askd since \d\d:\d\d\. Trying again…$/));
    assert.equal(await connectionLine().getAttribute('role'), 'status');
    await button(one, 'Submit').click();
    await visible(one.getByRole('alert').getByText('Your answer is sent again when askd is back, unless you change it'));
    assert.equal(await field.inputValue(), 'Faster');
    await field.fill('Faster, and smaller');
    await shoot(page, 'no-connection');
    await accessible('a page without connection');
    await daemon.run();
    await visible(page.getByText('Connected again.'));
    assert.equal(await field.inputValue(), 'Faster, and smaller');
    await button(one, 'Submit').click();
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'Faster, and smaller' });
    await until('the line goes away', async () => (await connectionLine().innerText()) === '');
    const fresh = await daemon.asked({ questions: [FRAMEWORK] });
    await visible(card(page, fresh));
  });

  test('a token that was changed is asked for, and the kept words are still there', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await open({ expected: [/401/, /ERR_/] });
    const field = card(page, ask).getByLabel('What should the note say?');
    await field.fill('Faster');
    await daemon.kill();
    await writeFile(join(daemon.folder, 'state', 'web_token'), 'f'.repeat(64));
    await daemon.run();
    await visible(page.getByText('askd does not take this token.'));
    assert.ok(await field.isHidden());
    await page.getByLabel('Inbox token').fill(daemon.token);
    await page.getByLabel('Inbox token').press('Enter');
    await visible(field);
    assert.equal(await field.inputValue(), 'Faster');
    await field.press('Control+Enter');
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'Faster' });
  });

  test('a daemon that hangs counts as gone after 40 s of silence', async () => {
    await open({ before: (fresh) => fresh.clock.install(), expected: [/ERR_/] });
    await visible(page.getByText('Nothing waits for an answer.'));
    daemon.signal('SIGSTOP');
    try {
      await page.clock.fastForward(30000);
      await sleep(300);
      assert.equal(await connectionLine().innerText(), '');
      await page.clock.fastForward(15000);
      await visible(page.getByText('No connection to askd since'));
    } finally {
      daemon.signal('SIGCONT');
    }
    await page.clock.fastForward(6000);
    await visible(page.getByText('Connected again.'));
  });

  test('time left counts down and the end is marked', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], timeoutMs: 360000 });
    await open({ before: (fresh) => fresh.clock.install() });
    await visible(card(page, ask).getByText('5 min left'));
    assert.equal(await card(page, ask).getByText('Ends soon').count(), 0);
    await page.clock.fastForward(120000);
    await visible(card(page, ask).getByText(/Ends soon: 3 min \d+ s left/));
    await visible(card(page, ask).getByText('2 min ago'));
    await shoot(page, 'ends-soon');
  });

  test('an ask that timed out is listed as such', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK], timeoutMs: 10000 });
    await open();
    await visible(card(page, ask).getByText(/Ends soon: \d+ s left/));
    await visible(done(page, ask).getByText('Timed out').first(), 40000);
    await gone(card(page, ask));
  });
});

describe('noticing', () => {
  test('a new question is counted in the title and brought into view, and needs no notice then', async () => {
    const earlier = await daemon.asked(SEVERAL);
    await open({ viewport: PHONE });
    await visible(card(page, earlier));
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await until('the title', async () => (await page.title()) === '(2) askd');
    await until('the new card in the window', () => card(page, ask).evaluate((node) => node.getBoundingClientRect().bottom <= window.innerHeight));
    await until('its announcement', async () => (await page.locator('#announce').textContent()) === 'Question Received: Please answer the question to continue.');
    assert.equal(await page.getByText('Question Received:').and(page.locator('#toast *')).count(), 0);
  });

  // Whoever is busy elsewhere on the page is told at the top right, by whom, and never on top of a control.
  const busyBelow = async (viewport) => {
    const earlier = await daemon.asked(SEVERAL);
    // The notice stays for as long as a busy machine needs to look at it.
    const patient = () => {
      const { setTimeout: real } = window;
      window.setTimeout = (run, ms, ...more) => real(run, ms === 12000 ? 600000 : ms, ...more);
    };
    await open({ viewport, before: (fresh) => fresh.addInitScript(patient) });
    await card(page, earlier).getByRole('textbox').first().fill('busy');
    await page.evaluate(() => window.scrollTo(0, 0));
  };
  const covered = () => page.evaluate(() => {
    const toast = document.getElementById('toast');
    if (getComputedStyle(toast).visibility === 'hidden') return 'hidden';
    const box = toast.getBoundingClientRect();
    const under = [...document.querySelectorAll('main button, main input, main textarea, main label, summary')].filter((node) => {
      const other = node.getBoundingClientRect();
      return node.checkVisibility() && other.width > 0 && other.left < box.right && other.right > box.left && other.top < box.bottom && other.bottom > box.top;
    });
    return under.map((node) => node.outerHTML.slice(0, 80));
  });

  for (const [name, viewport] of [['desk', DESKTOP], ['phone', PHONE]]) {
    test(`who is busy is told of a new question without covering a control: ${name}`, async () => {
      await busyBelow(viewport);
      const ask = await daemon.asked({ questions: [FRAMEWORK] });
      const toast = page.locator('#toast');
      await until('the notice', async () => (await toast.textContent()).includes('Question Received: Please answer the question to continue.from research'));
      for (let y = 0; y < 2000; y += 170) {
        await page.evaluate((top) => window.scrollTo(0, top), y);
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        const under = await covered();
        assert.ok(under === 'hidden' || under.length === 0, `${y}: ${under}`);
      }
      await page.evaluate(() => window.scrollTo(0, 0));
      await until('a place for it', async () => (await covered()) !== 'hidden');
      await shoot(page, `toast-${name}`, { fullPage: false });
      await accessible('a page with a new question');
      await button(page, 'Go to it').click();
      await until('focus on the card', () => page.evaluate((id) => document.activeElement.id === `ask-${id}`, ask.id));
      assert.equal(await page.getByText('Question Received:').count(), 0);
    });
  }

  test('a question that is posted again is announced as a retry', async () => {
    await daemon.asked(SEVERAL);
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    const streams = ['event: resync\ndata: {}\n\n', `event: ask\ndata: ${JSON.stringify({ ...ask, attempt: 3 })}\n\n`];
    await open({
      viewport: PHONE,
      before: (fresh) => fresh.route('**/api/v1/events', async (route) => {
        const body = streams.shift();
        // Somebody presses something far above: the page then does not scroll by itself.
        if (streams.length === 0) await fresh.keyboard.press('Shift');
        return body ? route.fulfill({ contentType: 'text/event-stream', body }) : route.continue();
      }),
    });
    await visible(card(page, ask).getByText('Previous attempt failed to display. This is retry attempt 2.'));
    await until('the notice', async () => (await page.locator('#toast').textContent()).startsWith('Question Retry: Previous attempt failed to display. This is retry attempt 2.'));
  });

  test('a browser notification is shown if it was switched on, and its click leads to the ask', async () => {
    await open({
      viewport: PHONE,
      before: (fresh) => fresh.addInitScript(() => {
        window.shown = [];
        const grant = async () => { Notification.permission = 'granted'; return 'granted'; };
        window.Notification = class {
          static permission = 'default';
          static requestPermission = grant;
          constructor(title, options) { window.shown.push(this); Object.assign(this, { title, body: options.body }); }
          close() { this.closed = true; }
        };
        document.hasFocus = () => false;
        window.tones = 0;
        const { start } = OscillatorNode.prototype;
        OscillatorNode.prototype.start = function count(...when) {
          window.tones += 1;
          return start.apply(this, when);
        };
      }),
    });
    await visible(page.getByText('Nothing waits for an answer.'));
    const first = await daemon.asked({ questions: [FRAMEWORK] });
    await visible(card(page, first));
    assert.equal(await page.evaluate(() => window.shown.length + window.tones), 0, 'both are off by default');
    await page.getByText('Settings', { exact: true }).click();
    await page.getByLabel('Show a browser notification for a new question').check();
    await page.getByLabel('Play a sound for a new question').check();
    await page.keyboard.press('Escape');
    assert.ok(await button(page, 'Forget this browser').isHidden());
    const sampled = await page.evaluate(() => window.tones);
    const ask = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] });
    const said = await until('a notification', () => page.evaluate(() => window.shown.map(({ title, body }) => [title, body])[0]));
    assert.deepEqual(said, ['Question Received', 'Please answer the question to continue.']);
    assert.ok((await page.evaluate(() => window.tones)) > sampled, 'a sound with it');
    await page.evaluate(() => window.shown[0].onclick());
    assert.equal(await page.evaluate(() => document.activeElement.id), `ask-${ask.id}`);
    await daemon.answerElsewhere(ask, { 'Deploy now?': 'No' });
    await visible(done(page, ask).or(card(page, ask).getByText('Answered by')));
  });

  test('a page that shows an ask proves it; no page, a hidden page or an ask out of view does not', async () => {
    // Withdrawn and not answered at the end: an answer would itself be a proof.
    const withdraw = (ask) => daemon.api(`/api/v1/asks/${ask.id}/cancel`, {});
    const nobody = await daemon.asked({ questions: [FRAMEWORK] });
    await withdraw(nobody);
    assert.equal((await daemon.response(nobody.request_id)).renderConfirmed, false);

    const seen = await daemon.asked({ questions: [{ question: 'First?', type: 'confirm' }] });
    await open({
      viewport: PHONE,
      before: (fresh) => fresh.addInitScript(() => {
        window.hiddenNow = true;
        Object.defineProperty(document, 'visibilityState', { get: () => (window.hiddenNow ? 'hidden' : 'visible') });
      }),
    });
    const beacons = posts('shown');
    for (let index = 0; index < 6; index += 1) await daemon.asked({ questions: [{ ...FRAMEWORK, question: `Which, ${index}?` }] });
    const below = await daemon.asked({ questions: [{ question: 'Last?', type: 'confirm' }] });
    await visible(card(page, below));
    await sleep(300);
    assert.equal(beacons.length, 0, 'nobody looks at a hidden page');
    await page.evaluate(() => { window.scrollTo(0, 0); });
    await sleep(200);
    await page.evaluate(() => {
      window.hiddenNow = false;
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await until('the proof', async () => (await daemon.known(seen.request_id)).render_confirmed);
    assert.equal((await daemon.known(below.request_id)).render_confirmed, false, 'far below the window');
    await card(page, below).scrollIntoViewIfNeeded();
    await until('the proof', async () => (await daemon.known(below.request_id)).render_confirmed);
    await page.evaluate(() => window.scrollTo(0, 0));
    await sleep(300);
    assert.equal(beacons.filter((request) => request.url().includes(seen.id)).length, 1, 'once per page and ask');
    await withdraw(seen);
    assert.equal((await daemon.response(seen.request_id)).renderConfirmed, true);
  });
});

describe('showing', () => {
  const RLO = '\u202e';
  const HOSTILE = {
    title: '<script>alert(1)</script>"><b>bold</b>',
    context: `<img src=x onerror="alert(1)"> ${'W'.repeat(400)}\n${RLO}dekcart si siht\n</blockquote><style>*{display:none}</style>`,
    questions: [{
      question: `"><b>Really?</b> ${RLO}?yltnereffid`,
      header: `${RLO}<i>head`,
      options: [{ label: `<svg onload=alert(1)>${RLO}`, description: `javascript:alert(1) ${'x'.repeat(280)}` }, 'w'.repeat(75)],
    }],
  };

  test('hostile words are words: no element, no script, nothing leaves its box', async () => {
    const ask = await daemon.asked(HOSTILE);
    await open({ viewport: SMALL_PHONE });
    const one = card(page, ask);
    await visible(one);
    const text = await one.innerText();
    for (const words of [HOSTILE.title, HOSTILE.context, HOSTILE.questions[0].question, HOSTILE.questions[0].options[0].label]) assert.ok(text.includes(words), `${words} in:\n${text}`);
    assert.equal(await one.locator('script, b, i, svg, img, style').count(), 0);
    await noSidewaysScroll();
    await shoot(page, 'hostile');
    const turned = await one.locator('.said').evaluateAll((nodes) => nodes.filter((node) => !getComputedStyle(node).unicodeBidi.startsWith('isolate')).length);
    assert.equal(turned, 0, 'right-to-left marks end with their box');
    assert.equal(await one.locator('.strip .said').count(), 0, 'no word of the agent in the line that says who asks');
    await accessible('hostile words');
    await one.getByRole('button').nth(0).click();
    await visible(done(page, ask));
    await done(page, ask).getByText('Details').click();
    assert.equal(await done(page, ask).locator('script, b, i, svg, img, style').count(), 0);
    await noSidewaysScroll();
    await shoot(page, 'hostile-answered');
    for (const own of await page.locator('.own').allInnerTexts()) assert.ok(!own.includes(RLO), `in askd's own words: ${own}`);
  });

  test('several hostile questions fit a small phone, too', async () => {
    const wide = 'W'.repeat(75);
    await daemon.asked({ questions: [
      { question: 'Q'.repeat(400), type: 'multi-select', options: [{ label: wide, description: 'd'.repeat(300) }] },
      { question: `${RLO}${'q'.repeat(400)}`, options: [{ label: wide, description: '<b>' }], placeholder: 'p'.repeat(150) },
    ] }, `g${'r'.repeat(63)}`);
    await open({ viewport: SMALL_PHONE });
    await visible(page.getByText('Question 2 of 2'));
    await noSidewaysScroll();
    await shoot(page, 'hostile-several');
  });

  test('only some of the settled asks are shown at first', async () => {
    for (let index = 0; index < 33; index += 1) {
      const ask = await daemon.asked({ questions: [{ question: `Number ${index}?`, type: 'confirm' }] }, `group${index % 11}`);
      await daemon.answerElsewhere(ask, { [`Number ${index}?`]: 'Yes' });
    }
    await open();
    await visible(page.getByRole('heading', { name: 'Answered and closed' }));
    assert.equal(await page.locator('li.done').count(), 30);
    assert.match(await page.locator('li.done').first().innerText(), /Number 32\?/);
    await button(page, 'Show more').click();
    assert.equal(await page.locator('li.done').count(), 33);
    assert.ok(await button(page, 'Show more').isHidden());
  });

  for (const dark of [false, true]) {
    for (const [device, viewport] of [['desktop', DESKTOP], ['phone', PHONE]]) {
      const look = `${device}-${dark ? 'dark' : 'light'}`;
      test(`no accessibility faults: ${look}`, async () => {
        await open({ url: daemon.url, viewport, dark });
        await visible(page.getByLabel('Inbox token'));
        await accessible('the token form');
        await page.getByLabel('Inbox token').fill(daemon.token);
        await page.getByLabel('Inbox token').press('Enter');
        await visible(page.getByText('Nothing waits for an answer.'));
        await accessible('the empty inbox');
        await shoot(page, `empty-${look}`);
        const over = await daemon.asked({ title: 'Admin page', context: 'Needed by Friday.', questions: [FRAMEWORK] });
        await daemon.answerElsewhere(over, { 'Which framework?': 'React' });
        const dismissed = await daemon.asked({ questions: [{ question: 'Rename the branch?', type: 'confirm' }] }, 'writer');
        await daemon.api(`/api/v1/asks/${dismissed.id}/dismiss`, { by: 'cli' });
        await daemon.asked({ title: 'Admin page', context: 'Needed by Friday.', questions: [{ ...FRAMEWORK, header: 'Framework', question: 'Which framework now?' }] });
        await daemon.asked({ questions: [{ question: 'Deploy to production now?', type: 'confirm' }], timeoutMs: 200000 }, 'deploy-bot');
        await daemon.asked({ questions: [{ question: 'What should the note say?', required: false, placeholder: 'One or two sentences' }] }, 'writer');
        const last = await daemon.asked(SEVERAL);
        await visible(card(page, last));
        await visible(done(page, over));
        await page.getByText('Settings', { exact: true }).click();
        await accessible('a filled inbox');
        await page.getByText('Settings', { exact: true }).click();
        await button(page, 'Close this notice').click();
        await page.evaluate(() => window.scrollTo(0, 0));
        await shoot(page, `filled-${look}`);
        await noSidewaysScroll();
      });
    }
  }

  test('twice the text size still fits', async () => {
    await daemon.asked(SEVERAL);
    await daemon.asked({ questions: [FRAMEWORK], timeoutMs: 200000 }, 'a-rather-long-group-name');
    // 200 % zoom of a 1280 px window is a window of 640 px at twice the density.
    await open({ viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 });
    await visible(page.getByText('Question 4 of 4'));
    await noSidewaysScroll();
    await page.evaluate(() => { document.documentElement.style.fontSize = '32px'; });
    await page.setViewportSize(PHONE);
    await shoot(page, 'text-200-percent');
    await noSidewaysScroll();
  });

  test('small controls are large enough for a thumb', async () => {
    await daemon.asked(SEVERAL);
    await daemon.asked({ questions: [{ ...FRAMEWORK, required: false }] });
    await open({ viewport: PHONE });
    await visible(page.getByText('Question 4 of 4'));
    const small = await page.locator('button:visible, label.row, summary:visible, textarea').evaluateAll((nodes) => nodes.filter((node) => node.getBoundingClientRect().height < 44).map((node) => node.outerHTML));
    assert.deepEqual(small, []);
  });
});
