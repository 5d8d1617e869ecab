"""Random faults under random streams: each stream is as it is without faults.

    SLUICE_CHAOS_FAULTS=100 SLUICE_CHAOS_SEED=7 \
        python3 chaos_test.py ChaosTest.test_machines

README.md beside this file has the clusters, the faults and what is checked.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import chaos_case
import harness

import faults
import link_faults
import machines
from chaos_case import FAULTS, LONG, MODEL


def another_model(folder):
    """The same shapes, another model: none would notice by computing."""
    path = pathlib.Path(folder, "other")
    shutil.copytree(MODEL, path)
    config = json.loads((path / "config.json").read_text())
    config["rms_norm_eps"] *= 2
    (path / "config.json").unlink()
    (path / "config.json").write_text(json.dumps(config))
    return path


class ChaosTest(chaos_case.ChaosCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(folder.cleanup)
        other = another_model(folder.name)
        faults.Shrinking.OTHER_MODEL = other
        link_faults.Machines.OTHER_MODEL = other

    def test_supervised(self):
        with harness.Cluster(MODEL, "--stages", "2", "--spares", "1",
                             "--supervise", "--weights", "f32",
                             "--max-queue-wait", "300") as cluster:
            self.check("supervised", cluster, faults.Supervised)

    @unittest.skipUnless(FAULTS, LONG)
    def test_experts(self):
        with harness.Cluster(MODEL, "--stages", "2", "--expert-hosts", "2",
                             "--expert-replicas", "2", "--supervise",
                             "--weights", "f32",
                             "--max-queue-wait", "300") as cluster:
            self.check("experts", cluster, faults.Experts)

    @unittest.skipUnless(FAULTS, LONG)
    def test_shrinking(self):
        with harness.Cluster(MODEL, "--stages", "3", "--weights", "f32",
                             "--resplit-after", "1", "--rejoin-after", "1",
                             "--max-queue-wait", "300") as cluster:
            self.check("shrinking", cluster, faults.Shrinking)

    def test_machines(self):
        missing = machines.lacks()
        if missing:
            self.skipTest(missing)
        network = machines.Network()
        try:
            network.open()
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces here: {error.stderr}")
        finally:
            network.close()
        with machines.Machines(MODEL) as cluster:
            self.check("machines", cluster, link_faults.Machines)


if __name__ == "__main__":
    harness.main()
