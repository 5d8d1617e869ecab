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

sys.path.append(str(ROOT / "tests/testing"))
import planned  # noqa: E402
from planned import machine  # noqa: E402

BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
EXAMPLES = ROOT / "deploy/plans"
BOX = {"address": "box"}


def machines(stages, hosts, **keys):
    """Machines for layers and for experts."""
    return "".join(machine(f"stage-{i}", "48G", **keys) for i in range(stages)
                   ) + "".join(machine(f"host-{i}", "64G", role="experts", **keys)
                               for i in range(hosts))


def write(starter, toml, source="/models/air", *options):
    """What `plan --write STARTER` prints for a mixture of experts."""
    return planned.write(starter, toml, EXAMPLES / "glm-4.5-air",
                         ("--weights", "q4_0", "--source", source, *options))


class PlanFilesTest(unittest.TestCase):
    def test_composes_services_run_known_flags(self):
        override = manifests.yaml.safe_load(
            write("compose", machines(3, 2, **BOX)))
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
            pathlib.Path(folder, "plan.yaml").write_text(
                write("compose", machines(3, 2, **BOX)))
            done = subprocess.run(
                [manifests.tool("compose-go"), "-format", "json", "compose.yaml",
                 "plan.yaml"], cwd=folder, capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def render(self, text):
        """The objects of the written overlay."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "k8s", folder, dirs_exist_ok=True)
            overlay = pathlib.Path(folder, "overlays/planned")
            overlay.mkdir()
            (overlay / "kustomization.yaml").write_text(text)
            documents = manifests.objects(manifests.kustomize(overlay))
        flags = {name: manifests.flags_of(name) for name in manifests.BINARIES}
        for _, _, container in manifests.sluice_containers(documents):
            name = container["command"][0]
            self.assertEqual([], list(manifests.check_arguments(
                name, container["args"], flags[name])))
        return documents

    def test_kustomize_builds_the_overlay(self):
        documents = self.render(write("kubernetes", machines(3, 2)))
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
        stage = sets["sluice-stage"]["template"]["spec"]["containers"][0]
        layers = manifests.flag_value(stage["args"], "layers").split(",")
        self.assertEqual((len(layers), layers[-1].split("-")[1]), (3, "45"))
        self.assertEqual(manifests.flag_value(stage["args"], "weights"), "q4_0")
        # Below what a node of 48 GiB gives.
        limit = stage["resources"]["limits"]["memory"]
        self.assertLessEqual(int(limit.removesuffix("Mi")), 48 * 1024 * 0.9)
        for _, _, container in manifests.sluice_containers(documents):
            env = {one["name"]: one.get("value") for one in container["env"]}
            self.assertEqual(env["SLUICE_MODEL"], "/models/air")

    def test_kustomize_gives_stages_their_gpus(self):
        documents = self.render(write(
            "kubernetes", machines(2, 0, device="cuda:0,1"), "org/air@v1",
            "--ranks", "2"))
        one = next(one["spec"]["template"]["spec"] for one in documents
                   if one["kind"] == "StatefulSet")
        stage = one["containers"][0]
        self.assertEqual(stage["resources"]["limits"]["nvidia.com/gpu"], "2")
        self.assertEqual([word for word in stage["args"] if "device" in word],
                         ["--device=cuda:0,1"])
        self.assertIn("-cuda", stage["image"])
        self.assertIn("/sluice:", one["initContainers"][0]["image"])

    def test_kustomize_fetches_the_planned_model(self):
        name = "org/air@0123456789abcdef0123456789abcdef01234567"
        documents = self.render(write("kubernetes", machines(2, 0), name))
        maps = {one["metadata"]["name"].rsplit("-", 1)[0]: one["data"]
                for one in documents if one["kind"] == "ConfigMap"}
        self.assertEqual(maps["sluice-hub"]["HUB_MODEL"], name)
        documents = self.render(write("kubernetes", machines(2, 1),
                                      name + ":Q4_K_M"))
        job = next(one for one in documents if one["kind"] == "Job"
                   and one["metadata"]["name"] == "sluice-download")
        container = job["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["command"], ["sluice"])
        self.assertEqual(container["args"], ["pull", name + ":Q4_K_M",
                                             "--link=/models/model"])
        self.assertEqual([one["value"] for one in container["env"]
                          if one["name"] == "HF_HOME"], ["/models/hf"])
        self.assertIn("/sluice:", container["image"])

    def test_up_takes_its_options(self):
        text = write("up", machine("here", "96G"))
        words = shlex.split(text, comments=True)
        self.assertEqual(words[0], "deploy/local/up")
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "deploy/local/cluster", "check",
             *words[1:]], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_up_takes_its_hosts(self):
        text = write("up", machine("a.b", "48G", address="10.0.0.1",
                                   device="cuda:0") + machine("m1", "40G"))
        words = shlex.split(text.split("\n", 1)[0].removeprefix("# "))
        self.assertEqual(words[:3], ["hosts.toml:", "deploy/local/up",
                                     "--hosts"])
        self.assertIn("--weights", words)
        self.assertIn("--numerics", words)
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
        self.assertEqual((first.device, second.device), (("cuda:0",), ("cpu",)))
        self.assertTrue(second.layers[0].endswith("-45"), second.layers)

    def test_slurms_script_takes_its_options(self):
        script = ROOT / "deploy/slurm/sluice.sbatch"
        if not script.exists():
            self.skipTest("no deploy/slurm")
        script_of = self.script_of(write(
            "slurm", machines(4, 1), str(EXAMPLES / "glm-4.5-air")))
        words = script_of["words"]
        self.assertEqual(words[:3], ["sbatch", "-N", "5"])
        self.assertIn("--nodelist=stage-0,stage-1,stage-2,stage-3,host-0", words)
        options = words[words.index("deploy/slurm/sluice.sbatch") + 1:]
        with tempfile.TemporaryDirectory() as folder:
            for name, path in (*manifests.BINARIES.items(),
                               ("sluice", "services/cli/sluice")):
                pathlib.Path(folder, name).symlink_to(BUILD / path)
            done = subprocess.run(
                ["bash", script, "--check", "--nodes", "5", *options],
                env={**os.environ, "SLUICE_BIN": folder}, capture_output=True,
                cwd=script_of["folder"], text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("--kv-blocks"), 4)
        self.assertEqual(done.stdout.count("sluice-expert --listen"), 1)

    def script_of(self, text):
        """What a written script submits: its words, and the folder of its
        files; a function stands for sbatch."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        done = subprocess.run(
            ["sh", "-c", 'sbatch() { printf "%s\\0" sbatch "$@"; }\n' + text],
            cwd=folder.name, capture_output=True, text=True, check=True)
        return {"words": done.stdout.split("\0")[:-1], "folder": folder.name}

    def test_a_plan_of_a_config_alone_needs_a_source(self):
        for starter in ("up", "compose", "kubernetes", "slurm", "systemd"):
            done = planned.run(starter, machines(3, 0, **BOX),
                               EXAMPLES / "glm-4.5-air", ("--weights", "q4_k"))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("has no weights that a process could read: --source",
                          done.stderr)


if __name__ == "__main__":
    manifests.need_kustomize()
    unittest.main()
