"""lm-evaluation-harness, unmodified: its scores through the cluster agree with
its scores through transformers on the same weights (long mode).

Tasks of our own (tasks/): log-likelihoods, a multiple choice, generation (also
with ten stop strings), and generation in the chat template.
"""

import os
import pathlib
import unittest

from client_cluster import ClientCluster, only_in_long_mode, skip
import evals_model
import harness

only_in_long_mode("lm-evaluation-harness")
# Everything is local: no look at a hub, and no telemetry.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
                  TOKENIZERS_PARALLELISM="false", OPENAI_API_KEY="none",
                  HF_HOME=str(harness.ROOT / "build" / "hf"))
try:
    import lm_eval
    import lm_eval.tasks
except ImportError as error:
    skip(f"needs build/venv-evals (tests/run --long makes it): {error}")

TASKS = pathlib.Path(__file__).resolve().parent / "tasks"
PLAIN = ("sluice_choice", "sluice_likelihood", "sluice_generation",
         "sluice_stops")
# Sums of a few log-probabilities; transformers' order of summing differs.
LOGPROB_TOLERANCE = 2e-3


def evaluate(model, arguments, tasks, **options):
    """{task: (metrics, samples in order)} as the harness reports them."""
    results = lm_eval.simple_evaluate(
        model=model, model_args=arguments, tasks=list(tasks),
        task_manager=lm_eval.tasks.TaskManager(include_path=str(TASKS),
                                               include_defaults=False),
        log_samples=True, bootstrap_iters=0, **options)
    return {task: (results["results"][task],
                   sorted(results["samples"][task],
                          key=lambda sample: sample["doc_id"]))
            for task in tasks}


class LmEvalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.folder = evals_model.folder()
        cls.before = os.getcwd()
        os.chdir(TASKS)  # task files name their data relatively
        cls.addClassCleanup(lambda: os.chdir(cls.before))

    def compare(self, tasks, ours, theirs):
        for task in tasks:
            metrics, samples = ours[task]
            other_metrics, other_samples = theirs[task]
            print(task, {key: value for key, value in metrics.items()
                         if isinstance(value, float)}, "transformers:",
                  {key: value for key, value in other_metrics.items()
                   if isinstance(value, float)}, flush=True)
            self.assertEqual(len(samples), len(other_samples))
            self.assertGreaterEqual(len(samples), 20)
            for sample, other in zip(samples, other_samples):
                self.compare_answers(sample["resps"], other["resps"])
            for name, value in metrics.items():
                if isinstance(value, float):
                    self.assertAlmostEqual(value, other_metrics[name],
                                           places=2, msg=(task, name))

    def compare_answers(self, answers, others):
        """Of one document: texts, or (log-likelihood, is greedy)."""
        for answer, other in zip(answers, others):
            answer, other = answer[0], other[0]
            if isinstance(answer, str):
                self.assertEqual(answer.strip(), other.strip())
                continue
            self.assertAlmostEqual(float(answer[0]), float(other[0]),
                                   delta=LOGPROB_TOLERANCE)
            self.assertEqual(str(answer[1]), str(other[1]))

    def test_local_completions_scores_as_transformers_does(self):
        ours = evaluate(
            "local-completions",
            {"model": self.cluster.model, "tokenizer": self.folder,
             "tokenizer_backend": "huggingface",
             "base_url": self.cluster.base_url + "/completions",
             "num_concurrent": 4, "max_retries": 1, "batch_size": 4},
            PLAIN)
        theirs = evaluate("hf", {"pretrained": self.folder,
                                 "dtype": "float32", "device": "cpu",
                                 "batch_size": 4}, PLAIN)
        self.compare(PLAIN, ours, theirs)
        self.assertGreater(ours["sluice_choice"][0]["acc,none"], 0.5)

    def test_local_chat_completions_scores_as_transformers_does(self):
        tasks = ["sluice_chat"]
        ours = evaluate(
            "local-chat-completions",
            {"model": self.cluster.model, "max_retries": 1,
             "base_url": self.cluster.base_url + "/chat/completions",
             "num_concurrent": 4}, tasks, apply_chat_template=True)
        theirs = evaluate("hf", {"pretrained": self.folder,
                                 "dtype": "float32", "device": "cpu",
                                 "batch_size": 1}, tasks,
                          apply_chat_template=True)
        self.compare(tasks, ours, theirs)

    def test_the_clusters_own_tokenizer_gives_the_same_scores(self):
        tasks = ["sluice_choice"]
        address = {"model": self.cluster.model, "max_retries": 1,
                   "base_url": self.cluster.base_url + "/completions"}
        local, remote = (
            evaluate("local-completions", {**address, **how}, tasks)
            for how in ({"tokenizer": self.folder,
                         "tokenizer_backend": "huggingface"},
                        {"tokenizer_backend": "remote"}))
        for sample, other in zip(local["sluice_choice"][1],
                                 remote["sluice_choice"][1]):
            self.assertEqual(sample["resps"], other["resps"])


if __name__ == "__main__":
    harness.main()
