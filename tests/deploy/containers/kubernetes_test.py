"""Every overlay of k8s/, rendered and validated."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import crd_schemas
import manifests
from manifests import ROOT

# The oldest Kubernetes in which all of it works, and a late one.
VERSIONS = ("1.32.0", "1.35.0")
# What kube-score wants and these manifests do not do, and why.
SCORE_IGNORED = {
    # Tags are the user's; a fixed tag needs no pull.
    "container-image-pull-policy": "images have fixed tags",
    # One gateway a replica; replicas are spread by topologySpreadConstraints.
    "deployment-has-host-podantiaffinity": "spread constraints do it",
    "statefulset-has-host-podantiaffinity": "spread constraints do it",
    "deployment-replicas": "a replica has one gateway",
    "deployment-strategy": "a gateway ends before the next one starts",
    "container-security-context-readonlyrootfilesystem":
        "NVIDIA's hook writes to the root of components/gpu",
}


def schemas():
    found = importlib.util.find_spec("kubernetes_validate")
    return found and (pathlib.Path(found.origin).parent
                      / "kubernetes-json-schema")


def copy_schemas(version, kinds, folder):
    """The strict schemas of Kubernetes' own `kinds`, with references that hold
    in a folder."""
    source = schemas() / f"v{version}-local-strict"
    target = folder / f"v{version}"
    target.mkdir()
    names = [f"{kind.lower()}-*.json" for kind in kinds] + ["_definitions.json"]
    for path in (one for name in names for one in source.glob(name)):
        schema = json.loads(path.read_text())
        schema.pop("$id", None)  # An address, which references would be below.
        (target / path.name).write_text(json.dumps(schema).replace(
            '"/api/_definitions.json', '"_definitions.json'))


class OverlayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = {path.name: manifests.kustomize(path)
                    for path in manifests.OVERLAYS}
        cls.documents = {name: manifests.objects(text)
                         for name, text in cls.text.items()}
        cls.flags = {name: manifests.flags_of(name)
                     for name in manifests.BINARIES}

    def containers(self):
        for overlay, documents in self.documents.items():
            for found in manifests.sluice_containers(documents):
                with self.subTest(overlay=overlay, pod=found[0]):
                    yield found

    def test_the_overlays_of_the_readme_are_there(self):
        readme = (ROOT / "k8s/README.md").read_text()
        self.assertEqual({path.name for path in manifests.OVERLAYS},
                         set(re.findall(r"`overlays/([a-z-]+)`", readme)))

    def test_every_component_is_named_by_an_overlay_or_the_readme(self):
        used = (ROOT / "k8s/README.md").read_text()
        for path in manifests.OVERLAYS:
            used += (path / "kustomization.yaml").read_text()
        for path in (ROOT / "k8s/components").iterdir():
            self.assertIn(f"components/{path.name}", used)

    def test_kubeconform_accepts_all_of_it_strictly(self):
        if not manifests.tool("kubeconform"):
            self.skipTest("no kubeconform (install_tools)")
        if not schemas():
            self.skipTest("no kubernetes-validate: tests/run makes "
                          "build/venv-containers")
        definitions = list((manifests.TOOLS / "crds").glob("*.yaml"))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            known = crd_schemas.write(definitions, folder)
            self.assertTrue(known, "no definitions of custom resources")
            for version in VERSIONS:
                copy_schemas(version, {one["kind"] for documents in
                                       self.documents.values()
                                       for one in documents}, folder)
                self.conform(version, folder)
            self.refuse(VERSIONS[0], folder)

    def conform(self, version, folder):
        result = self.kubeconform(version, folder, self.text)
        self.assertEqual([one for one in result["resources"]
                          if one["status"] != "statusValid"], [])
        self.assertEqual(result["summary"]["valid"],
                         sum(map(len, self.documents.values())))

    def refuse(self, version, folder):
        """Unknown fields and wrong types are found, in Kubernetes' own objects
        and in others."""
        good, wrong = self.text["two-replica"], {}
        for old, new in (("podManagementPolicy:", "podManagmentPolicy:"),
                         ("maxUnavailable: 1", "maxUnavailable: true"),
                         ("hostnames:", "hostnamez:"),
                         ("dnsNames:", "dnsName:")):
            self.assertIn(old, good)
            wrong[f"wrong{len(wrong)}"] = good.replace(old, new)
        result = self.kubeconform(version, folder, wrong)
        self.assertEqual({pathlib.Path(one["filename"]).stem
                          for one in result["resources"]
                          if one["status"] == "statusInvalid"}, set(wrong))

    def kubeconform(self, version, folder, texts):
        """Its report on texts by name."""
        command = [
            manifests.tool("kubeconform"), "-strict", "-summary", "-verbose",
            "-output", "json", "-kubernetes-version", version,
            "-schema-location", f"{folder}/"
            "{{.NormalizedKubernetesVersion}}/"
            "{{.ResourceKind}}{{.KindSuffix}}.json",
            "-schema-location", f"{folder}/{{{{.Group}}}}_{{{{.ResourceKind}}}}_"
            "{{.ResourceAPIVersion}}.json"]
        for name, text in texts.items():
            (folder / f"{name}.yaml").write_text(text)
            command.append(folder / f"{name}.yaml")
        done = subprocess.run(command, text=True, capture_output=True,
                              check=False)
        return json.loads(done.stdout)

    def test_kube_score_finds_nothing_critical(self):
        if not manifests.tool("kube-score"):
            self.skipTest("no kube-score (install_tools --long)")
        for overlay, text in self.text.items():
            command = [manifests.tool("kube-score"), "score", "-o", "ci",
                       "--kubernetes-version", "v1.32"]
            for name in [*SCORE_IGNORED, *self.unseen(overlay)]:
                command += ["--ignore-test", name]
            done = subprocess.run(command + ["-"], input=text, text=True,
                                  capture_output=True, check=False)
            bad = [line for line in done.stdout.splitlines()
                   if line.startswith(("[CRITICAL]", "[WARNING]"))]
            with self.subTest(overlay=overlay):
                self.assertEqual(bad, [], "\n".join(bad) + done.stderr)
                self.assertIn("[OK]", done.stdout)

    def unseen(self, overlay):
        """Tests that need pods which kube-score does not see."""
        if any(one["kind"] == "LeaderWorkerSet"
               for one in self.documents[overlay]):
            return ["service-targets-pod", "networkpolicy-targets-pod"]
        return []

    def test_every_flag_is_one_of_the_binarys(self):
        count = 0
        for _, _, container in self.containers():
            binary = container["command"][0]
            self.assertEqual([], list(manifests.check_arguments(
                binary, container["args"], self.flags[binary])))
            count += len(container["args"])
        self.assertGreater(count, 50)

    def test_pulls_before_a_start_have_options_of_the_command(self):
        help_ = subprocess.run(
            [pathlib.Path(os.environ["SLUICE_BUILD_DIR"],
                          "services/cli/sluice"), "pull", "--help"],
            capture_output=True, text=True, check=True).stdout
        pulls = [one for document in self.documents["hub"]
                 for _, template in manifests.pod_templates(document)
                 for one in template["spec"].get("initContainers", [])]
        self.assertEqual(len(pulls), 2)
        for pull in pulls:
            self.assertEqual(pull["command"], ["sluice"])
            self.assertEqual(pull["args"][:2], ["pull", "$(HUB_MODEL)"])
            for argument in pull["args"][2:]:
                self.assertIn(argument.partition("=")[0] + " ", help_)
            self.assertIn("--link=/models/model", pull["args"])

    def test_monitoring_has_the_rules_and_boards_of_deploy_monitoring(self):
        folder = ROOT / "deploy/monitoring"
        for overlay in ("monitoring", "scaled"):
            found = {one["kind"]: one for one in self.documents[overlay]
                     if one["kind"] == "PrometheusRule"
                     or "grafana_dashboard" in one["metadata"].get("labels", {})}
            self.assertEqual(found["ConfigMap"]["data"], {
                path.name: path.read_text()
                for path in (folder / "grafana").glob("*.json")})
            self.assertEqual(found["PrometheusRule"]["spec"]["groups"], [
                group for name in ("rules.yaml", "alerts.yaml")
                for group in manifests.yaml.safe_load(
                    (folder / name).read_text())["groups"]])

    def test_every_variable_of_an_argument_is_set(self):
        for overlay, documents in self.documents.items():
            maps = {one["metadata"]["name"]: one["data"] for one in documents
                    if one["kind"] == "ConfigMap"}
            for name, _, container in manifests.sluice_containers(documents):
                known = {one["name"] for one in container.get("env", [])}
                for source in container.get("envFrom", []):
                    known |= set(maps[source["configMapRef"]["name"]])
                for variable in re.findall(r"\$\(([A-Z_]+)\)",
                                           " ".join(container["args"])):
                    self.assertIn(variable, known, (overlay, name))

    def test_ports_are_those_that_the_process_listens_on(self):
        for _, _, container in self.containers():
            ports = {one["name"]: one["containerPort"]
                     for one in container["ports"]}
            served = "http" if "gateway" in container["command"][0] else "grpc"
            for name, flag in ((served, "listen"), ("metrics", "metrics-listen")):
                self.assertEqual(
                    manifests.flag_value(container["args"], flag),
                    f"0.0.0.0:{ports.pop(name)}")
            self.assertEqual(ports, {})

    def test_probes_ask_paths_that_are_served_at_the_metrics_port(self):
        for _, _, container in self.containers():
            for probe, path in (("startupProbe", "/livez"),
                                ("livenessProbe", "/livez"),
                                ("readinessProbe", "/readyz")):
                self.assertEqual(container[probe]["httpGet"],
                                 {"path": path, "port": "metrics"})
            # Lost stages and full queues end no process.
            liveness = container["livenessProbe"]
            self.assertGreaterEqual(
                liveness["periodSeconds"] * liveness["failureThreshold"], 30)

    def test_ends_are_those_of_the_services_page(self):
        table = manifests.ends(ROOT / "services/README.md")
        self.assertEqual(set(table), set(manifests.BINARIES))
        for _, template, container in self.containers():
            drain, pairs = table[container["command"][0]]
            sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            grace = template["spec"]["terminationGracePeriodSeconds"]
            self.assertIn((sleep, grace), pairs)
            self.assertGreaterEqual(grace, sleep + drain + 10)
            flag = manifests.flag_value(container["args"], "drain-timeout")
            if "drain-timeout" in self.flags[container["command"][0]]:
                self.assertEqual(flag, str(drain))

    def test_pods_are_restricted(self):
        for overlay, documents in self.documents.items():
            for one in documents:
                for name, template in manifests.pod_templates(one):
                    with self.subTest(overlay=overlay, pod=name):
                        self.restricted(template["spec"])

    def restricted(self, spec):
        """Pod Security Standards, profile "restricted"."""
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            self.assertFalse(spec.get(field))
        self.assertTrue(spec["securityContext"]["runAsNonRoot"])
        self.assertGreater(spec["securityContext"]["runAsUser"], 0)
        self.assertEqual(spec["securityContext"]["seccompProfile"],
                         {"type": "RuntimeDefault"})
        for volume in spec.get("volumes", []):
            self.assertLessEqual(
                set(volume) - {"name"},
                {"configMap", "secret", "emptyDir", "ephemeral",
                 "persistentVolumeClaim"})
        for container in spec["containers"] + spec.get("initContainers", []):
            context = container["securityContext"]
            self.assertFalse(context["allowPrivilegeEscalation"])
            self.assertTrue(context["runAsNonRoot"])
            self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
            self.assertFalse(context.get("privileged"))
            self.assertEqual(context["readOnlyRootFilesystem"],
                             "cuda" not in container["image"])
            self.assertIn("memory", container["resources"]["limits"])
            self.assertRegex(container["image"], r":v?[0-9][^:]*$")

    def test_services_budgets_and_policies_choose_pods_that_exist(self):
        for overlay, documents in self.documents.items():
            labels = [template["metadata"]["labels"] for one in documents
                      for _, template in manifests.pod_templates(one)]
            for one in documents:
                spec = one.get("spec", {})
                selector = {
                    "Service": lambda s: s.get("selector"),
                    "PodDisruptionBudget": lambda s: s["selector"]["matchLabels"],
                    "InferencePool": lambda s: s["selector"]["matchLabels"],
                    "NetworkPolicy":
                        lambda s: s["podSelector"].get("matchLabels", {}),
                }.get(one["kind"], lambda s: None)(spec)
                if selector is not None:
                    with self.subTest(overlay=overlay, what=one["metadata"]):
                        self.assertTrue(any(selector.items() <= pod.items()
                                            for pod in labels), selector)

    def test_a_revision_has_a_path_a_job_and_a_service_of_its_own(self):
        documents = self.documents["models"]
        of = {(one["kind"], one["metadata"]["name"]): one for one in documents}
        maps = {one["metadata"]["labels"]["app.kubernetes.io/instance"]:
                one["data"]["SLUICE_HUB_MODEL"] for one in documents
                if one["kind"] == "ConfigMap"}
        self.assertEqual(len(set(maps.values())), 2)
        for name, template, container in manifests.sluice_containers(documents):
            self.assertIn("--model=/models/$(SLUICE_HUB_MODEL)",
                          container["args"], name)
        for instance, model in maps.items():
            job, = (one for one in documents if one["kind"] == "Job"
                    and one["metadata"]["name"].startswith(
                        f"sluice-fetch-{instance}-"))
            fetch, = job["spec"]["template"]["spec"]["containers"]
            self.assertIn({"name": "SLUICE_HUB_MODEL", "value": model},
                          fetch["env"])
            self.assertEqual(fetch["args"], [
                "pull", "$(SLUICE_HUB_MODEL)",
                "--link=/models/$(SLUICE_HUB_MODEL)"])
            own = of["Service", f"sluice-model-{instance}"]["spec"]["selector"]
            self.assertEqual(own["app.kubernetes.io/instance"], instance)
        front = of["Service", "sluice-gateway"]["spec"]["selector"]
        self.assertIn(front["app.kubernetes.io/instance"], maps)

    def test_another_model_is_another_job(self):
        """By kustomize's digest of the Job."""
        def jobs(k8s):
            return {one["metadata"]["name"] for one in manifests.objects(
                manifests.kustomize(k8s / "overlays/models"))
                if one["kind"] == "Job"}
        with tempfile.TemporaryDirectory() as name:
            copy = pathlib.Path(name, "k8s").resolve()
            shutil.copytree(ROOT / "k8s", copy)
            before = jobs(copy)
            path = copy / "overlays/models/b/kustomization.yaml"
            text = path.read_text()
            self.assertIn("@main", text)
            path.write_text(text.replace("@main", "@v2"))
            after = jobs(copy)
        self.assertEqual(len(before & after), 1)
        self.assertEqual(len(after - before), 1)

    def test_another_namespace_is_in_every_name(self):
        script = ROOT / "k8s/in-namespace"
        with tempfile.TemporaryDirectory() as name:
            copy = pathlib.Path(name, "copy")
            subprocess.run([script, "llm", copy], check=True)
            for overlay, documents in self.documents.items():
                text = manifests.kustomize(copy / "k8s/overlays" / overlay)
                with self.subTest(overlay=overlay):
                    self.assertNotRegex(text, r"\.sluice\.svc\b|namespace: sluice\b"
                                        r'|namespace="sluice"')
                    made = manifests.objects(text)
                    self.assertEqual(len(made), len(documents))
                    spaces = {one["metadata"].get("namespace") for one in made}
                    self.assertEqual(spaces, {"llm", None})
                    self.assertIn(("Namespace", "llm"), {
                        (one["kind"], one["metadata"]["name"]) for one in made})
            for words, code in ((["llm", copy], 1), (["Llm", copy / "x"], 2),
                                (["llm"], 2)):
                done = subprocess.run([script, *words], check=False,
                                      capture_output=True)
                self.assertEqual(done.returncode, code, words)

    def test_stages_are_as_many_as_their_addresses(self):
        for overlay in set(self.documents) - {"scaled"}:
            documents = self.documents[overlay]
            sets = [one for one in documents if one["kind"] == "StatefulSet"
                    and "stage" in one["metadata"]["name"]]
            addresses = []
            for one in documents:
                if one["kind"] == "ConfigMap" and "SLUICE_STAGES" in one["data"]:
                    self.assertEqual(one["data"]["SLUICE_NUM_STAGES"],
                                     str(sets[0]["spec"]["replicas"]))
                    addresses += one["data"]["SLUICE_STAGES"].split(",")
            self.assertEqual(sorted(addresses), sorted(
                f"{one['metadata']['name']}-{ordinal}."
                f"{one['spec']['serviceName']}.sluice.svc:7001"
                for one in sets for ordinal in range(one["spec"]["replicas"])))

    def test_the_placement_is_one_of_the_demo_model(self):
        for path, hosts in ((ROOT / "k8s/components/experts/placement.json",
                             {"sluice-expert-0", "sluice-expert-1"}),):
            named = {one["name"] for one in json.loads(path.read_text())["hosts"]}
            self.assertEqual(named, hosts)
            done = subprocess.run(
                [pathlib.Path(os.environ["SLUICE_BUILD_DIR"],
                              "services/cli/sluice"), "plan",
                 ROOT / "deploy/demo_model/weights", "--placement", path,
                 "--stages", "2"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    manifests.need_kustomize()
    unittest.main()
