"""Continue's and opencode's command lines, unmodified, with the settings of
deploy/examples (long mode)."""

import os
import tempfile
import unittest

from client_cluster import ClientCluster, only_in_long_mode, run_client, skip
import api
import examples
import harness

FOLDER = harness.ROOT / "build" / "node" / "coding"
BIN = FOLDER / "node_modules" / ".bin"
only_in_long_mode("coding agents")
for name in ("cn", "opencode"):
    if not (BIN / name).exists():
        skip(f"needs {FOLDER} (tests/run --long makes it where there is npm)")


class CodingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        home = tempfile.TemporaryDirectory(prefix="sluice-home-")
        self.addCleanup(home.cleanup)
        self.home = home.name

    def tokens(self):
        return api.metrics(self.cluster.url)["vllm:generation_tokens_total"]

    def test_continue_answers(self):
        config = examples.write("continue/config.yaml", self.cluster,
                                self.home)
        examples.run(self, self.cluster, BIN / "cn", "--config", config, "-p",
                     examples.QUESTION, environment={
                         "HOME": self.home,
                         "CONTINUE_TELEMETRY_ENABLED": "0"})

    def test_opencode_answers(self):
        config = examples.write("opencode/opencode.json", self.cluster,
                                self.home)
        # What it does is in deploy/examples' settings, not in a project's.
        before = self.tokens()
        done = run_client([BIN / "opencode", "run", "--agent", "ask",
                           examples.QUESTION], self.cluster, 600, {
            "HOME": self.home, "XDG_CONFIG_HOME": self.home,
            "XDG_DATA_HOME": self.home, "XDG_CACHE_HOME": self.home,
            "OPENCODE_CONFIG": str(config), "PWD": self.home,
            "OPENCODE_DISABLE_MODELS_FETCH": "1"})
        self.assertTrue(done.stdout.strip(), done.stderr)
        self.assertGreater(self.tokens(), before)


if __name__ == "__main__":
    os.chdir(tempfile.gettempdir())
    harness.main()
