"""What ctest's runs came to: cases of GoogleTest and unittest within a test, and
reasons for which they were skipped."""

import dataclasses
import json
import pathlib
import re
import subprocess
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
_RESULT = re.compile(r"ctest-(.+)-(\d+)\.xml$")
_GTEST_END = re.compile(
    r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+).* \(\d+ ms\)$")
_GTEST_REASON = re.compile(r"^\S+:\d+: Skipped$")
_LONG_ALONE = re.compile(r"SLUICE_LONG|--long|long mode")
_UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.M)
_UNITTEST_SKIP = re.compile(r"skipped (['\"])(.*)\1$", re.M)
_UNITTEST_OTHERS = re.compile(r"(skipped|failures|errors)=(\d+)")


@dataclasses.dataclass
class Outcome:
    """What one test of ctest's came to."""
    passed: int = 0
    skipped: list = dataclasses.field(default_factory=list)  # reasons
    is_skipped: bool = False  # as a whole
    is_failed: bool = False

    @property
    def is_whole(self):
        """Nothing of it was skipped, but for what is the long mode's alone."""
        skipped = [reason for reason in self.skipped
                   if not _LONG_ALONE.search(reason)]
        return bool(self.passed) and not (skipped or self.is_failed)


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
    outcome.is_failed = testcase.get("status") == "fail"
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



def registered(label="", preset="release"):
    """Names of a preset's tests, or of those with a label."""
    listed = subprocess.run(
        ["ctest", "--test-dir", ROOT / "build" / preset, "-L", label,
         "--show-only=json-v1"], capture_output=True, check=False)
    if listed.returncode != 0:
        return set()
    return {test["name"] for test in json.loads(listed.stdout)["tests"]}
