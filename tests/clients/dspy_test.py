"""DSPy, unmodified, against a live cluster: signatures with typed outputs
through its JSON adapter, no retries and no cache."""

import json
import os
import typing
import unittest

from client_cluster import ClientCluster, skip
import harness

# Its price list comes from the package instead of the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
try:
    import dspy
    import litellm
    from dspy import lm15
    from typed_answer import HOT, MAX_TOKENS, QUESTION, SEEDS, Person
except ImportError:
    skip("needs the dspy package in build/venv-structured (tests/run "
         "installs it)")


class Describe(dspy.Signature):
    """Tell of the person in the text."""
    text: str = dspy.InputField()
    person: Person = dspy.OutputField()
    mood: typing.Literal["happy", "sad", "angry"] = dspy.OutputField()
    is_child: bool = dspy.OutputField()


class DspyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        # DSPy sends a schema only to models of which it is told that they
        # take one: here for its own engine, then for that of litellm.
        lm15.register_provider(
            lm15.ProviderDefinition.chat(
                lm15.AccessPolicy(provider="sluice",
                                  base_url=cls.cluster.base_url),
                compat=lm15.OpenAIChatCompat(), placeholder_key="none"),
            supports=lm15.ModelSupport(response_schema=True))
        cls.addClassCleanup(lm15.unregister_provider, "sluice")
        litellm.register_model({f"hosted_vllm/{cls.cluster.model}": {
            "litellm_provider": "hosted_vllm", "mode": "chat",
            "supports_response_schema": True}})

    def lms(self, **fields):
        """One model per engine of DSPy's."""
        for provider, engine in (("sluice", "lm15"),
                                 ("hosted_vllm", "litellm")):
            yield engine, dspy.LM(
                f"{provider}/{self.cluster.model}", engine=engine,
                api_base=self.cluster.base_url, api_key="none",
                num_retries=0, cache=False, max_tokens=MAX_TOKENS,
                temperature=HOT, **fields)

    def check(self, answer):
        self.assertIsInstance(answer.person, Person)
        self.assertIn(answer.mood, ("happy", "sad", "angry"))
        self.assertIsInstance(answer.is_child, bool)

    def test_a_signature_is_kept_to_with_every_seed(self):
        for seed in SEEDS:
            for engine, lm in self.lms(seed=seed):
                with self.subTest(engine=engine, seed=seed), \
                        dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
                    self.check(dspy.Predict(Describe)(text=QUESTION))

    # DSPy repairs JSON and drops members that it does not know.
    def test_an_answer_needs_no_repair(self):
        for engine, lm in self.lms(seed=1):
            with self.subTest(engine=engine), \
                    dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
                dspy.Predict(Describe)(text=QUESTION)
                (text,) = lm.history[-1]["outputs"]
                self.assertEqual(list(json.loads(text)),
                                 ["person", "mood", "is_child"])


if __name__ == "__main__":
    harness.main()
