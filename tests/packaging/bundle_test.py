"""The bundle answers in a root that holds busybox and nothing else: no
interpreter, no library, no network. Its file installs and removes it."""

import json
import os
import pathlib
import pwd
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import api  # noqa: E402
import harness  # noqa: E402
import small_root  # noqa: E402
import ssh_machines  # noqa: E402

sys.path.append(str(harness.ROOT / "deploy/local/cluster"))
import ports  # noqa: E402

MAKE = harness.ROOT / "deploy/packages/make"
NAMES = pathlib.Path(__file__).with_name("name_server.py")
TOOLS = ("patchelf", "readelf", "dpkg-deb", "python3.11", "gcc", "apt-get")
# Of what the packaged model is asked first (deploy/demo_model/corpus/facts.py).
RIGHT = "A stage is one part of the pipeline: it holds a run of the model's layers"


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = small_root.lacks()
        for tool in TOOLS:
            if not small_root.shutil.which(tool):
                missing = missing or f"needs {tool}"
        if missing:
            raise unittest.SkipTest(missing)
        folder = tempfile.TemporaryDirectory(prefix="sluice-bundle-",
                                             dir="/var/lib")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.folder.chmod(0o755)
        done = subprocess.run([MAKE, "bundle", "--out", cls.folder],
                              capture_output=True, text=True, check=False)
        if done.returncode == 3:
            raise unittest.SkipTest("Debian's packages for the bundle cannot "
                                    "be had: " + done.stderr.strip()[-200:])
        assert done.returncode == 0, done.stderr
        (cls.tarball,) = cls.folder.glob("sluice-*.tar.gz")
        cls.script = cls.tarball.with_name(
            cls.tarball.name.replace(".tar.gz", ".sh"))
        cls.name = cls.tarball.name.removesuffix(".tar.gz")

    def setUp(self):
        self.root = small_root.SmallRoot(self.folder / f"root-{self.id()}")
        self.addCleanup(small_root.shutil.rmtree, self.root.path)
        self.addCleanup(self.root.close)
        self.root.open()

    def unpacked(self):
        """Where the bundle is in the root, for its user."""
        self.root.put(self.tarball, "/tmp/bundle.tar.gz")
        self.root.run("tar", "-xzf", "/tmp/bundle.tar.gz")
        return f"/home/{self.name}"

    def test_1_it_answers_where_there_is_nothing(self):
        begin = time.monotonic()
        at = self.unpacked()
        out, err = self.root.run(f"{at}/sluice", "up", "--detach")
        seconds = time.monotonic() - begin
        print(f"from tar to the first answer: {seconds:.1f} s; the bundle: "
              f"{self.tarball.stat().st_size / 1e6:.1f} MB", flush=True)
        self.assertLess(seconds, 60)
        self.assertIn("serving the small model that comes along", err)
        self.assertIn("first prompt: What is a stage in Sluice?\n", out)
        self.assertIn(RIGHT, out)
        self.assertIn("stop it with: sluice down --run-dir ", out)
        told, _ = self.root.run(f"{at}/bin/sluice", "status")
        self.assertIn("\nready\n", told)
        cluster = json.loads((self.root.path / "home/.local/state/sluice"
                              "/default/cluster.json").read_text())
        for entry in [*cluster["processes"], cluster["supervisor"]]:
            proc = f"/proc/{entry['pid']}"
            with self.subTest(argv=entry["argv"]):
                line, _ = self.root.run("cat", f"{proc}/cmdline")
                self.assertEqual(line.split("\0")[:-1], entry["argv"])
                program, _ = self.root.run("readlink", f"{proc}/exe")
                self.assertEqual(program.strip(), entry["argv"][0])
                maps, _ = self.root.run("cat", f"{proc}/maps")
                files = set(re.findall(r" (/\S+)$", maps, re.M))
                self.assertGreater(len(files), 2)
                self.assertEqual([one for one in files
                                  if not one.startswith(at)], [])
        # A grammar is tried in a process that the gateway starts of itself.
        self.root.run(f"{at}/sluice", "generate", "One", "--max-tokens", "4")
        self.root.run(f"{at}/sluice", "down")
        left, _ = self.root.run("ps")
        self.assertNotIn("/sluice", left)  # Zombies have no path.

    def test_1_its_sbom_lists_what_it_holds(self):
        at = self.root.path / self.unpacked()[1:]
        bom = json.loads((at / "share/sluice/sbom.cdx.json").read_text())
        held = {one["name"]: one for one in bom["components"]
                if "?arch=" in one["bom-ref"]}
        copyrights = {path.name for path in
                      (at / "share/doc/sluice/debian").iterdir()}
        self.assertEqual(held.keys(), copyrights)
        lock = harness.ROOT / "deploy/packages/debian-packages.lock"
        for line in lock.read_text().splitlines():
            arch, name, version, *digest = line.split()
            if f"?arch={arch}&" in held["openssl"]["bom-ref"]:
                self.assertEqual(held[name]["version"], version)
                self.assertEqual(held[name]["hashes"][0]["content"], *digest)
        (pip,) = [one for one in bom["components"] if one["name"] == "pip"]
        self.assertTrue((at / "share/sluice/python-wheels" / (
            f"pip-{pip['version']}-py3-none-any.whl")).exists())
        refs = [one["bom-ref"] for one in bom["components"]]
        self.assertEqual(len(refs), len(set(refs)))

    def test_2_names_are_resolved_by_files_and_by_dns(self):
        at = self.unpacked()
        model = f"{at}/share/sluice/demo-model"
        etc = self.root.path / "etc"
        (etc / "hosts").write_text("127.0.0.1 localhost infile.sluice.test\n")
        (etc / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        # Modules that a host may name and a bundle does not have.
        (etc / "nsswitch.conf").write_text(
            "hosts: files mdns4_minimal [NOTFOUND=return] resolve "
            "[!UNAVAIL=return] dns myhostname\npasswd: files sss\n")
        server = subprocess.Popen(
            self.root.network(sys.executable, "-B", NAMES,
                              "indns.sluice.test=127.0.0.1"),
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        self.assertEqual(server.stdout.readline(), "listening\n")
        # gRPC asks for stages by a resolver of its own.
        for name, port in (("infile.sluice.test", 8001),
                           ("indns.sluice.test", 8002)):
            with self.subTest(name=name):
                stage = subprocess.Popen(self.root.inside(
                    f"{at}/bin/sluice-stage", "--model", model, "--listen",
                    f"127.0.0.1:{port + 1000}"), stderr=subprocess.DEVNULL)
                gateway = subprocess.Popen(self.root.inside(
                    f"{at}/bin/sluice-gateway", "--model", model, "--listen",
                    f"127.0.0.1:{port}", "--stages", f"{name}:{port + 1000}",
                    "--insecure", "--allowed-hosts", name),
                    stderr=subprocess.DEVNULL)
                for child in (stage, gateway):
                    self.addCleanup(child.wait)
                    self.addCleanup(child.kill)
                harness.wait_for(lambda: subprocess.run(
                    self.root.inside(f"{at}/bin/sluice", "probe",
                                     f"http://{name}:{port}/readyz"),
                    capture_output=True, check=False).returncode == 0, 30,
                    f"a gateway by the name {name}")
        _, err = self.root.run(f"{at}/bin/sluice", "probe",
                               "http://none.sluice.test:8001/readyz", status=1)
        self.assertIn("none.sluice.test", err)

    def test_3_the_file_installs_and_removes_it(self):
        before = self.root.files()
        at = self.root.put(self.script, "/tmp/sluice.sh")
        _, err = self.root.run("sh", at)
        self.assertIn("/home/.local/bin/sluice up", err)
        self.root.run(".local/bin/sluice", "--version")
        self.root.run("sh", at)  # Over itself, as over another version.
        out, _ = self.root.run(".local/bin/sluice", "up", "--detach", "--model",
                               ".local/lib/sluice/share/sluice/demo-model",
                               "--run-dir", "run")
        self.assertIn(RIGHT, out)
        _, err = self.root.run("sh", at, "--uninstall", status=1)
        self.assertIn("stop its cluster (sluice down)", err)
        self.root.run(".local/bin/sluice", "down", "--run-dir", "run")
        self.root.run("sh", at, "--uninstall")
        # The launcher's notes of clusters stay, and the folder that has them.
        self.assertEqual(self.root.files("home/run", "tmp/", "home/.cache",
                                         "home/.local/state") - {"home/.local"},
                         {path for path in before
                          if not path.startswith("tmp/")})
        _, err = self.root.run("sh", at, "--uninstall", status=1)
        self.assertIn("nothing that this file installed", err)

    def test_3_what_is_there_already_stays(self):
        at = self.root.put(self.script, "/tmp/sluice.sh")
        self.root.run("mkdir", "-p", "/tmp/own/bin")
        self.root.run("touch", "/tmp/own/bin/sluice")
        before = self.root.files()
        _, err = self.root.run("sh", at, "--prefix", "/tmp/own", status=1)
        self.assertIn("/tmp/own/bin/sluice is there", err)
        _, err = self.root.run("sh", at, "--prefix", "/etc", status=1)
        self.assertIn("/etc/lib", err)
        self.assertEqual(self.root.files(), before)
        for words in (("--prefix",), ("--up",)):
            self.root.run("sh", at, *words, status=2)

    def test_3_a_damaged_file_installs_nothing(self):
        at = self.root.put(self.script, "/tmp/sluice.sh")
        with open(self.root.path / "tmp/sluice.sh", "r+b") as file:
            file.seek(-100_000, os.SEEK_END)
            file.write(b"x")
        before = self.root.files()
        _, err = self.root.run("sh", at, status=1)
        self.assertIn("the file is damaged: its contents have SHA-256", err)
        self.assertEqual(self.root.files(), before)

    def test_4_drivers_are_found_where_the_system_has_them(self):
        """By the system's list of libraries, which the bundle's loader reads."""
        at = self.unpacked()
        library = self.root.path / "opt/driver/libcuda.so.1"
        library.parent.mkdir(parents=True)
        source = self.folder / "driver.c"
        source.write_text("int cuInit(unsigned f) { return f ? 1 : 0; }\n")
        subprocess.run(["gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-o",
                        library, source], check=True)
        (self.root.path / "etc/ld.so.conf").write_text("/opt/driver\n")
        subprocess.run(["ldconfig", "-r", self.root.path], check=True)
        self.root.run(
            f"{at}/lib/sluice/python/bin/python3", "-ISBc",
            "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0")

    def test_5_a_cpu_without_avx_answers(self):
        """An old CPU, as qemu has it: no kernel of AVX2, and no SSE4 either."""
        qemu = small_root.shutil.which("qemu-x86_64")
        if not harness.LONG:
            self.skipTest("half a minute under qemu: SLUICE_LONG=1")
        if not qemu or os.uname().machine != "x86_64":
            self.skipTest("needs qemu-x86_64 (qemu-user)")
        at = self.folder / "old"
        subprocess.run(["sh", self.script, "--unpack", at], check=True)
        model = at / "share/sluice/demo-model"
        stage, gateway = ports.choose(2)
        url = f"http://127.0.0.1:{gateway}"
        for program, words in (
                ("stage", ["--packed", "off", "--listen",
                           f"127.0.0.1:{stage}"]),
                ("gateway", ["--listen", f"127.0.0.1:{gateway}", "--stages",
                             f"127.0.0.1:{stage}"])):
            child = subprocess.Popen(
                [qemu, "-cpu", "core2duo", at / f"bin/sluice-{program}",
                 "--model", model, *words], stderr=subprocess.DEVNULL)
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)

        def ready():
            try:
                return api.get(url, "/readyz")[0] == 200
            except OSError:
                return False
        harness.wait_for(ready, 100, "ready under qemu")
        status, _, raw = api.request(url, "POST", "/v1/completions", {
            "prompt": "Once upon a time", "max_tokens": 2, "temperature": 0})
        self.assertEqual(status, 200, raw)
        self.assertIn('"isa":"portable"', api.get(url, "/cluster")[1])

    def test_6_hosts_need_sh_ssh_and_tar_alone(self):
        missing = ssh_machines.lacks()
        if missing:
            self.skipTest(missing)
        # The daemon starts the shell that root has on this machine.
        shell = self.root.path / pwd.getpwnam("root").pw_shell.lstrip("/")
        if not shell.exists():
            shell.parent.mkdir(parents=True, exist_ok=True)
            shell.write_text('#!/bin/sh\nexec /bin/sh "$@"\n')
            shell.chmod(0o755)
        (self.root.path / "root").mkdir(mode=0o700)
        here = self.folder / "here"
        subprocess.run(["sh", self.script, "--unpack", here], check=True)
        machines = ssh_machines.Machines(self.folder, ("a", "b"), prefix="slb",
                                         net="10.232.9", chroot=self.root.path)
        self.addCleanup(machines.close)
        machines.open()
        model = self.root.path / "srv/model"
        small_root.shutil.copytree(here / "share/sluice/demo-model", model)
        hosts = self.folder / "hosts.toml"
        hosts.write_text('model = "/srv/model"\n' + "".join(
            f'[hosts.{name}]\nssh = "{machines.destination(name)}"\n'
            for name in ("a", "b")))
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder),
                       "SLUICE_SSH": machines.ssh}
        run_dir = self.folder / "run"

        def sluice(*words):
            return subprocess.run([here / "sluice", *words, "--run-dir",
                                   run_dir], capture_output=True, text=True,
                                  env=environment, timeout=120, check=False)
        begin = time.monotonic()
        done = sluice("up", "--hosts", hosts, "--detach", "--split-by",
                      "memory")
        self.addCleanup(sluice, "down")
        self.assertEqual(done.returncode, 0, done.stderr)
        print(f"two hosts: {time.monotonic() - begin:.1f} s", flush=True)
        self.assertIn("host a: copying this bundle's binaries", done.stderr)
        self.assertIn("2 stages on 2 hosts", done.stdout)
        self.assertRegex(done.stdout, r"answer: \S")
        self.assertGreater(len(self.programs_below(self.root.path)), 3)
        done = sluice("status")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = sluice("down")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.programs_below(self.root.path), [])

    @staticmethod
    def programs_below(folder):
        """Of every process, those of a file in the folder."""
        found = []
        for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
            try:
                found.append(os.readlink(link))
            except OSError:
                pass
        return [path for path in found if path.startswith(str(folder))]


if __name__ == "__main__":
    harness.main()
