// The openai package for Node, unmodified, against OPENAI_BASE_URL.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { test } from "node:test";

// The package lives in the build folder, not beside this file.
const require = createRequire(process.env.SLUICE_NODE_MODULES + "/");
const { default: OpenAI } = await import(
  pathToFileURL(require.resolve("openai")).href);

const model = process.env.SLUICE_MODEL;
const client = new OpenAI({ maxRetries: 0 });
const messages = [{ role: "user", content: "Name the capital of France." }];
const question = { model, messages, temperature: 0, max_tokens: 24 };
const story = { model, messages, temperature: 0, max_tokens: 4000,
                ignore_eos: true, stream: true };

const chat = (fields = {}, options = {}) =>
  client.chat.completions.create({ ...question, ...fields }, options);

// The text and the finish reasons of a streamed chat.
async function collect(stream) {
  const seen = { text: "", finishes: [], usage: null };
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    if (chunk.usage) seen.usage = chunk.usage;
    for (const choice of chunk.choices) {
      seen.text += choice.delta.content ?? "";
      if (choice.finish_reason) seen.finishes.push(choice.finish_reason);
    }
  }
  return seen;
}

test("a chat is answered", async () => {
  const answer = await chat();
  assert.match(answer.choices[0].message.content, /Paris/);
  assert.equal(answer.usage.total_tokens,
    answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

test("a streamed chat says the same", async () => {
  const whole = (await chat()).choices[0];
  const seen = await collect(await chat(
    { stream: true, stream_options: { include_usage: true } }));
  assert.equal(seen.text, whole.message.content);
  assert.deepEqual(seen.finishes, [whole.finish_reason]);
  assert.ok(seen.usage.completion_tokens > 0);
});

test("the stream helper puts the answer together", async () => {
  const stream = client.chat.completions.stream(question);
  let text = "";
  stream.on("content", (delta) => { text += delta; });
  const final = await stream.finalChatCompletion();
  assert.equal(text, final.choices[0].message.content);
});

test("a completion and its stream say the same", async () => {
  const fields = { model, prompt: "The capital of France is",
                   temperature: 0, max_tokens: 12 };
  const whole = await client.completions.create(fields);
  let text = "";
  for await (const chunk of await client.completions.create(
    { ...fields, stream: true })) {
    text += chunk.choices[0].text;
  }
  assert.match(text, /Paris/);
  assert.equal(text, whole.choices[0].text);
});

test("many chats at once give the same text", async () => {
  const texts = await Promise.all(Array.from({ length: 8 }, async () =>
    (await collect(await chat({ stream: true }))).text));
  assert.equal(new Set(texts).size, 1);
});

test("n choices come with logprobs", async () => {
  const answer = await chat({ n: 2, seed: 4, temperature: 1.2, logprobs: true,
                              top_logprobs: 2 });
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1]);
  for (const choice of answer.choices) {
    assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
  }
});

test("models are listed and fetched", async () => {
  const models = [];
  for await (const entry of client.models.list()) models.push(entry.id);
  // The cluster has a second name, for the examples of settings.
  assert.deepEqual(models, [model, "sluice"]);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("errors are raised as their classes", async () => {
  await assert.rejects(chat({ model: "nope" }), (error) =>
    error instanceof OpenAI.NotFoundError && /nope/.test(error.message) &&
    error.code === "model_not_found");
  await assert.rejects(chat({ top_p: 7 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "top_p");
  await assert.rejects(
    client.completions.create({ model, prompt: Array(20000).fill(1) }),
    (error) => error.code === "context_length_exceeded");
});

test("a timeout is raised", async () => {
  const { stream, ...whole } = story;
  await assert.rejects(
    client.chat.completions.create(whole, { timeout: 400 }),
    OpenAI.APIConnectionTimeoutError);
});

test("an aborted stream ends", async () => {
  const stream = await client.chat.completions.create(story);
  let chunks = 0;
  for await (const chunk of stream) {
    assert.ok(chunk.choices.length <= 1);
    if (++chunks === 4) break;  // breaking out aborts the request
  }
  assert.ok(stream.controller.signal.aborted);
});

test("an abort signal cancels a request in progress", async () => {
  const abort = new AbortController();
  const stream = await client.chat.completions.create(
    story, { signal: abort.signal });
  let chunks = 0;
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    if (++chunks === 2) abort.abort();
  }
  assert.ok(chunks < story.max_tokens);
});
