#!/usr/bin/env python3
"""Tells what of a run of tests did not run, and whether fewer passed than
before.

usage: tests/testing/not_run.py [--write] MODE RESULTS...
         MODE     quick, normal or long: how tests/run was called
         RESULTS  build/ctest-PRESET-NUMBER.xml, which ctest writes
                  (--output-junit), in the order of their numbers

A line a reason: how many cases it left out, and of which tests. A case is one
of GoogleTest's or unittest's; a test of another kind is one case.

tests/expected_counts.json has how many cases passed in each preset when it was
last written, and how many tests with the label "cluster" may be skipped. Exit
status 1: fewer passed, or more of those were skipped. --write writes the counts
of these RESULTS there instead of comparing them.
"""

import collections
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = ROOT / "tests/expected_counts.json"
SHOWN = 3  # tests that a line names

_RESULT = re.compile(r"ctest-(.+)-(\d+)\.xml$")
_GTEST_END = re.compile(
    r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+).* \(\d+ ms\)$")
_GTEST_REASON = re.compile(r"^\S+:\d+: Skipped$")
# Reasons that name a file: one line for all of them.
_FILES = [(re.compile(r"^needs build/data/.*"),
           "needs build/data, which tests/test_data/fetch.py makes"),
          (re.compile(r"^needs the shared test data: .*"),
           "needs the shared test data")]
_UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.M)
_UNITTEST_SKIP = re.compile(r"skipped (['\"])(.*)\1$", re.M)
_UNITTEST_OTHERS = re.compile(r"(skipped|failures|errors)=(\d+)")


@dataclasses.dataclass
class Outcome:
    """What one test of ctest's came to."""
    passed: int = 0
    skipped: list = dataclasses.field(default_factory=list)  # reasons
    is_skipped: bool = False  # as a whole


def gtest_outcome(output):
    outcome = Outcome()
    reason = []
    is_reason = False
    for line in output.splitlines():
        if line.startswith("[ RUN  "):
            reason = []
        ended = _GTEST_END.match(line)
        if ended:
            outcome.passed += ended[1] == "OK"
            if ended[1] == "SKIPPED":
                outcome.skipped.append(" ".join(reason) or "no reason is told")
            is_reason = False
        elif is_reason and line and line != "Google Test trace:":
            reason.append(line.strip())
        else:
            is_reason = bool(_GTEST_REASON.match(line))
    return outcome


def unittest_outcome(output):
    outcome = Outcome()
    for ran in _UNITTEST_RAN.finditer(output):
        end = output[ran.end():].lstrip().splitlines()
        verdict = next((line for line in end
                        if line.startswith(("OK", "FAILED"))), "")
        others = dict(_UNITTEST_OTHERS.findall(verdict))
        outcome.skipped += ["its program names no reason"] * int(
            others.get("skipped", 0))
        outcome.passed += max(0, int(ran[1]) - sum(map(int, others.values())))
    reasons = [match[2] for match in _UNITTEST_SKIP.finditer(output)]
    outcome.skipped[:len(reasons)] = reasons
    return outcome


def outcome_of(testcase):
    """Of a <testcase> of JUnit's."""
    output = testcase.findtext("system-out") or ""
    if "[ RUN      ]" in output:
        outcome = gtest_outcome(output)
    elif _UNITTEST_RAN.search(output):
        outcome = unittest_outcome(output)
    else:
        outcome = Outcome(passed=int(testcase.get("status") == "run"))
    if testcase.get("status") in ("notrun", "disabled"):
        outcome.is_skipped = True
        if not outcome.skipped:
            lines = output.strip().splitlines() or ["no reason is told"]
            outcome.skipped = [lines[-1].removeprefix("skipped: ")]
    return outcome


def read_results(paths):
    """(preset, test) -> Outcome; a later file's counts."""
    outcomes = {}
    named = []
    for path in map(pathlib.Path, paths):
        match = _RESULT.search(path.name)
        if not match:
            raise ValueError(f"{path}: its name is not ctest-PRESET-NUMBER.xml")
        # The same folder's tests, under another name.
        named.append((int(match[2]), match[1].removesuffix("-units"), path))
    for _, preset, path in sorted(named):
        for testcase in xml.etree.ElementTree.parse(path).iter("testcase"):
            outcomes[preset, testcase.get("name")] = outcome_of(testcase)
    return outcomes


def without_file(reason):
    for pattern, plain in _FILES:
        reason = pattern.sub(plain, reason)
    return reason


def lines_of(outcomes):
    """The reasons, those that left the most out first."""
    cases = collections.Counter()
    tests = collections.defaultdict(dict)
    for (preset, name), outcome in outcomes.items():
        for reason in map(without_file, outcome.skipped):
            cases[reason] += 1
            tests[reason][f"{preset}/{name}"] = None
    for reason, count in cases.most_common():
        named = list(tests[reason])
        shown = ", ".join(named[:SHOWN])
        if len(named) > SHOWN:
            shown += f" and {len(named) - SHOWN} more"
        yield f"NOT RUN {count} of {shown}: {reason}"


def clusters():
    """Names of release's tests over processes."""
    listed = subprocess.run(
        ["ctest", "--test-dir", ROOT / "build/release", "-L", "cluster",
         "--show-only=json-v1"], capture_output=True, check=True)
    return {test["name"] for test in json.loads(listed.stdout)["tests"]}


def passed_by_preset(outcomes):
    counts = collections.Counter()
    for (preset, _), outcome in outcomes.items():
        counts[preset] += outcome.passed
    return dict(sorted(counts.items()))


def shortfalls(outcomes, mode, expected, cluster_names):
    """What is wrong, a line each."""
    passed = passed_by_preset(outcomes)
    for preset, least in expected["passed"].get(mode, {}).items():
        if passed.get(preset, 0) < least:
            yield (f"{preset}: {passed.get(preset, 0)} cases passed, {least} "
                   "before (tests/expected_counts.json)")
    skipped = sorted(name for (preset, name), outcome in outcomes.items()
                     if preset == "release" and outcome.is_skipped
                     and name in cluster_names)
    if len(skipped) > expected["skipped_clusters"]:
        yield (f"release: {len(skipped)} tests over processes were skipped, at "
               f"most {expected['skipped_clusters']} may be: "
               f"{', '.join(skipped)}")


def main(arguments):
    write = arguments[:1] == ["--write"]
    mode, *paths = arguments[write:]
    outcomes = read_results(paths)
    expected = json.loads(EXPECTED.read_text())
    if write:
        expected["passed"][mode] = passed_by_preset(outcomes)
        EXPECTED.write_text(json.dumps(expected, indent=1) + "\n")
        return 0
    for line in lines_of(outcomes):
        print(line)
    for preset, count in passed_by_preset(outcomes).items():
        print(f"{preset}: {count} cases passed")
    wrong = list(shortfalls(outcomes, mode, expected, clusters()))
    for line in wrong:
        print(f"FAILED {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
