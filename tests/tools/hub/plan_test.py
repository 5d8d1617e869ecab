"""`sluice plan` of a hub's model: sizes without weights, GGUFs that fit, and what
is said without a network.

usage: plan_test.py SLUICE [unittest's options]
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("SLUICE_BUILD_DIR",
                      str(pathlib.Path(sys.argv[1]).absolute().parents[2]))
sys.path.insert(0, str(HERE))

import fake_hub  # noqa: E402
import tiny_gguf  # noqa: E402
from pull_case import NAME, PullCase  # noqa: E402
from stages_test import DEMO, shards_of  # noqa: E402

MACHINE = ("--machine", "2G,9", "--count", "2", "--context", "512")


class PlanTest(PullCase):
    def plan(self, name, *words, code=0, **environment):
        """What is planned, as JSON; of a failed plan, what it says."""
        figures = self.home / "plan.json"
        done = self.run_sluice("plan", name, *(words or MACHINE), "--json",
                               figures, code=code, **environment)
        self.said = done.stdout + done.stderr
        if code:
            return done.stderr
        return {key: value for key, value in
                json.loads(figures.read_text()).items() if key != "model"}

    def fetched(self):
        """Bytes of files that the hub's two servers sent."""
        return [path for path, _ in self.hub.asked(method="GET")]

    def add_demo(self, **options):
        files = {path.name: path.read_bytes() for path in DEMO.iterdir()}
        return self.add("org/demo", files, lfs=["model.safetensors"], **options)

    def expect_no_weights(self, biggest):
        """All requests of weights named a range, and ended within it."""
        asked = [headers for path, headers in self.hub.asked("cdn", "GET")]
        self.assertTrue(asked)
        for headers in asked:
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", headers["Range"])
            self.assertLess(int(match[2]), biggest)
        self.assertEqual(list(self.home.glob("hf/hub/*/blobs/*")), [])

    def test_a_plan_by_name_is_that_of_the_files(self):
        want = self.plan(DEMO)
        self.add_demo()
        self.assertEqual(self.plan("org/demo"), want)
        self.assertNotIn("tokenizer", "".join(self.fetched()))
        self.expect_no_weights(64 << 10)
        # Shards have headers of their own.
        files = {path.name: path.read_bytes() for path in DEMO.iterdir()
                 if path.name != "model.safetensors"}
        files |= shards_of(DEMO / "model.safetensors")
        self.add("org/shards", files,
                 lfs=[name for name in files if name.endswith("safetensors")])
        self.assertEqual(self.plan("org/shards"), want)
        # No folder is left.
        self.assertEqual(list(self.home.glob("sluice-plan-*")), [])

    def environment(self, **more):
        return super().environment(TMPDIR=str(self.home), **more)

    def test_stages_alone_are_split_by_name_too(self):
        self.add_demo()
        words = ("--stages", "2")
        want = self.run_sluice("plan", DEMO, *words).stdout
        self.assertEqual(self.run_sluice("plan", "org/demo", *words).stdout,
                         want)

    def test_the_commit_is_what_files_name(self):
        self.add_demo(revisions=("main", "v1"))
        out = self.run_sluice("plan", "org/demo@v1", *MACHINE, "--write",
                              "kubernetes").stdout
        self.assertIn(f'HUB_MODEL, value: "org/demo@{fake_hub.COMMIT}"', out)

    def test_ggufs_that_fit_are_proposed(self):
        made = tiny_gguf.make(tiny_gguf.Q8_0)
        files = {"demo-Q8_0.gguf": made,
                 "demo-F16.gguf": tiny_gguf.make(tiny_gguf.F16)}
        repository = self.add("org/demo-GGUF", files, lfs=list(files))
        path = self.home / "demo.gguf"
        path.write_bytes(made)
        want = self.plan(path)
        self.assertEqual(want["formats"], "Q8_0")
        self.assertEqual(self.plan("org/demo-GGUF:Q8_0"), want)
        self.assertRegex(self.said, r"fits +org/demo-GGUF:demo-Q8_0\n")
        self.assertRegex(self.said, r"fits +org/demo-GGUF:demo-F16\n")
        # A proposal is a name that plan takes.
        self.assertEqual(self.plan("org/demo-GGUF:demo-Q8_0"), want)
        repository.sizes["demo-F16.gguf"] = 9 << 30
        self.plan("org/demo-GGUF:Q8_0")
        self.assertRegex(self.said, r"too large +org/demo-GGUF:demo-F16\n")
        self.assertRegex(self.said, r"fits +org/demo-GGUF:demo-Q8_0\n")

    def test_a_header_beyond_the_first_request_is_read(self):
        """Vocabularies of GGUFs take megabytes."""
        made = tiny_gguf.make(padding=3 << 20) + bytes(8 << 20)
        self.add("org/long", {"long.gguf": made}, lfs=["long.gguf"])
        path = self.home / "long.gguf"
        path.write_bytes(made)
        self.assertEqual(self.plan("org/long"), self.plan(path))
        self.expect_no_weights(4 << 20)
        ends = [headers["Range"] for _, headers in self.hub.asked("cdn", "GET")]
        self.assertEqual(ends, [f"bytes={begin << 20}-{(end << 20) - 1}"
                                for begin, end in ((0, 1), (1, 2), (2, 4))])

    def test_a_model_that_fits_nowhere_is_told_with_what_there_is(self):
        made = tiny_gguf.make()
        files = {"demo-F16.gguf": made, "demo-Q2_K.gguf": made}
        self.add("org/two", files, lfs=list(files))
        said = self.plan("org/two:F16", "--machine", "257M,9", "--context",
                         "1024", code=1)
        self.assertIn("org/two:demo-Q2_K", said)

    def test_what_cannot_be_had_is_told(self):
        self.add_demo()
        said = self.plan("org/demo", code=1, HF_ENDPOINT="http://127.0.0.1:9")
        self.assertIn("org/demo: there is no such file or folder, and as a "
                      "hub's model it could not be read", said)
        self.assertIn("127.0.0.1:9", said)
        said = self.plan("org/demo", code=1, HF_HUB_OFFLINE="1")
        self.assertIn("HF_HUB_OFFLINE is set", said)
        said = self.plan("org/other", code=1)
        self.assertIn("there is no such model for everyone", said)
        self.hub.faults["model.safetensors"] = [
            ("status", 500, {})] * 20
        self.assertIn("500", self.plan("org/demo", code=1))

    def test_a_hostile_header_is_refused(self):
        for data, code, told in (
                (b"\xff" * 64, 2, "header of 18446744073709551615 bytes"),
                (b"\x10" + bytes(7) + b"not json", 1, "8 bytes came of 16"),
                (b"\x08" + bytes(7) + b"not json", 2, "model.safetensors")):
            files = {"config.json": (DEMO / "config.json").read_bytes(),
                     "model.safetensors": data}
            self.add(NAME, files, lfs=["model.safetensors"])
            self.assertIn(told, self.plan(NAME, code=code))
        self.add("org/none", {"none.gguf": b"GGUP" + bytes(64)},
                 lfs=["none.gguf"])
        self.assertIn("none.gguf: is no GGUF", self.plan("org/none", code=2))


if __name__ == "__main__":
    PlanTest.sluice = sys.argv.pop(1)
    unittest.main()
