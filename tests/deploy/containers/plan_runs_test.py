"""What `sluice plan --write compose` and `kubernetes` write, run by processes
with the files' arguments, variables, volumes and names; the model of a hub comes
from one of this machine. Answers are those of a cluster that nobody planned."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import composed
import manifests
import pods
from manifests import ROOT

sys.path[:0] = [str(ROOT / "tests/testing"), str(ROOT / "tests/tools/hub"),
                str(ROOT / "tests/integration")]
import api  # noqa: E402
import fake_hub  # noqa: E402
import harness  # noqa: E402
import planned  # noqa: E402
from planned import machine  # noqa: E402

BODY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
        "ignore_eos": True, "return_token_ids": True}
NAME = "sluice-tests/demo"
KEY = "a-key-of-this-test"
SCALE = 0.1  # of the manifests' times
NUMBER = os.getpid() % 250  # of this run's addresses


def ask(address, key="none", **changed):
    status, _, raw = api.request(
        f"http://{address}", "POST", "/v1/completions", {**BODY, **changed},
        {"Authorization": f"Bearer {key}"})
    return status, raw


def peak_mebibytes(pid):
    """What a process held at most, without what it shares with others."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", text)[1]) >> 10


class RunCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with harness.Cluster(planned.DEMO, "--stages", "1") as cluster:
            status, answer = api.post(cluster.url, "/v1/completions", BODY)
            assert status == 200, answer
            cls.want = answer["choices"][0]["token_ids"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-plan-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start_hub(self):
        hub = fake_hub.FakeHub()
        self.addCleanup(hub.close)
        hub.repositories[NAME] = fake_hub.Repository(
            {path.name: path.read_bytes() for path in planned.DEMO.iterdir()},
            lfs=["model.safetensors"])
        self.hub = hub

    def check(self, address, alive, logs, key="none"):
        """The answer, and that the context is the planned one. `alive` says
        whether all processes are."""
        harness.wait_for(lambda: not alive() or
                         pods.status(*address, "/readyz", 2) == 200, 120,
                         f"ready: {logs()}")
        self.assertTrue(alive(), logs())
        address = "{}:{}".format(*address)
        status, raw = ask(address, key)
        self.assertEqual(status, 200, raw)
        self.assertEqual(api.json.loads(raw)["choices"][0]["token_ids"],
                         self.want)
        status, raw = ask(address, key, max_tokens=600)
        self.assertEqual(status, 400, raw)
        self.assertIn(b"512", raw)


class ComposeRunTest(RunCase):
    def run_plan(self, source, stages=2, hosts=1):
        text = planned.write(
            "compose", "".join(machine(f"m{i}", address="box")
                               for i in range(stages))
            + "".join(machine(f"e{i}", address="box", role="experts")
                      for i in range(hosts)),
            options=(*planned.SMALL, "--source", source))
        file = composed.merged(
            manifests.yaml.safe_load((ROOT / "docker/compose.yaml").read_text()),
            manifests.yaml.safe_load(text))
        project = composed.Project(file, "cpu", self.folder, f"127.141.{NUMBER}", {})
        self.addCleanup(project.stop)
        project.start({"HF_ENDPOINT": self.hub.url} if source == NAME else {})
        self.check((project.addresses["gateway"], 8000), lambda: all(
            one.poll() is None for one in project.children.values()),
            project.logs)
        for name, child in project.children.items():
            limit = project.services[name].get("mem_limit")
            if name != "gateway":
                self.assertLess(peak_mebibytes(child.pid),
                                int(limit.removesuffix("m")))
        return project

    def test_a_model_of_this_machine_and_hosts_of_experts(self):
        project = self.run_plan(str(planned.DEMO), stages=3, hosts=2)
        self.assertEqual(set(project.children), {
            "gateway", "stage-0", "stage-1", "stage-2", "planned-expert-0",
            "planned-expert-1"})

    def test_a_model_of_a_hub_is_pulled_first(self):
        self.start_hub()
        project = self.run_plan(NAME, stages=1, hosts=0)
        self.assertEqual(set(project.children), {"gateway", "stage-0"})
        self.assertTrue(self.hub.asked(ends="model.safetensors"))


class KubernetesRunTest(RunCase):
    def render(self, text):
        root = self.folder / "k8s"
        shutil.copytree(ROOT / "k8s", root)
        (root / "overlays/planned").mkdir()
        (root / "overlays/planned/kustomization.yaml").write_text(text)
        self.documents = manifests.objects(
            manifests.kustomize(root / "overlays/planned"))
        self.maps = {one["metadata"]["name"]: one["data"]
                     for one in self.documents if one["kind"] == "ConfigMap"}

    def start(self):
        """All pods of the overlay, each with its initial containers run."""
        pods.write_certificates(self.documents, self.folder / "tls")
        (self.folder / "keys").mkdir()
        (self.folder / "keys/api-keys").write_text(f"test:{KEY}\n")
        sets = [one for one in self.documents
                if one["kind"] in ("Deployment", "StatefulSet")]
        self.pods = {}
        names = []
        for number, one in enumerate(sets):
            for ordinal in range(one["spec"]["replicas"]):
                names.append((one, ordinal, f"127.{142 + number}.{NUMBER}."
                              f"{ordinal + 1}"))
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {one['metadata']['name']}-{ordinal}."
            f"{one['spec'].get('serviceName', 'none')}.sluice.svc\n"
            for one, ordinal, address in names))
        for one, ordinal, address in names:
            self.start_pod(one, ordinal, address, hosts)

    def start_pod(self, document, ordinal, address, hosts):
        template = document["spec"]["template"]
        spec = template["spec"]
        name = f"{document['metadata']['name']}-{ordinal}"
        variables = {"SLUICE_THREADS": "1", "SLUICE_STAGE_INDEX": str(ordinal),
                     "POD_NAME": name}
        for source in spec["containers"][0].get("envFrom", []):
            variables |= self.maps[source["configMapRef"]["name"]]
        models = self.models(name, spec)
        for container in spec.get("initContainers", []):
            self.run_container(container, variables, models)
        env = {one["name"]: one.get("value")
               for one in spec["containers"][0]["env"]}
        paths = {"/etc/sluice/keys": self.folder / "keys",
                 "=/packed": f"={self.folder}/packed-{name}"}
        for volume in spec["volumes"]:
            if volume["name"] == "tls":
                paths["/etc/sluice/tls"] = (
                    self.folder / "tls" / volume["secret"]["secretName"])
            if volume["name"] == "placement":
                paths["/etc/sluice/placement"] = self.write_map(
                    volume["configMap"]["name"])
        pod = pods.Pod(name, address, template, variables, SCALE, lambda: None)
        self.addCleanup(self.kill, pod)
        model = models / env["SLUICE_MODEL"].removeprefix("/models/")
        pod.start({"binaries": os.environ["SLUICE_BUILD_DIR"], "model": model},
                  paths, hosts, self.folder / f"{name}.log")
        self.pods[name] = pod

    @staticmethod
    def kill(pod):
        if pod.alive:
            pod.kill()

    def models(self, name, spec):
        """What the pod has as /models: a volume of its own, or the claim."""
        volume = next(one for one in spec["volumes"] if one["name"] == "models")
        path = self.folder / ("claim" if "persistentVolumeClaim" in volume
                              else f"models-{name}")
        path.mkdir(exist_ok=True)
        return path

    def write_map(self, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for file, text in self.maps[name].items():
            (folder / file).write_text(text)
        return folder

    def run_container(self, container, variables, models):
        """A container that ends: of an initial one, or of a Job."""
        self.assertEqual(container["command"], ["sluice"])
        variables = {**variables, **{
            one["name"]: one["value"] for one in container["env"]
            if "value" in one}}
        for source in container.get("envFrom", []):
            variables |= self.maps[source["configMapRef"]["name"]]
        words = [re.sub(r"\$\((\w+)\)", lambda m: variables[m[1]], word)
                 .replace("=/models/", f"={models}/")
                 for word in container["args"]]
        done = subprocess.run(
            [pathlib.Path(os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice"),
             *words], capture_output=True, text=True, timeout=120, check=False,
            env={"PATH": os.environ["PATH"], "HF_ENDPOINT": self.hub.url,
                 "HF_HOME": variables["HF_HOME"].replace("/models",
                                                         str(models))})
        self.assertEqual(done.returncode, 0, done.stderr)

    def logs(self):
        return "".join(f"\n--- {path.name}\n{path.read_text()[-1500:]}"
                       for path in self.folder.glob("*.log"))

    def check_pods(self):
        gateway = next(pod for name, pod in self.pods.items()
                       if "gateway" in name)
        self.check((gateway.address, 8000), lambda: all(
            pod.alive for pod in self.pods.values()), self.logs, KEY)
        for pod in self.pods.values():
            limit = pod.container["resources"]["limits"]["memory"]
            if "gateway" not in pod.name:
                self.assertLess(peak_mebibytes(pod._process.pid),
                                int(limit.removesuffix("Mi")))
            self.assertEqual(pod.faults, [], pod.name + self.logs())

    def test_stages_pull_their_layers_of_the_hub(self):
        self.start_hub()
        self.render(planned.write(
            "kubernetes", machine("a") + machine("b"),
            options=(*planned.SMALL, "--source", NAME)))
        self.start()
        self.check_pods()
        self.assertEqual(len(self.pods), 3)

    def test_a_mixtures_pods_share_a_claim_that_a_job_fills(self):
        self.start_hub()
        self.render(planned.write(
            "kubernetes", machine("a") + machine("b") + machine(
                "e", role="experts"),
            options=(*planned.SMALL, "--source", NAME)))
        job = next(one for one in self.documents if one["kind"] == "Job"
                   and one["metadata"]["name"] == "sluice-download")
        spec = job["spec"]["template"]["spec"]
        self.run_container(spec["containers"][0], {}, self.models("", spec))
        self.start()
        self.check_pods()
        self.assertEqual(len(self.pods), 4)


if __name__ == "__main__":
    manifests.need_kustomize()
    manifests.need(shutil.which("openssl"), "no openssl")
    manifests.need(shutil.which("unshare") and pods.can_mount(),
                   "no mount namespaces here")
    unittest.main()
