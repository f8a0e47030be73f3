// WhatsApp's text formatting, the way the app shows it, so that text of an agent that formats, quotes or
// links is seen to do so. Builds nodes from text only; nothing is ever parsed as HTML.
// parse() is plain data, for tests; show() makes nodes of it. Called by phone.js.

const MARKS = { "*": "strong", "_": "em", "~": "s" };
const LINK = /\b(?:https?:\/\/|www\.)\S+|\b[\w.+-]+@[\w-]+\.[\w.]+|\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|app|me|ai|co|info|xyz|de|uk)\b(?:\/\S*)?/i;
// A mark counts at the edge of a word only and not around spaces.
const MARK = /(^|[\s\p{P}\p{S}])([*_~])(?=\S)((?:(?!\2).)*?\S)\2(?=$|[\s\p{P}\p{S}])/u;

/** Lines of blocks: {block: "pre"|"quote"|"item"|"line", parts: [...]}; parts: text or {tag, parts}. */
export function parse(text) {
  const blocks = [];
  text.split(/```([^]+?)```/).forEach((piece, i) => {
    if (i % 2 === 1) {
      blocks.push({ block: "pre", parts: [piece.replace(/^\n|\n$/g, "")] });
      return;
    }
    const lines = piece.split("\n");
    if (i > 0 && lines[0] === "") lines.shift();
    if (lines.length > 0 && lines.at(-1) === "" && piece !== text) lines.pop();
    for (const line of lines) {
      const start = /^(> ?|[*-] )(.+)$/.exec(line);
      if (!start) blocks.push({ block: "line", parts: inline(line) });
      else blocks.push({ block: start[1].startsWith(">") ? "quote" : "item", parts: inline(start[2]) });
    }
  });
  return blocks;
}

function inline(text) {
  const code = /`([^`\n]+)`/.exec(text);
  const mark = MARK.exec(text);
  const link = LINK.exec(text);
  const at = (m) => (m ? m.index : Infinity);
  if (code && at(code) <= Math.min(at(mark), at(link))) {
    return around(text, code.index, code[0].length, { tag: "code", parts: [code[1]] });
  }
  if (mark && at(mark) <= at(link)) {
    const from = mark.index + mark[1].length;
    const inner = { tag: MARKS[mark[2]], parts: inline(mark[3]) };
    return around(text, from, mark[0].length - mark[1].length, inner);
  }
  if (link) return around(text, link.index, link[0].length, { tag: "link", parts: [link[0]] });
  return text === "" ? [] : [text];
}

function around(text, from, length, part) {
  return [...inline(text.slice(0, from)), part, ...inline(text.slice(from + length))];
}

/** The text as nodes. */
export function show(text) {
  const all = document.createDocumentFragment();
  for (const { block, parts } of parse(text)) {
    const tag = { pre: "pre", quote: "blockquote", item: "div", line: "div" }[block];
    const element = document.createElement(tag);
    element.className = block;
    element.append(...parts.map(node));
    if (parts.length === 0) element.append(document.createElement("br"));
    all.append(element);
  }
  return all;
}

function node(part) {
  if (typeof part === "string") return part;
  const element = document.createElement(part.tag === "link" ? "span" : part.tag);
  if (part.tag === "link") element.className = "link";
  element.append(...part.parts.map(node));
  return element;
}
