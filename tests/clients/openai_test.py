"""The openai package, unmodified: what it asks is answered."""

import asyncio

from client_cluster import ANSWER, MESSAGES
from openai_case import OpenAiCase, openai
import harness


class OpenAiTest(OpenAiCase):
    def complete(self, **fields):
        return self.client.completions.create(
            **{"model": self.model, "temperature": 0, "max_tokens": 12,
               **fields})

    def test_a_chat_is_answered(self):
        answer = self.chat()
        choice = answer.choices[0]
        self.assertIn(ANSWER, choice.message.content)
        self.assertEqual(choice.message.role, "assistant")
        self.assertIsNone(choice.message.refusal)
        self.assertEqual(answer.object, "chat.completion")
        self.assertIn(choice.finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens,
                         usage.prompt_tokens + usage.completion_tokens)

    def test_a_streamed_chat_says_the_same(self):
        whole = self.chat().choices[0]
        text, finishes, usage = "", [], None
        for chunk in self.chat(stream=True,
                               stream_options={"include_usage": True}):
            self.assertEqual(chunk.object, "chat.completion.chunk")
            if not chunk.choices:
                usage = chunk.usage
                continue
            text += chunk.choices[0].delta.content or ""
            if chunk.choices[0].finish_reason:
                finishes.append(chunk.choices[0].finish_reason)
        self.assertEqual(text, whole.message.content)
        self.assertEqual(finishes, [whole.finish_reason])
        self.assertGreater(usage.completion_tokens, 0)

    def test_the_stream_helper_puts_the_answer_together(self):
        with self.client.chat.completions.stream(
                model=self.model, messages=MESSAGES, temperature=0,
                max_tokens=24) as stream:
            deltas = [event.delta for event in stream
                      if event.type == "content.delta"]
            final = stream.get_final_completion()
        self.assertEqual("".join(deltas), final.choices[0].message.content)
        self.assertEqual(final.choices[0].message.content,
                         self.chat().choices[0].message.content)

    def test_logprobs_of_a_chat_come_with_alternatives(self):
        content = self.chat(logprobs=True,
                            top_logprobs=3).choices[0].logprobs.content
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].token, entry.token)
            self.assertEqual(bytes(entry.bytes).decode(errors="replace"),
                             entry.token)

    def test_streamed_logprobs_are_those_of_the_whole(self):
        whole = self.chat(logprobs=True, top_logprobs=2).choices[0].logprobs
        streamed = [entry for chunk in self.chat(logprobs=True, stream=True,
                                                 top_logprobs=2)
                    for choice in chunk.choices if choice.logprobs
                    for entry in choice.logprobs.content or []]
        self.assertEqual(streamed, whole.content)

    def test_a_completion_and_its_stream_say_the_same(self):
        prompt = "The capital of France is"
        whole = self.complete(prompt=prompt)
        self.assertEqual(whole.object, "text_completion")
        self.assertIn(ANSWER, whole.choices[0].text)
        parts = [chunk.choices[0].text for chunk in
                 self.complete(prompt=prompt, stream=True)]
        self.assertEqual("".join(parts), whole.choices[0].text)
        self.assertGreater(len(parts), 3)

    def test_several_prompts_give_a_choice_each(self):
        answer = self.complete(prompt=["One, two,", "Red, green,"],
                               max_tokens=4, logprobs=2)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        for choice in answer.choices:
            self.assertEqual(len(choice.logprobs.tokens),
                             len(choice.logprobs.token_logprobs))
            self.assertEqual("".join(choice.logprobs.tokens), choice.text)

    def test_n_choices_differ_and_come_again_with_their_seed(self):
        def texts():
            answer = self.chat(n=3, seed=11, temperature=1.5)
            self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
            return [c.message.content for c in answer.choices]
        first = texts()
        self.assertGreater(len(set(first)), 1)
        self.assertEqual(texts(), first)

    def test_streamed_choices_carry_their_index(self):
        whole = self.chat(n=2, seed=3, temperature=1.2).choices
        texts, finishes = {0: "", 1: ""}, {}
        for chunk in self.chat(n=2, seed=3, temperature=1.2, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    self.assertNotIn(choice.index, finishes)
                    finishes[choice.index] = choice.finish_reason
        self.assertEqual(texts,
                         {c.index: c.message.content for c in whole})
        self.assertEqual(finishes, {c.index: c.finish_reason for c in whole})

    def test_a_biased_token_is_never_said(self):
        token = self.chat(max_tokens=1, extra_body={
            "return_token_ids": True}).choices[0].token_ids[0]
        biased = self.chat(max_tokens=8, logit_bias={str(token): -100},
                           extra_body={"return_token_ids": True}).choices[0]
        self.assertNotIn(token, biased.token_ids)
        forced = self.chat(max_tokens=3, logit_bias={"450": 100},
                           extra_body={"return_token_ids": True}).choices[0]
        self.assertEqual(forced.token_ids[:3], [450] * 3)

    def test_penalties_lessen_repetition(self):
        def distinct(**fields):
            extra = {"return_token_ids": True, **fields.pop("extra", {})}
            return len(set(self.complete(
                prompt="a b a b a b a b a b a b", max_tokens=24,
                extra_body=extra, **fields).choices[0].token_ids))
        plain = distinct()
        self.assertGreater(distinct(frequency_penalty=2), plain)
        self.assertGreater(distinct(presence_penalty=2), plain)
        self.assertGreater(
            distinct(extra={"repetition_penalty": 1.8}), plain)

    def test_as_many_stop_strings_as_evaluations_send(self):
        # HumanEval in lm-evaluation-harness has eight and more.
        stops = [f"\n{word}" for word in ("class", "def", "#", "if", "print",
                                          "assert", "import", "from", "```")]
        choice = self.chat(stop=[*stops, ANSWER], max_tokens=-1).choices[0]
        self.assertEqual(choice.finish_reason, "stop")
        self.assertEqual(choice.stop_reason, ANSWER)
        self.assertNotIn(ANSWER, choice.message.content)

    def test_a_stop_string_ends_the_text_before_it(self):
        answer = self.complete(prompt="1, 2, 3, 4,", max_tokens=30,
                               stop=["7"])
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertNotIn("7", answer.choices[0].text)
        self.assertIn("6", answer.choices[0].text)

    def test_a_seed_gives_the_same_sample_again(self):
        def sample(seed):
            return self.chat(temperature=1.5,
                             seed=seed).choices[0].message.content
        self.assertEqual(sample(5), sample(5))
        self.assertGreater(len({sample(seed) for seed in range(4)}), 1)

    def test_fields_that_change_nothing_are_taken(self):
        plain = self.chat().choices[0].message.content
        parts = [{"type": "text", "text": MESSAGES[0]["content"]}]
        answer = self.chat(
            user="u-1", metadata={"run": "7"}, store=False,
            service_tier="auto", response_format={"type": "text"},
            parallel_tool_calls=True,
            messages=[{"role": "user", "content": parts}])
        self.assertEqual(answer.choices[0].message.content, plain)

    def test_the_async_client_runs_many_at_once(self):
        async def one(client):
            text = ""
            stream = await client.chat.completions.create(
                model=self.model, messages=MESSAGES, temperature=0,
                max_tokens=24, stream=True)
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
            return text

        async def run():
            async with openai.AsyncOpenAI(**self.options) as client:
                return await asyncio.gather(*[one(client) for _ in range(8)])
        self.assertEqual(set(asyncio.run(run())),
                         {self.chat().choices[0].message.content})

    def test_models_can_be_listed_and_fetched(self):
        self.assertEqual(self.client.models.retrieve(self.model).id,
                         self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nope")


if __name__ == "__main__":
    harness.main()
