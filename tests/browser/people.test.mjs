// Who reads the inbox: people with tokens and groups that change while their page is open, and people whom a proxy signs in.

import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { card, done, openPage, until } from './harness.mjs';
import { browser, button, daemon, open, page, settings, visible } from './inbox.mjs';

const ANN = 'ann-has-a-token-of-her-own';
const BOB = 'bob-has-a-token-of-his-own';
const NEW = 'and-this-is-the-next-one-of-ann';
const QUESTION = { question: 'Publish the article?', options: ['Yes', 'No'] };

// A proxy that signs people in by a cookie, as most of them do, and names them to askd.
let proxy;
const atProxy = (path = '/') => `http://127.0.0.1:${proxy.address().port}${path}`;
before(async () => {
  proxy = createServer((asked, reply) => {
    const { cookie = '', ...headers } = asked.headers;
    if (asked.url === '/login') return reply.writeHead(302, { 'set-cookie': 'sid=good; HttpOnly; Path=/; SameSite=Lax', location: '/' }).end();
    if (!/(^|; )sid=good/.test(cookie)) return reply.writeHead(302, { location: '/login' }).end();
    const passed = request({ host: '127.0.0.1', port: daemon.port, path: asked.url, method: asked.method, headers: { ...headers, 'x-remote-user': 'ann' } }, (said) => {
      reply.writeHead(said.statusCode, said.headers);
      said.pipe(reply);
    });
    passed.on('error', () => reply.destroy());
    reply.on('close', () => passed.destroy());
    asked.pipe(passed);
    return reply;
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
});
after(() => {
  proxy.closeAllConnections();
  proxy.close();
});

const text = (token, groups) => `
[http]
allowed_hosts = ["127.0.0.1:${proxy.address().port}"]
[web]
proxy_header = "X-Remote-User"
trusted_proxies = ["127.0.0.1"]
people = [{ name = "ann", token = "${token}", groups = ${JSON.stringify(groups)} }, { name = "bob", token = "${BOB}" }]
`;
settings(() => text(ANN, ['research', 'writer']));

const asAnn = () => ({ url: `${daemon.url}/#token=${ANN}` });

describe('who reads the inbox', () => {
  test('a proxy signs people in by a cookie', async () => {
    const ask = await daemon.asked({ questions: [QUESTION] }, 'writer');
    await open({ url: atProxy() });
    await visible(card(page, ask));
    await button(card(page, ask), 'Yes').press('Enter');
    await visible(done(page, ask));
    assert.equal((await daemon.known(ask.request_id)).outcome.by.id, 'ann');
    // The page would be signed in again at once.
    await page.locator('#settings > summary').click();
    assert.ok(await page.locator('#forget').isHidden());
  });

  test('a question that a person may see again is open again', async () => {
    const ask = await daemon.asked({ questions: [QUESTION] }, 'writer');
    await open(asAnn());
    await visible(card(page, ask));
    await daemon.reload(text(ANN, ['research']));
    await visible(done(page, ask).getByText('askd no longer shows you this question.'));
    await daemon.reload(text(ANN, ['research', 'writer']));
    await button(card(page, ask), 'No').press('Enter');
    assert.deepEqual((await daemon.response(ask.request_id, 'writer')).answers, { [QUESTION.question]: 'No' });
  });

  test('a question that a person may see again is open again with what they have typed', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'Why this?' }] }, 'writer');
    await open(asAnn());
    await card(page, ask).getByRole('textbox').fill('half a thought');
    await daemon.reload(text(ANN, ['research']));
    await visible(card(page, ask).getByText('What you had entered here:'));
    await daemon.reload(text(ANN, ['research', 'writer']));
    await visible(button(card(page, ask), 'Submit'));
    assert.equal(await card(page, ask).getByRole('textbox').inputValue(), 'half a thought');
    await button(card(page, ask), 'Submit').press('Enter');
    assert.deepEqual((await daemon.response(ask.request_id, 'writer')).answers, { 'Why this?': 'half a thought' });
    await visible(done(page, ask));
  });

  test('who comes second in the inbox is told so, whether their own call got a reply or not', async () => {
    // The last one is the same person in another browser.
    const rivals = [['ann', ANN, (route) => route.continue()], ['ann', ANN, (route) => route.abort()], ['bob', BOB, (route) => route.continue()]];
    await open({ url: `${daemon.url}/#token=${BOB}`, expected: [/409/, /ERR_FAILED/] });
    for (const [name, token, end] of rivals) {
      const ask = await daemon.asked({ questions: [QUESTION] });
      await visible(card(page, ask));
      await page.route('**/answer', async (route) => {
        const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
        const body = JSON.stringify({ answers: { [QUESTION.question]: 'Yes' }, by: 'web' });
        await fetch(`${daemon.url}/api/v1/asks/${ask.id}/answer`, { method: 'POST', headers, body });
        // The stream says so before the call ends.
        await sleep(300);
        await end(route);
      });
      await button(card(page, ask), 'No').press('Enter');
      await visible(card(page, ask).getByText(`Already answered by ${name} in the inbox: Yes`));
      await visible(card(page, ask).getByText('Yours was not used.'));
      await page.unroute('**/answer');
    }
  });

  test('what stands behind the form to sign in is for nobody else', async () => {
    const secret = await daemon.asked({ questions: [{ question: 'Whom do we let go?' }] }, 'secret');
    const open_one = await daemon.asked({ questions: [QUESTION] });
    await open({ url: `${daemon.url}/#token=${BOB}`, expected: [/401/] });
    await card(page, secret).getByRole('textbox').fill('Carol');
    await visible(card(page, open_one));
    await daemon.reload(text(ANN, ['research']).replace(BOB, 'bob-has-another-token-now'));
    await until('the form to sign in', () => page.getByLabel('Inbox token').isVisible());
    assert.equal(await page.title(), 'askd');
    await page.getByLabel('Inbox token').fill(ANN);
    await button(page, 'Open').click();
    await visible(card(page, open_one));
    const shown = await page.content();
    assert.ok(!shown.includes('let go') && !shown.includes('Carol'), 'it is another one’s');
    assert.equal(await page.evaluate(() => Object.values(localStorage).filter((value) => value.includes('Carol')).length), 0);
  });

  test('what somebody typed is there for nobody else, and the page says who is signed in now', async () => {
    const ask = await daemon.asked({ questions: [{ question: 'Why now?' }] });
    await open({ url: `${daemon.url}/#token=${BOB}` });
    await card(page, ask).getByRole('textbox').fill('Bob thinks so');
    await page.reload();
    await visible(card(page, ask));
    assert.equal(await card(page, ask).getByRole('textbox').inputValue(), 'Bob thinks so');
    await page.goto('about:blank');
    await page.goto(asAnn().url);
    await visible(card(page, ask));
    assert.equal(await card(page, ask).getByRole('textbox').inputValue(), '');
    await page.getByText('Settings', { exact: true }).click();
    await visible(page.getByText('Signed in as ann.'));
    // The same page goes on for another person.
    await page.evaluate((token) => { location.hash = `token=${token}`; }, BOB);
    await visible(page.getByText('Signed in as bob.'));
  });

  test('a token that was replaced costs no tab what was typed', async () => {
    const asks = [];
    for (const question of ['Why this?', 'Why that?']) asks.push(await daemon.asked({ questions: [{ question }] }));
    const denied = [/401/];
    await open({ ...asAnn(), expected: denied });
    // The other tab knows the token from this one.
    await visible(card(page, asks[0]));
    const tabs = [page, await page.context().newPage()];
    await tabs[1].goto(daemon.url);
    for (const [place, tab] of tabs.entries()) await card(tab, asks[place]).getByRole('textbox').fill(`a long answer in tab ${place}`);
    await daemon.reload(text(NEW, ['research']));
    for (const tab of tabs) await until('the form to sign in', () => tab.getByLabel('Inbox token').isVisible());
    // Who signs in does so in every tab.
    await tabs[0].getByLabel('Inbox token').fill(NEW);
    await button(tabs[0], 'Open').click();
    for (const [place, tab] of tabs.entries()) {
      await visible(card(tab, asks[place]));
      assert.equal(await card(tab, asks[place]).getByRole('textbox').inputValue(), `a long answer in tab ${place}`);
    }
    // Who signs out does so in every tab.
    await tabs[1].getByText('Settings', { exact: true }).click();
    await button(tabs[1], 'Sign out').click();
    for (const tab of tabs) await until('the form to sign in', () => tab.getByLabel('Inbox token').isVisible());
    assert.deepEqual(await tabs[0].evaluate(() => Object.keys(localStorage).filter((key) => key !== 'askd.signed-out')), []);
  });
});
