// The packages of four dialects for Node, unmodified, against OPENAI_BASE_URL and
// SLUICE_URL: openai over /v1/responses, @anthropic-ai/sdk, ollama, and the AI SDK
// with @ai-sdk/openai in its default mode (/v1/responses) and @ai-sdk/anthropic.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { test } from "node:test";

// The packages live in the build folder, not beside this file.
const require = createRequire(process.env.SLUICE_NODE_MODULES + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { Ollama } = await load("ollama");
const { generateText, streamText, tool, Output } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { z } = await load("zod");

const model = process.env.SLUICE_MODEL;
const url = process.env.SLUICE_URL;
const prompt = "Name the capital of France.";
const messages = [{ role: "user", content: prompt }];
const City = z.object({ name: z.string().max(20), people: z.number().int() });

const openai = new OpenAI({ maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none",
                                  maxRetries: 0 });
const ollama = new Ollama({ host: url });
const short = { model, max_tokens: 24, temperature: 0, messages };

// What all of them say.
const chat = await openai.chat.completions.create(short);
const wanted = chat.choices[0].message.content;
assert.match(wanted, /Paris/);

test("openai: a response, whole and streamed", async () => {
  const fields = { model, input: prompt, temperature: 0,
                   max_output_tokens: 24 };
  const whole = await openai.responses.create(fields);
  assert.equal(whole.output_text, wanted);
  let text = "";
  let number = -1;
  const kinds = [];
  for await (const event of await openai.responses.create(
    { ...fields, stream: true })) {
    assert.ok(event.sequence_number > number);
    number = event.sequence_number;
    kinds.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, wanted);
  assert.deepEqual(kinds.slice(0, 2),
    ["response.created", "response.in_progress"]);
});

test("openai: the stream helper puts a response together", async () => {
  const stream = openai.responses.stream(
    { model, input: prompt, temperature: 0, max_output_tokens: 200 });
  const final = await stream.finalResponse();
  assert.equal(final.status, "completed");
  assert.match(final.output_text, /Paris/);
});

test("openai: a refusal of a response has its code", async () => {
  await assert.rejects(
    openai.responses.create({ model, input: prompt,
                              previous_response_id: "resp_0" }),
    (error) => error.status === 400 &&
      error.code === "previous_response_not_found");
  await assert.rejects(
    openai.responses.create({ model, input: "word ".repeat(9000) }),
    (error) => error.status === 400 &&
      error.code === "context_length_exceeded");
});

test("anthropic: a message, whole and streamed", async () => {
  const whole = await anthropic.messages.create(short);
  assert.equal(whole.content[0].text, wanted);
  const stream = anthropic.messages.stream(short);
  let text = "";
  stream.on("text", (delta) => { text += delta; });
  const final = await stream.finalMessage();
  assert.equal(text, wanted);
  assert.equal(final.stop_reason, whole.stop_reason);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test("anthropic: tokens are counted", async () => {
  const counted = await anthropic.messages.countTokens({ model, messages });
  assert.equal(counted.input_tokens, chat.usage.prompt_tokens);
});

test("anthropic: a refusal has its type", async () => {
  await assert.rejects(
    anthropic.messages.create(
      { ...short, messages: [{ role: "user",
                               content: "word ".repeat(9000) }] }),
    (error) => error.status === 400 &&
      error.error.error.type === "invalid_request_error" &&
      /prompt is too long: \d+ tokens > 8192 maximum/.test(error.message));
});

test("ollama: a chat and a prompt, whole and streamed", async () => {
  const fields = { model, messages,
                   options: { temperature: 0, num_predict: 24 } };
  const whole = await ollama.chat(fields);
  assert.equal(whole.message.content, wanted);
  let text = "";
  for await (const part of await ollama.chat({ ...fields, stream: true })) {
    text += part.message.content;
  }
  assert.equal(text, wanted);
  const answer = await ollama.generate({ model, prompt,
                                         options: fields.options });
  assert.equal(answer.response, wanted);
});

test("ollama: the model is listed and shown", async () => {
  const { models } = await ollama.list();
  assert.ok(models.some((one) => one.name === `${model}:latest`));
  const shown = await ollama.show({ model });
  assert.ok(shown.capabilities.includes("completion"));
  assert.ok((await ollama.ps()).models.length > 0);
});

test("ollama: a refusal is a text", async () => {
  await assert.rejects(
    ollama.chat({ model: "other", messages }),
    (error) => error.message === "model 'other' not found");
});

const providers = {
  "@ai-sdk/openai": createOpenAI({ baseURL: process.env.OPENAI_BASE_URL,
                                   apiKey: "none" })(model),
  "@ai-sdk/anthropic": createAnthropic({ baseURL: url + "/v1",
                                         apiKey: "none" })(model),
};

for (const [name, provided] of Object.entries(providers)) {
  const fields = { model: provided, prompt, temperature: 0, maxRetries: 0,
                   maxOutputTokens: 24 };

  test(`${name}: a text, whole and streamed`, async () => {
    const whole = await generateText(fields);
    assert.equal(whole.text, wanted);
    const stream = streamText(fields);
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert.equal(text, wanted);
    const usage = await stream.totalUsage;
    assert.equal(usage.outputTokens, whole.totalUsage.outputTokens);
  });

  test(`${name}: an object of a schema`, async () => {
    const answer = await generateText({
      ...fields, prompt: "Paris", maxOutputTokens: 200,
      output: Output.object({ schema: City }) });
    City.strict().parse(answer.output);
  });

  test(`${name}: a required tool is called`, async () => {
    const answer = await generateText({
      ...fields, maxOutputTokens: 200, toolChoice: "required",
      tools: { note: tool({ description: "Notes a city.",
                            inputSchema: City }) } });
    assert.ok(answer.toolCalls.length > 0);
    for (const call of answer.toolCalls) {
      assert.equal(call.toolName, "note");
      assert.ok(!call.invalid, String(call.error));
      City.strict().parse(call.input);
    }
  });
}
