// The page's reading of WhatsApp's formatting, without a browser. $ASKD_MARKUP: path of markup.js.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const path = process.env.ASKD_MARKUP;
const { parse } = path ? await import(pathToFileURL(path)) : {};

/** <b>…</b> and so on, for reading. */
const flat = (text) => parse(text).map(({ block, parts }) => (block === "line" ? "" : `${block}:`) + parts.map(word).join("")).join("|");
const word = (p) => (typeof p === "string" ? p : `<${p.tag}>${p.parts.map(word).join("")}</${p.tag}>`);

const CASES = {
  "*bold* _it_ ~gone~": "<strong>bold</strong> <em>it</em> <s>gone</s>",
  "*_both_*": "<strong><em>both</em></strong>",
  "2 * 3 * 4": "2 * 3 * 4",
  "snake_case_name": "snake_case_name",
  "* not bold*": "item:not bold*",
  "`*raw*`": "<code>*raw*</code>",
  "a ```*b*\nc``` d": "a |pre:*b*\nc| d",
  "> *said*\n- one\n* two": "quote:<strong>said</strong>|item:one|item:two",
  "1. JWT\n2. Cookies\n\nReply": "1. JWT|2. Cookies||Reply",
  "see https://a.example/x?y=1, or b.dev": "see <link>https://a.example/x?y=1,</link> or <link>b.dev</link>",
  "(*bold*), *x*!": "(<strong>bold</strong>), <strong>x</strong>!",
  "<b>&amp;": "<b>&amp;",
  "": "",
};
for (const [text, expected] of Object.entries(CASES)) {
  test(`formatting: ${JSON.stringify(text)}`, { skip: path ? false : "ASKD_MARKUP is not set" }, () => assert.equal(flat(text), expected));
}
