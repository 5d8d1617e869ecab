"""hosts.toml: what it means, and what is refused; what is sent to a host."""

import dataclasses
import io
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local/cluster"))

import exits  # noqa: E402
import fleet  # noqa: E402
import hosts  # noqa: E402
import installation  # noqa: E402
import layout  # noqa: E402
import options  # noqa: E402
import remote  # noqa: E402

GOOD = """
model = "/m"
gateway = "b"
[hosts.a]
ssh = "me@a.example"
stages = 2
memory = "24G"
[hosts.b]
address = "10.0.0.2"
port = 8001
memory = "12.5G"
model = "/n"
"""


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, text, model=None):
        path = self.folder / "hosts.toml"
        path.write_text(text)
        return hosts.read(path, model)


class HostsFileTest(FolderTest):
    def test_a_file_says_who_has_what(self):
        fleet = self.read(GOOD)
        self.assertEqual((fleet.stages, fleet.gateway.name), (3, "b"))
        a, b = fleet.hosts
        self.assertEqual((a.address, a.port, a.model),
                         ("a.example", hosts.FIRST_PORT, "/m"))
        self.assertEqual((b.ssh, b.model, b.stages), ("b", "/n", 1))
        self.assertEqual([(host.name, port) for host, port in fleet.places()],
                         [("a", 7001), ("a", 7002), ("b", 8001)])

    def test_the_option_goes_before_the_files_model(self):
        fleet = self.read("[hosts.a]\n", "/given")
        self.assertEqual((fleet.hosts[0].model, fleet.gateway.name),
                         ("/given", "a"))

    def refused(self, text, told):
        with self.assertRaises(exits.Failure) as caught:
            self.read(text)
        self.assertEqual(caught.exception.code, exits.USAGE)
        self.assertIn(told, str(caught.exception))

    def test_what_means_nothing_is_named(self):
        one = 'model = "/m"\n[hosts.a]\n'
        for text, told in (
                ("= 1", "Invalid"), ("", "no [hosts.NAME]"),
                ("[hosts.a]\n", "[hosts.a]: no model"),
                ('model = "/m"\ngateway = "z"\n[hosts.a]\n', "gateway = 'z'"),
                ("model = 3\n[hosts.a]\n", "model must be of type str, got 3"),
                ('hosts = "a"\n', "hosts must be of type dict"),
                ('model = "/m"\nhosts.a = 1\n', "[hosts.a] must be a table"),
                (one + "stage = 2\n", "has a key 'stage'; known are"),
                (one + "stages = true\n", "stages must be of type int"),
                (one + "stages = 65\n", "between 0 and 64, is 65"),
                (one + "stages = 0\n", "no host has a stage"),
                (one + "threads = 0\n", "threads must be between 1"),
                (one + 'memory = "much"\n', "must be a size as 24G"),
                (one + 'ssh = "-oProxyCommand=x"\n', "is no destination"),
                (one + 'ssh = "local"\n', "address = 'local' is no name"),
                (one + 'address = "a b"\n', "is no name and no"),
                ('model = "/m"\n[hosts."a/b"]\n', "a name has letters"),
                (one + 'layers = "1-4"\n', "must begin at 0"),
                (one + 'layers = "0-1,2-4"\n', "has 2 ranges, stages is 1"),
                (one + 'layers = "0-4"\nmemory = "1G"\n', "cannot be given"),
                (one + '[hosts.b]\nlayers = "0-4"\n', "given for b alone"),
                (one + '[hosts.b]\naddress = "a"\n', "one address and port")):
            with self.subTest(text=text):
                self.refused(text, told)

    def devices(self, text, *words):
        fleet_hosts = self.read(text)
        parsed = options.up_parser("up").parse_args(["--hosts", "x", *words])
        fleet.check_devices(fleet_hosts, parsed)
        return fleet_hosts.devices()

    def test_a_host_says_what_its_stages_compute_on(self):
        one = 'model = "/m"\n[hosts.a]\n'
        two = one + "stages = 2\n"
        for text, words, want in (
                (one, (), []),
                (one + 'device = "cpu"\n', (), ["cpu"]),
                (one + 'device = "cuda:0,1"\n', (), ["cuda:0,1"]),
                (two + 'device = "auto"\n', (), ["auto", "auto"]),
                (two + 'device = "cuda:0,cuda:GPU-1b"\n', (),
                 ["cuda:0", "cuda:GPU-1b"]),
                (two + 'device = "cuda:0"\n', ("--kv-blocks", "9"),
                 ["cuda:0", "cuda:0"]),
                # The same number on another machine is another GPU.
                (one + 'device = "cuda:0"\n[hosts.b]\ndevice = "cuda:0"\n',
                 ("--numerics", "fast"), ["cuda:0", "cuda:0"]),
                (one + 'device = "cuda:0"\n[hosts.b]\n',
                 ("--numerics", "canonical"), ["cuda:0", "cpu"])):
            with self.subTest(text=text):
                self.assertEqual(self.devices(text, *words), want)

    def test_devices_that_do_not_go_together_are_named(self):
        one = 'model = "/m"\n[hosts.a]\n'
        for text in ("", "gpu", "cuda:", "cuda:0,,1", "auto,cpu", "cpu:0"):
            self.refused(one + f'device = "{text}"\n',
                         "[hosts.a]: device must be auto, or cpu or cuda:G")
        self.refused(one + 'device = "cpu,cpu"\n',
                     "device has 2 names, stages is 1")
        gpu = one + 'device = "cuda:0"\n'
        for text, words, told in (
                (gpu + "[hosts.b]\n", (), "--numerics canonical alone"),
                (one, ("--numerics", "fast"), "--numerics fast is for GPUs"),
                (gpu + "stages = 2\n", (), "several stages on GPU 0"),
                (one + 'device = "auto"\nlayers = "0-3"\n', (),
                 "name each stage's device")):
            with self.subTest(text=text), \
                    self.assertRaises(exits.Failure) as caught:
                self.devices(text, *words)
            self.assertEqual(caught.exception.code, exits.USAGE)
            self.assertIn("/x: ", str(caught.exception))
            self.assertIn(told, str(caught.exception))

    def test_each_stage_is_told_its_device(self):
        text = ('model = "/m"\n[hosts.a]\nssh = "local"\naddress = '
                '"10.0.0.1"\nbinaries = "/b"\ndevice = "cuda:0"\n[hosts.b]\n'
                'binaries = "/b"\nstages = 2\ndevice = "cuda:1,cuda:2"\n')
        read = self.read(text)
        parsed = options.up_parser("up").parse_args(
            ["--hosts", "x", "--run-dir", str(self.folder)])
        with unittest.mock.patch.object(layout, "binary", lambda name: name):
            # pylint: disable-next=protected-access
            document = fleet._document(
                read, {host: "/run" for host in read.hosts},
                {host: {"cores": 4, "python": "/p"} for host in read.hosts}, parsed)
        argvs = [one["argv"] for host in document["hosts"]
                 for one in host["processes"] if one["role"] == "stage"]
        self.assertEqual([argv[argv.index("--device") + 1] for argv in argvs],
                         ["cuda:0", "cuda:1", "cuda:2"])
        self.assertEqual({host["python"] for host in document["hosts"]},
                         {"/p"})

    def test_a_file_that_is_not_there_is_named(self):
        with self.assertRaises(exits.Failure) as caught:
            hosts.read(self.folder / "none.toml")
        self.assertIn("none.toml: No such file", str(caught.exception))

    def test_options_of_one_machine_are_refused_beside_it(self):
        for words in (("--stages", "3"), ("--spares", "1"), ("--tcp",),
                      ("--stage-memory", "1G"), ("--device", "cpu"),
                      ("--expert-device", "cpu")):
            parser = options.up_parser("up")
            with self.assertRaises(SystemExit), unittest.mock.patch(
                    "sys.stderr", io.StringIO()) as told:
                options.check_up(parser, parser.parse_args(
                    ["--hosts", "x", *words]))
            self.assertIn(words[0] + " is for one machine", told.getvalue())


class RemoteTest(FolderTest):
    HERE = hosts.Host(name="here", ssh="local", address="127.0.0.1",
                      model="/none")

    def test_words_reach_the_host_as_they_are(self):
        words = ["printf", "%s|", "a b", "$HOME", "it's", "*"]
        self.assertEqual(remote.run(self.HERE, words), "a b|$HOME|it's|*|")
        host = hosts.Host(name="far", ssh="me@far", address="far")
        with unittest.mock.patch.dict("os.environ", SLUICE_SSH="myssh -F x"):
            argv = remote.command_for(host, words)
        self.assertEqual(argv[:3], ["myssh", "-F", "x"])
        self.assertEqual(argv[-3:-1], ["--", "me@far"])
        self.assertEqual(subprocess.run(["sh", "-c", argv[-1]], check=True,
                                        capture_output=True).stdout,
                         b"a b|$HOME|it's|*|")

    def test_failures_name_the_host(self):
        for words, told in ((["sh", "-c", "echo why >&2; exit 3"], "why"),
                            (["false"], "exit status 1")):
            with self.assertRaises(exits.Failure) as caught:
                remote.run(self.HERE, words)
            self.assertIn(f"host here: {told}", str(caught.exception))

    def test_files_are_sent_for_their_user_alone(self):
        source = self.folder / "source"
        source.write_bytes(b"\0binary")
        target = self.folder / "it's there"
        remote.send(self.HERE, str(target), {
            "one": (source, 0o700), "deep/two": (b"text", 0o600)})
        self.assertEqual((target / "one").read_bytes(), b"\0binary")
        self.assertEqual((target / "deep/two").read_text(), "text")
        for name, mode in (("one", 0o700), ("deep/two", 0o600), ("", 0o700)):
            self.assertEqual(stat.S_IMODE((target / name).stat().st_mode),
                             mode, name)
        self.assertGreater((target / "one").stat().st_mtime, 1e9)

    def test_a_probe_tells_what_the_machine_has(self):
        found = remote.probe(self.HERE)
        self.assertFalse(found["has_model"])
        self.assertFalse(found["has_stage"] or found["has_command"])
        self.assertGreater(found["cores"], 0)
        self.assertEqual((found["machine"], found["home"], found["python"]),
                         (os.uname().machine, os.path.expanduser("~"),
                          "python3"))

    def probe(self, **keys):
        return remote.probe(dataclasses.replace(self.HERE, **keys))

    def test_a_probe_finds_what_is_there(self):
        binaries = self.folder / "it's bin"
        binaries.mkdir()
        for name, fact in (("sluice-stage", "has_stage"),
                           ("sluice", "has_command")):
            self.assertFalse(self.probe(binaries=str(binaries))[fact])
            (binaries / name).write_bytes(b"")
            (binaries / name).chmod(0o700)
            self.assertTrue(self.probe(binaries=str(binaries))[fact])
        found = self.probe(model=str(self.folder), binaries=str(binaries))
        self.assertTrue(found["has_model"])
        self.assertFalse(found["has_bundle"])
        with unittest.mock.patch.dict(os.environ, HOME=str(self.folder)):
            self.assertTrue(self.probe(model="~/it's bin")["has_model"])
        python = binaries / ".." / installation.PYTHON
        python.parent.mkdir(parents=True)
        python.write_bytes(b"")
        python.chmod(0o700)
        self.assertEqual(self.probe(binaries=str(binaries))["python"],
                         str(python))

    def without_python(self):
        """A PATH on which the probe finds all but python3."""
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("sh", "uname", "nproc", "grep"):
            (tools / name).symlink_to(shutil.which(name))
        return unittest.mock.patch.dict(os.environ, PATH=str(tools))

    def test_a_bundle_alone_does_without_the_hosts_python(self):
        with self.without_python():
            with self.assertRaises(exits.Failure) as caught:
                self.probe()
            self.assertIn("host here: python3 is missing there",
                          str(caught.exception))
            with unittest.mock.patch.object(installation, "is_bundle",
                                            lambda: True):
                self.assertIsNone(self.probe()["python"])

    def test_the_package_is_sent_whole(self):
        names = remote.package_files()
        self.assertIn("cluster/__main__.py", names)
        self.assertIn("cluster/agent.py", names)


if __name__ == "__main__":
    sys.exit(unittest.main())
