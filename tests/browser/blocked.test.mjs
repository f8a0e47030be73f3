// A question that was asked too often, on the page: one item whose number grows in place, and the button that ends it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { card, DESKTOP, done, NO_WORKER, PHONE, sample, shoot, SMALL_PHONE, tabTo, until } from './harness.mjs';
import { accessible, button, clickAsItMoves, daemon, gone as waitGone, NOT_TAKEN, open, page, posts, visible as waitFor } from './inbox.mjs';

const DEPLOY = { questions: [{ question: 'Deploy to production now?', options: ['yes', 'no'] }] };
const RLO = '\u202e';
const HOSTILE = {
  questions: [
    { question: `<b>Really?</b> ${RLO}?yltnereffid ${'W'.repeat(300)}`, options: ['yes'] },
    { question: '"><img src=x onerror=alert(1)>', options: ['yes'] },
  ],
};

const visible = (locator) => waitFor(locator, 10000);
const gone = (locator) => waitGone(locator, 10000);

// Asked five times and dismissed each time.
async function askedFive(request, group) {
  for (let time = 0; time < 5; time += 1) {
    const ask = await daemon.asked(request, group);
    await daemon.api(`/api/v1/asks/${ask.id}/dismiss`, {});
  }
}

// And then once more.
async function block(request, group) {
  await askedFive(request, group);
  return daemon.asked(request, group);
}

async function again(request, group) {
  const id = await daemon.ask(request, group);
  assert.equal((await daemon.response(id, group)).status, 'blocked');
}

describe('a question that was asked too often', () => {
  test('stands by itself, counts in place, and one press allows it again', async () => {
    await open();
    const ask = await block(DEPLOY);
    const item = card(page, ask);
    await visible(item);
    await visible(page.getByRole('heading', { name: 'Asked too often' }));
    const text = await item.innerText();
    for (const words of ['research asked this 6 times without an answer', 'Deploy to production now?', 'told to wait']) assert.ok(text.includes(words), text);
    assert.equal(await page.locator(`li#ask-${ask.id}`).count(), 0, 'not among what is over');
    // The very same element, and nothing under the pointer moves.
    await item.evaluate((node) => { node.dataset.same = 'yes'; });
    for (const times of [7, 8]) {
      await again(DEPLOY);
      await until(`${times} times`, async () => (await item.innerText()).includes(`asked this ${times} times`));
    }
    assert.equal(await item.evaluate((node) => node.dataset.same), 'yes');
    assert.equal(await page.locator('article.card').count(), 1);
    assert.equal(await page.title(), 'askd', 'it does not count as waiting');
    await page.waitForTimeout(500);
    await button(item, 'Allow again').click();
    await gone(item);
    await visible(done(page, ask));
    assert.match(await done(page, ask).innerText(), /Asked too often\. Allowed again by the operator in the inbox/);
    assert.ok(await page.getByRole('heading', { name: 'Asked too often' }).isHidden());
    const next = await daemon.asked(DEPLOY);
    await visible(button(card(page, next), 'yes'));
  });

  test('is allowed with the keyboard, and one that was allowed elsewhere goes by itself', async () => {
    const first = await block(DEPLOY);
    const second = await block({ questions: [{ question: 'And the other one?', type: 'confirm' }] });
    await open({ viewport: PHONE });
    await visible(card(page, first));
    await tabTo(page, `#ask-${first.id} button`);
    await page.keyboard.press('Enter');
    await gone(card(page, first));
    assert.ok(await page.evaluate(() => document.activeElement !== document.body), 'the focus is not lost');
    await visible(card(page, second));
    await daemon.api(`/api/v1/asks/${second.id}/reset`, { by: 'cli' });
    await gone(card(page, second));
    assert.match(await done(page, second).innerText(), /Allowed again by the operator in a terminal/);
  });

  test('a daemon that is away is said, and the button is there to be pressed again', async () => {
    const ask = await block(DEPLOY);
    await open({ expected: [/ERR_|Failed to load resource/, NO_WORKER] });
    await visible(card(page, ask));
    await daemon.kill();
    // The line that says so moves the card: a click at that moment is not taken.
    await visible(page.getByText('No connection to askd since'));
    await sleep(500);
    await button(card(page, ask), 'Allow again').click();
    await visible(card(page, ask).getByText("Couldn't reach askd"));
    await daemon.run();
    await until('the block to end', async () => {
      if (await card(page, ask).count() === 0) return true;
      await button(card(page, ask), 'Allow again').click({ timeout: 1000 }).catch(() => {});
      return false;
    }, 20000);
  });

  test('a click in the moment in which the page moves is not taken, and the card says so', async () => {
    const ask = await block(DEPLOY);
    await open({ expected: [/ERR_|Failed to load resource/, NO_WORKER] });
    const allow = button(card(page, ask), 'Allow again');
    await visible(allow);
    const clicked = await clickAsItMoves(allow);
    await daemon.kill();
    await clicked();
    await visible(card(page, ask).getByText(NOT_TAKEN));
    await shoot(page, 'blocked-not-taken');
    await daemon.run();
    await visible(page.getByText('Connected again.'));
    assert.equal((await daemon.known(ask.request_id)).block.allowed_again, null);
    await allow.press('Enter');
    await gone(card(page, ask));
  });

  test('moves what waits when it comes, and a click on that is not taken', async () => {
    await askedFive(DEPLOY);
    const ask = await daemon.asked({ questions: [{ question: 'Which framework?', options: ['React', 'Vue'] }] });
    await open();
    await visible(card(page, ask));
    const answers = posts('answer');
    const clicked = await clickAsItMoves(button(card(page, ask), 'Vue'));
    await visible(card(page, await daemon.asked(DEPLOY)));
    await clicked();
    await visible(card(page, ask).getByText(NOT_TAKEN));
    assert.equal(answers.length, 0);
  });

  for (const [look, options] of sample([['light', {}], ['dark', { dark: true }], ['phone', { viewport: PHONE }], ['phone dark', { viewport: PHONE, dark: true }], ['small phone', { viewport: SMALL_PHONE }]])) {
    test(`is readable and harmless: ${look}`, async () => {
      const plain = await block(DEPLOY);
      const hostile = await block(HOSTILE, `g${'r'.repeat(40)}`);
      await daemon.asked({ questions: [{ question: 'Which framework?', options: ['React', 'Vue'] }] });
      await open({ viewport: DESKTOP, ...options });
      await visible(card(page, plain));
      await visible(card(page, hostile));
      assert.equal(await card(page, hostile).locator('script, b, i, svg, img').count(), 0);
      const { content, view } = await page.evaluate(() => ({ content: document.documentElement.scrollWidth, view: window.innerWidth }));
      assert.ok(content <= view, `${content} px in a window of ${view} px`);
      for (const own of await page.locator('.own').allInnerTexts()) assert.ok(!own.includes(RLO), own);
      const { height } = await button(card(page, plain), 'Allow again').boundingBox();
      assert.ok(height >= 44, 'large enough for a thumb');
      await accessible(look);
      await shoot(page, `blocked-${look.replace(' ', '-')}`);
    });
  }
});
