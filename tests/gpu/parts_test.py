"""How parts of tests/gpu/run end, and what is kept of them, over programs that only
seem to be those of a build."""
import contextlib
import io
import os
import pathlib
import shutil
import signal
import sys
import time
import unittest
import unittest.mock as mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fake_build  # pylint: disable=wrong-import-position
from fake_build import load  # pylint: disable=wrong-import-position


class PartsTest(fake_build.FakeBuild):
    def test_a_signal_ends_programs_and_keeps_what_was_found(self):
        self.make("gpu/device_check", """
import json, os, pathlib, time
print(json.dumps({"begin": 0, "op": "one", "tokens": 1}))
print(json.dumps({"op": "one", "tokens": 1, "same": True}))
print(json.dumps({"begin": 1, "op": "two", "tokens": 1}), flush=True)
(pathlib.Path(__file__).parent / "pid").write_text(str(os.getpid()))
time.sleep(600)
""")
        pid = self.folder / "tests/gpu/pid"
        for number in (signal.SIGTERM, signal.SIGINT):
            running = self.begin("check,check_fast")
            while not (pid.exists() and pid.read_text()):
                self.assertIsNone(running.poll())
                time.sleep(0.05)
            child = pathlib.Path("/proc") / pid.read_text()
            running.send_signal(number)
            said = "".join(running.communicate(timeout=60))
            self.assertEqual(running.returncode, 128 + number, said)
            self.assertFalse(child.exists())
            kept = self.found("check.failed")
            self.assertEqual([one["op"] for one in kept["found"]], ["one"])
            self.assertIn(f"two, 1 tokens: ended by {number.name}",
                          kept["why"])
            self.assertRegex(said, r"check_fast +not run")
            pid.unlink()
            shutil.rmtree(self.out)

    def test_parts_that_were_not_tried_come_before_those_that_failed(self):
        self.make("gpu/device_check", """
import sys
print('{"read_gb_per_s": 1}')
sys.exit(sys.argv[2] in ("facts", "check"))
""")
        code, said = self.run_parts("machine,check")
        self.assertEqual(code, 1, said)
        code, said = self.run_parts("machine,check,bandwidth")
        self.assertEqual(code, 1, said)
        order = [said.index(f"{part}: ")
                 for part in ("bandwidth", "machine", "check")]
        self.assertEqual(order, sorted(order), said)
        self.assertEqual(set(self.found("all")["failed"]),
                         {"machine", "check"})

    def test_what_is_run_again_keeps_its_results_until_it_is_done(self):
        looks = """
import json, os, pathlib, time
print(json.dumps({"begin": 0, "op": "one", "tokens": 1}))
print(json.dumps({"op": "one", "tokens": 1, "same": True}), flush=True)
"""
        self.make("gpu/device_check", looks + """print('{"end": 1}')""")
        self.assertEqual(self.run_parts("check")[0], 0)
        before = self.found("check")
        self.make("gpu/device_check", looks + """
(pathlib.Path(__file__).parent / "hangs").touch()
time.sleep(600)
""")
        running = self.begin("check", again=True)
        while not (self.folder / "tests/gpu/hangs").exists():
            self.assertIsNone(running.poll())
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        said = "".join(running.communicate(timeout=60))
        self.assertEqual(running.returncode, 128 + signal.SIGTERM, said)
        self.assertEqual(self.found("check"), before)
        self.assertRegex(said, r"check +FAILED: see .*check.failed.json; "
                         r"before: .*check.json\n")
        # It goes on with that part, whose results are not those wanted.
        self.make("gpu/device_check", looks.replace("one", "two")
                  + """print('{"end": 1}')""")
        code, said = self.run_parts("check")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.found("check")[0]["op"], "two")
        self.assertFalse((self.out / "check.failed.json").exists())

    def test_results_tell_the_commit_of_their_binaries(self):
        self.make("gpu/device_check", "print('{\"device\": \"cpu\"}')")
        module = load()
        with mock.patch.object(module.binaries, "head",
                               lambda: ("abc", ["a.cc"])):
            module.binaries.record(self.folder)
        code, said = self.run_parts("machine")
        self.assertEqual(code, 0, said)
        found = self.found("machine")
        self.assertEqual((found["commit"], found["changed"]), ("abc", ["a.cc"]))
        self.make("gpu/device_check", "print('{\"read_gb_per_s\": 1}')")
        code, said = self.run_parts("machine,bandwidth")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, "machine: done before, see .*, of commit abc\n")
        self.assertEqual(self.found("all")["commits"],
                         {"machine": "abc", "bandwidth": None})

    def test_a_part_that_raises_ends_no_other(self):
        self.make("gpu/device_check", """
import sys
if sys.argv[2] == "check":
    print('{"op": "no tokens"}')
    print('{"begin": 0}', flush=True)
    sys.exit(1)
print('{"read_gb_per_s": 1}')
""")
        code, said = self.run_parts("check,bandwidth")
        self.assertEqual(code, 1, said)
        self.assertIn("KeyError", self.found("check.failed")["why"])
        self.assertEqual(self.found("bandwidth"), {"read_gb_per_s": 1})

    def test_a_peak_that_dies_leaves_the_others(self):
        self.make("gpu/device_check", """
import json, os, sys
if sys.argv[1:3] != ["cuda:0", "peaks"] or os.environ["SLUICE_UNCONFIRMED"] != "wgmma":
    sys.exit("asked for something else")
for case in range(int(sys.argv[3]), 2):
    print(json.dumps({"begin": case, "op": f"peak {case}"}), flush=True)
    if case == 1:
        os.abort()
    print('{"op": "peak 0", "tflops": 600}')
print('{"end": 2}')
""")
        module = load()
        self.out.mkdir()
        found, why = module.look(self.run_of(module, "cuda:0"), "peaks")
        self.assertEqual(why, "device_check peaks: peak 1: exit code -6")
        self.assertEqual(found, [{"op": "peak 0", "tflops": 600},
                                 {"op": "peak 1", "died": "exit code -6"}])

    def test_sys_exit_ends_a_part_alone(self):
        module = load()
        run_of = self.run_of(module)

        def ends():
            run_of.found["before"] = 1
            sys.exit("500: refused")

        run_of.two_stages = ends
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(module.look(run_of, "two_stages"),
                             ({"before": 1}, "SystemExit: 500: refused"))

    def look_at_goldens(self, part, answers, names):
        """A part whose clusters answer so, where these goldens are."""
        module = load()
        for name in names:
            (self.folder / "golden" / name).mkdir(parents=True)
        with mock.patch.object(module.clusters, "answers", answers), \
                mock.patch.dict(os.environ, {
                    "SLUICE_GOLDEN": str(self.folder / "golden")}):
            return module.look(self.run_of(module, "cuda:0"), part)

    def test_every_golden_that_differs_is_named(self):
        def answers(_, model, asked, *__):
            if model.name == "glm4" and asked.devices == "cuda:0,cpu":
                raise OSError("it is gone")
            if model.name == "qwen3" and asked.stages == 3:
                return ["other", [1]]
            return [model.name, [1]]

        found, why = self.look_at_goldens(
            "services", answers, ("qwen3", "glm4", "llama3-tied"))
        self.assertEqual(why, "tokens differ: qwen3 on fast, stages: 3; "
                         "glm4 on cuda:0,cpu")
        self.assertEqual(set(found["llama3-tied"]["same"].values()), {True})
        self.assertEqual(found["qwen3"]["same"]["fast, stages: 3"], False)
        self.assertEqual(found["qwen3"]["answers"]["fast, stages: 3"],
                         ["other", [1]])
        self.assertEqual(found["glm4"]["same"]["cuda:0,cpu"],
                         "OSError: it is gone")
        self.assertEqual(found["left_out"], ["glm4_moe-air", "gpt_oss-mxfp4"])

    def test_models_with_experts_have_a_host_of_them_too(self):
        def answers(_, model, asked, *__):
            if model.name == "gpt_oss-mxfp4" and asked.experts:
                raise OSError("/metrics lack rows")
            return [model.name, [1]]

        found, why = self.look_at_goldens(
            "services", answers, ("qwen3", "glm4_moe-air", "gpt_oss-mxfp4"))
        hosted = "cuda:0, experts: cuda:0"
        self.assertEqual(why, f"tokens differ: gpt_oss-mxfp4 on {hosted}")
        self.assertEqual(found["gpt_oss-mxfp4"]["same"][hosted],
                         "OSError: /metrics lack rows")
        self.assertIs(found["glm4_moe-air"]["same"][hosted], True)
        self.assertNotIn(hosted, found["qwen3"]["same"])

    def test_ranks_go_through_all_goldens_too(self):
        found, why = self.look_at_goldens(
            "ranks", lambda _, model, asked, *__: [asked.ranks, []],
            ("qwen3", "glm4"))
        self.assertEqual(why, "tokens differ: " + "; ".join(
            f"{name} on cuda:0, {count} ranks"
            for name in ("qwen3", "glm4") for count in (2, 4)))
        self.assertIn("a rank on each of 4 GPUs", found["left_out"])

    def test_parts_that_look_at_nothing_are_skipped(self):
        for part in ("services", "ranks"):
            found, why = self.look_at_goldens(part, None, ())
            self.assertIsNone(why)
            self.assertEqual(list(found), ["skipped"])
            state = load().summary.state_of
            self.assertTrue(state(part, {part: found}, self.out)
                            .startswith("skipped: no goldens"))
        self.assertEqual(
            state("ranks", {"ranks": {"left_out": ["a", "b"]}}, self.out),
            "passes; left out: 2 (a, b)")

    def make_tests(self, first, second):
        """The test programs of models: what they say, and their exit code."""
        for name, (said, code) in zip(load().binaries.TESTS, (first, second)):
            self.make(name.removeprefix("tests/"), "import os, sys\n"
                      f"print({said!r}, os.getenv('SLUICE_TEST_NCCL'))\n"
                      f"sys.exit({code})")

    def test_a_test_program_that_fails_keeps_no_other_from_running(self):
        self.make_tests(("[ RUN      ] A.B\n[  FAILED  ] A.B (1 ms)\n", 1),
                        ("[ RUN      ] C.D\n[       OK ] C.D (1 ms)\n"
                         "[  SKIPPED ] C.E (1 ms)\n", 0))
        code, said = self.run_parts("models")
        self.assertEqual(code, 1, said)
        kept = self.found("models.failed")
        self.assertEqual(kept["why"], "device/cuda/device_cuda_test: A.B")
        self.assertEqual(kept["found"]["model/model_cuda_test"], {
            "passed": 1, "failed": [], "skipped": ["C.E"], "died": {}})

    def test_tests_that_are_skipped_are_counted_and_do_not_pass(self):
        skipped = ("[  SKIPPED ] C.E (1 ms)\n", 0)
        self.make_tests(skipped, ("[       OK ] C.D (1 ms)\n", 0))
        code, said = self.run_parts("models")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"models +passes; left out: 1 \(C.E\)")
        self.make_tests(skipped, skipped)
        code, said = self.run_parts("models", again=True)
        self.assertEqual(code, 0, said)
        self.assertRegex(said, "models +skipped: all 2 tests were skipped")
        self.assertEqual(self.found("models")["left_out_count"], 2)

    def test_tests_are_told_where_nccl_is(self):
        self.make_tests(("[       OK ] A.B (1 ms)\n", 0),
                        ("[       OK ] C.D (1 ms)\n", 0))
        library = self.folder / "site/nvidia/nccl/lib/libnccl.so.2"
        library.parent.mkdir(parents=True)
        library.touch()
        environment = {name: value for name, value in os.environ.items()
                       if name != "SLUICE_TEST_NCCL"}
        environment["PYTHONPATH"] = str(self.folder / "site")
        for own, want in ((None, str(library)), ("mine", "mine")):
            if own is not None:
                environment["SLUICE_TEST_NCCL"] = own
            code, said = self.run_parts("models", again=True, env=environment)
            self.assertEqual(code, 0, said)
            self.assertEqual(self.found("models")["nccl"], want)
            log = (self.out / "device_cuda_test.log").read_text()
            self.assertTrue(log.rstrip().endswith(want), log)

    def test_a_part_is_timed_without_a_bandwidth_which_may_come_later(self):
        self.make("gpu/device_check", """
import sys
if sys.argv[2] == "bandwidth":
    print('{"read_gb_per_s": 10}')
else:
    print('{"op": "sum", "tokens": 1, "us": 2.0, "gb_per_s": 5.0}')
    print('{"op": "small", "tokens": 1, "us": 1.0}')
    print('{"end": 1}')
""")
        code, said = self.run_parts("time")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"sum +1 tokens +2.0 us +5.0 GB/s\n")
        self.assertIn("the bandwidth is not measured", said)
        code, said = self.run_parts("time,bandwidth")
        self.assertEqual(code, 0, said)
        self.assertIn("time: done before", said)
        self.assertRegex(said, r"sum +1 tokens +2.0 us +5.0 GB/s +50.0 %\n")
        self.assertRegex(said, r"small +1 tokens +1.0 us\n")
        self.assertEqual(self.found("all")["time"][0][
            "share_of_read_bandwidth"], 0.5)

    def test_a_part_that_was_skipped_is_tried_again(self):
        skipped = ("[  SKIPPED ] C.E (1 ms)\n", 0)
        done = ("[       OK ] C.E (1 ms)\n", 0)
        said = []
        for tests in ((skipped, skipped), (skipped, done), (skipped, skipped)):
            self.make_tests(*tests)
            said.append(self.run_parts("models")[1])
        self.assertIn("models: skipped: all 2 tests were skipped", said[0])
        self.assertRegex(said[1], "models +passes; left out: 1")
        self.assertIn("models: done before", said[2])


if __name__ == "__main__":
    unittest.main()
