// The inbox page while something happens beside the person who looks at it: others answer, the daemon goes away, new
// questions come. As in inbox.test.mjs, it looks at the page through roles, labels and words.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { card, DESKTOP, done, NO_WORKER, PHONE, shoot, submit, until } from './harness.mjs';
import { accessible, browser, button, clickAsItMoves, connectionLine, daemon, FRAMEWORK, gone, NOT_TAKEN, open, page, posts, SEVERAL, visible } from './inbox.mjs';

describe('when something happens meanwhile', () => {
  test('an ask settled elsewhere while somebody is typing keeps the words to copy', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    const other = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] });
    await open();
    const one = card(page, ask);
    await one.getByLabel('Other: answer in your own words').pressSequentially('Half a thou');
    await daemon.answerElsewhere(other, { 'Deploy now?': 'Yes' });
    await visible(done(page, other).getByText('Answered by the operator in a terminal'));
    assert.equal(await one.getByLabel('Other: answer in your own words').inputValue(), 'Half a thou');
    await daemon.answerElsewhere(ask, { 'Which framework?': 'React' });
    await visible(one.getByText('Answered by the operator in a terminal: React'));
    assert.equal(await one.getByLabel('What you had entered here:').inputValue(), 'Half a thou');
    assert.equal(await button(one, 'Submit').count(), 0);
    await shoot(page, 'settled-while-typing');
    await accessible('the notice of an ask settled elsewhere');
    await button(one, 'Close').click();
    await visible(done(page, ask));
    await visible(page.getByText('No open questions.'));
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
    await visible(card(page, ask).getByText('Already answered by the operator in a terminal: Vue'));
    await visible(card(page, ask).getByText('Yours was not used.'));
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which framework?': 'Vue' });
  });

  test('an answer whose reply was lost is not said to be unused', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open({ expected: [/ERR_FAILED/] });
    await page.route('**/answer', async (route) => {
      await route.fetch();
      // The stream says that it is answered, before the call fails.
      await sleep(300);
      await route.abort();
    });
    await button(card(page, ask), /^React/).click();
    await visible(card(page, ask).getByText('Answered by the operator in the inbox: React'));
    assert.equal(await card(page, ask).getByText('Yours was not used.').count(), 0);
    assert.equal(await card(page, ask).getByText('Already').count(), 0);
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
    await submit(card(page, ask));
    await visible(card(page, ask).getByText('Already answered by alice in Slack: Vue'));
    assert.equal(await card(page, ask).getByLabel('What you had entered here:').inputValue(), 'Solid');
  });

  test('an answer that could not be stored can be sent again', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await open({ expected: [/503/, /ERR_FAILED/] });
    const one = card(page, ask);
    await one.getByLabel('What should the note say?').fill('Faster');
    await page.route('**/answer', (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: JSON.stringify({ title: 'Not stored', status: 503, detail: 'The disk is full.' }) }));
    await submit(one);
    await visible(one.getByRole('alert').getByText('Not stored: The disk is full.'));
    assert.equal(await one.getByLabel('What should the note say?').inputValue(), 'Faster');
    assert.ok(await one.getByLabel('What should the note say?').isEditable());
    await shoot(page, 'not-stored');
    await page.unroute('**/answer');
    await page.route('**/answer', (route) => route.abort());
    await button(one, 'Try again').click();
    await visible(one.getByRole('alert').getByText('Keep this page open: your answer is sent when askd is back'));
    await page.unroute('**/answer');
    // The page tries again, too, and may be faster.
    const clicked = button(one, 'Try again').click({ timeout: 5_000 }).catch(() => {});
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'Faster' });
    await clicked;
  });

  test('a killed daemon is said to be gone, and words that were changed meanwhile are sent by the person alone', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await open({ expected: [/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/, /503/, NO_WORKER] });
    const one = card(page, ask);
    const field = one.getByLabel('What should the note say?');
    await field.fill('Faster');
    await daemon.kill('SIGKILL');
    await visible(page.getByText(/^No connection to askd since \d\d:\d\d\. Trying again…$/));
    assert.equal(await connectionLine().getAttribute('role'), 'status');
    await submit(one);
    await visible(one.getByRole('alert').getByText('Keep this page open: your answer is sent when askd is back, unless you change it'));
    assert.equal(await field.inputValue(), 'Faster');
    await field.fill('Faster, and smaller');
    await shoot(page, 'no-connection');
    await accessible('a page without connection');
    await daemon.run();
    await visible(page.getByText('Connected again.'));
    assert.equal(await field.inputValue(), 'Faster, and smaller');
    await submit(one);
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'Faster, and smaller' });
    await until('the line goes away', async () => (await connectionLine().innerText()) === '');
    const fresh = await daemon.asked({ questions: [FRAMEWORK] });
    await visible(card(page, fresh));
  });

  test('a token that was changed is asked for, and the kept words are still there', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'What should the note say?' }] });
    await open({ expected: [/401/, /503/, /ERR_/, NO_WORKER] });
    const field = card(page, ask).getByLabel('What should the note say?');
    await field.fill('Faster');
    await daemon.kill();
    await writeFile(join(daemon.folder, 'state', 'web_token'), 'f'.repeat(64));
    await daemon.run();
    await visible(page.getByText("That token isn't valid."));
    assert.ok(await field.isHidden());
    await page.getByLabel('Inbox token').fill(daemon.token);
    await page.getByLabel('Inbox token').press('Enter');
    await visible(field);
    assert.equal(await field.inputValue(), 'Faster');
    await field.press('Control+Enter');
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'Faster' });
  });

  test('a daemon that hangs counts as gone after 40 s of silence', async () => {
    await open({ before: (fresh) => fresh.clock.install(), expected: [/ERR_/, NO_WORKER] });
    await visible(page.getByText('No open questions.'));
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

describe('a click on what has just moved', () => {
  const DEPLOY = { question: 'Deploy now?', options: ['yes', 'no'] };

  test('is not taken while another answer is being sent, and when it could not be stored', async () => {
    const first = await daemon.asked({ questions: [FRAMEWORK] });
    const second = await daemon.asked({ questions: [DEPLOY] });
    await open({ expected: [/503/] });
    const yes = button(card(page, second), 'yes');
    await visible(yes);
    const sent = posts('answer');
    let refuse;
    await page.route('**/answer', async (route) => {
      await new Promise((resolve) => { refuse = resolve; });
      await route.fulfill({ status: 503, contentType: 'application/problem+json', body: JSON.stringify({ title: 'Not stored', status: 503, detail: 'The disk is full.' }) });
    });
    let clicked = await clickAsItMoves(yes);
    await button(card(page, first), /^React/).click();
    await clicked();
    await visible(card(page, first).getByText('Sending…'));
    await visible(card(page, second).getByText(NOT_TAKEN));
    await sleep(500);
    clicked = await clickAsItMoves(yes);
    refuse();
    await clicked();
    await visible(card(page, first).getByText('The disk is full.'));
    assert.equal(sent.length, 1);
    assert.ok(await card(page, second).getByText(NOT_TAKEN).isVisible());
    // What stands above has not moved.
    await page.unroute('**/answer');
    await button(card(page, first), 'Svelte').click();
    assert.deepEqual((await daemon.response(first.request_id)).answers, { 'Which framework?': 'Svelte' });
  });

  test('sends no form either', async () => {
    const first = await daemon.asked({ questions: [FRAMEWORK] });
    const second = await daemon.asked({ questions: [{ question: 'Why?' }] });
    await open();
    await card(page, second).getByRole('textbox').fill('because');
    const sent = posts('answer');
    await page.route('**/answer', () => {});
    // The field may have grown, and the button moved with it.
    await sleep(500);
    const clicked = await clickAsItMoves(button(card(page, second), 'Submit'));
    await button(card(page, first), 'Vue').click();
    await clicked();
    await visible(card(page, second).getByText(NOT_TAKEN));
    assert.equal(sent.length, 1);
  });

  for (const [name, news] of [['how often it was tried', { attempt: 3 }], ['what is wrong', { cause_line: 'Slack cannot be reached.' }]]) {
    test(`is not taken when the card itself says ${name}`, async () => {
      const ask = await daemon.asked({ questions: [FRAMEWORK] });
      const streams = ['event: resync\ndata: {}\n\n', `event: ask\ndata: ${JSON.stringify({ ...ask, ...news })}\n\n`];
      let go;
      const ready = new Promise((resolve) => { go = resolve; });
      await open({
        before: (fresh) => fresh.route('**/api/v1/events', async (route) => {
          const body = streams.shift();
          if (body && streams.length === 0) await ready;
          return body ? route.fulfill({ contentType: 'text/event-stream', body }) : route.continue();
        }),
      });
      const vue = button(card(page, ask), 'Vue');
      await visible(vue);
      const sent = posts('answer');
      const clicked = await clickAsItMoves(vue);
      go();
      await clicked();
      await visible(card(page, ask).getByText(NOT_TAKEN));
      assert.equal(sent.length, 0);
    });
  }

  test('is not taken when the page has scrolled by itself', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open({ viewport: PHONE });
    const vue = button(card(page, ask), 'Vue');
    await visible(vue);
    const sent = posts('answer');
    await vue.evaluate((node) => window.addEventListener('scroll', () => {
      node.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, detail: 1 }));
    }, { once: true }));
    await daemon.asked({ questions: [DEPLOY] });
    await visible(card(page, ask).getByText(NOT_TAKEN));
    assert.equal(sent.length, 0);
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
    const above = await daemon.asked(SEVERAL);
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    let seeIt;
    const seen = new Promise((resolve) => { seeIt = resolve; });
    const streams = ['event: resync\ndata: {}\n\n', `event: ask\ndata: ${JSON.stringify({ ...ask, attempt: 3 })}\n\n`];
    await open({
      viewport: PHONE,
      before: (fresh) => fresh.route('**/api/v1/events', async (route) => {
        const body = streams.shift();
        if (body && streams.length === 0) {
          // A link is followed once the list has been read; what is read then is no news.
          await fresh.evaluate((id) => { window.location.hash = `ask-${id}`; }, above.id);
          await until('the list', () => fresh.evaluate(() => window.location.hash === ''));
          // Somebody presses something far above: the page then does not scroll by itself.
          await fresh.keyboard.press('Shift');
        }
        if (body) return route.fulfill({ contentType: 'text/event-stream', body });
        // The daemon itself knows of no retry, and its stream would say so.
        await seen;
        return route.continue();
      }),
    });
    await visible(card(page, ask).getByText('Previous attempt failed to display. This is retry attempt 2.'));
    await until('the notice', async () => (await page.locator('#toast').textContent()).startsWith('Question Retry: Previous attempt failed to display. This is retry attempt 2.'));
    seeIt();
  });

  test('a browser notification is shown if it was switched on, and goes with the question', async () => {
    await open({
      viewport: PHONE,
      permissions: ['notifications'],
      // Its windows of tests know no push.
      expected: [/incognito mode/],
      before: (fresh) => fresh.addInitScript(() => {
        document.hasFocus = () => false;
        window.tones = 0;
        const { start } = OscillatorNode.prototype;
        OscillatorNode.prototype.start = function count(...when) {
          window.tones += 1;
          return start.apply(this, when);
        };
      }),
    });
    const notices = () => page.evaluate(async () => (await (await navigator.serviceWorker.ready).getNotifications()).map(({ title, body, tag }) => [title, body, tag]));
    await visible(page.getByText('No open questions.'));
    const first = await daemon.asked({ questions: [FRAMEWORK] });
    await visible(card(page, first));
    assert.equal((await notices()).length + await page.evaluate(() => window.tones), 0, 'both are off by default');
    await page.getByText('Settings', { exact: true }).click();
    await page.getByLabel('Show a browser notification for a new question').check();
    // This Chromium knows no push service.
    await visible(page.getByText('Notifications arrive only while this page is open.'));
    await page.getByLabel('Play a sound for a new question').check();
    await page.keyboard.press('Escape');
    assert.ok(await button(page, 'Sign out').isHidden());
    const sampled = await page.evaluate(() => window.tones);
    const ask = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] });
    const said = await until('a notification', async () => (await notices())[0]);
    assert.deepEqual(said, ['Question Received', 'Please answer the question to continue.', `askd-${ask.id}`]);
    assert.ok((await page.evaluate(() => window.tones)) > sampled, 'a sound with it');
    await daemon.answerElsewhere(ask, { 'Deploy now?': 'No' });
    await visible(done(page, ask).or(card(page, ask).getByText('Answered by')));
    await until('the notification to go', async () => (await notices()).length === 0);
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
    const line = page.locator(`.item[data-ask="${below.id}"] button.brief`);
    await visible(line);
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
    await line.scrollIntoViewIfNeeded();
    await until('the proof', async () => (await daemon.known(below.request_id)).render_confirmed);
    await page.evaluate(() => window.scrollTo(0, 0));
    await sleep(300);
    assert.equal(beacons.filter((request) => request.url().includes(seen.id)).length, 1, 'once per page and ask');
    await withdraw(seen);
    assert.equal((await daemon.response(seen.request_id)).renderConfirmed, true);
  });
});
