"""A stage is lost for good: the others split its layers, and give them back."""

import json
import signal
import unittest

import api
import harness
from streams import Streams, ids_of

SECONDS = 60  # of a new split, at the most
QUICK = ("--resplit-after", "0.5", "--rejoin-after", "0.5")


def body_of(index, tokens=450):
    return {"prompt": [1, 403, 407, 261 + index], "max_tokens": tokens,
            "temperature": 0.8, "seed": index, "ignore_eos": True,
            "return_token_ids": True}


class ResplitTest(unittest.TestCase):
    STREAMS = 8

    def model(self):
        return harness.golden("stories")

    def ids(self, cluster, bodies):
        streams = Streams(cluster.url, bodies)
        self.assertTrue(streams.join(120))
        return [ids_of(outcome) for outcome in streams.outcomes]

    def split_of(self, cluster):
        """The layers of the stages, once the cluster is ready; else None."""
        status = json.loads(api.get(cluster.url, "/cluster")[1])
        return status["ready"] and [
            (stage["first_layer"], stage["last_layer"])
            for stage in status["stages"]]

    def wait_for_stages(self, cluster, count):
        return harness.wait_for(
            lambda: (lambda split: split and len(split) == count and split)(
                self.split_of(cluster)), SECONDS, f"{count} stages")

    def test_the_cluster_shrinks_and_grows_under_load(self):
        bodies = [body_of(i) for i in range(self.STREAMS)]
        with harness.Cluster(self.model(), "--stages", "3",
                             *QUICK) as cluster:
            want = self.ids(cluster, bodies)
            home = self.wait_for_stages(cluster, 3)
            for index in (1, 0) if harness.LONG else (1,):
                with self.subTest(stage=index):
                    self.check_lost(cluster, index, bodies, want, home)

    def check_lost(self, cluster, index, bodies, want, home):
        before = api.metrics(cluster.url)["sluice_gateway_resplits_total"]
        streams = Streams(cluster.url, bodies)
        streams.wait_for_tokens()
        cluster.kill("stage", index)
        with harness.measured(f"8 streams, stage {index} lost for good"):
            self.assertTrue(streams.join(120))
        self.assertEqual([ids_of(one) for one in streams.outcomes], want)
        split = self.wait_for_stages(cluster, 2)
        self.assertEqual((split[0][0], split[0][1], split[1][1]),
                         (0, split[1][0], 5))
        ready = json.loads(api.get(cluster.url, "/readyz")[1])
        self.assertEqual((ready["ready"], ready["missing_stages"]), (True, 1))
        status = json.loads(api.get(cluster.url, "/cluster")[1])
        self.assertEqual(status["full_stages"], 3)
        self.assertEqual(status["spares"][0]["address"],
                         cluster.process("stage", index)["addresses"][0])
        metrics = api.metrics(cluster.url)
        self.assertEqual(metrics["sluice_gateway_stages"], 2)
        self.assertEqual(metrics["sluice_gateway_missing_stages"], 1)

        # One wave of streams after another, until the cluster is whole again.
        cluster.restart("stage", index)
        for _ in range(60):
            self.assertEqual(self.ids(cluster, bodies), want)
            if self.split_of(cluster) == home:
                break
        self.assertEqual(self.wait_for_stages(cluster, 3), home)
        self.assertEqual(
            json.loads(api.get(cluster.url, "/cluster")[1])["stages"][index][
                "address"], cluster.process("stage", index)["addresses"][0])
        metrics = api.metrics(cluster.url)
        self.assertEqual(metrics["sluice_gateway_missing_stages"], 0)
        self.assertEqual(metrics["sluice_gateway_resplits_total"],
                         before + 2)  # once smaller, once larger
        self.assertEqual(self.ids(cluster, bodies), want)

    def test_a_sequence_that_no_longer_fits_ends_alone(self):
        bodies = [body_of(0, 450)] + [body_of(i, 100) for i in (1, 2, 3)]
        # One stage has room for all weights, and half of the context.
        with harness.Cluster(self.model(), "--stage-memory", "1350K,1350K",
                             *QUICK) as cluster:
            want = self.ids(cluster, bodies)
            streams = Streams(cluster.url, bodies)
            streams.wait_for_tokens()
            cluster.kill("stage", 1)
            self.assertTrue(streams.join(120))
            self.assertEqual([ids_of(one) for one in streams.outcomes[1:]],
                             want[1:])
            status, events = streams.outcomes[0]
            self.assertEqual((status, events[-1]), (200, "[DONE]"))
            error = json.loads(events[-2])["error"]
            self.assertEqual(error["code"], "unavailable")
            self.assertRegex(
                error["message"], "the rebuilt pipeline is too small: the "
                "prompt has 4 tokens and max_tokens is 450, together 454; the "
                r"context limit is \d+")
            cut = ids_of((status, events[:-2] + events[-1:]))
            self.assertEqual(cut, want[0][:len(cut)])
            self.assertLess(len(cut), 450)
            # What comes later is told the limit at once.
            status, answer = api.post(cluster.url, "/v1/completions",
                                      bodies[0])[:2]
            self.assertEqual(status, 400, answer)

    @unittest.skipUnless(harness.LONG, "long: set SLUICE_LONG")
    def test_a_stage_that_comes_and_goes_changes_nothing(self):
        bodies = [body_of(i) for i in range(self.STREAMS)]
        with harness.Cluster(self.model(), "--stages", "3", "--resplit-after",
                             "1", "--rejoin-after", "5") as cluster:
            want = self.ids(cluster, bodies)
            cluster.kill("stage", 1)
            self.wait_for_stages(cluster, 2)
            for _ in range(5):
                child = cluster.restart("stage", 1)
                self.assertEqual(self.ids(cluster, bodies), want)
                child.send_signal(signal.SIGKILL)
                child.wait(30)
            self.assertEqual(
                api.metrics(cluster.url)["sluice_gateway_resplits_total"], 1)


if __name__ == "__main__":
    harness.main()
