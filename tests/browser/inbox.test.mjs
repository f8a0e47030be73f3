// The inbox page in a real browser against the real daemon: what a person sees and presses, and what the agent then
// finds in its folder. It deliberately looks at the page only through roles, labels and words, as people do.
//
// ASKD_BIN: the daemon (default: the debug build). CHROMIUM: the browser. ASKD_SCREENSHOTS: a folder for pictures.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { card, DESKTOP, done, LOOKS, PHONE, sample, shoot, SMALL_PHONE, submit, tabTo, until } from './harness.mjs';
import { accessible, browser, button, daemon, FRAMEWORK, gone, NOT_TAKEN, noSidewaysScroll, open, page, posts, SEVERAL, visible } from './inbox.mjs';

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
    await visible(page.getByText("That token isn't valid."));
    assert.equal(await page.evaluate(() => localStorage.getItem('askd.token')), null, 'a wrong token is not kept');
    await shoot(page, 'token-wrong');

    await field.fill(daemon.token);
    await field.press('Enter');
    await visible(page.getByText('No open questions.'));
    await page.reload();
    await visible(page.getByText('No open questions.'));

    await page.getByText('Settings', { exact: true }).click();
    await button(page, 'Sign out').click();
    await visible(field);
    assert.equal(await page.evaluate(() => localStorage.getItem('askd.token')), null);
    await page.reload();
    await field.fill(daemon.link);
    await field.press('Enter');
    await visible(page.getByText('No open questions.'));
  });

  test('takes the token from the link, clears it from the address, and an outdated link does no harm', async () => {
    await open({ expected: [/401/] });
    await visible(page.getByText('No open questions.'));
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
      await visible(page.getByText('No open questions.'));
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
    await visible(done(page, ask).getByText('Answered by the operator in the inbox'));
    assert.equal(await done(page, ask).locator('.line').innerText(), 'React');
    assert.match(await done(page, ask).innerText(), /research asked/);
    await visible(page.getByText('No open questions.'));
    await until('the title without a number', async () => (await page.title()) === 'askd');
    const announced = 'Answered by the operator in the inbox. Nothing else waits for an answer.';
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
    await submit(card(page, ask));
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
    await submit(one);
    await visible(one.getByText('Please choose an option or write an answer.'));
    await one.getByLabel('Other: answer in your own words').fill('Solid');
    await submit(one);
    const result = await daemon.response(ask.request_id);
    assert.deepEqual(result.answers, { 'Which framework?': 'Solid' });
    assert.equal(result.details[0].text, 'Solid');
    await visible(done(page, ask).getByText('Solid', { exact: true }));
  });

  test('what a person has written is not thrown away by an option', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open();
    const one = card(page, ask);
    const own = one.getByLabel('Other: answer in your own words');
    await own.fill('Vue, but only the new pages');
    await button(one, 'Vue').click();
    await visible(one.getByText('You have also entered an answer of your own. Submit that, or clear it and press “Vue” again.'));
    assert.equal(await own.inputValue(), 'Vue, but only the new pages');
    await own.fill('');
    await button(one, 'Vue').click();
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which framework?': 'Vue' });
  });

  test('multi-select takes several options and one text', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'Which targets?', type: 'multi-select', options: ['staging', 'canary', 'prod'] }] });
    await open();
    const one = card(page, ask);
    await one.getByLabel('staging').check();
    await one.getByLabel('prod').check();
    await one.getByLabel('Other: add your own words').fill('the laptop in the corner');
    await submit(one);
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'Which targets?': ['staging', 'prod', 'the laptop in the corner'] });
  });

  test('Other in a form: typing chooses it, and another choice beside those words is refused', async () => {
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
    await submit(card(page, own));
    assert.deepEqual((await daemon.response(own.request_id)).answers, { 'Which region, own?': 'mars', 'Sure?': 'Yes' });
    await gone(card(page, own));
    await submit(card(page, chosen));
    await visible(card(page, chosen).getByText('You have also entered words of your own. Choose “Other” to send them, or clear them.'));
    const words = card(page, chosen).getByLabel('Other: your own words');
    assert.ok(await words.evaluate((field) => field === document.activeElement));
    await words.fill('');
    await card(page, chosen).getByLabel('us', { exact: true }).check();
    await submit(card(page, chosen));
    assert.deepEqual((await daemon.response(chosen.request_id)).answers, { 'Which region, chosen?': 'us', 'Sure?': 'Yes' });
  });

  test('what was typed is given back if somebody else was first while no page was open', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'Why?' }] });
    await open();
    await card(page, ask).getByRole('textbox').fill('a long considered answer');
    await page.goto('about:blank');
    await daemon.answerElsewhere(ask, { 'Why?': 'Because.' });
    await page.goto(daemon.url);
    await visible(card(page, ask).getByText('Answered by the operator in a terminal: Because.'));
    assert.equal(await card(page, ask).getByLabel('What you had entered here:').inputValue(), 'a long considered answer');
    await button(card(page, ask), 'Close').click();
    await visible(done(page, ask));
    await page.reload();
    await visible(done(page, ask));
    assert.equal(await card(page, ask).count(), 0);
  });

  test('the link to a question is copied', async () => {
    const ask = await daemon.asked({ questions: [FRAMEWORK] });
    await open({ permissions: ['clipboard-read', 'clipboard-write'] });
    await card(page, ask).getByRole('link', { name: `Copy link to ${ask.short_id}` }).click();
    await visible(card(page, ask).getByText('Copied'));
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `${daemon.url}/#ask-${ask.short_id}`);
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
    await submit(one);
    await visible(one.getByText('Please write your own answer, or choose another option.'));
    const own = one.getByLabel('Other: your own words');
    assert.ok(await own.evaluate((field) => field === document.activeElement), 'the first missing one has the focus');
    assert.equal(await own.getAttribute('aria-invalid'), 'true');
    assert.equal(sent.length, 0, 'nothing is sent while something is missing');
    await shoot(page, 'missing');
    await accessible('a form with a missing answer');
    assert.equal(await one.getByLabel('What is it called?').inputValue(), 'atlas');
    assert.ok(await one.getByLabel('prod').isChecked());

    await one.getByRole('radio', { name: 'eu' }).check();
    await submit(one);
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
    await submit(one);
    await visible(one.getByRole('alert').getByText('3001'));
    assert.equal((await field.inputValue()).length, 3001);
    await field.fill('short');
    await submit(one);
    assert.deepEqual((await daemon.response(ask.request_id)).answers, { 'What should the note say?': 'short' });
  });

  test('two quick clicks send one answer and do not hit the next ask', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'First?', type: 'confirm' }] });
    const next = await daemon.asked({ questions: [{ question: 'Second?', type: 'confirm' }] });
    await open({ before: (fresh) => fresh.clock.install() });
    const sent = posts('answer');
    await visible(card(page, next));
    const { x, y, width, height } = await button(card(page, ask), 'Yes').boundingBox();
    const [left, top] = [x + width / 2, y + height / 2];
    // However slow the machine is, the third click comes right after the card has gone.
    await page.clock.pauseAt(Date.now() + 2000);
    await page.mouse.dblclick(left, top);
    await gone(card(page, ask));
    await page.mouse.click(left, top);
    await visible(card(page, next).getByText(NOT_TAKEN));
    await shoot(page, 'click-not-taken');
    await daemon.response(ask.request_id);
    await page.clock.fastForward(600);
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
    await visible(done(page, ask).getByText('Dismissed by the operator in the inbox'));
  });
});

describe('showing', () => {
  test('no character of a pattern, a name or a command is taken for layout', async () => {
    const asAre = [
      'Commit __init__.py and delete backups/*/2024/*.gz?',
      'rm -rf /data/*/cache/* at $5**2 and 3**2, and rm *tmp old*',
      'Match ^.*foo.*$, \\*.log and \\*.txt?',
    ];
    for (const question of asAre) {
      const ask = await daemon.asked({ questions: [{ ...FRAMEWORK, question }], context: `${question}\n\n1. stop\n5. wipe\n\n\`\`\`sql DELETE FROM users;\n\`\`\`\n\nAll **b**, and **two words**.` });
      if (page === null) await open();
      const one = card(page, ask);
      await visible(one);
      assert.equal(await one.locator('.question').innerText(), question);
      assert.equal(await one.locator('.context p').first().innerText(), question);
      assert.deepEqual(await one.locator('.context strong').allInnerTexts(), ['b', 'two words']);
      assert.equal(await one.locator('.context pre').innerText(), 'sql DELETE FROM users;');
      assert.deepEqual(await one.locator('.context li').evaluateAll((items) => items.map(({ value }) => value)), [1, 5]);
    }
  });

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
    for (const words of [HOSTILE.title, HOSTILE.context, HOSTILE.questions[0].question, HOSTILE.questions[0].options[0].label]) {
      assert.ok(text.includes(words.replaceAll(RLO, '\ufffd')), `${words} in:\n${text}`);
    }
    assert.equal(await one.locator('script, b, i, svg, img, style').count(), 0);
    await noSidewaysScroll();
    await shoot(page, 'hostile');
    const turned = await one.locator('.said').evaluateAll((nodes) => nodes.filter((node) => !getComputedStyle(node).unicodeBidi.startsWith('isolate')).length);
    assert.equal(turned, 0, 'right-to-left marks end with their box');
    assert.equal(await one.locator('.strip .said').count(), 0, 'no word of the agent in the line that says who asks');
    await accessible('hostile words');
    // The picture of the whole page has moved what is on it, and what has just moved takes no click.
    await page.waitForTimeout(500);
    await one.locator('.choice').first().click();
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

  for (const { look, viewport, dark } of sample(LOOKS)) {
    test(`no accessibility faults: ${look}`, async () => {
      await open({ url: daemon.url, viewport, dark });
      await visible(page.getByLabel('Inbox token'));
      await accessible('the token form');
      await page.getByLabel('Inbox token').fill(daemon.token);
      await page.getByLabel('Inbox token').press('Enter');
      await visible(page.getByText('No open questions.'));
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
      if (await button(page, 'Close this notice').isVisible()) await button(page, 'Close this notice').click();
      await page.evaluate(() => window.scrollTo(0, 0));
      await shoot(page, `filled-${look}`);
      await noSidewaysScroll();
    });
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
