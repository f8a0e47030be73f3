// A test that has waited in vain says what its pages showed instead. Whoever opens pages in tests imports this.

import { afterEach } from 'node:test';
import { accounts } from './harness.mjs';

afterEach(async ({ passed }) => {
  if (passed) return;
  for (const account of accounts.values()) console.log(await account());
});
