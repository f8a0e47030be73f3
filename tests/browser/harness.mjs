// Starts a real askd on a free port with a folder of its own, plays the agent through files, and opens pages that
// remember everything a browser complained about. It deliberately stubs nothing of the daemon.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium } from 'playwright-core';

const BINARY = process.env.ASKD_BIN ?? fileURLToPath(new URL('../../target/debug/askd', import.meta.url));
const SCREENSHOTS = process.env.ASKD_SCREENSHOTS;

// Agents' folders as askd itself makes them: else the page says what is wrong with them, and its strip moves the cards.
process.umask(0o007);

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 375, height: 667 };
export const SMALL_PHONE = { width: 360, height: 640 };

// A page fetches its worker when it opens; a daemon that is killed then does not send it.
export const NO_WORKER = /when fetching the script/;

export const launch = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

// Of looks that are checked alike: with ASKD_SAMPLE one of them, another one each day, which the name of the test says.
export const sample = (looks) => {
  const day = Number(process.env.ASKD_DAY ?? Math.floor(Date.now() / 86400000));
  return process.env.ASKD_SAMPLE ? [looks[day % looks.length]] : looks;
};

// The looks of a page.
export const LOOKS = [false, true].flatMap((dark) => [['desktop', DESKTOP], ['phone', PHONE]].map(([device, viewport]) => ({ look: `${device}-${dark ? 'dark' : 'light'}`, viewport, dark })));

// Polls until `probe` returns something other than undefined, false or null.
export async function until(what, probe, limitMs = 30000) {
  const end = Date.now() + limitMs;
  for (;;) {
    const found = await probe();
    if (found) return found;
    assert.ok(Date.now() < end, `${what}: not within ${limitMs} ms`);
    await sleep(50);
  }
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Daemon {
  #process = null;
  #output = '';
  #count = 0;
  #settings = null;

  // `groups`: settings of groups, in TOML, made from the daemon's folder.
  static async start({ groups } = {}) {
    const daemon = new Daemon();
    daemon.folder = await mkdtemp(join(tmpdir(), 'askd-browser-'));
    if (groups) {
      daemon.#settings = join(daemon.folder, 'askd.toml');
      await writeFile(daemon.#settings, groups(daemon.folder));
    }
    daemon.port = await freePort();
    daemon.url = `http://127.0.0.1:${daemon.port}`;
    await daemon.run();
    return daemon;
  }

  async run() {
    const env = { ...process.env, ASKD__DATA_DIR: this.folder, ASKD__HTTP__LISTEN: `127.0.0.1:${this.port}` };
    this.#process = spawn(BINARY, ['serve', ...(this.#settings ? ['--config', this.#settings] : [])], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.#process.stdout, this.#process.stderr]) stream.on('data', (chunk) => { this.#output += chunk; });
    this.#process.on('error', (error) => { this.#output += error; });
    await until('readyz', async () => {
      assert.equal(this.#process.exitCode, null, `askd stopped:\n${this.#output}`);
      return (await fetch(`${this.url}/readyz`).catch(() => null))?.status === 200;
    }).catch((error) => { throw new Error(`${error.message}\n${this.#output}`); });
    this.token = (await readFile(join(this.folder, 'state', 'web_token'), 'utf8')).trim();
  }

  get link() { return `${this.url}/#token=${this.token}`; }

  signal(name) { this.#process.kill(name); }

  // Has it read other settings.
  async reload(text) {
    await writeFile(this.#settings, text);
    this.signal('SIGHUP');
  }

  async kill(name = 'SIGKILL') {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const gone = new Promise((resolve) => this.#process.once('exit', resolve));
    this.#process.kill(name);
    await gone;
  }

  async end() {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  // Asks as an agent does: one file, written aside and renamed. Returns the ask's request id.
  async ask(request, group = 'research') {
    this.#count += 1;
    const id = request.request_id ?? `r${this.#count}`;
    const tasks = join(this.folder, 'ipc', group, 'tasks');
    await mkdir(tasks, { recursive: true });
    const aside = join(tasks, `${id}.tmp`);
    await writeFile(aside, JSON.stringify({ type: 'ask_user:ask', request_id: id, ...request }));
    await rename(aside, join(tasks, `${id}.json`));
    return id;
  }

  // The `result` of the response file, once it is there.
  response(id, group = 'research') {
    const path = join(this.folder, 'ipc', group, 'responses', `${id}.json`);
    return until(`the response to ${id}`, async () => {
      const text = await readFile(path, 'utf8').catch(() => null);
      return text && JSON.parse(text).result;
    });
  }

  async api(path, body) {
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' };
    const reply = await fetch(this.url + path, body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) });
    return reply.status === 204 ? { status: 204 } : reply.json();
  }

  // The API's object of an ask, once the daemon has taken it.
  known(id) {
    return until(`ask ${id}`, async () => (await this.api('/api/v1/asks')).asks.find((ask) => ask.request_id === id));
  }

  async asked(request, group) {
    return this.known(await this.ask(request, group));
  }

  async answerElsewhere(ask, answers) {
    const after = await this.api(`/api/v1/asks/${ask.id}/answer`, { answers, by: 'cli' });
    assert.equal(after.state, 'settled', JSON.stringify(after));
    return after;
  }
}

// Of each page that is open: tells what is to be seen there, and which calls have no reply.
export const accounts = new Map();

// A page in a browser context of its own, of a person who asked for no motion: colors are then final at once. `expected`: patterns of console errors that a test provokes on purpose.
export async function openPage(browser, { viewport = DESKTOP, dark = false, expected = [], before, url, permissions = [], ...options } = {}) {
  const context = await browser.newContext({ viewport, colorScheme: dark ? 'dark' : 'light', locale: 'en-US', reducedMotion: 'reduce', permissions, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(`${message.type()}: ${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => complaints.push(`exception: ${error}`));
  page.on('dialog', (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => console.error(`CSP violation: ${event.violatedDirective} ${event.blockedURI}`));
  });
  const calls = new Map();
  page.on('request', (call) => calls.set(call, Date.now()));
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (call) => calls.delete(call));
  accounts.set(page, async () => {
    const texts = page.frames().map((frame) => frame.evaluate(() => document.body.innerText).catch(String));
    const waiting = [...calls].map(([call, since]) => `${call.method()} ${call.url()} since ${Date.now() - since} ms`);
    return [`--- ${page.url()} says`, ...(await Promise.all(texts)), '--- waits for', ...waiting, '--- complains', ...complaints].join('\n');
  });
  if (before) await before(page);
  if (url) await page.goto(url);
  page.finish = async () => {
    accounts.delete(page);
    await context.close();
    assert.deepEqual(complaints.filter((text) => !expected.some((pattern) => pattern.test(text))), [], 'the browser complained');
  };
  return page;
}

// The card of an ask, or its line once it is settled.
export const card = (page, ask) => page.locator(`article#ask-${ask.id}`);
export const done = (page, ask) => page.locator(`li#ask-${ask.id}`);
// A field grows with its words and moves what is below it, and what has just moved takes no click.
export const submit = async (scope) => {
  await sleep(500);
  await scope.getByRole('button', { name: 'Submit', exact: true }).click();
};

export async function shoot(page, name, { fullPage = true } = {}) {
  if (!SCREENSHOTS) return;
  await mkdir(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), fullPage, animations: 'disabled' });
}

// Presses Tab until the focus is on what `matches` (run in the page) accepts; fails after `limit` stops.
export async function tabTo(page, selector, limit = 40) {
  for (let stop = 0; stop < limit; stop += 1) {
    if (await page.evaluate((wanted) => document.activeElement?.matches(wanted), selector)) return;
    await page.keyboard.press('Tab');
  }
  assert.fail(`no way by Tab to ${selector}`);
}
