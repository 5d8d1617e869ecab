"""The openai package for Node, unmodified (node/openai.test.mjs)."""

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
if not (FOLDER / "node_modules" / "openai").exists():
    skip(f"needs {FOLDER} (tests/run makes it where there is npm)")


class NodeTest(unittest.TestCase):
    def test_the_openai_package_for_node_works(self):
        cluster = ClientCluster()
        self.addCleanup(cluster.close)
        script = harness.ROOT / "tests/clients/node/openai.test.mjs"
        done = run_client([NODE, "--test", script], cluster, 300,
                          {"SLUICE_NODE_MODULES": str(FOLDER)})
        print("\n".join(line for line in done.stdout.splitlines()
                        if line.startswith(("ok", "# ", "✔", "ℹ"))))
        self.assertRegex(done.stdout, r"(#|ℹ) fail 0")
        self.assertNotRegex(done.stdout, r"(#|ℹ) pass 0")
        cluster.wait_until_idle()


if __name__ == "__main__":
    harness.main()
