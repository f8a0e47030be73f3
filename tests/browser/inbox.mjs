// What the checks of the inbox page share: a daemon and a page for each check, and words for what is on the page.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, afterEach, before, beforeEach } from 'node:test';
import './failed.mjs';
import { Daemon, launch, openPage } from './harness.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const FRAMEWORK = { question: 'Which framework?', options: [{ label: 'React', description: 'what the rest of the product uses' }, 'Svelte', 'Vue'] };
export const SEVERAL = {
  title: 'New service',
  context: 'The tests are green.\nNothing else waits in the queue.',
  questions: [
    { question: 'Which targets?', header: 'Targets', type: 'multi-select', options: [{ label: 'staging', description: 'the small one' }, 'prod'] },
    { question: 'Which region?', options: ['eu', 'us'] },
    { question: 'What is it called?' },
    { question: 'Anything else?', required: false },
  ],
};

export let browser;
export let daemon;
export let page;

before(async () => { browser = await launch(); });
after(async () => { await browser?.close(); });
let groups;
// Settings for all daemons of a test file, in TOML, made from the daemon's folder.
export const settings = (make) => { groups = make; };

beforeEach(async () => { daemon = await Daemon.start({ groups }); });
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

export async function open(options = {}) {
  page = await openPage(browser, { url: daemon.link, ...options });
  return page;
}

export const button = (scope, name) => scope.getByRole('button', { name, exact: typeof name === 'string' });
export const visible = (locator, timeout = 30000) => locator.waitFor({ state: 'visible', timeout });
export const gone = (locator, timeout = 30000) => locator.waitFor({ state: 'detached', timeout });
export const connectionLine = () => page.locator('#connection');

export const noSidewaysScroll = async () => {
  const { content, view } = await page.evaluate(() => ({ content: document.documentElement.scrollWidth, view: window.innerWidth }));
  assert.ok(content <= view, `the page is ${content} px wide in a window of ${view} px`);
};

export async function accessible(what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join('; ')}`);
  assert.deepEqual(found, [], `accessibility of ${what}`);
}

// Will click in the very moment in which something moves what is clicked; what it returns waits for that.
export async function clickAsItMoves(control) {
  await control.evaluate((node) => {
    const top = () => node.getBoundingClientRect().top + window.scrollY;
    const before = top();
    node.clicked = new Promise((resolve) => {
      new MutationObserver((_, observer) => {
        if (Math.abs(top() - before) < 10) return;
        observer.disconnect();
        node.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, detail: 1 }));
        resolve();
      }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
    });
  });
  return () => control.evaluate((node) => node.clicked);
}

export const NOT_TAKEN = 'Nothing was sent: the page moved as you clicked. Click again if you meant this question.';

export const posts = (verb) => {
  const seen = [];
  page.on('request', (request) => {
    if (request.method() === 'POST' && request.url().endsWith(`/${verb}`)) seen.push(request);
  });
  return seen;
};
