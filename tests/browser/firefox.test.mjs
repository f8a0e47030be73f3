// Web Push from end to end in Firefox: its push server is a stand-in on loopback, which takes what askd pushes and passes it on as
// Mozilla's does. Firefox decrypts it, the worker shows it, and it goes when somebody has answered elsewhere. Firefox is
// driven through its own remote protocol (Marionette), so nothing else is installed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Daemon, until } from './harness.mjs';

const FIREFOX = process.env.FIREFOX ?? '/usr/bin/firefox-esr';

// ---- Mozilla's push server, as far as Firefox needs it: a socket to the browser, and an address for each subscription.

function frame(text) {
  const body = Buffer.from(text);
  const head = body.length < 126 ? Buffer.from([0x81, body.length]) : Buffer.from([0x81, 126, body.length >> 8, body.length & 255]);
  return Buffer.concat([head, body]);
}

// Calls `each(text)` for each text message of a browser, whose frames are masked.
function reader(each) {
  let rest = Buffer.alloc(0);
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 6) {
      const short = rest[1] & 127;
      const start = short === 126 ? 4 : 2;
      const length = short === 126 ? rest.readUInt16BE(2) : short;
      if (rest.length < start + 4 + length) return;
      const mask = rest.subarray(start, start + 4);
      const body = rest.subarray(start + 4, start + 4 + length).map((byte, index) => byte ^ mask[index % 4]);
      if ((rest[0] & 15) === 1) each(body.toString());
      rest = rest.subarray(start + 4 + length);
    }
  };
}

async function pushServer() {
  const got = [];
  let browser = null;
  const server = createServer((request, reply) => {
    const body = [];
    request.on('data', (chunk) => body.push(chunk));
    request.on('end', () => {
      const version = `v${got.push(request.headers)}`;
      const notification = { messageType: 'notification', channelID: request.url.slice(1), version, data: Buffer.concat(body).toString('base64url'), headers: { encoding: request.headers['content-encoding'] } };
      browser.write(frame(JSON.stringify(notification)));
      reply.writeHead(201).end();
    });
  });
  server.on('upgrade', (request, socket) => {
    browser = socket;
    socket.on('error', () => {});
    const accept = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
    const protocol = request.headers['sec-websocket-protocol'];
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n${protocol ? `sec-websocket-protocol: ${protocol}\r\n` : ''}\r\n`);
    const say = (message) => socket.write(frame(JSON.stringify(message)));
    socket.on('data', reader((text) => {
      const { messageType, channelID } = JSON.parse(text);
      if (messageType === 'hello') say({ messageType, uaid: 'f'.repeat(32), status: 200, use_webpush: true, broadcasts: {} });
      if (messageType === 'register') say({ messageType, channelID, status: 200, pushEndpoint: `http://127.0.0.1:${server.address().port}/${channelID}` });
      if (messageType === 'unregister') say({ messageType, channelID, status: 200 });
    }));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: server.address().port, got, close: () => { browser?.destroy(); server.close(); } };
}

// ---- Firefox

async function marionette(port) {
  const socket = await until('Marionette', () => new Promise((resolve) => {
    const tried = connect(port, '127.0.0.1', () => resolve(tried));
    tried.on('error', () => resolve(null));
  }), 60000);
  let rest = Buffer.alloc(0);
  let id = 0;
  const waiting = new Map();
  socket.on('data', (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      const colon = rest.indexOf(':');
      const length = Number(rest.subarray(0, colon));
      if (colon < 0 || rest.length < colon + 1 + length) return;
      const message = JSON.parse(rest.subarray(colon + 1, colon + 1 + length));
      rest = rest.subarray(colon + 1 + length);
      if (!Array.isArray(message)) continue;
      const [, answered, error, result] = message;
      const { resolve, reject } = waiting.get(answered);
      if (error) reject(new Error(`${error.error}: ${error.message}`));
      else resolve(result);
    }
  });
  const call = (name, parameters = {}) => new Promise((resolve, reject) => {
    id += 1;
    waiting.set(id, { resolve, reject });
    const text = JSON.stringify([0, id, name, parameters]);
    socket.write(`${Buffer.byteLength(text)}:${text}`);
  });
  const run = async (body) => (await call('WebDriver:ExecuteScript', { script: `return (async () => { ${body} })()`, args: [], scriptTimeout: 30000 })).value;
  return { call, run, close: () => socket.destroy() };
}

async function firefox(push) {
  const profile = await mkdtemp(join(tmpdir(), 'askd-firefox-'));
  const preferences = {
    'dom.push.serverURL': `ws://127.0.0.1:${push.port}`,
    'dom.push.testing.allowInsecureServerURL': true,
    'dom.push.connection.enabled': true,
    'permissions.default.desktop-notification': 1,
    'dom.webnotifications.requireuserinteraction': false,
    // It draws the notice itself, whether a desktop is there or not.
    'alerts.useSystemBackend': false,
    'marionette.port': 0,
    'datareporting.policy.dataSubmissionEnabled': false,
    'app.update.enabled': false,
    'browser.shell.checkDefaultBrowser': false,
    'network.captive-portal-service.enabled': false,
    'network.connectivity-service.enabled': false,
    'browser.aboutwelcome.enabled': false,
    'services.settings.server': 'http://127.0.0.1:9/v1',
  };
  await writeFile(join(profile, 'user.js'), Object.entries(preferences).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`).join(''));
  const child = spawn(FIREFOX, ['--headless', '--no-remote', '--profile', profile, '--marionette', '--remote-allow-system-access'], { env: { ...process.env, HOME: profile, MOZ_DISABLE_CONTENT_SANDBOX: '1' }, stdio: 'ignore' });
  const port = await until('the port of Marionette', async () => Number(await readFile(join(profile, 'MarionetteActivePort'), 'utf8').catch(() => 0)), 60000);
  const driver = await marionette(port);
  await driver.call('WebDriver:NewSession', { capabilities: {} });
  const end = async () => {
    const gone = new Promise((resolve) => { child.once('exit', resolve); });
    driver.close();
    child.kill('SIGKILL');
    await gone;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  return { ...driver, end };
}

// What a click on the notice does, in the window in which Firefox draws it where no desktop does. Firefox fills that window and
// listens for clicks once it has loaded: before that a click would be lost.
const CLICK = `
  for (let tries = 0; tries < 100; tries += 1) {
    const notice = Services.wm.getMostRecentWindow('alert:alert');
    if (notice?.gIsActive) {
      const said = ['alertTitleLabel', 'alertTextLabel'].map((id) => notice.document.getElementById(id)).map((label) => label.getAttribute('value') || label.textContent);
      notice.document.getElementById('alertBox').click();
      return said;
    }
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  return [...Services.wm.getEnumerator(null)].map((win) => win.location.href + ' ' + win.document.documentElement.getAttribute('windowtype')).join();
`;

test('Firefox decrypts a pushed notice, opens its question, and closes it when somebody answered elsewhere', { skip: existsSync(FIREFOX) ? false : 'no Firefox here' }, async () => {
  const push = await pushServer();
  const daemon = await Daemon.start({ groups: () => `[web]\npush_hosts = ["127.0.0.1:${push.port}"]\n` });
  const browser = await firefox(push);
  try {
    const notices = () => browser.run("const ready = await navigator.serviceWorker.ready; return (await ready.getNotifications()).map(({ title, body, data }) => [title, body, data.ask]);");
    await browser.call('WebDriver:Navigate', { url: daemon.link });
    await until('the inbox', () => browser.run("return !document.getElementById('inbox').hidden"));
    await browser.run("document.getElementById('notify').click(); document.getElementById('settings').open = true;");
    await until('the subscription', () => browser.run("return document.getElementById('notify-note').textContent === 'Notifications arrive even when this page is closed.'"));
    // The page is gone; only the worker is left.
    await browser.call('WebDriver:Navigate', { url: 'about:blank' });
    const ask = await daemon.asked({ questions: [{ question: 'Deploy now?', type: 'confirm' }] }, 'deploy-bot');
    await until('the push', () => push.got.length === 1);
    assert.match(push.got[0].authorization, /^vapid t=[\w-]+\.[\w-]+\.[\w-]+, k=[\w-]+$/);
    // As the operating system tells Firefox of a click.
    await browser.call('Marionette:SetContext', { value: 'chrome' });
    const said = await browser.run(CLICK);
    await browser.call('Marionette:SetContext', { value: 'content' });
    assert.deepEqual(said, ['Question Received', 'Please answer the question to continue.\nFrom deploy-bot']);
    await until('the question', async () => {
      for (const handle of await browser.call('WebDriver:GetWindowHandles')) {
        await browser.call('WebDriver:SwitchToWindow', { handle });
        if (await browser.run(`return document.activeElement?.id === 'ask-${ask.id}'`)) return true;
      }
      return false;
    });
    const second = await daemon.asked({ questions: [{ question: 'And now?', type: 'confirm' }] }, 'deploy-bot');
    await until('the notice', async () => (await notices()).some(([, , id]) => id === second.id));
    await daemon.answerElsewhere(second, { 'And now?': 'Yes' });
    await until('the notice to go', async () => !(await notices()).some(([, , id]) => id === second.id));
    await until('the push of its end', () => push.got.length === 3);
    assert.equal(push.got[1].topic, push.got[2].topic);
  } finally {
    await browser.end();
    await daemon.end();
    push.close();
  }
});
