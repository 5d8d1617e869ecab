// Posts the request in the file argv[3] to argv[2] by Node's own fetch, all of
// its timeouts as they are, and prints what came and when, as one line of JSON.
import { readFileSync } from "node:fs";

const [url, file] = process.argv.slice(2);
const begin = performance.now();
const seconds = () => (performance.now() - begin) / 1000;
const seen = { status: null, head: null, first: null, end: null, comments: 0,
               text: "", finish: null, done: false, error: null };

function take(line) {
  if (line.startsWith(":")) seen.comments += 1;
  if (!line.startsWith("data: ")) return;
  const data = line.slice(6);
  if (data === "[DONE]") {
    seen.done = true;
    return;
  }
  seen.first ??= seconds();
  const chunk = JSON.parse(data);
  if (chunk.error) throw new Error(chunk.error.message);
  for (const choice of chunk.choices) {
    seen.text += choice.delta.content ?? "";
    seen.finish = choice.finish_reason ?? seen.finish;
  }
}

try {
  const answer = await fetch(url, {
    method: "POST", body: readFileSync(file),
    headers: { "Content-Type": "application/json" } });
  seen.status = answer.status;
  seen.head = seconds();
  let rest = "";
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    lines.forEach(take);
  }
} catch (error) {
  seen.error = `${error.message}: ${error.cause?.code ?? ""}`;
}
seen.end = seconds();
console.log(JSON.stringify(seen));
