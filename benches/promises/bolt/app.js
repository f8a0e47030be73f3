// Slack Bolt beside askd: a click is verified by Bolt, its answer made durable in a file, acknowledged, and the card
// updated. Started by benches/promises: node app.js <folder> <port> <url of the chat>
const { App, HTTPReceiver, LogLevel } = require('@slack/bolt');
const fs = require('node:fs/promises');
const path = require('node:path');

const [folder, port, chat] = process.argv.slice(2);
const receiver = new HTTPReceiver({
  signingSecret: process.env.SLACK_SIGNING_SECRET,
  endpoints: '/slack/interactions',
  port: Number(port),
  logLevel: LogLevel.ERROR,
});
const app = new App({
  token: 'xoxb-bench',
  receiver,
  logLevel: LogLevel.ERROR,
  clientOptions: { slackApiUrl: `${chat}/` },
});

async function store(group, name, text) {
  const into = path.join(folder, 'state', 'pending_questions', group);
  const temporary = path.join(into, `.tmp-${name}`);
  const file = await fs.open(temporary, 'w');
  await file.writeFile(text);
  await file.sync();
  await file.close();
  await fs.rename(temporary, path.join(into, name));
  const held = await fs.open(into, 'r');
  await held.sync();
  await held.close();
}

app.action(/.*/, async ({ ack, body, action, client }) => {
  const { channel_id: channel, message_ts: ts } = body.container;
  const group = `g${channel.slice(1)}`;
  await store(group, `${ts}.json`, JSON.stringify({ ts, by: body.user.id, value: action.value, filler: ' '.repeat(1500) }));
  await ack();
  const response = path.join(folder, 'ipc', group, 'responses');
  await fs.writeFile(path.join(response, `.tmp-${ts}`), JSON.stringify({ result: { answers: action.value } }));
  await fs.rename(path.join(response, `.tmp-${ts}`), path.join(response, `${ts}.json`));
  await client.chat.update({ channel, ts, text: `Answered: ${action.value}` });
});

(async () => {
  await app.start({ port: Number(port), host: '127.0.0.1' });
})();
