"""docker/compose.yaml and docker/Dockerfile: validated, and in accord with the
binaries, with each other and with deploy/."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import manifests
from manifests import ROOT

COMPOSE = ROOT / "docker/compose.yaml"
PROFILES = {"cpu", "gpu", "one-gpu", "experts", "pull", "monitoring", "openwebui"}
# Files that others provide, mounted by the profile "monitoring".
MONITORING = "../deploy/monitoring/"


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


class ComposeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Anchors and merges are resolved by the parser.
        cls.file = manifests.yaml.safe_load(COMPOSE.read_text())
        cls.flags = {name: manifests.flags_of(name)
                     for name in manifests.BINARIES}

    def processes(self):
        """(name, service, arguments) of every service that runs Sluice."""
        for name, service in self.file["services"].items():
            if service.get("command", [""])[0] in manifests.BINARIES:
                with self.subTest(service=name):
                    yield name, service, service["command"]

    def test_composes_own_loader_accepts_the_file(self):
        if not manifests.tool("compose-go"):
            self.skipTest("no compose-go (install_tools --long)")
        done = self.load(COMPOSE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(json.loads(done.stdout)["services"]),
                         set(self.file["services"]))

    def test_composes_own_loader_refuses_what_is_wrong(self):
        if not manifests.tool("compose-go"):
            self.skipTest("no compose-go (install_tools --long)")
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder, "compose.yaml")
            for old, new in (("read_only:", "readonly:"),
                             ("stop_grace_period: 90s", "stop_grace_period: []"),
                             ("condition: service_started", "condition: up")):
                text = COMPOSE.read_text()
                self.assertIn(old, text)
                wrong.write_text(text.replace(old, new))
                self.assertNotEqual(self.load(wrong).returncode, 0, new)

    def load(self, path):
        return subprocess.run(
            [manifests.tool("compose-go"), "-format", "json", path.name],
            cwd=path.parent, capture_output=True, text=True, check=False)

    def test_what_services_refer_to_is_there(self):
        for name, service in self.file["services"].items():
            with self.subTest(service=name):
                self.assertLessEqual(set(service.get("networks", {})),
                                     set(self.file["networks"]))
                self.assertLessEqual(set(service.get("depends_on", [])),
                                     set(self.file["services"]))
                self.assertLessEqual(
                    {one["source"] for one in service.get("configs", [])},
                    set(self.file["configs"]))
                for volume in service.get("volumes", []):
                    source = re.sub(r"^\$\{\w+:-(\w+)\}", r"\1",
                                    volume).split(":")[0]
                    if not source.startswith("."):
                        self.assertIn(source, self.file["volumes"])

    def test_the_profiles_are_those_of_the_readme(self):
        named = set()
        for service in self.file["services"].values():
            named |= set(service["profiles"])
        self.assertEqual(named, PROFILES)
        readme = (ROOT / "docker/README.md").read_text()
        for profile in PROFILES:
            self.assertIn(f"| `{profile}` |", readme)

    def test_every_flag_is_one_of_the_binarys(self):
        count = 0
        for _, service, command in self.processes():
            self.assertEqual([], list(manifests.check_arguments(
                command[0], command[1:], self.flags[command[0]])))
            count += len(command)
        self.assertGreater(count, 60)

    def test_processes_are_confined(self):
        for _, service, _ in self.processes():
            self.assertEqual(service["user"], "10001:10001")
            self.assertTrue(service["read_only"])
            self.assertEqual(service["cap_drop"], ["ALL"])
            self.assertEqual(service["security_opt"],
                             ["no-new-privileges:true"])

    def test_stages_and_hosts_are_on_the_inner_network_alone(self):
        self.assertTrue(self.file["networks"]["pipeline"]["internal"])
        for name, service, command in self.processes():
            if command[0] != "sluice-gateway":
                self.assertEqual(set(service["networks"]), {"pipeline"}, name)
                self.assertNotIn("ports", service)

    def test_what_is_published_is_on_loopback(self):
        for name, service in self.file["services"].items():
            for port in service.get("ports", []):
                self.assertTrue(
                    port.startswith(("127.0.0.1:",
                                     "${SLUICE_LISTEN:-127.0.0.1}:")), name)

    def test_addresses_are_those_that_somebody_listens_on(self):
        for profile in ("cpu", "gpu", "one-gpu", "experts"):
            listens, gateways = {}, []
            for name, service, command in self.processes():
                if profile not in service["profiles"]:
                    continue
                port = manifests.flag_value(command, "listen").split(":")[1]
                networks = service["networks"]
                pipeline = networks.get("pipeline") if isinstance(
                    networks, dict) else None
                for host in {name, *(pipeline or {}).get("aliases", [])}:
                    listens[host] = port
                if command[0] == "sluice-gateway":
                    gateways.append(command)
            gateway, = gateways
            self.assertIn("gateway", listens)
            addresses = manifests.flag_value(gateway, "stages").split(",")
            if profile == "experts":
                addresses += [host["address"] for host in self.placement()]
            for address in addresses:
                host, port = address.split(":")
                self.assertEqual(listens.get(host), port, (profile, address))

    def placement(self):
        text = self.file["configs"]["placement"]["content"]
        return json.loads(text)["hosts"]

    def test_the_placement_is_one_of_the_demo_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "placement.json")
            path.write_text(self.file["configs"]["placement"]["content"])
            done = subprocess.run(
                [pathlib.Path(os.environ["SLUICE_BUILD_DIR"],
                              "services/cli/sluice"), "plan",
                 ROOT / "deploy/demo_model/weights", "--placement", path,
                 "--stages", "2"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        hosts = {manifests.flag_value(command, "host")
                 for _, _, command in self.processes()} - {None}
        self.assertEqual(hosts, {host["name"] for host in self.placement()})

    def test_ends_leave_time_for_the_drains_of_the_services_page(self):
        table = manifests.ends(ROOT / "services/README.md")
        for _, service, command in self.processes():
            drain, pairs = table[command[0]]
            grace = seconds(service["stop_grace_period"])
            self.assertGreaterEqual(grace, drain + 20)
            self.assertIn(grace, {pair[1] for pair in pairs})
            if "drain-timeout" in self.flags[command[0]]:
                self.assertEqual(
                    manifests.flag_value(command, "drain-timeout"), str(drain))

    def test_health_is_asked_at_the_port_of_the_metrics(self):
        dockerfile = (ROOT / "docker/Dockerfile").read_text()
        probe = "http://127.0.0.1:9100/readyz"
        self.assertIn(f'"{probe}"', dockerfile)
        for _, service, command in self.processes():
            self.assertEqual(service["healthcheck"]["test"],
                             ["CMD", "sluice", "probe", probe])
            self.assertEqual(
                manifests.flag_value(command, "metrics-listen"), "0.0.0.0:9100")

    def test_every_process_is_a_target_of_prometheus(self):
        ours = manifests.yaml.safe_load(
            (ROOT / "docker/prometheus.yml").read_text())
        theirs = manifests.yaml.safe_load(
            (ROOT / "deploy/monitoring/prometheus.yml").read_text())
        job, = ours.pop("scrape_configs")
        other, = theirs.pop("scrape_configs")
        self.assertEqual(ours, theirs)
        names = {name for one in job.pop("dns_sd_configs")
                 for name in one["names"]}
        rules = job.pop("relabel_configs")
        self.assertEqual(job, other)
        for group in json.loads((ROOT / "docker/targets.json").read_text()):
            names |= {one.split(":")[0] for one in group["targets"]}
        for name, service, _ in self.processes():
            networks = service["networks"]
            inner = isinstance(networks, dict) and networks["pipeline"]
            self.assertTrue(names & set((inner or {}).get("aliases", [name])),
                            name)
        roles = {name: re.fullmatch(rules[0]["regex"], name)
                 for name in names - {"gateway"}}
        self.assertTrue(all(roles.values()), roles)

    def test_prometheus_targets_are_services(self):
        known = set(self.file["services"])
        for group in json.loads((ROOT / "docker/targets.json").read_text()):
            self.assertLessEqual({"role", "cluster", "index"},
                                 set(group["labels"]))
            for target in group["targets"]:
                host, port = target.split(":")
                self.assertIn(host, known)
                self.assertEqual(port, "9100")

    def test_every_file_that_is_mounted_is_there(self):
        monitoring = (ROOT / "deploy/monitoring").exists()
        for name, service in self.file["services"].items():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                if not source.startswith("."):
                    continue
                if source.startswith(MONITORING) and not monitoring:
                    continue
                self.assertTrue((COMPOSE.parent / source).exists(),
                                (name, source))

    def test_images_of_others_have_versions(self):
        for name, service in self.file["services"].items():
            self.assertRegex(service["image"], r":[v$]?[0-9{]", name)

    def test_the_images_targets_and_tags_are_the_dockerfiles(self):
        dockerfile = (ROOT / "docker/Dockerfile").read_text()
        targets = set(re.findall(r"^FROM \S+ AS (\w+)", dockerfile, re.M))
        for _, service, _ in self.processes():
            self.assertIn(service["build"]["target"], targets)
            self.assertEqual(service["build"]["target"] == "cuda",
                             service["image"].endswith("-cuda"))
        version = re.search(r"^project\(sluice VERSION (\S+)",
                            (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        self.assertIn(f"ARG VERSION={version}\n", dockerfile)
        self.assertIn(f"${{SLUICE_VERSION:-{version}}}", COMPOSE.read_text())

    def test_the_context_has_all_that_the_build_reads(self):
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        kept = {line[1:] for line in lines if line.startswith("!")}
        for path in kept:
            self.assertTrue((ROOT / path).exists(), path)
        collect = (ROOT / "docker/collect").read_text()
        for path in re.findall(r"\bcp (?:-r )?(\S+/?\S*) ", collect):
            if not path.startswith(("-", "/", '"')):
                self.assertTrue(any(path.startswith(one) for one in kept), path)


if __name__ == "__main__":
    manifests.need(manifests.yaml,
                   "no PyYAML: tests/run makes build/venv-containers")
    unittest.main()
