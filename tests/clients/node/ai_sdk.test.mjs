// The AI SDK's typed answers, unmodified, against OPENAI_BASE_URL.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { test } from "node:test";

// The packages live in the build folder, not beside this file.
const require = createRequire(process.env.SLUICE_NODE_MODULES + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateObject, generateText, streamObject, tool, Output } =
  await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const provider = createOpenAICompatible({
  name: "sluice", baseURL: process.env.OPENAI_BASE_URL, apiKey: "none",
  supportsStructuredOutputs: true });
const Pet = z.object({ kind: z.enum(["cat", "dog"]),
                       name: z.string().min(1).max(12) });
const Person = z.object({
  name: z.string().max(20),
  age: z.number().int().min(0).max(120),
  nickname: z.string().max(12).nullable(),
  pets: z.array(Pet).min(1).max(2) });
const question = {
  model: provider(process.env.SLUICE_MODEL), maxRetries: 0, seed: 1,
  maxOutputTokens: 600, temperature: 1.2,
  prompt: "Lily is six years old and has a dog and a cat. Tell me of her." };

test("every seed gives an object of the schema", async () => {
  for (const seed of [0, 1, 2, 3]) {
    const answer = await generateObject(
      { ...question, seed, schema: Person });
    Person.strict().parse(answer.object);
    assert.equal(answer.finishReason, "stop");
  }
});

test("a streamed object ends as one of the schema", async () => {
  const answer = streamObject({ ...question, schema: Person });
  let parts = 0;
  for await (const part of answer.partialObjectStream) {
    assert.equal(typeof part, "object");
    ++parts;
  }
  assert.ok(parts > 3);
  Person.strict().parse(await answer.object);
});

test("one value of an enum is chosen", async () => {
  const choices = ["happy", "sad", "angry"];
  const answer = await generateObject(
    { ...question, output: "enum", enum: choices });
  assert.ok(choices.includes(answer.object));
});

test("an array holds elements of the schema", async () => {
  const answer = await generateObject(
    { ...question, temperature: 0, output: "array", schema: Pet });
  for (const pet of answer.object) Pet.strict().parse(pet);
});

test("a text's output is an object of the schema", async () => {
  const answer = await generateText(
    { ...question, output: Output.object({ schema: Person }) });
  Person.strict().parse(answer.output);
});

test("a required tool is called with what it takes", async () => {
  const answer = await generateText({
    ...question, toolChoice: { type: "tool", toolName: "note" },
    tools: { note: tool({ description: "Notes a person.",
                          inputSchema: Person }) } });
  assert.ok(answer.toolCalls.length > 0);
  for (const call of answer.toolCalls) {
    assert.equal(call.toolName, "note");
    assert.ok(!call.invalid, String(call.error));
    Person.strict().parse(call.input);
  }
});

test("a cut object is an error of its length", async () => {
  await assert.rejects(
    generateObject({ ...question, maxOutputTokens: 4, schema: Person }),
    (error) => error.name === "AI_NoObjectGeneratedError" &&
      error.finishReason === "length");
});
