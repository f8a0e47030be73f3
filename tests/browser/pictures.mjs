// Makes the pictures of the README from a running demo: an animation (`askd ask` waits, a click in Slack, the answer is printed) and
// the inbox on a phone, a card in Slack, a chat on WhatsApp. Called by docs/pictures/make; needs Chromium and ffmpeg.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BINARY, Demo } from './demo.mjs';
import { launch, until } from './harness.mjs';

const OUT = fileURLToPath(new URL('../../docs/pictures/', import.meta.url));
const COMMAND = 'askd ask "Deploy now?" --confirm';

const STAGE = (slack) => `<!doctype html><meta charset="utf-8"><title>askd</title><style>
  * { box-sizing: border-box; margin: 0; }
  body { display: grid; grid-template-columns: 420px 1fr; gap: 14px; height: 100vh; padding: 14px; background: #e9e7e1; font: 15px system-ui, sans-serif; }
  section { display: flex; flex-direction: column; min-height: 0; border-radius: 10px; overflow: hidden; background: #14171a; box-shadow: 0 2px 10px rgb(0 0 0 / 25%); }
  header { padding: 8px 14px; font-size: 13px; color: #9aa6ac; border-bottom: 1px solid #2b3136; }
  pre { padding: 14px; font: 14px/1.6 "DejaVu Sans Mono", monospace; color: #d7dde0; white-space: pre-wrap; }
  pre b { color: #7fd6b4; font-weight: 400; } pre i { color: #8b979e; font-style: normal; } pre strong { color: #fff; }
  iframe { flex: 1; border: 0; background: #fff; }
  #hand { position: fixed; width: 22px; height: 22px; z-index: 2; pointer-events: none; transition: none; }
</style>
<section><header>your agent's container</header><pre id="terminal"></pre></section>
<section><iframe src="${slack}" title="Slack"></iframe></section>
<svg id="hand" viewBox="0 0 24 24"><path d="M5 2l14 11-6.5 1L9.500 20.500z" fill="#111" stroke="#fff" stroke-width="1.500"/></svg>`;

async function small(browser, name, url, ready, { selector, ...options }) {
  const context = await browser.newContext({ deviceScaleFactor: 2, locale: 'en-US', reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  await page.goto(url);
  await page.getByText(ready).locator('visible=true').first().waitFor();
  // The toast of a new question goes by itself.
  await page.waitForTimeout(500);
  const path = join(OUT, `${name}.png`);
  if (selector) await page.locator(selector).filter({ hasText: ready }).last().screenshot({ path });
  else await page.screenshot({ path });
  await context.close();
}

async function animation(browser, demo) {
  const frames = await mkdtemp(join(tmpdir(), 'askd-frames-'));
  const context = await browser.newContext({ viewport: { width: 960, height: 440 }, locale: 'en-US', colorScheme: 'light' });
  const page = await context.newPage();
  // Slack lets itself be framed by the demo's own address only.
  await page.route(`${demo.tour}stage`, (route) => route.fulfill({ contentType: 'text/html', body: STAGE(demo.slack) }));
  await page.goto(`${demo.tour}stage`);
  const slack = page.frameLocator('iframe');
  await slack.locator('#messages').waitFor();
  const list = [];
  const shoot = async (seconds) => {
    const file = join(frames, `${String(list.length).padStart(3, '0')}.png`);
    await page.screenshot({ path: file, animations: 'disabled' });
    list.push(`file '${file}'\nduration ${seconds}`);
  };
  const terminal = (html) => page.evaluate((text) => { document.getElementById('terminal').innerHTML = text; }, html);
  const hand = (x, y) => page.evaluate(([left, top]) => Object.assign(document.getElementById('hand').style, { left: `${left}px`, top: `${top}px` }), [x, y]);

  let from = [700, 380];
  await hand(...from);
  for (let end = 0; end <= COMMAND.length; end += 4) {
    await terminal(`<b>$</b> ${COMMAND.slice(0, end)}▌`);
    await shoot(0.09);
  }
  const agent = spawn(BINARY, ['ask', 'Deploy now?', '--confirm', '--ipc', await demo.ipc('deploy-bot')], { stdio: ['ignore', 'pipe', 'inherit'] });
  let printed = '';
  agent.stdout.on('data', (data) => { printed += data; });
  const gone = new Promise((resolve) => agent.on('exit', resolve));
  const waiting = (left) => terminal(`<b>$</b> ${COMMAND}\n<i>waiting for an answer, ${left} left</i>`);
  await waiting('30m');
  await shoot(0.6);
  const card = slack.locator('[data-ts]').filter({ hasText: 'Deploy now?' }).last();
  await card.getByRole('button', { name: 'Yes', exact: true }).waitFor();
  for (const left of ['29m 59s', '29m 58s', '29m 57s']) {
    await waiting(left);
    await shoot(1);
  }
  const box = await card.getByRole('button', { name: 'Yes', exact: true }).boundingBox();
  const to = [box.x + box.width / 2, box.y + box.height / 2];
  for (let step = 1; step <= 8; step += 1) {
    await hand(...from.map((start, axis) => start + ((to[axis] - start) * step) / 8));
    await shoot(0.08);
  }
  await shoot(0.5);
  await card.getByRole('button', { name: 'Yes', exact: true }).click();
  await gone;
  assert.equal(printed, 'Yes\n');
  await card.locator('strong', { hasText: 'Yes' }).waitFor();
  await terminal(`<b>$</b> ${COMMAND}\n<strong>Yes</strong>\n<b>$</b> ▌`);
  await hand(to[0] + 60, to[1] + 70);
  await shoot(4);
  const listFile = join(frames, 'list');
  await writeFile(listFile, `${list.join('\n')}\n${list.at(-1).split('\n')[0]}\n`);
  const palette = 'split[a][b];[a]palettegen=max_colors=96:stats_mode=full[p];[b][p]paletteuse=dither=none:diff_mode=rectangle';
  const made = spawnSync('ffmpeg', ['-y', '-loglevel', 'error', '-f', 'concat', '-safe', '0', '-i', listFile, '-vf', `fps=12,${palette}`, join(OUT, 'ask.gif')], { stdio: 'inherit' });
  assert.equal(made.status, 0, 'ffmpeg');
  await context.close();
  await rm(frames, { recursive: true, force: true });
}

const demo = await Demo.start();
const browser = await launch();
try {
  await until('three questions', () => demo.says('asks on WhatsApp'));
  const phone = { viewport: { width: 390, height: 700 } };
  await small(browser, 'inbox', demo.inbox, 'How should I roll out version 2.4?', { ...phone, colorScheme: 'dark' });
  await small(browser, 'slack', demo.slack, 'Promote the canary to everyone?', { viewport: { width: 700, height: 700 }, selector: '[data-ts]' });
  await small(browser, 'whatsapp', demo.phone, 'Which flight to Lisbon should I book?', { ...phone, colorScheme: 'light' });
  await animation(browser, demo);
} finally {
  await browser.close();
  await demo.end();
}
