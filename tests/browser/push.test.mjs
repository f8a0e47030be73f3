// The service worker: what it shows for a pushed notice, where a click on it leads, and that it keeps nothing. Chromium has no push
// service here, so its own debugger delivers what askd would push; what askd pushes is told in tests/it/push.rs.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { card, done, PHONE, shoot, until } from './harness.mjs';
import { accessible, button, daemon, FRAMEWORK, open, page, visible } from './inbox.mjs';

// The page with its worker, and the debugger's way to push to it.
async function installed() {
  await open({ viewport: PHONE, permissions: ['notifications'] });
  await visible(page.getByText('No open questions.'));
  await page.evaluate(() => navigator.serviceWorker.ready);
  const debug = await page.context().newCDPSession(page);
  const registered = new Promise((resolve) => {
    debug.on('ServiceWorker.workerRegistrationUpdated', ({ registrations }) => registrations[0] && resolve(registrations[0].registrationId));
  });
  await debug.send('ServiceWorker.enable');
  const registrationId = await registered;
  return (message) => debug.send('ServiceWorker.deliverPushMessage', { origin: daemon.url, registrationId, data: JSON.stringify(message) });
}

const notices = () => page.evaluate(async () => (await (await navigator.serviceWorker.ready).getNotifications()).map(({ title, body, silent, data }) => ({ title, body, silent, ask: data.ask })));
const worker = () => page.context().serviceWorkers()[0];
// A person's click gives the right to open a window, which no test has.
const click = () => worker().evaluate(async () => {
  self.opened = [];
  self.clients.openWindow = async (url) => self.opened.push(url);
  self.WindowClient.prototype.focus = async () => self.opened.push('focus');
  const [notification] = await self.registration.getNotifications();
  const waits = [];
  const event = new NotificationEvent('notificationclick', { notification });
  event.waitUntil = (work) => waits.push(work);
  self.dispatchEvent(event);
  await Promise.all(waits);
  return self.opened;
});

describe('a pushed notice', () => {
  test('is shown, opens its question, and goes when somebody answered elsewhere', async () => {
    const push = await installed();
    for (let index = 0; index < 6; index += 1) await daemon.asked({ questions: [{ ...FRAMEWORK, question: `Part ${index}?` }] });
    const ask = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] }, 'deploy-bot');
    await push({ ask: ask.id, group: 'deploy-bot', over: false });
    const [notice] = await until('the notice', async () => (await notices()).length === 1 && notices());
    assert.deepEqual([notice.title, notice.body, notice.ask], ['Question Received', 'Please answer the question to continue.\nFrom deploy-bot', ask.id]);
    assert.deepEqual(await click(), ['focus']);
    await until('the question', () => page.evaluate((id) => document.activeElement.id === `ask-${id}`, ask.id));
    await shoot(page, 'from-a-notice', { fullPage: false });
    assert.equal((await notices()).length, 0, 'the click has closed it');

    await push({ ask: ask.id, group: 'deploy-bot', text: 'Deploy now?', over: false });
    const again = await until('the notice', async () => (await notices())[0]);
    assert.equal(again.body, 'Deploy now?\nFrom deploy-bot');
    await push({ ask: ask.id, group: 'deploy-bot', over: true });
    await until('the notice to go', async () => (await notices()).length === 0);

    // With no page open a new one is opened at the question.
    await push({ ask: ask.id, group: 'deploy-bot', over: false });
    await until('the notice', async () => (await notices()).length === 1);
    const tab = await page.context().newPage();
    await tab.goto(`${daemon.url}/manifest.webmanifest`);
    const link = await worker().evaluate(() => { self.clients.matchAll = async () => []; });
    assert.equal(link, undefined);
    assert.deepEqual(await click(), [`${daemon.url}/#ask-${ask.id}`]);
    await page.goto(`${daemon.url}/#ask-${ask.id}`);
    // Pressed and not clicked: a click on a card that has just opened among the lines is not taken.
    await button(card(page, ask), 'Yes').press('Enter');
    await visible(done(page, ask));
  });

  test('is followed by its end, however soon the end comes', async () => {
    const push = await installed();
    const ask = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] }, 'deploy-bot');
    const message = (over) => ({ ask: ask.id, group: 'deploy-bot', over });
    // The browser hands over all of them before the first is shown, as when it comes back. The last one of another question marks the end.
    for (let round = 0; round < 10; round += 1) {
      const overs = [false, true, false, true];
      await Promise.all([...overs.map((over) => push(message(over))), push({ ask: `marks-${round}`, over: false })]);
      const left = await until('the last notice', async () => (await notices()).some((notice) => notice.ask === `marks-${round}`) && notices());
      assert.deepEqual(left.filter((notice) => notice.ask === ask.id), []);
      await push(message(true));
      await push(message(false));
      await until('the notice of what came last', async () => (await notices()).some((notice) => notice.ask === ask.id && notice.title === 'Question Received'));
    }
  });

  test('leaves nothing in the browser, and a changed worker takes over at once', async () => {
    await installed();
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await visible(card(page, ask));
    assert.deepEqual(await page.evaluate(() => caches.keys()), []);
    // Another page, as after an upgrade, is what the next load shows.
    await page.context().route('**/inbox.js', async (route) => {
      const reply = await route.fetch();
      await route.fulfill({ response: reply, body: `document.documentElement.dataset.upgraded = 'yes';\n${await reply.text()}` });
    });
    await page.reload();
    await until('the new page', () => page.evaluate(() => document.documentElement.dataset.upgraded === 'yes'));
    const { manifest, errors } = await (await page.context().newCDPSession(page)).send('Page.getAppManifest').then(({ data, errors: found }) => ({ manifest: JSON.parse(data), errors: found }));
    assert.deepEqual([manifest.display, errors], ['standalone', []]);
    const { installabilityErrors } = await (await page.context().newCDPSession(page)).send('Page.getInstallabilityErrors');
    assert.deepEqual(installabilityErrors.filter(({ errorId }) => errorId !== 'in-incognito'), []);
    await page.getByText('Settings', { exact: true }).click();
    await accessible('the settings');
    await shoot(page, 'settings-phone', { fullPage: false });
  });
});
