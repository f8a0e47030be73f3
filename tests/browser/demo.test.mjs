// The demo as a newcomer meets it: the tour with all three places and the agents' terminal, on a desk and on a phone, light and
// dark. Every question is answered on its page; the agent that is killed is started again by the answer.
//
// ASKD_BIN: the binary (default: the debug build). CHROMIUM: the browser. ASKD_SCREENSHOTS: a folder for pictures.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { Demo } from './demo.mjs';
import './failed.mjs';
import { launch, openPage, shoot, until } from './harness.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };

let browser, demo;
before(async () => {
  demo = await Demo.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await demo?.end();
});

const place = (page, name) => page.frameLocator(`#${name} iframe`);
const seen = (where, text) => where.getByText(text).locator('visible=true').first().waitFor();
const terminal = (page, words) => page.locator('#lines').getByText(words).first();

// What is not in the tour's own frames: those are judged by their own checks.
async function accessible(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { iframes: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'] }));
  assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html)}`), []);
}

const sideways = (page) => page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);

test('all three places ask in the first second, on one page', async () => {
  for (const dark of [false, true]) {
    const page = await openPage(browser, { viewport: DESK, dark, url: demo.tour });
    await seen(place(page, 'inbox'), 'How should I roll out version 2.4?');
    await seen(place(page, 'slack'), 'Promote the canary to everyone?');
    await seen(place(page, 'phone'), 'Which flight to Lisbon should I book?');
    await terminal(page, 'asks in Slack').waitFor();
    await until('the marks', () => page.locator('section.calls').count().then((count) => count === 3));
    await accessible(page);
    assert.equal(await sideways(page), false);
    await shoot(page, `demo-desk-${dark ? 'dark' : 'light'}`, { fullPage: false });
    await page.finish();
  }
});

test('on a phone each place is a tab', async () => {
  for (const dark of [false, true]) {
    const page = await openPage(browser, { viewport: PHONE, dark, url: demo.tour });
    for (const tab of ['Inbox', 'Slack', 'Phone', 'Agents']) {
      await page.getByRole('button', { name: tab, exact: true }).click();
      const shown = page.locator(`#${tab.toLowerCase()}`);
      await shown.waitFor();
      assert.equal(await page.locator('main section:visible').count(), 1);
      if (tab !== 'Agents') await seen(shown.frameLocator('iframe'), '?');
      assert.equal(await sideways(page), false);
      await shoot(page, `demo-phone-${tab.toLowerCase()}-${dark ? 'dark' : 'light'}`, { fullPage: false });
    }
    await accessible(page);
    await page.finish();
  }
});

test('each page stands alone, too', async () => {
  const words = { inbox: 'How should I roll out version 2.4?', slack: 'Promote the canary to everyone?', phone: 'Which flight to Lisbon should I book?' };
  for (const [name, text] of Object.entries(words)) {
    for (const [size, viewport] of Object.entries({ desk: DESK, phone: PHONE })) {
      for (const dark of [false, true]) {
        const page = await openPage(browser, { viewport, dark, url: demo[name] });
        await seen(page, text);
        assert.equal(await sideways(page), false, `${name} ${size}`);
        await shoot(page, `demo-${name}-alone-${size}-${dark ? 'dark' : 'light'}`, { fullPage: false });
        await page.finish();
      }
    }
  }
});

test('an answer in each place reaches its agent, and the killed agent is started with its answer', async () => {
  const page = await openPage(browser, { viewport: DESK, url: demo.tour });
  await place(page, 'inbox').getByRole('button', { name: /Canary/ }).click();
  await terminal(page, 'got "Canary" from you in the inbox').waitFor();
  await place(page, 'slack').getByRole('button', { name: 'Wait an hour' }).click();
  await terminal(page, 'got "Wait an hour" from alice in Slack').waitFor();
  await place(page, 'slack').locator('strong', { hasText: 'Wait an hour' }).waitFor();
  await place(page, 'phone').getByLabel('Message').fill('2');
  await place(page, 'phone').getByRole('button', { name: 'Send' }).click();
  await terminal(page, 'got "12:45" from Ada on WhatsApp').waitFor();
  await terminal(page, 'was killed while it waits').waitFor();
  await shoot(page, 'demo-killed', { fullPage: false });
  await place(page, 'slack').getByRole('button', { name: 'Wait for the backup' }).click();
  await page.locator('#lines').getByText('The user answered: "Wait for the backup"').waitFor({ timeout: 40_000 });
  await until('no place calls', () => page.locator('section.calls').count().then((count) => count === 0));
  await shoot(page, 'demo-ended', { fullPage: false });
  assert.ok(demo.says('was started again by your answer'));
  assert.ok(await until('what is next', () => demo.says('ask your own question')));
  await page.finish();
});
