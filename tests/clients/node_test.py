"""Packages for Node, unmodified: openai (node/openai.test.mjs), the AI SDK
(node/ai_sdk.test.mjs), those of other dialects (node/dialects.test.mjs)."""

import shutil
import subprocess
import unittest

from client_cluster import ClientCluster, run_client, skip
import harness

FOLDER = harness.ROOT / "build" / "node" / "node"
MINIMUM = 20  # the package asks for 22; it works with what many have


def node():
    """Path of a node that is new enough; skips without one."""
    path = shutil.which("node")
    if path is None:
        skip("needs node (Debian: apt-get install nodejs npm)")
    version = subprocess.run([path, "--version"], capture_output=True,
                             text=True, check=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < MINIMUM:
        skip(f"needs node {MINIMUM} or newer, this is {version}")
    return path


NODE = node()
for name in ("openai", "ai", "@anthropic-ai/sdk", "ollama"):
    if not (FOLDER / "node_modules" / name).exists():
        skip(f"needs {name} in {FOLDER} (tests/run makes it where there is "
             "npm)")


class NodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def run_script(self, name, cluster=None):
        cluster = cluster or self.cluster
        script = harness.ROOT / "tests/clients/node" / name
        done = run_client([NODE, "--test", script], cluster, 300,
                          {"SLUICE_NODE_MODULES": str(FOLDER),
                           "SLUICE_URL": cluster.url})
        print("\n".join(line for line in done.stdout.splitlines()
                        if line.startswith(("ok", "# ", "✔", "ℹ"))))
        self.assertRegex(done.stdout, r"(#|ℹ) fail 0")
        self.assertNotRegex(done.stdout, r"(#|ℹ) pass 0")
        cluster.wait_until_idle()

    def test_the_openai_package_for_node_works(self):
        self.run_script("openai.test.mjs")

    def test_the_ai_sdk_gives_objects_of_a_schema(self):
        self.run_script("ai_sdk.test.mjs")

    def test_the_packages_of_other_dialects_work(self):
        self.run_script("dialects.test.mjs")

    def test_the_ai_sdk_goes_on_with_what_is_kept(self):
        with ClientCluster.of_its_own("--response-store", 16) as cluster:
            self.run_script("kept.test.mjs", cluster)


if __name__ == "__main__":
    harness.main()
