"""up's options: what they make of the processes' command lines, what is
refused, and what --no-install says."""

import contextlib
import inspect
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "deploy/local/cluster"
sys.path.insert(0, str(PACKAGE))

import commands  # noqa: E402
import exits  # noqa: E402
import experts  # noqa: E402
import layout  # noqa: E402
import model  # noqa: E402
import options  # noqa: E402


# Options of the services that `up` has no option of its own for: they go by
# --gateway-options and the like, for the reason that is told.
MACHINE = "of a machine that serves much"
LIMITS = "a bound that few reach"
TESTS = "for tests"
SWITCHES = "rarely wanted"
BY_WORDS = {
    "gateway": {
        MACHINE: "ahead-ms answer-memory grammar-threads http-threads "
                 "max-connections max-connections-per-client "
                 "max-queue-per-client max-running-per-client prefix-idle "
                 "text-memory text-threads max-step-tokens",
        LIMITS: "max-answer-bytes max-enum-values max-grammar-bytes "
                "max-grammar-compile-ms max-history-bytes max-replays "
                "max-schema-levels max-stop-strings max-tokenize-bytes "
                "body-timeout header-timeout min-body-rate lost-after "
                "peer-timeout stream-journal-mb stream-journal-minutes "
                "sse-head-after sse-ping-interval",
        SWITCHES: "insecure log-format log-level metrics-compat "
                  "metrics-key-names no-event-ids served-model-name "
                  "tls-roles trace-dir trace-sample"},
    "stage": {
        MACHINE: "pin-threads replay-log spin-ms max-sequences",
        LIMITS: "drain-timeout peer-timeout",
        SWITCHES: "insecure log-format log-level reflection tls-roles",
        TESTS: "debug-step-delay-ms"},
    "expert": {
        MACHINE: "join-window-us max-batches-in-flight max-rows pin-threads",
        LIMITS: "peer-timeout",
        SWITCHES: "expert-series insecure log-format log-level reflection "
                  "tls-roles",
        TESTS: "debug-batch-delay-ms"}}
# What makes the command line of each service.
MAKERS = {"gateway": (layout.gateway, layout.gateways),
          "stage": (layout.stage, layout._layers),
          "expert": (layout._expert,)}
# Options that `up` calls otherwise.
OTHER_NAMES = {"debug-endpoints": "debug"}


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class LayoutTest(FolderTest):
    def setUp(self):
        super().setUp()
        for service, name in (("stage", "sluice-stage"),
                              ("gateway", "sluice-gateway")):
            program = self.folder / "services" / service / name
            program.parent.mkdir(parents=True)
            program.touch(mode=0o755)
        patch = unittest.mock.patch.dict(os.environ,
                                         SLUICE_BUILD_DIR=str(self.folder))
        patch.start()
        self.addCleanup(patch.stop)

    def parse(self, *arguments):
        parser = options.up_parser("up")
        parsed = parser.parse_args([*arguments, "--run-dir",
                                    str(self.folder)])
        options.check_up(parser, parsed)
        return parsed

    def processes(self, *arguments):
        return layout.make_processes(self.parse(*arguments, "--port", "0"),
                                     "/m", 8080)

    def gateway(self, *arguments):
        return self.processes(*arguments)[-1]

    def refused(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as said, \
                self.assertRaises(SystemExit) as raised:
            self.parse(*arguments)
        self.assertEqual(raised.exception.code, exits.USAGE)
        return said.getvalue()

    def test_debug_endpoints_are_on_only_when_asked_for(self):
        self.assertNotIn("--debug-endpoints", self.gateway().argv)
        self.assertIn("--debug-endpoints", self.gateway("--debug").argv)

    def test_names_and_origins_reach_the_gateway_and_are_else_left_out(self):
        argv = self.gateway("--model-name", "a,b", "--cors-origins",
                            "https://x.example").argv
        self.assertEqual(argv[argv.index("--model-name") + 1], "a,b")
        self.assertEqual(argv[argv.index("--cors-origins") + 1],
                         "https://x.example")
        for flag in ("--model-name", "--cors-origins", "--allowed-hosts",
                     "--open"):
            self.assertNotIn(flag, self.gateway().argv)

    def test_what_requests_may_ask_and_https_reach_the_gateway(self):
        argv = self.gateway(
            "--any-model-name", "--max-tokens-overflow", "cut",
            "--http-tls-cert", "/a.pem", "--http-tls-key", "/a.key").argv
        self.assertIn("--any-model-name", argv)
        for flag, value in (("--max-tokens-overflow", "cut"),
                            ("--http-tls-cert", "/a.pem"),
                            ("--http-tls-key", "/a.key")):
            self.assertEqual(argv[argv.index(flag) + 1], value)
        for flag in ("--any-model-name", "--max-tokens-overflow",
                     "--http-tls-cert", "--http-tls-key"):
            self.assertNotIn(flag, self.gateway().argv)
        self.assertIn("go together", self.refused("--http-tls-cert", "/a.pem"))
        self.assertIn("refuse", self.refused("--max-tokens-overflow", "maybe"))

    def test_what_the_gateway_keeps_and_logs_reaches_it(self):
        argv = self.gateway(
            "--max-body", "64", "--response-store", "16",
            "--response-store-minutes", "5", "--strict-fields", "--access-log",
            "--trusted-proxies", "10.0.0.0/8").argv
        for flag, value in (("--max-body", "64"), ("--response-store", "16"),
                            ("--response-store-minutes", "5"),
                            ("--trusted-proxies", "10.0.0.0/8")):
            self.assertEqual(argv[argv.index(flag) + 1], value)
        for flag in ("--strict-fields", "--access-log"):
            self.assertIn(flag, argv)
        for flag in ("--max-body", "--response-store", "--strict-fields",
                     "--response-store-minutes", "--access-log",
                     "--trusted-proxies"):
            self.assertNotIn(flag, self.gateway().argv)
        self.assertIn("at least 1", self.refused("--max-body", "0"))

    def test_further_options_reach_their_processes(self):
        made = self.processes(
            "--stages", "2", "--spares", "1", "--stage-options=--spin-ms=2",
            "--gateway-options=--lost-after 4 --trace-dir 'a b'")
        self.assertEqual(made[-1].argv[-4:],
                         ["--lost-after", "4", "--trace-dir", "a b"])
        for stage in made[:-1]:
            self.assertEqual(stage.argv[-1], "--spin-ms=2")
        with unittest.mock.patch.object(experts, "write_placement"), \
                unittest.mock.patch.object(layout, "binary",
                                           lambda *names: names[0]):
            made = self.processes("--stages", "1", "--expert-hosts", "1",
                                  "--expert-options=--max-rows 5")
        self.assertEqual(made[0].argv[-2:], ["--max-rows", "5"])
        self.assertEqual(self.gateway("--gateway-options=").argv[3:],
                         self.gateway().argv[3:])

    def test_further_options_are_none_of_ups_own(self):
        for words, told in (
                ("--listen 0.0.0.0:1", "--listen is up's own: give --host and "
                 "--port of up"), ("--port_file=x", "--port-file is up's own"),
                ("-model /x", "--model is up's own"),
                ("x", "must begin with an option"),
                ("--a 'b", "No closing quotation")):
            self.assertIn(told, self.refused(f"--gateway-options={words}"))
        self.assertIn("--assignable is up's own", self.refused(
            "--stage-options=--noassignable"))

    def test_every_option_of_a_service_has_its_way(self):
        """Each is an option of up, or its own, or has a reason to go by words."""
        ups = {name.removeprefix("--") for action in options.up_parser(
            "up")._actions for name in action.option_strings}
        for service, reasons in BY_WORDS.items():
            page = (ROOT / "services" / service / "OPTIONS.md").read_text()
            there = set(re.findall(r"^\| `--([a-z-]+)`", page, re.M))
            self.assertGreater(len(there), 20)
            by_words = [name for names in reasons.values()
                        for name in names.split()]
            self.assertEqual(len(by_words), len(set(by_words)))
            own = set(options.OWN_OPTIONS[service])
            self.assertEqual(own - there, set(), "stale")
            self.assertEqual(own & set(by_words), set())
            lines = "".join(map(inspect.getsource, MAKERS[service]))
            taken = {name for name in there if f'"--{name}"' in lines
                     and OTHER_NAMES.get(name, name) in ups}
            self.assertEqual(set(by_words) & taken, set())
            self.assertEqual(set(by_words) | own | taken, there, service)

    def test_the_context_is_that_of_every_stage(self):
        made = self.processes("--stages", "3", "--max-context", "777")
        for stage in made[:-1]:
            at = stage.argv.index("--max-context")
            self.assertEqual(stage.argv[at + 1], "777")
        self.assertNotIn("--max-context", self.processes()[0].argv)

    def test_gateways_are_told_of_one_another(self):
        self.assertNotIn("--peer-gateway", self.gateway().argv)
        made = [one for one in self.processes("--gateways", "3", "--lease", "2")
                if one.role == "gateway"]
        self.assertEqual([one.name for one in made],
                         ["gateway", "gateway 1", "gateway 2"])
        self.assertEqual(len({one.log for one in made}), 3)
        addresses = [one.addresses[0] for one in made]
        for index, one in enumerate(made):
            at = one.argv.index("--peer-gateway")
            self.assertEqual(
                one.argv[at + 1:at + 6],
                [",".join(addresses[:index] + addresses[index + 1:]),
                 "--peer-gateway-secret", str(self.folder / "peer-secret"),
                 "--lease", "2.0"])
            self.assertEqual(one.argv[one.argv.index("--listen") + 1],
                             addresses[index])

    def test_stages_that_share_cores_take_turns(self):
        flag = "--max-plans-in-flight"
        cores = len(os.sched_getaffinity(0))
        self.assertNotIn(flag, self.gateway("--stages", "1").argv)
        self.assertNotIn(flag, self.gateway("--stages", str(cores),
                                            "--threads", "1").argv)
        for arguments, plans in (
                (("--stages", "2", "--threads", str(cores)), "1"),
                (("--stages", str(cores + 1), "--threads", "1"), "1"),
                (("--stages", "2", flag, "3"), "3"),
                (("--stages", str(cores + 1), flag, "0"), "0")):
            argv = self.gateway(*arguments).argv
            self.assertEqual(argv[argv.index(flag) + 1], plans)

    def test_numerics_are_those_of_every_stage_or_refused(self):
        for arguments in (("--device", "cuda:0,cuda:1", "--numerics", "fast"),
                          ("--device", "cpu,cuda:0", "--numerics",
                           "canonical")):
            for stage in self.processes("--stages", "2", *arguments)[:-1]:
                at = stage.argv.index("--numerics")
                self.assertEqual(stage.argv[at + 1], arguments[-1])
        self.assertNotIn("--numerics", self.processes()[0].argv)
        mixed = ("--stages", "2", "--device", "cpu,cuda:0")
        for arguments in (mixed, (*mixed, "--numerics", "auto"),
                          ("--device", "cuda", "--expert-hosts", "1")):
            self.assertIn("--numerics canonical", self.refused(*arguments))
        self.assertIn("a CPU has canonical ones alone",
                      self.refused("--numerics", "fast"))

    def test_activations_are_those_of_every_stage_or_refused(self):
        for stage in self.processes("--stages", "2", "--activations",
                                    "f32")[:-1]:
            self.assertEqual(
                stage.argv[stage.argv.index("--activations") + 1], "f32")
        self.assertNotIn("--activations", self.processes()[0].argv)
        gpu = ("--stages", "1", "--device", "cuda:0", "--activations", "f32")
        self.processes(*gpu, "--numerics", "canonical")
        for arguments in (gpu, (*gpu, "--numerics", "fast")):
            self.assertIn("--activations f32 excludes --numerics fast",
                          self.refused(*arguments))

    def test_a_stage_computes_on_the_gpus_that_are_named_for_it(self):
        for text, devices in (
                ("auto", ["auto", "auto"]),
                ("cuda:0,1,cuda:2,3", ["cuda:0,1", "cuda:2,3"]),
                ("cuda:0,cuda:1", ["cuda:0", "cuda:1"]),
                ("cuda:GPU-1b2c-3d,MIG-4e,cuda:5",
                 ["cuda:GPU-1b2c-3d,MIG-4e", "cuda:5"])):
            stages = self.processes("--stages", "2", "--device", text)[:-1]
            self.assertEqual(
                [stage.argv[stage.argv.index("--device") + 1]
                 for stage in stages], devices)
        for text in ("", "gpu", "cuda:", "cuda:0,", "cuda:0,,1", "auto,cpu",
                     "cpu,auto", "cuda:GPU-xyz", "cpu:0", "cuda:-1"):
            self.assertIn("must be auto, or cpu or cuda:G",
                          self.refused(f"--device={text}"))
        self.assertIn("name each stage's device", self.refused(
            "--stages", "2", "--layers", "0-1,2-3", "--device", "auto"))

    def test_stages_that_share_a_gpu_say_how_much_of_it_each_takes(self):
        shared = ("--stages", "2", "--device")
        for text, gpu in (("cuda", "0"), ("cuda:1", "1"),
                          ("cuda:0,1,cuda:1,2", "1"),
                          ("cuda:GPU-1b,cuda:GPU-1b", "GPU-1b")):
            self.assertIn(f"several stages on GPU {gpu}",
                          self.refused(*shared, text))
            self.processes(*shared, text, "--kv-blocks", "64")

    def test_hosts_of_experts_compute_on_the_gpus_that_are_named_for_them(self):
        hosts = ("--stages", "1", "--expert-hosts", "2")
        placed = unittest.mock.patch.object(experts, "write_placement")
        with placed, unittest.mock.patch.object(layout, "binary",
                                                lambda *names: names[0]):
            for text, devices in (("auto", ["auto", "auto"]),
                                  ("cuda:1", ["cuda:1", "cuda:1"]),
                                  ("cuda:1,cuda:2", ["cuda:1", "cuda:2"])):
                made = self.processes(*hosts, "--expert-device", text,
                                      "--numerics", "canonical")[:2]
                self.assertEqual(
                    [one.argv[one.argv.index("--device") + 1]
                     for one in made], devices)
                self.assertEqual(
                    [one.argv[one.argv.index("--numerics") + 1]
                     for one in made], ["canonical"] * 2)
            self.assertNotIn("--device", self.processes(*hosts)[0].argv)
        fast = ("--device", "cuda:0", "--expert-device", "cuda:1,cuda:2")
        self.parse(*hosts, *fast)
        self.parse(*hosts, *fast, "--numerics", "fast")
        for arguments, told in (
                ((*hosts, "--expert-device", "cuda:0"), "--device cpu and "
                 "--expert-device cuda:0 has CPUs and GPUs"),
                ((*hosts, "--expert-device", "cuda:0,1"), "on one GPU"),
                ((*hosts, "--expert-device", "gpu"), "must be auto, or cpu"),
                ((*hosts, "--expert-device", "cpu,cpu,cpu"),
                 "has 3 names, --expert-hosts is 2"),
                (("--expert-device", "cpu"), "there are none"),
                ((*hosts, "--device", "cuda:1", "--expert-device", "cuda:1"),
                 "a stage and a host of experts on GPU 1")):
            self.assertIn(told, self.refused(*arguments))

    def test_a_placement_says_how_many_devices_there_may_be(self):
        placement = self.folder / "placement.json"
        placement.write_text('{"hosts": [{"name": "a"}, {"name": "b"}]}')
        parsed = self.parse("--placement", str(placement), "--expert-device",
                            "cpu,cpu,cpu")
        with self.assertRaises(exits.Failure) as caught:
            layout.make_processes(parsed, "/m", 8080)
        self.assertIn("has 3 names", str(caught.exception))
        self.assertIn("has 2 hosts", str(caught.exception))

    def test_packed_weights_are_where_every_stage_is_told(self):
        for given, passed in (("off", "off"), ("auto", "auto"),
                              ("/a/b", "/a/b"),
                              ("b", str(pathlib.Path("b").absolute()))):
            for stage in self.processes("--packed", given)[:-1]:
                at = stage.argv.index("--packed")
                self.assertEqual(stage.argv[at + 1], passed)
        self.assertNotIn("--packed", self.processes()[0].argv)

    def test_packed_weights_take_what_every_stage_is_told(self):
        for stage in self.processes("--packed-gb", "2.5")[:-1]:
            at = stage.argv.index("--packed-gb")
            self.assertEqual(stage.argv[at + 1], "2.5")
        self.assertNotIn("--packed-gb", self.processes()[0].argv)

    def test_a_gateway_listens_where_it_is_told_and_is_called_from_here(self):
        for host, listens, called in (
                ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
                ("localhost", "127.0.0.1", "127.0.0.1"),
                ("0.0.0.0", "0.0.0.0", "127.0.0.1"),
                ("::1", "[::1]", "[::1]"), ("::", "[::]", "[::1]")):
            with self.subTest(host=host):
                parsed = self.parse("--host", host, "--open")
                self.assertEqual(parsed.host, listens)
                self.assertEqual(options.reachable_host(parsed.host), called)
        gateway = self.gateway("--host", "0.0.0.0", "--open")
        listen = gateway.argv[gateway.argv.index("--listen") + 1]
        self.assertRegex(listen, r"^0\.0\.0\.0:\d+$")
        self.assertEqual(gateway.addresses,
                         [listen.replace("0.0.0.0", "127.0.0.1")])
        self.assertIn("--open", gateway.argv)

    def test_beyond_loopback_keys_or_open_are_needed(self):
        for host in ("0.0.0.0", "::", "192.0.2.1"):
            said = self.refused("--host", host)
            self.assertIn("--api-key-file", said)
            self.assertIn("--open", said)
            self.parse("--host", host, "--open")
            self.parse("--host", host, "--api-key-file", "keys")
        self.parse("--host", "127.0.0.2")
        self.assertIn("must be an IP address", self.refused("--host", "here"))

    def test_options_are_not_abbreviated(self):
        for option in ("--no-inst", "--deta"):
            self.assertIn(option, self.refused(option))

    def test_keys_of_the_environment_are_in_a_file_of_their_user_alone(self):
        with unittest.mock.patch.dict(os.environ,
                                      SLUICE_API_KEYS="a:sk-one,sk-two",
                                      SLUICE_API_KEY="sk-two"):
            parsed = self.parse("--host", "0.0.0.0")
            self.refused("--api-key-file", "keys")
            commands._key_file(parsed)
            made = layout.make_processes(parsed, "/m", 8080)
        path = pathlib.Path(parsed.api_key_file)
        self.assertEqual(path.read_text().split(), ["a:sk-one", "sk-two"])
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertIn(str(path), made[-1].argv)
        self.assertNotIn("sk-", str(made))


class FirstQuestionTest(unittest.TestCase):
    def test_the_demo_model_is_asked_what_it_learned(self):
        question = model.first_question(
            str(ROOT / "deploy/local/../demo_model/weights"))
        facts = (ROOT / "deploy/demo_model/corpus/facts.py").read_text()
        self.assertEqual(question, "What is a stage in Sluice?")
        self.assertIn('"What is {} in Sluice?"', facts)
        self.assertIn('"a stage": ', facts)

    def test_others_are_asked_nothing_about_sluice(self):
        for path in (model.default_path(), "/models/another"):
            self.assertNotIn("sluice", model.first_question(str(path)).lower())


class NoInstallTest(FolderTest):
    """The script itself, on a machine that has nothing installed."""

    def up(self, *arguments, **environment):
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        for name in ("bash", "dirname", "env", "awk", "sort", "head", "id"):
            link = tools / name
            if not link.exists():
                link.symlink_to(shutil.which(name))
        python = tools / "python3"
        if not python.exists():
            python.symlink_to(sys.executable)
        (tools / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
        for name in ("apt-get", "sudo", "pip", "cmake", "cargo"):
            (tools / name).write_text(
                f"#!/bin/sh\necho {name} >>{self.folder}/called\nexit 1\n")
        for path in tools.iterdir():
            if not path.is_symlink():
                path.chmod(0o755)
        return subprocess.run(
            [ROOT / "deploy/local/up", "--no-install", "--run-dir",
             str(self.folder / "run"), *arguments],
            env={"PATH": str(tools), "HOME": str(self.folder),
                 "XDG_CACHE_HOME": str(self.folder / "cache"), **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=100, check=False)

    def called(self):
        log = self.folder / "called"
        return set(log.read_text().split()) if log.exists() else set()

    def test_it_names_all_that_is_missing_and_installs_nothing(self):
        done = self.up()
        self.assertEqual(done.returncode, exits.SETUP_FAILED, done.stderr)
        for words in ("Debian packages: ", "g++", "libgrpc++-dev",
                      model.FILE_NAME, "--model PATH"):
            self.assertIn(words, done.stderr)
        self.assertLessEqual(self.called(), {"cargo"})  # its version

    def test_a_model_of_ones_own_is_not_missing(self):
        done = self.up("--model", "/")
        self.assertEqual(done.returncode, exits.SETUP_FAILED, done.stderr)
        self.assertIn("Debian packages: ", done.stderr)
        self.assertNotIn(model.FILE_NAME, done.stderr)

    def test_without_building_the_model_is_still_told_of(self):
        done = self.up(SLUICE_BUILD_DIR=str(self.folder))
        self.assertEqual(done.returncode, exits.SETUP_FAILED, done.stderr)
        self.assertIn(model.FILE_NAME, done.stderr)
        self.assertEqual(self.called(), set())
        self.assertFalse((self.folder / "cache").exists())

    def test_bad_options_come_first(self):
        self.assertEqual(self.up("--stages", "0").returncode, exits.USAGE)


if __name__ == "__main__":
    unittest.main()
