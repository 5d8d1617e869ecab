// The AI SDK with @ai-sdk/openai in its default mode, unmodified, at a server that
// keeps responses: in a conversation it sends references to the items of answers.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { test } from "node:test";

// The packages live in the build folder, not beside this file.
const require = createRequire(process.env.SLUICE_NODE_MODULES + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateText, streamText } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");

const sent = [];
const openai = createOpenAI({
  baseURL: process.env.OPENAI_BASE_URL, apiKey: "none",
  fetch: (url, options) => {
    sent.push(JSON.parse(options.body));
    return fetch(url, options);
  } });
const fields = { model: openai(process.env.SLUICE_MODEL), temperature: 0,
                 maxRetries: 0, maxOutputTokens: 24 };
const question = { role: "user", content: "Name the capital of France." };
const next = { role: "user", content: "And of Spain?" };

test("a conversation goes on by references", async () => {
  const first = await generateText({ ...fields, messages: [question] });
  const messages = [question, ...first.response.messages, next];
  const second = await generateText({ ...fields, messages });
  assert.ok(sent.at(-1).input.some((item) => item.type === "item_reference"));
  const whole = await generateText({
    ...fields, messages, providerOptions: { openai: { store: false } } });
  assert.ok(sent.at(-1).input.every((item) => item.type !== "item_reference"));
  assert.equal(second.text, whole.text);
  assert.equal(second.usage.inputTokens, whole.usage.inputTokens);
  const stream = streamText({ ...fields, messages });
  assert.equal(await stream.text, whole.text);
});

test("a conversation goes on by the id of a response", async () => {
  const first = await generateText({ ...fields, messages: [question] });
  const whole = await generateText({
    ...fields, messages: [question, ...first.response.messages, next] });
  const second = await generateText({
    ...fields, messages: [next],
    providerOptions: { openai: { previousResponseId:
      first.providerMetadata.openai.responseId } } });
  assert.equal(second.text, whole.text);
});
