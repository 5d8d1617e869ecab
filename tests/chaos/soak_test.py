"""A cluster under a fault every 20 s for hours: what its processes hold stays
the same, and no block of the KV cache is lost.

    SLUICE_SOAK_SECONDS=7200 python3 soak_test.py

SLUICE_CHAOS_SEED, _RESULTS and _LOGS are as for chaos_test.py. The clients rest
between their streams for SLUICE_SOAK_PACE seconds on average, so that the
cluster works for a part of the time.
"""

import json
import os
import pathlib
import unittest

import chaos_case
import api
import faults
import harness
import residents

SECONDS = float(os.environ.get("SLUICE_SOAK_SECONDS", 0))


class Soak(faults.Supervised):
    """The gateway lives through all of them."""

    KINDS = tuple(kind for kind in faults.Supervised.KINDS
                  if kind not in faults.Faults.OF_GATEWAY)


class SoakTest(chaos_case.ChaosCase):
    EVERY = 20
    PACE = float(os.environ.get("SLUICE_SOAK_PACE", 5))

    @unittest.skipUnless(SECONDS, "long: set SLUICE_SOAK_SECONDS")
    def test_nothing_grows(self):
        with harness.Cluster(chaos_case.MODEL, "--stages", "2", "--spares",
                             "1", "--supervise", "--weights", "f32",
                             "--max-queue-wait", "300") as cluster:
            self.residents = residents.Residents(
                {"supervisor": cluster.file["supervisor"]["pid"]})
            self.check("soak", cluster, Soak,
                       count=max(2, int(SECONDS / self.EVERY)))

    def after_fault(self, cluster):
        self.residents.look(cluster)

    def after_streams(self, cluster):
        harness.wait_for(
            lambda: api.metrics(cluster.url)["vllm:kv_cache_usage_perc"] == 0,
            30, "no sequence has a block")
        lives = self.residents.long_lives(SECONDS / 10)
        for life in lives:
            print(f"  {life}")
        folder = os.environ.get("SLUICE_CHAOS_RESULTS")
        if folder:
            pathlib.Path(folder, f"soak-residents-{chaos_case.SEED}.json"
                         ).write_text(json.dumps(lives))
        self.assertIn("gateway 0", [life["process"] for life in lives])
        self.assertEqual(residents.grown(lives), [])


if __name__ == "__main__":
    harness.main()
