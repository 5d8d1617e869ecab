"""Golden models of further families as clusters: the reference's greedy ids,
before and while a stage is killed. SLUICE_LONG=1: every family that is served."""

import json
import os
import pathlib
import subprocess
import unittest

import api
import harness
from streams import Streams, ids_of

TOKENS = 400  # of a stream, which outlives the loss of a stage
SECONDS = 30  # of a recovery, at the most

# A family for every mechanism that crosses processes: rows that bring more than
# the residual, keys and values of another layer, norms over all ranks' heads,
# states, latent rows with an indexer, experts of several kinds on hosts of their
# own.
CHOSEN = ("gemma4", "cohere2", "olmo2", "qwen2_moe", "gemma4_text-moe",
          "granitemoe", "qwen3_5_moe", "glm_moe_dsa")

EXPERT_KEYS = ("num_experts", "num_local_experts", "moe_num_experts",
               "n_routed_experts")


def config_of(name):
    config = json.loads((harness.golden(name) / "config.json").read_text())
    return config.get("text_config", config)


def has_experts(config):
    return any(config.get(key) for key in EXPERT_KEYS)


def is_served(name):
    """Whether the model is opened; those of families to come are refused."""
    done = subprocess.run(
        [pathlib.Path(os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice"),
         "inspect", harness.golden(name)], capture_output=True, text=True,
        timeout=60, check=False)
    if done.returncode == 0:
        return True
    if "is not supported" not in done.stderr + done.stdout:
        raise AssertionError(f"{name}: {done.stdout}{done.stderr}")
    return False


def names():
    if not harness.LONG:
        return CHOSEN
    folder = pathlib.Path(harness.golden("stories")).parent
    return tuple(sorted(path.parent.name
                        for path in folder.glob("*/expected.json")
                        if is_served(path.parent.name)))


class FamiliesTest(unittest.TestCase):
    def check(self, name):
        config = config_of(name)
        options = ["--weights", "f32", "--kv-type", "f32", "--stages", "2",
                   "--ranks", "2"]
        if has_experts(config):
            options += ["--expert-hosts", "2"]
        # A long-context RoPE's frequencies are those of the context that a stage
        # takes: the prompt that is beyond the original length has them, too.
        scaling = config.get("rope_scaling") or {}
        is_long = "long_factor" in scaling
        goldens = [harness.golden_answer(name, i)
                   for i in ((3,) if is_long else range(3))]
        bodies = [{"prompt": list(ids), "max_tokens": TOKENS, "temperature": 0,
                   "ignore_eos": True, "return_token_ids": True}
                  for ids, _ in goldens]
        with harness.Cluster(harness.golden(name), *options) as cluster:
            calm = Streams(cluster.url, bodies)
            self.assertTrue(calm.join(120))
            want = [ids_of(outcome) for outcome in calm.outcomes]
            for ids, (_, greedy) in zip(want, goldens):
                self.assertEqual(ids[:len(greedy)], list(greedy))
            streams = Streams(cluster.url, bodies)
            streams.wait_for_tokens()
            cluster.kill("stage", 1)
            cluster.restart("stage", 1)
            self.assertTrue(streams.join(120))
            self.assertEqual([ids_of(outcome) for outcome in streams.outcomes],
                             want)
            metrics = api.metrics(cluster.url)
            self.assertEqual(metrics["sluice_gateway_recoveries_total"], 1)

    def test_a_killed_stage_changes_no_id_of_any_family(self):
        for name in names():
            with self.subTest(family=name), harness.measured(name):
                self.check(name)


if __name__ == "__main__":
    harness.main()
