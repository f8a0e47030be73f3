// Cards in the stand-in of Slack, in a real browser against the real daemon: a person clicks a button, fills a form, is told what is
// missing, writes in the thread, and sees the cards change. What the agent gets is read from its folder.
//
// ASKD_BIN: the daemon (default: the debug build). CHROMIUM: the browser. ASKD_SCREENSHOTS: a folder for pictures.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { launch, until } from './harness.mjs';

const BINARY = process.env.ASKD_BIN ?? fileURLToPath(new URL('../../target/debug/askd', import.meta.url));
const SCREENSHOTS = process.env.ASKD_SCREENSHOTS;
const CHANNEL = 'C0AGENTS';

let browser, folder, standIn, slack, daemon, page;
const complaints = [];

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'askd-slack-'));
  standIn = spawn(BINARY, ['sim', 'slack', '--pace', '0'], { stdio: ['pipe', 'pipe', 'inherit'] });
  slack = JSON.parse((await createInterface({ input: standIn.stdout })[Symbol.asyncIterator]().next()).value);
  const config = join(folder, 'askd.toml');
  await writeFile(config, `data_dir = "${folder}/data"
[http]
listen = "127.0.0.1:0"
[slack]
bot_token = "${slack.bot_token}"
app_token = "${slack.app_token}"
api_url = "${slack.api_url}"
pace = "0s"
[groups.research]
routes = [{ channel = "slack", chat = "${CHANNEL}", responders = ["U0ALICE"] }]
`);
  daemon = spawn(BINARY, ['serve', '--config', config], { stdio: ['ignore', 'ignore', 'pipe'] });
  await new Promise((resolve, reject) => {
    let log = '';
    daemon.stderr.on('data', (data) => {
      log += data;
      if (log.includes('connected to Slack')) resolve();
    });
    daemon.on('exit', () => reject(new Error(log)));
  });
  browser = await launch();
  page = await browser.newPage({ viewport: { width: 1100, height: 900 } });
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
});

after(async () => {
  await browser?.close();
  daemon?.kill('SIGTERM');
  standIn?.stdin.end();
  await new Promise((resolve) => (daemon && daemon.exitCode === null ? daemon.on('exit', resolve) : resolve()));
  await rm(folder, { recursive: true, force: true });
});

async function ask(id, request) {
  const tasks = join(folder, 'data/ipc/research/tasks');
  await mkdir(tasks, { recursive: true });
  await writeFile(join(tasks, `.${id}`), JSON.stringify({ type: 'ask_user:ask', request_id: id, ...request }));
  await rename(join(tasks, `.${id}`), join(tasks, `${id}.json`));
}

const response = (id) => until(`the response to ${id}`, async () => {
  const text = await readFile(join(folder, `data/ipc/research/responses/${id}.json`), 'utf8').catch(() => null);
  return text && JSON.parse(text);
});

const shoot = async (name) => SCREENSHOTS && page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
const as = (user) => page.goto(`${slack.url}/?user=${user}&channel=${CHANNEL}`);
const card = (text) => page.locator('[data-ts]').filter({ hasText: text }).last();

test('one click answers', async () => {
  await ask('r1', {
    title: 'Release 2.4',
    context: 'All *812* tests pass. `canary` has served 5 % for an hour. <!channel> https://evil.example',
    questions: [{ question: 'How shall I roll out?', options: [{ label: 'Blue-green', description: 'two environments, switch at once' }, { label: 'Canary', description: '5 % of the users first' }, 'Not today'] }],
  });
  await as('U0ALICE');
  const shown = card('How shall I roll out?');
  await shown.getByRole('button', { name: 'Canary' }).waitFor();
  assert.equal(await shown.locator('.mention').count(), 0, 'nothing mentions anybody');
  assert.equal(await shown.locator('a').count(), 0, 'nothing links anywhere');
  assert.equal(await shown.locator('strong, em').filter({ hasText: '812' }).count(), 1, 'emphasis stays readable');
  await shoot('slack-choice');
  await shown.getByRole('button', { name: 'Canary' }).click();
  assert.deepEqual((await response('r1')).result.answers, { 'How shall I roll out?': 'Canary' });
  await shown.locator('strong', { hasText: 'Canary' }).waitFor();
  assert.equal(await shown.getByRole('button', { name: 'Dismiss' }).count(), 0);
  await shoot('slack-choice-answered');
});

test('a form is filled, what is missing is pointed out, and nothing typed is lost', async () => {
  await ask('r2', {
    questions: [
      { question: 'Which targets?', type: 'multi-select', options: ['staging', 'production EU', 'production US'] },
      { question: 'Tell the customers?', type: 'confirm' },
      { question: 'Why now?', placeholder: 'for the release notes' },
    ],
  });
  await as('U0ALICE');
  const form = card('Which targets?');
  await form.locator('input[type=checkbox]').nth(0).click();
  await form.locator('textarea, input.field').last().fill('The tests are green.');
  await form.getByRole('button', { name: 'Submit' }).click();
  await page.getByText('Please answer: Tell the customers?').waitFor();
  await shoot('slack-form-missing');
  assert.equal(await form.locator('textarea, input.field').last().inputValue(), 'The tests are green.');
  await form.locator('input[type=radio]').nth(0).click();
  await form.getByRole('button', { name: 'Submit' }).click();
  assert.deepEqual((await response('r2')).result.answers, { 'Which targets?': ['staging'], 'Tell the customers?': 'Yes', 'Why now?': 'The tests are green.' });
  await form.getByText('Answered by').waitFor();
  await form.locator('strong', { hasText: 'The tests are green.' }).waitFor();
  await shoot('slack-form-answered');
});

for (const [look, viewport, colorScheme] of [['desk-light', { width: 1100, height: 900 }, 'light'], ['phone-dark', { width: 390, height: 844 }, 'dark']]) {
  test(`Other… is a window of its own, Dismiss asks once more, and free text is one field: ${look}`, async () => {
    const context = await browser.newContext({ viewport, colorScheme });
    const desk = page;
    page = await context.newPage();
    page.on('pageerror', (error) => complaints.push(String(error)));
    const dialog = page.getByRole('dialog');
    await ask(`o-${look}`, { title: 'Release 2.4', questions: [{ question: `Which port on ${look}?`, options: [{ label: '80', style: 'primary' }, { label: '443', description: 'with a certificate' }] }] });
    await ask(`t-${look}`, { questions: [{ question: `What should the note on ${look} say?`, placeholder: 'one or two sentences' }] });
    await as('U0ALICE');
    const note = card(`What should the note on ${look} say?`);
    await note.locator('textarea, input.field').fill('The port changes tonight.');
    await shoot(`slack-text-${look}`);
    const port = card(`Which port on ${look}?`);
    await port.getByRole('button', { name: 'Other…' }).click();
    await dialog.locator('textarea').fill('8080, behind the proxy');
    await shoot(`slack-modal-${look}`);
    await dialog.getByRole('button', { name: 'Send' }).click();
    assert.deepEqual((await response(`o-${look}`)).result.answers, { [`Which port on ${look}?`]: '8080, behind the proxy' });
    await port.locator('strong', { hasText: '8080, behind the proxy' }).waitFor();
    await note.getByRole('button', { name: 'Dismiss' }).click();
    await dialog.getByRole('heading').waitFor();
    await shoot(`slack-dismiss-${look}`);
    await dialog.getByRole('button').last().click();
    assert.equal((await response(`t-${look}`)).result.status, 'cancelled');
    await note.getByText('Dismissed by').waitFor();
    await shoot(`slack-dismissed-${look}`);
    await context.close();
    page = desk;
  });
}

test('whoever may not answer is told so and nobody else is', async () => {
  await ask('r3', { questions: [{ question: 'Really?', type: 'confirm' }] });
  await as('U0BOB');
  await card('Really?').getByRole('button', { name: 'Yes' }).click();
  await page.getByText('send your admin this id: U0BOB').waitFor();
  await shoot('slack-refused');
  await as('U0ALICE');
  const shown = card('Really?');
  await shown.getByRole('button', { name: 'No' }).waitFor();
  assert.equal(await page.getByText('this id: U0BOB').count(), 0);
  await shown.getByRole('button', { name: 'No' }).click();
  assert.equal((await response('r3')).result.answers['Really?'], 'No');
  assert.deepEqual(complaints, []);
});
