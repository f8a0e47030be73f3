// Keeps what a person has entered and not sent, so that a reload or a closed tab loses nothing. It deliberately stays in
// this browser, goes with the token, and is forgotten after a week.

import { ownName } from './api.js';

const PREFIX = 'askd.draft.';
const OWNER = 'askd.drafts-of';
const KEPT_MS = 7 * 24 * 60 * 60 * 1000;

// Storage may be switched off or full: a draft then lasts as long as the page.
const storage = (use) => {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
};

const keys = (store) => Object.keys(store).filter((key) => key.startsWith(PREFIX));

export function keepDraft(id, fields) {
  storage((store) => (fields ? store.setItem(PREFIX + id, JSON.stringify({ at: Date.now(), fields })) : store.removeItem(PREFIX + id)));
  if (fields && ownName() !== null) storage((store) => store.setItem(OWNER, ownName()));
}

// Who entered what is kept here; null: nobody, or that is not known.
export const draftsOwner = () => storage((store) => store.getItem(OWNER));

export const draftOf = (id) => storage((store) => JSON.parse(store.getItem(PREFIX + id))?.fields) ?? null;

export const forgetDrafts = () => storage((store) => [OWNER, ...keys(store)].forEach((key) => store.removeItem(key)));

storage((store) => {
  for (const key of keys(store)) {
    if (!(JSON.parse(store.getItem(key))?.at > Date.now() - KEPT_MS)) store.removeItem(key);
  }
});
