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
status 1: fewer passed (with CI in the environment; else fewer passed or were
skipped), or more of those were skipped. --write writes the counts
of these RESULTS there instead of comparing them.
"""

import collections
import json
import os
import pathlib
import re
import sys

import suites
from ctest_results import read_results, registered

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = ROOT / "tests/expected_counts.json"
SHOWN = 3  # tests that a line names


def without_file(reason):
    """Reasons that name a file of build/data are one reason."""
    return re.sub(r"^needs build/data/.*",
                  "needs build/data, which tests/test_data/fetch.py makes", reason)


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


def counts_by_preset(outcomes, with_skipped=False):
    """Cases that passed or that this processor cannot run; or were skipped for
    any reason, too. Tests of suites, which runs leave out at times, do not
    count."""
    of_suites = re.compile(suites.left_out(suites.suites(), []))
    counts = collections.Counter()
    for (preset, name), outcome in outcomes.items():
        if not of_suites.match(name):
            counts[preset] += outcome.passed
            counts[preset] += sum(
                with_skipped or reason.startswith("this machine has no ")
                for reason in outcome.skipped)
    return dict(sorted(counts.items()))


def shortfalls(outcomes, mode, expected, cluster_names, is_strict):
    """What is wrong, a line each. Strictly, a case that was skipped for a
    reason is lost, too; elsewhere a machine may lack a means."""
    counts = counts_by_preset(outcomes, with_skipped=not is_strict)
    for preset, least in expected["passed"].get(mode, {}).items():
        if counts.get(preset, 0) < least:
            yield (f"{preset}: {counts.get(preset, 0)} cases "
                   f"{'passed' if is_strict else 'passed or were skipped'}, "
                   f"{least} passed before (tests/expected_counts.json)")
    of_suites = re.compile(suites.left_out(suites.suites(), []))
    skipped = sorted(name for (preset, name), outcome in outcomes.items()
                     if preset == "release" and outcome.is_skipped
                     and name in cluster_names and not of_suites.match(name))
    if len(skipped) > expected["skipped_clusters"]:
        yield (f"release: {len(skipped)} tests over processes were skipped, at "
               f"most {expected['skipped_clusters']} may be: "
               f"{', '.join(skipped)}")


def in_no_build(written, lists):
    """Tests of CMake's files that no preset has."""
    return sorted(set(written).difference(*lists))


def written_tests():
    return [name for path in (ROOT / "tests").rglob("CMakeLists.txt")
            for name in re.findall(r"^ *sluice_test\((\w+)", path.read_text(), re.M)]


def main(arguments):
    write = arguments[:1] == ["--write"]
    mode, *paths = arguments[write:]
    outcomes = read_results(paths)
    expected = json.loads(EXPECTED.read_text())
    if write:
        expected["passed"][mode] = counts_by_preset(outcomes)
        EXPECTED.write_text(json.dumps(expected, indent=1) + "\n")
        return 0
    for line in lines_of(outcomes):
        print(line)
    for preset, count in counts_by_preset(outcomes).items():
        print(f"{preset}: {count} cases passed")
    wrong = list(shortfalls(outcomes, mode, expected, registered("cluster"),
                            is_strict=bool(os.environ.get("CI"))))
    if mode == "normal":
        lists = [registered(preset=preset) for preset in ("release", "dev", "tsan")]
        if all(lists):  # a preset that was not built is told already
            wrong += [f"{name}: no preset has it"
                      for name in in_no_build(written_tests(), lists)]
    for line in wrong:
        print(f"FAILED {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
