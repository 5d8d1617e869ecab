"""The bundle for AArch64, built here: its programs answer under qemu with
nothing else of that processor, and give the tokens of this one.
Long mode alone: the build takes minutes."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]
                    / "deploy/local/cluster"))
import api  # noqa: E402
import harness  # noqa: E402
import ports  # noqa: E402

MAKE = harness.ROOT / "deploy/packages/make"
BODY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
        "return_token_ids": True}


class Arm64Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not harness.LONG:
            raise unittest.SkipTest("a build of minutes: SLUICE_LONG=1 "
                                    "(tests/run --long)")
        for tool in ("qemu-aarch64", "patchelf", "readelf"):
            if not shutil.which(tool):
                raise unittest.SkipTest(f"needs {tool} (qemu-user, patchelf, "
                                        "binutils)")
        folder = tempfile.TemporaryDirectory(prefix="sluice-arm64-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        environment = {name: value for name, value in os.environ.items()
                       if name != "SLUICE_BUILD_DIR"}
        subprocess.run([MAKE, "bundle", "--arch", "arm64", "--out",
                        cls.folder], check=True, env=environment)
        (tarball,) = cls.folder.glob("sluice-*-arm64.tar.gz")
        subprocess.run(["tar", "-C", cls.folder, "-xf", tarball], check=True)
        cls.at = cls.folder / tarball.name.removesuffix(".tar.gz")

    def start(self, program, *options):
        log = open(self.folder / f"{program}.log", "wb")
        with log:
            child = subprocess.Popen(
                ["qemu-aarch64", str(self.at / "bin" / program),
                 *map(str, options)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)
        self.addCleanup(child.wait, 60)
        self.addCleanup(child.terminate)
        return child

    def test_it_answers_as_this_processor_does(self):
        model = self.at / "share/sluice/demo-model"
        stage, gateway = ports.choose(2)
        self.start("sluice-stage", "--model", model, "--listen",
                   f"127.0.0.1:{stage}", "--packed", "off")
        self.start("sluice-gateway", "--model", model, "--listen",
                   f"127.0.0.1:{gateway}", "--stages", f"127.0.0.1:{stage}")
        url = f"http://127.0.0.1:{gateway}"

        def ready():
            try:
                return api.get(url, "/readyz")[0] == 200
            except OSError:
                return False
        try:
            harness.wait_for(ready, 240, "ready")
        except AssertionError as error:
            logs = [path.read_text()[-1500:]
                    for path in self.folder.glob("*.log")]
            raise AssertionError("\n".join([str(error), *logs])) from None
        begin = time.monotonic()
        status, _, raw = api.request(url, "POST", "/v1/completions", BODY)
        self.assertEqual(status, 200, raw)
        print(f"{BODY['max_tokens']} tokens under qemu: "
              f"{time.monotonic() - begin:.1f} s", flush=True)
        with harness.Cluster(harness.ROOT / "deploy/demo_model/weights"
                             ) as cluster:
            want = api.request(cluster.url, "POST", "/v1/completions", BODY)[2]
        self.assertEqual(json.loads(raw)["choices"][0]["token_ids"],
                         json.loads(want)["choices"][0]["token_ids"])
        status, text = api.get(url, "/cluster")
        self.assertIn('"isa":"neon', text)

    def test_its_interpreter_runs_the_launcher(self):
        done = subprocess.run(
            ["qemu-aarch64", self.at / "lib/sluice/python/bin/python3", "-ISB",
             self.at / "share/sluice/launcher", "up", "--help"],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("usage: sluice up", done.stdout)


if __name__ == "__main__":
    harness.main()
