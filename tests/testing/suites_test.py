#!/usr/bin/env python3
"""suites.py: which suites are due, what is left out, what is noted."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import suites
from ctest_results import Outcome

TABLE = {"shop": {"tests": ["shop_.*"], "files": ["shop"], "packages": []},
         "port": {"tests": ["port", "harbour"], "files": ["port", "map.txt"],
                  "packages": []}}


class SuitesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("shop/door.txt", "port/pier.txt", "map.txt"):
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(name)

    def all_passed(self):
        return {name: suites.digest(suite["files"], self.root)
                for name, suite in TABLE.items()}

    def test_a_suite_is_due_until_it_passed_and_after_a_change(self):
        self.assertEqual(suites.due(TABLE, {}, self.root), ["shop", "port"])
        passed = self.all_passed()
        self.assertEqual(suites.due(TABLE, passed, self.root), [])
        (self.root / "map.txt").write_text("another")
        self.assertEqual(suites.due(TABLE, passed, self.root), ["port"])

    def test_a_suite_without_files_is_never_due(self):
        table = {"long": {"tests": ["hours"], "files": [], "packages": []}}
        self.assertEqual(suites.due(table, {}, self.root), [])
        self.assertTrue(re.match(suites.left_out(table, []), "hours"))

    def test_a_new_a_renamed_and_a_lost_file_change_a_suite(self):
        passed = self.all_passed()
        (self.root / "shop/window.txt").write_text("new")
        self.assertEqual(suites.due(TABLE, passed, self.root), ["shop"])
        (self.root / "shop/window.txt").unlink()
        self.assertEqual(suites.due(TABLE, passed, self.root), [])
        (self.root / "shop/door.txt").rename(self.root / "shop/gate.txt")
        self.assertEqual(suites.due(TABLE, passed, self.root), ["shop"])

    def test_git_knows_new_files_and_leaves_out_what_it_ignores(self):
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "-q"], cwd=self.root, check=True)
        (self.root / ".gitignore").write_text("*.pyc\n")
        passed = self.all_passed()
        (self.root / "shop/cache.pyc").write_text("ignored")
        self.assertEqual(suites.due(TABLE, passed, self.root), [])
        (self.root / "shop/new.txt").write_text("not added yet")
        self.assertEqual(suites.due(TABLE, passed, self.root), ["shop"])

    def test_the_tests_of_suites_that_are_not_due_are_left_out(self):
        left = re.compile(suites.left_out(TABLE, ["port"]))
        self.assertTrue(left.match("shop_opens"))
        for name in ("port", "harbour", "workshop_opens", "shop"):
            self.assertFalse(left.match(name), name)
        self.assertFalse(re.match(suites.left_out(TABLE, list(TABLE)), "shop_a"))

    def test_a_suite_passed_if_each_test_ran_whole_in_each_preset(self):
        def outcome(passed, skipped=(), is_failed=False):
            return Outcome(passed, list(skipped), is_failed=is_failed)
        whole, half = outcome(3), outcome(2, ["no chromium"])
        tests = ["shop_opens", "shop_closes", "port", "harbour", "mill"]
        outcomes = {("release", name): whole for name in tests}
        both = list(TABLE)

        def passed(registered=tests):
            return suites.passed_now(TABLE, both, suites.results(outcomes),
                                     registered)
        self.assertEqual(passed(), both)
        self.assertEqual(passed([*tests, "shop_sells"]), ["port"])
        outcomes["release", "port"] = outcome(2, ["needs SLUICE_LONG=1"])
        self.assertEqual(passed(), both)
        outcomes["release", "port"] = half
        self.assertEqual(passed(), ["shop"])
        outcomes["dev", "shop_opens"] = outcome(1, is_failed=True)
        self.assertEqual(passed(), [])
        self.assertEqual(passed([]), [])

    def test_the_repositorys_table_names_files_that_are_there(self):
        for name, suite in suites.suites().items():
            for path in suite["files"]:
                self.assertTrue((suites.ROOT / path).exists(), f"{name}: {path}")
            if suite["files"]:
                self.assertTrue(suites.files_of(suite["files"]), name)

    def test_cmake_reads_the_expression_of_every_choice_of_suites(self):
        """CMake's and ctest's expressions have ten groups at most."""
        script = self.root / "matches.cmake"
        script.write_text('if("a_test" MATCHES "${WANTED}")\nendif()\n')
        table = suites.suites()
        for names_due in [[], *[[name] for name in table], list(table)]:
            wanted = suites.left_out(table, names_due)
            subprocess.run(["cmake", f"-DWANTED={wanted}", "-P", script],
                           check=True)


if __name__ == "__main__":
    unittest.main()
