"""Tests of not_run.py on what ctest, GoogleTest and unittest print."""

import pathlib
import tempfile
import unittest
import xml.sax.saxutils

import ctest_results
import not_run

GTEST = """[==========] Running 4 tests from 1 test suite.
[ RUN      ] A.Passes
[       OK ] A.Passes (0 ms)
[ RUN      ] A.Needs
tests/a_test.cc:12: Skipped
needs build/data/x,
which a script makes
Google Test trace:
tests/a_test.cc:3: a trace

[  SKIPPED ] A.Needs (3 ms)
[ RUN      ] A.Mute
tests/a_test.cc:15: Skipped

[  SKIPPED ] A.Mute (0 ms)
[ RUN      ] S/P.Fails/0
tests/a_test.cc:9: Failure
[  FAILED  ] S/P.Fails/0, where GetParam() = 7 (0 ms)
[----------] 4 tests from A (3 ms total)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] A.Needs
[  SKIPPED ] A.Mute
"""
UNITTEST = """test_a (__main__.T.test_a) ... ok
test_b (__main__.T.test_b) ... skipped 'needs "npm"'
test_c (__main__.T.test_c) ... ok

----------------------------------------------------------------------
Ran 3 tests in 0.010s

OK (skipped=1)
"""
QUIET = """.s
----------------------------------------------------------------------
Ran 4 tests in 0.010s

FAILED (failures=1, skipped=1)
"""
CLASS = """setUpClass (__main__.T) ... skipped "needs the browser's files"

----------------------------------------------------------------------
Ran 0 tests in 0.000s

OK (skipped=1)
"""


class NotRunTest(unittest.TestCase):
    def outcomes(self, **files):
        """Of files NAME=[(test, status, output)]; _ in a name is a dash."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, tests in files.items():
                path = pathlib.Path(
                    folder, f"ctest-{name.replace('_', '-')}.xml")
                path.write_text("<testsuite>" + "".join(
                    f'<testcase name="{test}" status="{status}"><system-out>'
                    f"{xml.sax.saxutils.escape(output)}</system-out>"
                    "</testcase>" for test, status, output in tests)
                    + "</testsuite>")
                paths.append(path)
            return ctest_results.read_results(paths)

    def one(self, output, status="run"):
        return self.outcomes(dev_1=[("t", status, output)])["dev", "t"]

    def test_cases_of_googletest_are_counted_with_their_reasons(self):
        outcome = self.one(GTEST)
        self.assertEqual(outcome.passed, 1)
        self.assertEqual(outcome.skipped,
                         ["needs build/data/x, which a script makes",
                          "no reason is told"])
        self.assertFalse(outcome.is_skipped)

    def test_cases_of_unittest_are_counted_with_their_reasons(self):
        outcome = self.one(UNITTEST)
        self.assertEqual((outcome.passed, outcome.skipped),
                         (2, ['needs "npm"']))
        outcome = self.one(QUIET)
        self.assertEqual((outcome.passed, outcome.skipped),
                         (2, ["its program names no reason"]))

    def test_a_class_that_is_skipped_is_told(self):
        outcome = self.one(CLASS, "notrun")
        self.assertEqual((outcome.passed, outcome.skipped,
                          outcome.is_skipped),
                         (0, ["needs the browser's files"], True))

    def test_another_program_is_one_case(self):
        self.assertEqual(self.one("fine").passed, 1)
        self.assertEqual(self.one("bad", "fail").passed, 0)
        outcome = self.one("\nskipped: needs clang-format-14\n", "notrun")
        self.assertEqual((outcome.passed, outcome.skipped),
                         (0, ["needs clang-format-14"]))

    def test_reasons_are_grouped_and_name_tests(self):
        skip = ("t", "notrun", "needs npm")
        outcomes = self.outcomes(release_1=[
            (f"t{i}", "notrun", "needs npm") for i in range(4)],
            dev_2=[skip, ("u", "run", UNITTEST)])
        self.assertEqual(list(not_run.lines_of(outcomes)), [
            "NOT RUN 5 of release/t0, release/t1, release/t2 and 2 more: "
            "needs npm",
            'NOT RUN 1 of dev/u: needs "npm"'])

    def test_files_of_one_folder_are_one_reason(self):
        outcomes = self.outcomes(dev_1=[
            ("t", "notrun", "needs build/data/a, which a script makes"),
            ("u", "notrun", "needs build/data/b")])
        self.assertEqual(list(not_run.lines_of(outcomes)), [
            "NOT RUN 2 of dev/t, dev/u: needs build/data, which "
            "tests/test_data/fetch.py makes"])

    def test_the_last_run_of_a_test_counts_whatever_its_folders_name(self):
        outcomes = self.outcomes(release_2=[("t", "run", "fine")],
                                 release_units_10=[("t", "fail", "bad")])
        self.assertEqual(not_run.counts_by_preset(outcomes), {"release": 0})

    def test_fewer_cases_than_before_are_told(self):
        outcomes = self.outcomes(dev_1=[("t", "run", UNITTEST)])

        def wrong(least):
            return list(not_run.shortfalls(
                outcomes, "normal", {"passed": {"normal": {"dev": least}},
                                     "skipped_clusters": 3}, set(),
                is_strict=True))

        self.assertEqual(wrong(2), [])
        self.assertEqual(wrong(3), ["dev: 2 cases passed, 3 passed before "
                                    "(tests/expected_counts.json)"])

    def test_a_machine_that_lacks_a_means_may_skip_outside_of_ci(self):
        outcomes = self.outcomes(dev_1=[("t", "notrun", "needs npm")])

        def wrong(is_strict):
            return list(not_run.shortfalls(
                outcomes, "normal", {"passed": {"normal": {"dev": 1}},
                                     "skipped_clusters": 3}, set(), is_strict))

        self.assertEqual(wrong(is_strict=False), [])
        self.assertEqual(len(wrong(is_strict=True)), 1)

    def test_a_preset_that_did_not_run_is_told(self):
        self.assertTrue(list(not_run.shortfalls(
            {}, "normal", {"passed": {"normal": {"tsan": 1}},
                           "skipped_clusters": 3}, set(),
            is_strict=True)))

    def test_too_many_clusters_that_are_skipped_are_told(self):
        names = [f"c{i}" for i in range(4)]
        outcomes = self.outcomes(release_1=[
            (name, "notrun", "needs npm") for name in names + ["other"]])

        def wrong(most):
            return list(not_run.shortfalls(
                outcomes, "normal", {"passed": {}, "skipped_clusters": most},
                set(names), is_strict=True))

        self.assertEqual(wrong(4), [])
        self.assertEqual(len(wrong(3)), 1)
        self.assertIn("c0, c1, c2, c3", wrong(3)[0])

    def test_a_test_that_no_preset_has_is_told(self):
        self.assertEqual(not_run.in_no_build(["a", "b", "c"], [{"a"}, {"c", "d"}]),
                         ["b"])
        self.assertIn("base_test", not_run.written_tests())

    def test_a_file_of_another_name_is_refused(self):
        with self.assertRaisesRegex(ValueError, "x.xml"):
            ctest_results.read_results(["x.xml"])


if __name__ == "__main__":
    unittest.main()
