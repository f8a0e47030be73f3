// Messages type-checked as KnownBlock[] of @slack/types, and modals as its ModalView, by a strict TypeScript: payloads/*.json,
// docs/cards/slack-*.json, *.json of the folder ASKD_PAYLOADS, and what the stand-in gives back for each.
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { CHANNEL, start } from './stand_in.mjs';

const here = dirname(fileURLToPath(import.meta.url));

function payloads() {
  const folders = [join(here, 'payloads'), join(here, '../../docs/cards'), process.env.ASKD_PAYLOADS].filter(Boolean);
  const files = folders.flatMap((folder) => readdirSync(folder).filter((name) => name.endsWith('.json') && !name.startsWith('whatsapp-')).map((name) => join(folder, name)));
  return files.flatMap((file) => [JSON.parse(readFileSync(file, 'utf8'))].flat().map((payload, index) => ({ name: `${file}[${index}]`, payload })));
}

/** What TypeScript has against these lists of blocks. */
function complaints(lists) {
  const folder = join(here, '..', '.cache', 'node', 'checked');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const files = lists.map((blocks, index) => {
    const file = join(folder, `m${index}.ts`);
    const type = Array.isArray(blocks) ? 'KnownBlock[]' : 'ModalView';
    writeFileSync(file, `import type { KnownBlock, ModalView } from '@slack/types';\nexport const blocks: ${type} = ${JSON.stringify(blocks, null, 1)};\n`);
    return file;
  });
  const options = { strict: true, noEmit: true, skipLibCheck: true, module: ts.ModuleKind.Node16, moduleResolution: ts.ModuleResolutionKind.Node16 };
  const found = ts.getPreEmitDiagnostics(ts.createProgram(files, options));
  return found.map((one) => `${one.file?.fileName}: ${ts.flattenDiagnosticMessageText(one.messageText, '\n')}`);
}

test('messages are KnownBlock[], before and after the stand-in', async () => {
  const all = payloads();
  const slack = await start();
  const lists = [];
  try {
    for (const { name, payload } of all) {
      if (payload.view) {
        lists.push(payload.view);
        continue;
      }
      const response = await fetch(`${slack.api_url}/chat.postMessage`, {
        method: 'POST',
        headers: { authorization: `Bearer ${slack.bot_token}`, 'content-type': 'application/json; charset=utf-8' },
        body: JSON.stringify({ channel: CHANNEL, ...payload }),
      });
      const posted = await response.json();
      assert.equal(posted.ok, true, `${name}: ${JSON.stringify(posted)}`);
      lists.push(payload.blocks, posted.message.blocks);
    }
  } finally {
    await slack.stop();
  }
  assert.ok(lists.length >= 8);
  assert.deepEqual(complaints(lists), []);
});

test('the check can fail', () => {
  const wrong = [{ type: 'header', text: { type: 'mrkdwn', text: 'x' } }];
  assert.notDeepEqual(complaints([wrong]), []);
});
