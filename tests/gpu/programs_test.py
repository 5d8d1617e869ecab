"""programs.py and clusters.py, with programs that die and hang, and commands
that only seem to start a cluster; how pytorch_loop.py times."""
import importlib
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock as mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import clusters  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position

SILENCE = 8  # longer than an interpreter takes to start
SECONDS = 60  # more than anything here takes
# Five cases, of which some end the program; argv[-1] is the first.
CASES = """
import json, os, sys, time
ends = json.loads(sys.argv[1])
wrong = False
for case in range(int(sys.argv[-1]), 5):
    print(json.dumps({"begin": case, "op": f"op {case}", "tokens": 1}),
          flush=True)
    how = ends.get(str(case))
    if how == "hang":
        print('{"half": ', end="", flush=True)
        time.sleep(600)
    elif how == "say":
        print("starts", "cuda: an illegal address", sep="\\n", file=sys.stderr)
        os._exit(3)
    elif how == "abort":
        os.abort()
    elif how == "exit":
        os._exit(1)
    print(json.dumps({"op": f"op {case}", "tokens": 1, "same": how is None}))
    wrong = wrong or how is not None
print('{"end": 5}')
sys.exit(1 if wrong else 0)
"""

# Four cases as gtest's programs run them.
GTEST = """
import os, sys, time
out = ""
for option in sys.argv:
    out = option.partition("--gtest_filter=-")[2] or out
ends = {"A.Dies": lambda: os.abort(), "A.Hangs": lambda: time.sleep(600)}
says = {"A.Is": "      OK", "B.Fails/1": " FAILED ", "B.Skips": " SKIPPED"}
for case in ("A.Is", "A.Dies", "A.Hangs", "B.Fails/1", "B.Skips"):
    if case in out.split(":") or case in sys.argv:
        continue
    print(f"[ RUN      ] {case}", flush=True)
    ends.get(case, str)()
    also = ", where GetParam() = 1" if "/" in case else ""
    print(f"[ {says[case]} ] {case}{also} (3 ms)", flush=True)
print("[  SKIPPED ] 1 test, listed below:", "[  SKIPPED ] B.Skips", sep="\\n")
sys.exit(0 if "B.Fails/1" in sys.argv else 1)
"""
# Starts a process that goes on, as `up` does; then hangs, ends or fails.
UP = """#!{python}
import json, pathlib, subprocess, sys, time
run_dir = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)", run_dir],
    start_new_session=True, stdout=subprocess.DEVNULL)
(run_dir / "stage.log").write_text("an illegal address")
(run_dir / "cluster.json").write_text(json.dumps({{"child": child.pid}}))
pathlib.Path("{pid}").write_text(str(child.pid))
if "hang" in sys.argv:
    time.sleep(600)
sys.exit("no stage" if "fail" in sys.argv else 0)
"""


class LookTest(unittest.TestCase):
    def look(self, ends, silence=SILENCE, program=CASES, seconds=600):
        with tempfile.TemporaryDirectory() as folder:
            found, wrong = programs.look_at_cases(
                [sys.executable, "-c", program, ends],
                pathlib.Path(folder) / "log", time.monotonic() + seconds,
                silence=silence)
            return {one["op"]: one.get("same", one.get("died"))
                    for one in found}, wrong

    def test_all_is_well(self):
        found, wrong = self.look("{}")
        self.assertEqual(found, {f"op {case}": True for case in range(5)})
        self.assertIsNone(wrong)

    def test_a_case_that_is_not_as_it_must_be_fails(self):
        found, wrong = self.look('{"3": "differs"}')
        self.assertEqual(found["op 3"], False)
        self.assertEqual(found["op 4"], True)
        self.assertIsNotNone(wrong)

    def test_cases_behind_those_that_die_or_hang_are_looked_at(self):
        found, wrong = self.look('{"0": "abort", "2": "hang", "4": "abort"}',
                                 silence=SILENCE)
        self.assertEqual(found, {
            "op 0": "exit code -6", "op 1": True, "op 2": "hangs",
            "op 3": True, "op 4": "exit code -6"})
        self.assertEqual(wrong, "op 0, 1 tokens: exit code -6")

    def test_what_the_program_said_stands_beside_its_exit_code(self):
        found, _ = self.look('{"1": "say"}')
        self.assertEqual(found["op 1"],
                         "exit code 3: cuda: an illegal address")

    def test_the_exit_code_of_a_wrong_case_does_not_hide_a_death(self):
        found, wrong = self.look('{"2": "exit"}')
        self.assertEqual(found["op 2"], "exit code 1")
        self.assertEqual(found["op 4"], True)
        self.assertEqual(wrong, "op 2, 1 tokens: exit code 1")

    def test_what_was_found_is_kept_when_the_time_is_over(self):
        found, wrong = self.look('{"1": "hang"}', silence=60, seconds=SILENCE)
        self.assertEqual(found, {"op 0": True})
        self.assertEqual(wrong, "op 1, 1 tokens: out of time")

    def test_a_case_that_dies_is_named_with_its_shapes(self):
        found, wrong = self.look("{}", program="""
import json, os
print(json.dumps({"begin": 0, "op": "mlp", "shapes": "large", "tokens": 2}),
      flush=True)
os._exit(3)
""")
        self.assertEqual(set(found), {"mlp"})
        self.assertTrue(wrong.endswith("mlp, large, 2 tokens: exit code 3"))

    def test_too_many_deaths_end_it(self):
        ends = '{"0": "abort", "1": "abort", "2": "abort"}'
        most, programs.MOST_DEATHS = programs.MOST_DEATHS, 2
        try:
            found, wrong = self.look(ends)
        finally:
            programs.MOST_DEATHS = most
        self.assertEqual(len(found), 2)
        self.assertTrue(wrong.startswith("2 cases died, the first: op 0"))

    def test_a_program_that_cannot_be_asked_so_is_told(self):
        refused = "import sys; print('no such part', file=sys.stderr)\n" \
            "sys.exit(2)"
        self.assertEqual(self.look("{}", program=refused),
                         ({}, "exit code 2: no such part"))


class LinesTest(unittest.TestCase):
    def lines(self, program, silence):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            ended = programs.lines_of([sys.executable, "-c", program], log,
                                      time.monotonic() + 600, silence=silence)
            return ended, log.read_text()

    def test_a_silent_program_is_killed_and_its_lines_kept(self):
        ended, log = self.lines(
            "import sys, time\n"
            "print('a word'); print('{\"n\": 1}', flush=True)\n"
            "print('why', file=sys.stderr, flush=True)\n"
            "time.sleep(600)", SILENCE)
        self.assertEqual(ended, ([{"n": 1}], None, "why", "hangs"))
        self.assertIn("a word\n", log)

    def test_what_a_program_started_is_killed_with_it(self):
        begin = time.monotonic()
        ended, _ = self.lines(
            "import subprocess, sys, time\n"
            "child = subprocess.Popen(['sleep', '600'])\n"
            "print('{\"child\": %d}' % child.pid, flush=True)\n"
            "time.sleep(600)", SILENCE)
        self.assertEqual(ended.why, "hangs")
        child = pathlib.Path(f"/proc/{ended.lines[0]['child']}/stat")
        while child.exists() and child.read_text().split()[2] != "Z":
            self.assertLess(time.monotonic() - begin, 60)
            time.sleep(0.1)

    def test_bytes_that_are_no_text_stop_nothing(self):
        ended, log = self.lines(
            "import sys; sys.stdout.buffer.write(b'\\xff\\n{\"n\": 2}\\n')",
            SILENCE)
        self.assertEqual((ended.lines, ended.code), ([{"n": 2}], 0))
        self.assertIn("\ufffd\n", log)

    def test_a_line_that_is_no_json_ends_a_program(self):
        ended, _ = self.lines(
            "print('{\"n\": 1}'); print('{\"n\": nan}')", SILENCE)
        self.assertEqual((ended.lines, ended.code), ([{"n": 1}], None))
        self.assertTrue(ended.why.startswith("a line that is no JSON: "))


class GtestTest(unittest.TestCase):
    def run_gtest(self, *without):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            log.write_text("[       OK ] Of.Before (3 ms)\n")
            return programs.run_gtest(
                [sys.executable, "-c", GTEST, *without], log,
                time.monotonic() + 600, SILENCE)

    def test_cases_behind_those_that_die_or_hang_are_run(self):
        found, wrong = self.run_gtest()
        self.assertEqual(found, {
            "passed": 1, "failed": ["B.Fails/1"], "skipped": ["B.Skips"],
            "died": {"A.Dies": "exit code -6", "A.Hangs": "hangs"}})
        self.assertEqual(wrong, "B.Fails/1; A.Dies (exit code -6); "
                         "A.Hangs (hangs)")

    def test_what_passes_and_what_is_skipped_is_counted(self):
        found, wrong = self.run_gtest("A.Dies", "A.Hangs", "B.Fails/1")
        self.assertEqual(found, {"passed": 1, "failed": [], "died": {},
                                 "skipped": ["B.Skips"]})
        self.assertIsNone(wrong)

    def test_a_program_that_is_not_there_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            found, wrong = programs.run_gtest(
                [folder + "/no_test"], pathlib.Path(folder) / "log",
                time.monotonic() + 600, SILENCE)
        self.assertEqual(found["passed"], 0)
        self.assertIn("No such file", wrong)


class StopTest(unittest.TestCase):
    """Programs that are stopped from without."""

    def setUp(self):
        self.addCleanup(programs.go_on)
        self.addCleanup(signal.signal, signal.SIGTERM,
                        signal.signal(signal.SIGTERM,
                                      lambda *_: programs.stop("asked")))

    def soon(self):
        """Asks this process to end once programs may have begun."""
        threading.Timer(SILENCE / 4, os.kill,
                        (os.getpid(), signal.SIGTERM)).start()

    def test_what_a_list_of_cases_found_is_kept(self):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            self.soon()
            with programs.interruptible():
                found, wrong = programs.look_at_cases(
                    [sys.executable, "-c", CASES, '{"2": "hang"}'],
                    pathlib.Path(folder) / "log", begin + 600, silence=600)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual([one["op"] for one in found], ["op 0", "op 1"])
        self.assertEqual(wrong, "op 2, 1 tokens: asked")
        self.assertEqual(programs.stopped(), "asked")

    def test_what_waits_for_no_program_is_interrupted(self):
        begin = time.monotonic()
        self.soon()
        with self.assertRaisesRegex(programs.Stopped, "asked"):
            with programs.interruptible():
                time.sleep(600)
        self.assertLess(time.monotonic() - begin, 60)

    def test_programs_of_other_threads_are_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            ends = []
            thread = threading.Thread(target=lambda: ends.append(
                programs.lines_of(["sleep", "600"],
                                  pathlib.Path(folder) / "log",
                                  time.monotonic() + 600, silence=600)))
            thread.start()
            self.soon()
            thread.join(60)
        self.assertEqual([(end.code, end.why) for end in ends],
                         [(None, "asked")])

    def test_nothing_begins_until_programs_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            def ended():
                return programs.lines_of(["true"],
                                         pathlib.Path(folder) / "log",
                                         time.monotonic() + 600, SILENCE)
            programs.stop("asked")
            self.assertEqual(ended().why, "asked")
            with self.assertRaises(programs.Stopped):
                with programs.interruptible():
                    self.fail("is entered")
            programs.go_on()
            self.assertEqual(ended().code, 0)

    def test_what_kills_is_called(self):
        killed = []
        with programs.killed_by(lambda: killed.append(1)):
            programs.stop("asked")
        programs.stop("again")
        self.assertEqual(killed, [1])


class ClusterTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pid = self.folder / "pid"
        for name, text in (
                ("up", UP.format(python=sys.executable, pid=self.pid)),
                ("down", "#!/bin/sh\n")):
            path = self.folder / "deploy/local" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        root = mock.patch.object(clusters, "ROOT", self.folder)
        root.start()
        self.addCleanup(root.stop)
        self.addCleanup(programs.go_on)

    def cluster(self, *options, seconds=SECONDS):
        return clusters.cluster(options, self.folder / "log",
                                time.monotonic() + 600, dict(os.environ),
                                seconds)

    def assert_gone(self):
        stat = pathlib.Path(f"/proc/{self.pid.read_text()}/stat")
        end = time.monotonic() + SECONDS
        while stat.exists() and stat.read_text().split()[2] != "Z":
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_what_down_leaves_is_killed(self):
        with self.cluster() as document:
            self.assertEqual(str(document["child"]), self.pid.read_text())
            os.kill(document["child"], 0)
        self.assert_gone()

    def test_a_cluster_that_does_not_come_up_is_killed_and_its_logs_kept(self):
        with self.assertRaisesRegex(OSError, "up: 1: no stage"):
            with self.cluster("fail"):
                self.fail("is up")
        self.assert_gone()
        self.assertIn("an illegal address", (self.folder / "log").read_text())
        with self.assertRaisesRegex(OSError, "up: out of time|up: hangs"):
            with self.cluster("hang", seconds=8):
                self.fail("is up")
        self.assert_gone()

    def test_a_signal_kills_clusters_of_other_threads(self):
        def wait(option):
            with self.cluster(option):
                time.sleep(0.5)
                raise OSError("the connection is gone")

        def stop():
            while not self.pid.exists():
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGTERM)

        before = signal.signal(signal.SIGTERM,
                               lambda *_: programs.stop("asked"))
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        begin = time.monotonic()
        threading.Thread(target=stop).start()
        with self.assertRaisesRegex(programs.Stopped, "asked"):
            with programs.interruptible():
                clusters.at_once({"a": lambda: wait("hang")})
        self.assertLess(time.monotonic() - begin, SECONDS)
        self.assert_gone()

    def test_what_raises_is_told_beside_the_others(self):
        def bad():
            raise ValueError("no JSON")

        self.assertEqual(clusters.at_once({"a": lambda: 1, "b": bad}),
                         {"a": 1, "b": "ValueError: no JSON"})


class PytorchTest(unittest.TestCase):
    """How the loop of PyTorch is timed, without PyTorch."""

    def timed(self, replay_s, wait_s):
        """What is found on a device where a replay's call and a wait take so
        long; and the calls."""
        torch = types.ModuleType("torch")
        torch.nn = types.ModuleType("torch.nn")
        torch.nn.functional = None
        with mock.patch.dict(sys.modules,
                             {"torch": torch, "torch.nn": torch.nn}):
            loop = importlib.import_module("pytorch_loop")
        now, calls = [0.0], []

        def call(name, seconds):
            calls.append(name)
            now[0] += seconds

        with mock.patch.object(loop, "synchronise",
                               lambda _: call("wait", wait_s)), \
                mock.patch.object(loop.time, "perf_counter", lambda: now[0]):
            return loop.timed(lambda: call("replay", replay_s),
                              lambda: call("rewind", 0), 2, "cuda", 4), calls

    def test_replays_are_waited_for_once_where_that_is_faster(self):
        found, calls = self.timed(0.25, 0.5)
        self.assertEqual(calls, ["rewind"] + 4 * ["wait", "replay", "wait"]
                         + ["rewind", "wait"] + 4 * ["replay"] + ["wait"])
        self.assertEqual(found["waits"], "once")
        self.assertAlmostEqual(found["tok_per_s"], 2 / (0.25 + 0.5 / 4))
        self.assertAlmostEqual(found["slower_tok_per_s"], 2 / 0.75)

    def test_the_faster_way_is_the_baseline(self):
        found, _ = self.timed(0.25, 0)
        self.assertAlmostEqual(found["tok_per_s"], 2 / 0.25)


if __name__ == "__main__":
    unittest.main()
