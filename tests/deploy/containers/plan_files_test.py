"""What `sluice plan --write` writes, taken by those who start it: compose's and
kustomize's own readers, the processes' flags, up and sluice.sbatch."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import manifests
from manifests import ROOT

BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
EXAMPLES = ROOT / "deploy/plans"
HOSTS = """
[[machine]]
name = "stage"
count = 3
memory = "48G"
read_gb_per_s = 75
[[machine]]
name = "host"
count = 2
memory = "64G"
read_gb_per_s = 75
role = "experts"
"""


def write(starter, machines=None, model=EXAMPLES / "glm-4.5-air"):
    """What `plan --write STARTER` prints for a mixture of experts."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(machines or HOSTS)
        file.flush()
        done = subprocess.run(
            [BUILD / "services/cli/sluice", "plan", model, "--machines",
             file.name, "--weights", "q4_0", "--write", starter],
            capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class PlanFilesTest(unittest.TestCase):
    def test_composes_services_run_known_flags(self):
        override = manifests.yaml.safe_load(write("compose"))
        base = manifests.yaml.safe_load(
            (ROOT / "docker/compose.yaml").read_text())
        self.assertEqual(
            set(override["services"]),
            {"gateway", "stage-0", "stage-1", "stage-2", "planned-expert-0",
             "planned-expert-1"})
        for name, service in override["services"].items():
            if name not in base["services"]:
                self.assertIn(service["extends"]["service"], base["services"])
            command = service["command"]
            self.assertEqual([], list(manifests.check_arguments(
                command[0], command[1:], manifests.flags_of(command[0]))))

    def test_composes_own_loader_accepts_the_override(self):
        if not manifests.tool("compose-go"):
            self.skipTest("no compose-go (install_tools --long)")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "docker", folder, dirs_exist_ok=True)
            pathlib.Path(folder, "plan.yaml").write_text(write("compose"))
            done = subprocess.run(
                [manifests.tool("compose-go"), "-format", "json", "compose.yaml",
                 "plan.yaml"], cwd=folder, capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_kustomize_builds_the_overlay(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "k8s", folder, dirs_exist_ok=True)
            overlay = pathlib.Path(folder, "overlays/planned")
            overlay.mkdir()
            (overlay / "kustomization.yaml").write_text(write("kubernetes"))
            documents = manifests.objects(manifests.kustomize(overlay))
        sets = {one["metadata"]["name"]: one["spec"] for one in documents
                if one["kind"] == "StatefulSet"}
        self.assertEqual(sets["sluice-stage"]["replicas"], 3)
        self.assertEqual(sets["sluice-expert"]["replicas"], 2)
        configs = {one["metadata"]["name"].rsplit("-", 1)[0]: one["data"]
                   for one in documents if one["kind"] == "ConfigMap"}
        stages = configs["sluice-replica"]["SLUICE_STAGES"].split(",")
        self.assertEqual(len(stages), 3)
        self.assertIn("sluice-expert-1",
                      configs["sluice-placement"]["placement.json"])
        flags = {name: manifests.flags_of(name) for name in manifests.BINARIES}
        for _, _, container in manifests.sluice_containers(documents):
            name = container["command"][0]
            self.assertEqual([], list(manifests.check_arguments(
                name, container["args"], flags[name])))

    def test_up_takes_its_options(self):
        text = write("up", '[[machine]]\nmemory = "96G"\nread_gb_per_s = 9\n')
        words = shlex.split(text, comments=True)
        self.assertEqual(words[0], "deploy/local/up")
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "deploy/local/cluster", "check",
             *words[1:]], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_up_takes_its_hosts(self):
        text = write("up", "[[machine]]\nname = 'a.b'\naddress = '10.0.0.1'\n"
                     "count = 1\nmemory = '48G'\nread_gb_per_s = 9\n"
                     "[[machine]]\nmemory = '40G'\nread_gb_per_s = 9\n")
        words = shlex.split(text.split("\n", 1)[0].removeprefix("# "))
        self.assertEqual(words[:3], ["hosts.toml:", "deploy/local/up",
                                     "--hosts"])
        self.assertIn("--weights", words)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "hosts.toml")
            path.write_text(text)
            done = subprocess.run(
                [sys.executable, "-B", ROOT / "deploy/local/cluster", "check",
                 "--hosts", path, *words[4:]], capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            sys.path.insert(0, str(ROOT / "deploy/local/cluster"))
            import hosts
            fleet = hosts.read(path)
        first, second = fleet.hosts
        self.assertEqual((first.name, first.address), ("a.b", "10.0.0.1"))
        self.assertTrue(second.layers[0].endswith("-45"), second.layers)

    def test_slurms_script_takes_its_options(self):
        script = ROOT / "deploy/slurm/sluice.sbatch"
        if not script.exists():
            self.skipTest("no deploy/slurm")
        four = '[[machine]]\ncount = 4\nmemory = "96G"\nread_gb_per_s = 9\n'
        words = shlex.split(write("slurm", four), comments=True)
        self.assertEqual(words[:3], ["sbatch", "-N", "4"])
        options = words[words.index("deploy/slurm/sluice.sbatch") + 1:]
        with tempfile.TemporaryDirectory() as folder:
            for name, path in (*manifests.BINARIES.items(),
                               ("sluice", "services/cli/sluice")):
                pathlib.Path(folder, name).symlink_to(BUILD / path)
            done = subprocess.run(
                ["bash", script, "--check", "--nodes", "4", *options],
                env={**os.environ, "SLUICE_BIN": folder}, capture_output=True,
                text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("--kv-blocks"), 4)


if __name__ == "__main__":
    manifests.need_kustomize()
    unittest.main()
