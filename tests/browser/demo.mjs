// Starts `askd demo` and reads where it is; used by the checks of the demo and by the script that makes the pictures.

import { spawn } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export const BINARY = process.env.ASKD_BIN ?? fileURLToPath(new URL('../../target/debug/askd', import.meta.url));

export class Demo {
  lines = [];

  static async start() {
    const demo = new Demo();
    demo.folder = await mkdtemp(join(tmpdir(), 'askd-demo-pages-'));
    demo.process = spawn(BINARY, ['demo'], { env: { ...process.env, TMPDIR: demo.folder }, stdio: ['ignore', 'pipe', 'inherit'] });
    demo.ended = new Promise((resolve) => demo.process.on('exit', resolve));
    await new Promise((resolve, reject) => {
      demo.process.on('exit', () => reject(new Error(demo.lines.join('\n'))));
      createInterface({ input: demo.process.stdout }).on('line', (line) => {
        demo.lines.push(line);
        const [, title, link] = /^ {2}(\S.*?) {2,}(http\S+)$/.exec(line) ?? [];
        if (title) demo[title.split(' ')[0].toLowerCase()] = link;
        if (demo.phone) resolve();
      });
    });
    return demo;
  }

  says(word) { return this.lines.find((line) => line.includes(word)); }

  // The folder of an agent's group, as `askd ask --ipc` takes it.
  async ipc(group) {
    const [name] = await readdir(this.folder);
    return join(this.folder, name, 'ipc', group);
  }

  async end() {
    this.process.kill('SIGINT');
    await this.ended;
    await rm(this.folder, { recursive: true, force: true });
  }
}
