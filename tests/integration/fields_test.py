"""The effect of request fields against live clusters: what a stage samples,
what its history holds, what the cache had. Fields that end in the gateway are
tested in tests/services/gateway/fields_test.cc."""

import json
import unittest

import api
import harness

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to"
TOP = 20


class Stories(unittest.TestCase):
    """A tiny model on two stages, so that histories cross a wire."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster(
            harness.golden("stories"), "--stages", 2,
            "--threads", 1)
        cls.url = cls.cluster.url

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def complete(self, prompt=PROMPT, **fields):
        return api.completion(self.url, prompt, **{
            "max_tokens": 24, "temperature": 0, "return_token_ids": True,
            **fields})

    def ids(self, prompt=PROMPT, **fields):
        return api.choice_of(self.complete(prompt, **fields))["token_ids"]

    def test_choices_differ_and_share_their_prompt(self):
        fields = {"temperature": 1, "seed": 5}
        answer = self.complete(n=4, **fields)
        texts = [tuple(choice["token_ids"]) for choice in answer["choices"]]
        self.assertEqual(len(set(texts)), 4, texts)
        self.assertEqual([c["index"] for c in answer["choices"]],
                         [0, 1, 2, 3])
        alone = self.complete(**fields)
        self.assertEqual(tuple(api.choice_of(alone)["token_ids"]), texts[0])
        self.assertEqual(alone["usage"]["prompt_tokens"],
                         answer["usage"]["prompt_tokens"])
        self.assertEqual(answer["usage"]["completion_tokens"], 4 * 24)
        greedy = self.complete(n=2)["choices"]
        self.assertEqual(greedy[0]["token_ids"], greedy[1]["token_ids"])

    def test_penalties_and_bias_choose_as_their_formulas_say(self):
        """Each token is the best of the raw top ones, changed by hand."""
        frequency, presence, bias = 0.9, 0.4, {"300": 2.5, "261": -3}
        choice = api.choice_of(self.complete(
            frequency_penalty=frequency, presence_penalty=presence,
            logit_bias=bias, logprobs=TOP, max_tokens=60, ignore_eos=True,
            return_tokens_as_token_ids=True))
        seen = {}
        changed = 0
        for token, top in zip(choice["token_ids"],
                              choice["logprobs"]["top_logprobs"]):
            raw = {api.token_id(name): value for name, value in top.items()}

            def value(one):
                count = seen.get(one, 0)
                return (raw[one] + bias.get(str(one), 0) - frequency * count
                        - (presence if count else 0))
            best = max(raw, key=value)
            if best != token:
                self.assertAlmostEqual(value(best), value(token), places=3)
            changed += token != max(raw, key=raw.get)
            seen[token] = seen.get(token, 0) + 1
        self.assertGreater(changed, 5, "penalties changed tokens")

    def test_a_repetition_penalty_counts_the_prompt(self):
        """The others do not: they count what was generated."""
        choice = api.choice_of(self.complete(max_tokens=60, ignore_eos=True))
        story = choice["prompt_token_ids"] + choice["token_ids"]
        end = next(i for i in range(len(choice["prompt_token_ids"]),
                                    len(story)) if story[i] in story[:i])
        prompt = story[:end]  # goes on with a token that it has
        self.assertEqual(self.ids(prompt, max_tokens=1, presence_penalty=2,
                                  frequency_penalty=2), [story[end]])
        hard = self.ids(prompt, max_tokens=20, ignore_eos=True,
                        repetition_penalty=50)
        self.assertNotIn(hard[0], prompt)
        self.assertEqual(len(set(hard)), len(hard))

    def test_a_bias_of_a_hundred_forces_and_bans(self):
        self.assertEqual(self.ids(logit_bias={"300": 100}, max_tokens=5),
                         [300] * 5)
        first = self.ids()[0]
        self.assertNotIn(first, self.ids(logit_bias={str(first): -100}))

    def test_logprobs_stay_those_of_the_raw_distribution(self):
        plain = api.choice_of(self.complete(logprobs=3, max_tokens=1))
        biased = api.choice_of(self.complete(
            logprobs=3, max_tokens=1, logit_bias={"300": 50}))
        tops = [choice["logprobs"]["top_logprobs"][0]
                for choice in (plain, biased)]
        self.assertEqual(tops[0], {name: tops[1][name] for name in tops[0]})

    def test_named_tokens_have_the_logprobs_of_the_top_ones(self):
        """Bit by bit, whatever their place is, in streams, too."""
        fields = {"logprobs": TOP, "max_tokens": 8, "ignore_eos": True,
                  "return_tokens_as_token_ids": True}
        top = api.choice_of(self.complete(**fields))
        by_id = [{api.token_id(name): value for name, value in entry.items()}
                 for entry in top["logprobs"]["top_logprobs"]]
        named = sorted(by_id[0])[::3] + [5, 5]
        ask = {**fields, "logprobs": 0, "logprob_token_ids": named}
        choice = api.choice_of(self.complete(**ask))
        self.assertEqual(choice["token_ids"], top["token_ids"])
        self.assertEqual(choice["logprobs"]["token_logprobs"],
                         top["logprobs"]["token_logprobs"])
        told = choice["logprobs"]["top_logprobs"]
        seen = 0
        for token, entry, known in zip(choice["token_ids"], told, by_id):
            got = {api.token_id(name): value for name, value in entry.items()}
            self.assertEqual(set(got), {token, *named})
            for one in set(got) & set(known):
                self.assertEqual(got[one], known[one])
                seen += 1
            least = min(known.values())
            for one in set(got) - set(known):
                self.assertLessEqual(got[one], least)
        self.assertGreaterEqual(seen, len(named) + 6)
        _, events = api.stream(self.url, "/v1/completions", {
            "prompt": PROMPT, "temperature": 0, **ask})
        streamed = []
        for event in events[:-1]:
            for part in json.loads(event)["choices"]:
                streamed += (part["logprobs"] or {}).get("top_logprobs", [])
        self.assertEqual(streamed, told)

    def test_streams_give_the_same_tokens(self):
        fields = {"prompt": PROMPT, "temperature": 0.8, "seed": 3, "n": 2,
                  "max_tokens": 20, "presence_penalty": 1,
                  "repetition_penalty": 1.2, "return_token_ids": True}
        _, whole = api.post(self.url, "/v1/completions", fields)
        _, events = api.stream(self.url, "/v1/completions", {
            **fields, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], "[DONE]")
        chunks = [json.loads(event) for event in events[:-1]]
        streamed = [[], []]
        for chunk in chunks:
            for choice in chunk["choices"]:
                streamed[choice["index"]] += choice["token_ids"]
        self.assertEqual(streamed,
                         [c["token_ids"] for c in whole["choices"]])
        self.assertEqual(chunks[-1]["choices"], [])
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(chunks[-1]["usage"][name], whole["usage"][name])

    def test_prompt_logprobs_are_those_of_echo(self):
        choice = api.choice_of(self.complete(
            prompt_logprobs=2, echo=True, logprobs=0, max_tokens=1))
        told, echoed = choice["prompt_logprobs"], choice["logprobs"]
        ids = choice["prompt_token_ids"]
        self.assertEqual(len(told), len(ids))
        self.assertIsNone(told[0])
        for i in range(1, len(ids)):
            own = told[i][str(ids[i])]
            self.assertEqual(own["logprob"], echoed["token_logprobs"][i])
            self.assertGreaterEqual(own["rank"], 1)
            self.assertIn(1, [entry["rank"] for entry in told[i].values()])
            self.assertIn(len(told[i]), (2, 3))

    def test_truncation_is_the_same_as_a_shorter_prompt(self):
        ids = self.complete()["choices"][0]["prompt_token_ids"]
        self.assertEqual(self.ids(truncate_prompt_tokens=9),
                         self.ids(ids[-9:]))

    def test_cached_tokens_are_told(self):
        prompt = list(range(100, 180))
        first, second = (self.complete(prompt)["usage"] for _ in range(2))
        self.assertEqual(first["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertGreaterEqual(
            second["prompt_tokens_details"]["cached_tokens"], 64)
        salted = self.complete(prompt, cache_salt="x")["usage"]
        self.assertEqual(salted["prompt_tokens_details"]["cached_tokens"], 0)

    def test_stop_strings_end_the_text_with_or_without(self):
        text = api.choice_of(self.complete())["text"]
        stop = text[8:14]
        begin = text.index(stop)
        for include, end in ((False, begin), (True, begin + len(stop))):
            choice = api.choice_of(self.complete(
                stop=[stop, "\x00never"], include_stop_str_in_output=include))
            self.assertEqual(choice["text"], text[:end])
            self.assertEqual(choice["finish_reason"], "stop")

    def test_a_deadline_ends_a_request_with_504(self):
        status, _, body = api.request(
            self.url, "POST", "/v1/completions",
            {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True},
            headers={"X-Request-Timeout": "0.01"})
        self.assertEqual(status, 504, body)
        self.assertEqual(json.loads(body)["error"]["code"],
                         "deadline_exceeded")

    def test_names_come_back(self):
        _, headers, body = api.request(
            self.url, "POST", "/v1/completions",
            {"prompt": "a", "max_tokens": 1},
            headers={"X-Request-Id": "mine-17"})
        self.assertEqual(json.loads(body)["id"], "cmpl-mine-17")
        self.assertIn("mine-17", headers.values())
        self.assertTrue(json.loads(body)["system_fingerprint"]
                        .startswith("fp_"))


class SmolLm2(unittest.TestCase):
    """A chat template and special tokens."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster(harness.default_model(), "--stages", 1)
        cls.url = cls.cluster.url

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def chat(self, *messages, **fields):
        status, answer = api.post(self.url, "/v1/chat/completions", {
            "messages": [{"role": role, "content": content}
                         for role, content in messages],
            "temperature": 0, "max_tokens": 12, "return_token_ids": True,
            **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def test_special_tokens_show_if_they_are_to(self):
        _, told = api.post(self.url, "/tokenize", {
            "prompt": "<|im_end|>", "add_special_tokens": True})
        fields = {"ignore_eos": True, "max_tokens": 2,
                  "logit_bias": {str(told["tokens"][-1]): 100}}
        for skip, text in ((True, ""), (False, "<|im_end|>" * 2)):
            choice = api.choice_of(self.chat(
                ("user", "Say yes."), skip_special_tokens=skip, **fields))
            self.assertEqual(choice["message"]["content"], text)
            self.assertEqual(choice["token_ids"], [told["tokens"][-1]] * 2)

    def test_named_tokens_come_in_the_order_asked_for(self):
        choice = api.choice_of(self.chat(
            ("user", "Say yes."), logprobs=True, max_tokens=3,
            return_tokens_as_token_ids=True,
            logprob_token_ids=[300, 5, 261, 300]))
        entries = choice["logprobs"]["content"]
        self.assertEqual(len(entries), len(choice["token_ids"]))
        for entry in entries:
            self.assertEqual([api.token_id(top["token"]) for top in
                              entry["top_logprobs"]], [300, 5, 261])
            self.assertLess(max(top["logprob"] for top in
                                entry["top_logprobs"]), entry["logprob"])

    def test_a_final_message_is_continued(self):
        messages = [("user", "What is the capital of France?"),
                    ("assistant", "The capital of France is")]
        answer = self.chat(*messages, continue_final_message=True, echo=True,
                           max_tokens=3)
        content = api.choice_of(answer)["message"]["content"]
        self.assertTrue(content.startswith("The capital of France is Paris"),
                        content)
        _, told = api.post(self.url, "/detokenize",
                           {"tokens": answer["prompt_token_ids"]})
        self.assertTrue(told["prompt"].endswith("is"), told)

    def test_developer_is_system_and_parts_are_text(self):
        parts = [{"type": "text", "text": "Say yes."}]
        by_parts = self.chat(("developer", "Be brief."), ("user", parts))
        by_text = self.chat(("system", "Be brief."), ("user", "Say yes."))
        self.assertEqual(by_parts["prompt_token_ids"],
                         by_text["prompt_token_ids"])

    def test_the_tokenizer_tells_of_itself(self):
        status, text = api.get(self.url, "/tokenizer_info")
        self.assertEqual(status, 200)
        info = json.loads(text)
        self.assertEqual(info["eos_token"], "<|im_end|>")
        self.assertIn("<|im_start|>", info["chat_template"])

    def test_what_is_not_built_says_so(self):
        for path, want in (("/v1/moderations", 404), ("/v1/embeddings", 400)):
            status, body = api.post(self.url, path, {"input": "a"})
            self.assertEqual((status, body["error"]["code"]),
                             (want, "unsupported_endpoint"), path)


if __name__ == "__main__":
    harness.main()
