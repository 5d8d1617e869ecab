#!/usr/bin/env python3
"""Which suites tests/run leaves out: those of other projects' packages and of
device code that passed with the files that they have now.

tests/suites.toml has a table for each suite: its tests by name, the files that it
is about (a suite without any is the long mode's alone), and the Python and Node
packages that it needs. tests/suites.passed has
a digest of those files for each suite: their text when it passed last. A suite is
due where the digest is another. The digest is of contents, so it needs no
history, and a clone of one commit knows as much as the repository.

usage: suites.py due                 names of the suites that are due
       suites.py all                 names of all suites
       suites.py packages SUITE...   what these suites need
       suites.py left-out SUITE...   a regular expression of the tests of all
                                     other suites, for ctest's -E
       suites.py record RESULTS...   notes suites that passed with the files that
                                     they had when `due` was asked: each of their
                                     tests ran, and nothing of it was skipped or
                                     failed in any preset, as ctest wrote
                                     (build/ctest-PRESET-NUMBER.xml)
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

from ctest_results import read_results, registered

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/suites.toml"
PASSED = ROOT / "tests/suites.passed"
ASKED = ROOT / "build/suites.json"  # digests when `due` was asked
NO_TEST = "^$"


def suites(table=TABLE):
    return tomllib.loads(table.read_text())


def files_of(paths, root=ROOT):
    """Files below `paths`, as git knows them; without git, all of them."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others",
             "--exclude-standard", "--", *paths],
            cwd=root, check=True, capture_output=True).stdout
        names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
    except (OSError, subprocess.CalledProcessError):
        names = {str(file.relative_to(root)) for path in paths
                 for file in [root / path, *(root / path).rglob("*")]
                 if "__pycache__" not in file.parts}
    return sorted(name for name in names if (root / name).is_file())


def digest(paths, root=ROOT):
    """SHA-256, of names and contents; 16 hexadecimal digits tell versions of a
    folder apart."""
    out = hashlib.sha256()
    for name in files_of(paths, root):
        text = (root / name).read_bytes()
        out.update(f"{name}\0{len(text)}\0".encode() + text)
    return out.hexdigest()[:16]


def read_passed(path=PASSED):
    if not path.exists():
        return {}
    return dict(line.split() for line in path.read_text().splitlines())


def due(table, passed, root=ROOT):
    return [name for name, suite in table.items()
            if suite["files"] and passed.get(name) != digest(suite["files"], root)]


def left_out(table, names_due):
    """A regular expression of the tests of all suites but `names_due`."""
    left = [test for name, suite in table.items() if name not in names_due
            for test in suite["tests"]]
    return f"^({'|'.join(left)})$" if left else NO_TEST


def results(outcomes):
    """{test: whether all of it ran and passed, in each preset}."""
    out = {}
    for (_, name), outcome in outcomes.items():
        out[name] = out.get(name, True) and outcome.is_whole
    return out


def passed_now(table, names, ran, all_tests):
    """Suites of which every registered test ran and passed."""
    out = []
    for name in names:
        wanted = re.compile(left_out({name: table[name]}, []))
        tests = [test for test in all_tests if wanted.match(test)]
        if tests and all(ran.get(test) for test in tests):
            out.append(name)
    return out


def main():
    table, passed = suites(), read_passed()
    verb, words = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if verb == "due":
        ASKED.parent.mkdir(exist_ok=True)
        ASKED.write_text(json.dumps({name: digest(suite["files"])
                                     for name, suite in table.items()}))
        print(*due(table, passed))
    elif verb == "all":
        print(*table)
    elif verb == "packages":
        print(*dict.fromkeys(package for name in words
                             for package in table[name]["packages"]))
    elif verb == "left-out":
        print(left_out(table, words))
    elif verb == "record":
        asked = json.loads(ASKED.read_text()) if ASKED.exists() else {}
        names = [name for name in asked if table.get(name, {}).get("files")]
        ran = results(read_results(words))
        for name in passed_now(table, names, ran, registered()):
            passed[name] = asked[name]
        PASSED.write_text("".join(
            f"{name} {passed[name]}\n" for name in table if name in passed))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
