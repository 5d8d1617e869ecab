// openai for Node: a streamed answer.
//
// npm install openai
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:8080/v1",
  apiKey: process.env.OPENAI_API_KEY ?? "none",
});
const { data } = await client.models.list();

const stream = await client.chat.completions.create({
  model: data[0].id,
  stream: true,
  max_completion_tokens: 24,
  temperature: 0,
  messages: [{ role: "user", content: "Name the capital of France." }],
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}
process.stdout.write("\n");
