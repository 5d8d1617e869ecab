"""Layers move by plan between processes that live, and their keys and values
with them: no token is another one, and little is computed again."""

import json
import pathlib
import re
import signal
import unittest

import api
import harness
from streams import Streams, ids_of

SECONDS = 60  # of a move, at the most
QUICK = ("--resplit-after", "0.5", "--rejoin-after", "0.5")
# Layers that see all, that see a window, latent ones, ones with an indexer, and
# states; by their golden models.
MODELS = ("stories", "mistral-window", "gemma3_text", "deepseek_v3",
          "deepseek_v32", "falcon_h1", "qwen3_next", "gpt_oss",
          "granitemoehybrid")


def body_of(index, tokens):
    return {"prompt": [1, 3, 7, 11 + index] * 12, "max_tokens": tokens,
            "temperature": 0.8, "seed": index, "ignore_eos": True,
            "return_token_ids": True}


class MovesTest(unittest.TestCase):
    STREAMS = 8

    def ids(self, cluster, bodies):
        streams = Streams(cluster.url, bodies)
        self.assertTrue(streams.join(120))
        return [ids_of(outcome) for outcome in streams.outcomes]

    def count_of(self, cluster):
        """The stages of the pipeline, once it is ready; else 0."""
        status = json.loads(api.get(cluster.url, "/cluster")[1])
        return len(status["stages"]) if status["ready"] else 0

    def wait_for_stages(self, cluster, count):
        harness.wait_for(lambda: self.count_of(cluster) == count, SECONDS,
                         f"{count} stages")

    def log(self, cluster):
        return (pathlib.Path(cluster.run_dir) / "gateway.log").read_text(
            errors="replace")

    def check_copied(self, cluster, copies):
        log = self.log(cluster)
        if copies:
            copied = re.findall(r"has copied (\d+) bytes of keys", log)
            self.assertTrue(copied)
            self.assertNotIn("0", copied)
            self.assertNotIn("computes keys and values again", log)
        else:
            self.assertNotIn("bytes of keys and values", log)

    def replayed(self, cluster):
        return api.metrics(cluster.url)["sluice_gateway_replayed_tokens_total"]

    def check_leave(self, cluster, bodies, count, copies=True):
        want = self.ids(cluster, bodies)
        before = self.replayed(cluster)
        streams = Streams(cluster.url, bodies)
        streams.wait_for_tokens()
        cluster.kill("stage", 1, signal.SIGTERM)
        self.assertTrue(streams.join(120))
        self.assertEqual([ids_of(one) for one in streams.outcomes], want)
        self.wait_for_stages(cluster, count)
        self.check_copied(cluster, copies)
        if copies:
            # Each computes the block again that was not full, and its tokens in
            # flight.
            self.assertLess(self.replayed(cluster) - before,
                            len(bodies) * 2 * 16)
        self.assertEqual(self.ids(cluster, bodies), want)

    def check_rejoin(self, cluster, bodies, copies=True):
        want = self.ids(cluster, bodies)
        cluster.kill("stage", 1)
        self.wait_for_stages(cluster, 2)
        cluster.restart("stage", 1)
        for _ in range(60):
            self.assertEqual(self.ids(cluster, bodies), want)
            if self.count_of(cluster) == 3:
                break
        self.wait_for_stages(cluster, 3)
        self.check_copied(cluster, copies)
        self.assertEqual(self.ids(cluster, bodies), want)

    def bodies(self, tokens=400):
        return [body_of(i, tokens) for i in range(self.STREAMS)]

    def test_a_stage_that_is_told_to_end_gives_its_place_to_a_spare(self):
        with harness.Cluster(harness.golden("stories"), "--stages", "2",
                             "--spares", "1", *QUICK) as cluster:
            self.check_leave(cluster, self.bodies(), 2)

    def test_a_stage_that_is_told_to_end_gives_its_layers_to_the_others(self):
        for name in MODELS if harness.LONG else MODELS[:1]:
            with self.subTest(model=name), harness.Cluster(
                    harness.golden(name), "--stages", "3", *QUICK) as cluster:
                self.check_leave(cluster, self.bodies(), 2)

    def test_a_process_that_joins_copies_what_the_others_have(self):
        for name in MODELS if harness.LONG else MODELS[:1]:
            with self.subTest(model=name), harness.Cluster(
                    harness.golden(name), "--stages", "3", *QUICK) as cluster:
                self.check_rejoin(cluster, self.bodies())

    def test_without_copies_the_same_tokens_are_computed_again(self):
        with harness.Cluster(harness.golden("stories"), "--stages", "3",
                             "--no-move-kv", *QUICK) as cluster:
            self.check_rejoin(cluster, self.bodies(), copies=False)


if __name__ == "__main__":
    harness.main()
