"""Links measured between hosts, and what a plan makes of a fleet."""

import argparse
import io
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import tomllib
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local/cluster"))

import exits  # noqa: E402
import hosts  # noqa: E402
import link_probe  # noqa: E402
import options  # noqa: E402
import split_by_time  # noqa: E402

TOKEN = b"\x01" * 16


class LinkProbeTest(unittest.TestCase):
    def listen(self):
        listener = link_probe.serve(TOKEN, ("127.0.0.1", 0))
        self.addCleanup(listener.close)
        return listener.getsockname()

    def test_a_link_has_a_latency_and_a_rate(self):
        latency, rate = link_probe.measure(TOKEN, self.listen())
        self.assertGreater(latency, 0)
        self.assertGreater(rate, 1e6)

    def test_a_caller_without_the_token_is_cut_off(self):
        with self.assertRaises(OSError):
            link_probe.measure(b"\x02" * 16, self.listen())

    def test_a_machine_that_does_not_listen_is_named(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-B", str(ROOT / "deploy/local/cluster"),
             "host-links"], capture_output=True, text=True, timeout=60,
            check=True, input=json.dumps(
                {"token": TOKEN.hex(), "listen": ["127.0.0.1", 0]})
            + "\n" + json.dumps(["127.0.0.1", port]) + "\n")
        ready, answer = map(json.loads, done.stdout.splitlines())
        self.assertEqual(ready, {})
        self.assertIn("refused", answer["error"])


FILE = """
model = "/m"
gateway = "c"
[hosts.a]
memory = "4G"
[hosts.b]
memory = "2G"
[hosts.c]
memory = "1G"
"""
PLAN = {"stages": [
    {"machine": "b", "first_layer": 0, "last_layer": 6, "step_seconds": .002},
    {"machine": "a", "first_layer": 7, "last_layer": 9, "step_seconds": .004}],
    "aim": {"seconds": .006, "choices": [
        {"choice": "with c", "seconds": .009}, {"choice": "without a"}]}}


class SplitTest(unittest.TestCase):
    def fleet(self, text=FILE):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "hosts.toml")
            path.write_text(text)
            return hosts.read(str(path))

    def options(self, *words):
        return options.up_parser("up").parse_args(["--hosts", "x", *words])

    def test_hosts_are_measured_where_nobody_says_what_they_get(self):
        for text, words, applies in (
                (FILE, (), True),
                (FILE, ("--split-by", "memory"), False),
                (FILE.replace('memory = "4G"', 'stages = 2\nmemory = "4G"'),
                 (), False),
                (FILE.replace('memory = "4G"', 'device = "cuda:0"\n'
                                               'memory = "4G"'), (), False),
                ('model = "/m"\n[hosts.a]\nlayers = "0-1"\n'
                 '[hosts.b]\nlayers = "2-4"\n', (), False),
                ('model = "/m"\n[hosts.a]\n[hosts.b]\nstages = 0\n', (), False),
                ('model = "/m"\n[hosts.a]\n', (), False)):
            with self.subTest(text=text, words=words):
                self.assertEqual(split_by_time.applies(
                    self.fleet(text), self.options(*words)), applies)

    def test_the_plan_says_order_layers_and_who_is_left_out(self):
        fleet = split_by_time.with_plan(self.fleet(), PLAN)
        self.assertEqual([(host.name, host.stages, host.layers)
                          for host in fleet.hosts],
                         [("b", 1, ("0-6",)), ("a", 1, ("7-9",)),
                          ("c", 0, ())])
        self.assertEqual(fleet.gateway, fleet.hosts[2])
        self.assertEqual([host.name for host, _ in fleet.places()],
                         ["b", "a"])
        told = "\n".join(split_by_time.lines(fleet, PLAN))
        self.assertIn("host b: layers 0-6, 2.000 ms of a token", told)
        self.assertIn("with c: 1.50 times as long", told)
        self.assertIn("without a: does not fit", told)
        self.assertIn("without a stage: c", told)

    def test_the_file_of_machines_has_each_and_every_link(self):
        fleet = self.fleet()
        link = {"latency_seconds": 2e-4, "bytes_per_second": 1.25e8}
        text = split_by_time.machines_toml(
            fleet.hosts, {host: host.memory for host in fleet.hosts},
            {("a", "b"): link, ("b", "c"): link})
        document = tomllib.loads(text)
        self.assertEqual([(one["name"], one["memory"], one["rates"])
                          for one in document["machine"]],
                         [("a", "4G", "rates-a.json"),
                          ("b", "2G", "rates-b.json"),
                          ("c", "1G", "rates-c.json")])
        self.assertIn('latency_ms = 0.200000', text)
        self.assertIn('gbit_per_s = 1.000000', text)

    def test_a_stage_gets_the_memory_that_the_file_says(self):
        for text, given in (("24G", 24 << 30), ("1.5M", 3 << 19),
                            ("4096", 4096)):
            machine = split_by_time.machine_memory(text)
            kept = max(256 << 20, machine // 32)
            self.assertGreaterEqual(machine - kept, given)
            self.assertLess(machine - kept, given + 64)

    def test_what_a_plan_is_made_for_is_checked(self):
        for good in ("one", "prompt", "8"):
            self.assertEqual(self.options("--for", good).plan_for, good)
        for bad in ("0", "-1", "many", "1.5", ""):
            with self.assertRaises(argparse.ArgumentTypeError):
                options.planned_for(bad)

    def test_the_options_are_for_hosts(self):
        parser = options.up_parser("up")
        for words in (["--split-by", "memory"], ["--for", "8"],
                      ["--measure-again"]):
            parsed = parser.parse_args(words)
            with self.assertRaises(SystemExit), \
                    unittest.mock.patch("sys.stderr", io.StringIO()) as told:
                options.check_up(parser, parsed)
            self.assertIn(f"{words[0]} is for --hosts", told.getvalue())

    def test_a_probe_that_is_gone_names_its_host(self):
        host = hosts.Host(name="a", ssh="local", address="127.0.0.1", port=0)
        place = split_by_time.Place(
            "/nonexistent", "/nonexistent", (sys.executable, "-c",
                                             "import sys; sys.exit('no way')"),
            "/m", 1)
        with self.assertRaises(exits.Failure) as caught:
            split_by_time.links([host, host], {host: place})
        self.assertIn("host a: its link cannot be measured: no way",
                      str(caught.exception))

    def test_a_link_that_cannot_be_measured_names_the_host(self):
        # Its own machine, at an address that no interface here has.
        host = hosts.Host(name="a", ssh="local", address="192.0.2.1")
        place = split_by_time.Place(
            "/nonexistent", "/nonexistent",
            (sys.executable, "-B", str(ROOT / "deploy/local/cluster")), "/m", 1)
        with self.assertRaises(exits.Failure) as caught:
            split_by_time.links([host, host], {host: place})
        self.assertIn("host a: its link cannot be measured",
                      str(caught.exception))


if __name__ == "__main__":
    unittest.main()
