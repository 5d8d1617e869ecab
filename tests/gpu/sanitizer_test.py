"""The part of tests/gpu/run for compute-sanitizer, with a command in its place."""
import argparse
import collections
import contextlib
import io
import os
import pathlib
import sys
import time
import unittest
import unittest.mock as mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import fake_build  # pylint: disable=wrong-import-position
import sanitizer  # pylint: disable=wrong-import-position

# Runs device_check, tells what it is, and that nothing was found unless $FINDS is
# the tool's name.
TOOL = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
export TOOL="$2"
shift 4
"$@" || exit
if [ "$TOOL" = "$FINDS" ]; then
  echo "========= Invalid __global__ read of size 4 bytes"
  echo "========= ERROR SUMMARY: 1 error"
  exit 9
fi
echo "========= ERROR SUMMARY: 0 errors"
echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
"""
# Five cases. Under $HANGS the fourth of check-small takes long, under $DIES too.
CHECK = """
import json, os, sys, time
for case in range(int(sys.argv[3]), 5):
    print(json.dumps({"begin": case, "op": "one", "tokens": 1}), flush=True)
    if (case, sys.argv[2]) == (3, "check-small"):
        if os.environ["TOOL"] == os.getenv("HANGS"):
            print(f"========= {os.getenv('SAYS')}" if os.getenv("SAYS") else "",
                  flush=True)
            time.sleep(600)
        if os.environ["TOOL"] == os.getenv("DIES"):
            os._exit(0)
print('{"end": 5}')
"""
ALL = [" ".join(run) for run in sanitizer.RUNS]
HUNG = "memcheck check-small"


class SanitizerTest(fake_build.FakeBuild):
    def setUp(self):
        super().setUp()
        self.module = fake_build.load()
        self.make("gpu/device_check", CHECK)
        self.tool(self.folder / "bin/compute-sanitizer")
        # This machine may have one.
        here = mock.patch.object(sanitizer, "folders", lambda: [])
        here.start()
        self.addCleanup(here.stop)

    def tool(self, path, text=TOOL):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def call(self, limit=600, again=False, path=None, **environment):
        """The exit code of a run on a GPU, what it says, and each run's command."""
        said = io.StringIO()
        path = path or f"{self.folder / 'bin'}:{os.environ['PATH']}"
        before = collections.Counter(self.commands())
        with mock.patch.dict(os.environ, {"PATH": path, **environment}), \
                mock.patch.object(self.module, "LIMIT", limit), \
                contextlib.redirect_stdout(said):
            code = self.module.run_parts(argparse.Namespace(
                build=self.folder, device="cuda:0", out=self.out, commit=None,
                again=again, parts=["sanitizer"]))
        ran = collections.Counter(self.commands()) - before
        return code, said.getvalue(), list(ran)

    def commands(self):
        """The runs that were begun: tool, what and first case."""
        lines = [line.split() for log in self.out.glob("sanitizer-*.log")
                 for line in log.read_text().splitlines()
                 if line.startswith("$ ")]
        return [f"{line[3]} {line[-2]} {line[-1]}" for line in lines]

    def test_what_it_finds_ends_no_other_and_is_looked_at_again(self):
        code, said, ran = self.call(FINDS="memcheck")
        self.assertEqual(code, 1, said)
        self.assertCountEqual(ran, [f"{key} 0" for key in ALL])
        kept = self.found("sanitizer.failed")
        results = {key: one["result"]
                   for key, one in kept["found"]["runs"].items()}
        for key in ALL:
            if key.startswith("memcheck"):
                self.assertRegex(results[key], "^9: Invalid __global__ read")
            else:
                self.assertEqual(results[key], 0)
        self.assertIn("memcheck check-fast-small: 9: Invalid", kept["why"])
        code, said, ran = self.call()
        self.assertEqual(code, 0, said)
        self.assertCountEqual(ran, ["memcheck check-small 0",
                                    "memcheck check-fast-small 0"])
        self.assertRegex(said, "sanitizer +passes")
        self.assertEqual(self.call()[2], [])

    def test_what_had_too_little_time_goes_on_where_it_was(self):
        begin = time.monotonic()
        code, said, ran = self.call(limit=24, HANGS="memcheck")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(code, 75, said)
        self.assertEqual(len(ran), len(ALL))
        self.assertRegex(said, f"sanitizer: unfinished: .*{HUNG}: goes on at "
                         "case 3\n")
        self.assertRegex(said, "sanitizer +unfinished: see .*unfinished.json")
        runs = self.found("sanitizer.unfinished")["found"]["runs"]
        self.assertEqual(runs[HUNG], {"next": 3})
        self.assertEqual({key for key in ALL if runs[key] != {"result": 0}},
                         {HUNG})
        self.assertEqual(set(self.found("all")["unfinished"]), {"sanitizer"})
        code, said, ran = self.call()
        self.assertEqual(code, 0, said)
        self.assertEqual(ran, [f"{HUNG} 3"])
        self.assertEqual({one["result"] for one
                          in self.found("sanitizer")["runs"].values()}, {0})
        self.assertFalse((self.out / "sanitizer.unfinished.json").exists())

    def test_what_was_said_before_the_time_was_over_is_not_lost(self):
        code, said, _ = self.call(limit=24, HANGS="memcheck", SAYS="Race")
        self.assertEqual(code, 1, said)
        code, said, ran = self.call()
        self.assertEqual((code, ran), (1, [f"{HUNG} 3"]), said)
        self.assertRegex(
            self.found("sanitizer.failed")["found"]["runs"][HUNG]["result"],
            "^0: Race")

    def test_a_case_that_never_ends_is_wrong_and_those_behind_are_looked_at(self):
        self.assertEqual(self.call(limit=24, HANGS="memcheck")[0], 75)
        # A call with little time says nothing of the case.
        code, said, ran = self.call(limit=4, HANGS="memcheck")
        self.assertEqual((code, ran), (75, [f"{HUNG} 3"]), said)
        with mock.patch.object(sanitizer, "STUCK", 2):
            code, said, ran = self.call(limit=6, HANGS="memcheck")
        self.assertEqual((code, ran), (1, [f"{HUNG} 3"]), said)
        self.assertIn(f"{HUNG}: case 3 does not end", said)
        code, said, ran = self.call(HANGS="memcheck")
        self.assertEqual((code, ran), (1, [f"{HUNG} 4"]), said)
        self.assertRegex(
            self.found("sanitizer.failed")["found"]["runs"][HUNG]["result"],
            "^0: case 3 does not end")

    def test_other_binaries_begin_anew(self):
        self.call(FINDS="memcheck")
        self.make("gpu/device_check", CHECK + "\n")
        self.assertEqual(len(self.call()[2]), len(ALL))

    def test_a_part_that_is_run_again_looks_at_all(self):
        self.assertEqual(self.call()[0], 0)
        self.assertEqual(len(self.call(again=True, FINDS="memcheck")[2]),
                         len(ALL))
        self.assertEqual(len(self.call(again=True)[2]), len(ALL))

    def test_a_program_that_ends_before_its_last_case_is_wrong(self):
        code, said, _ = self.call(DIES="synccheck")
        self.assertEqual(code, 1)
        self.assertIn("synccheck check-small: 0: it ended before its last case",
                      said)

    def test_without_a_tool_or_a_gpu_it_is_skipped(self):
        code, said, _ = self.call(path="/nowhere")
        self.assertEqual(code, 0)
        self.assertIn("skipped: there is no compute-sanitizer", said)
        _, said = self.run_parts("sanitizer", env={
            **os.environ, "PATH": f"{self.folder / 'bin'}:/usr/bin"})
        self.assertIn("skipped: compute-sanitizer looks at GPUs alone", said)


class FindTest(fake_build.FakeBuild):
    def place(self, *path):
        tool = self.folder.joinpath(*path, "compute-sanitizer")
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text("")
        tool.chmod(0o755)
        return str(tool)

    def find(self, home="/nowhere"):
        with mock.patch.dict(os.environ, {"PATH": "/nowhere",
                                          "CUDA_HOME": home}), \
                mock.patch.object(sanitizer, "ROOT", self.folder), \
                mock.patch.object(sys, "path", []):
            return sanitizer.find()

    def test_it_is_that_of_the_toolkit_or_of_a_wheel_that_is_whole(self):
        if os.path.exists("/usr/local/cuda"):
            self.skipTest("this machine has a toolkit")
        self.assertIsNone(self.find())
        wheel = ("build/venv-cuda/lib/python3.11/site-packages/nvidia/cu13",)
        of_wheel = self.place(*wheel, "bin")
        self.assertIsNone(self.find())  # of CUDA 13.0: it starts nothing
        self.folder.joinpath(*wheel, "compute-sanitizer").mkdir()
        self.assertEqual(self.find(), of_wheel)
        in_folder = self.place("cuda", "compute-sanitizer")
        self.assertEqual(self.find(str(self.folder / "cuda")), in_folder)
        in_bin = self.place("cuda", "bin")
        self.assertEqual(self.find(str(self.folder / "cuda")), in_bin)


if __name__ == "__main__":
    unittest.main()
