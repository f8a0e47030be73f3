// @slack/bolt against the stand-in, by HTTP and by Socket Mode: a click arrives in a handler, which updates the message; so does a reply in the thread.
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { test } from 'node:test';
import bolt from '@slack/bolt';
import { ALICE, CHANNEL, start, until } from './stand_in.mjs';

const { App, LogLevel } = bolt;

const blocks = [
  { type: 'section', text: { type: 'mrkdwn', text: 'Which *one*?' } },
  {
    type: 'actions',
    block_id: 'b',
    elements: [{ type: 'button', action_id: 'pick', text: { type: 'plain_text', text: 'This' }, value: '0' }],
  },
];

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function story(app, slack) {
  const replies = [];
  app.action('pick', async ({ ack, body, action, client }) => {
    await ack();
    await client.chat.update({ channel: body.channel.id, ts: body.message.ts, text: `Answered: ${action.value} by ${body.user.id}`, blocks: [] });
  });
  app.message(async ({ message }) => replies.push(message));
  const posted = await app.client.chat.postMessage({ channel: CHANNEL, text: 'Which one?', blocks });
  const typed = await slack.person('say', { thread_ts: posted.ts, text: 'neither' });
  assert.equal(typeof typed.ts, 'string');
  const reply = await until(() => replies.find((message) => message.ts === typed.ts));
  assert.deepEqual([reply.user, reply.text, reply.thread_ts, reply.channel], [ALICE, 'neither', posted.ts, CHANNEL]);
  const clicked = await slack.person('act', { ts: posted.ts, block_id: 'b', action_id: 'pick', act: 'click' });
  assert.deepEqual(clicked, { sent: true, acknowledged: true });
  const closed = await until(async () => (await slack.seen()).find((message) => message.text.startsWith('Answered')));
  assert.equal(closed.text, `Answered: 0 by ${ALICE}`);
  assert.equal(closed.ts, posted.ts);
}

test('Bolt by HTTP', async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/slack/events`;
  const slack = await start('--interactivity-url', url, '--events-url', url);
  const app = new App({
    token: slack.bot_token,
    signingSecret: slack.signing_secret,
    clientOptions: { slackApiUrl: `${slack.api_url}/` },
    logLevel: LogLevel.ERROR,
  });
  try {
    await app.start({ port, host: '127.0.0.1' });
    await story(app, slack);
  } finally {
    await app.stop();
    await slack.stop();
  }
});

test('Bolt by Socket Mode', async () => {
  const slack = await start();
  const app = new App({
    token: slack.bot_token,
    appToken: slack.app_token,
    socketMode: true,
    clientOptions: { slackApiUrl: `${slack.api_url}/` },
    logLevel: LogLevel.ERROR,
  });
  try {
    await app.start();
    await until(async () => (await (await fetch(`${slack.url}/page/state`)).json()).sockets === 1);
    await story(app, slack);
  } finally {
    await app.stop();
    await slack.stop();
  }
});
