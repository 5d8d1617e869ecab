#!/usr/bin/env python3
"""Builds and runs the tests that changed files can reach, the nearest first.

Called by tests/run. Reads what ninja knows of the build: an object reaches the
libraries and programs that are linked with it, a header every object that read
it. A test in Python is reached by its own source, by the modules that it
imports, by the files that it names and by the programs that it starts. Three rings, each built and run
before the next: tests of the file's own room, other tests without a cluster,
tests with one. Ends at the first ring with a failure.

usage: tests/run FILE...             what these files reach
       tests/run --changed [COMMIT]  files that differ from COMMIT (HEAD), and
                                     those that git does not know yet
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR",
                                    ROOT / "build/release"))
PROGRAMS = ("services/gateway/sluice-gateway", "services/stage/sluice-stage",
            "services/expert/sluice-expert", "services/cli/sluice")
# Each golden model is read by any test that includes or imports these.
GOLDEN_USERS = ("tests/testing/golden_model.h", "tests/integration/harness.py")
# What no graph shows: tests read or are configured by these.
REACHES_ALL = re.compile(r"(^|/)(CMakeLists\.txt|CMakePresets\.json|lib\.sh)$")


def changed_since(commit):
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, check=True, text=True,
                              capture_output=True).stdout.splitlines()

    return sorted({*git("diff", "--name-only", commit),
                   *git("ls-files", "-o", "--exclude-standard")})


def under_root(path):
    """`path`, relative to the project where it lies in it."""
    full = os.path.normpath(os.path.join(BUILD, path))
    return os.path.relpath(full, ROOT) if full.startswith(f"{ROOT}/") else full


def built_from():
    """{input: outputs} of the build, headers included."""
    out = collections.defaultdict(set)
    text = (BUILD / "build.ninja").read_text().replace("$\n", "")
    for line in text.splitlines():
        if not line.startswith("build "):
            continue
        outputs, _, rest = line[len("build "):].partition(": ")
        inputs = re.split(r" \|\| ", rest)[0].split(" ")[1:]
        for name in outputs.replace(" | ", " ").split():
            for source in inputs:
                if source != "|":
                    out[under_root(source)].add(under_root(name))
    known = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], check=True,
                           capture_output=True, text=True).stdout
    target = None
    for line in known.splitlines():
        if line.startswith("    "):
            out[under_root(line.strip())].add(target)
        elif ": #deps" in line:
            target = under_root(line.split(": #deps")[0])
    return out


def reached_from(files, edges):
    """All that is built of `files`, themselves included."""
    seen, left = set(files), list(files)
    while left:
        for name in edges.get(left.pop(), ()):
            if name not in seen:
                seen.add(name)
                left.append(name)
    return seen


def imports():
    """{module's source: sources that import it} of Python's tests."""
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("deploy/**/*.py")]
    by_name = collections.defaultdict(set)
    for source in sources:
        by_name[source.stem].add(source)
    out = collections.defaultdict(set)
    for source in sources:
        for name in re.findall(r"^\s*(?:import|from)\s+([\w.]+)",
                               source.read_text(), re.M):
            for module in by_name.get(name.split(".")[-1], ()):
                out[str(module.relative_to(ROOT))].add(
                    str(source.relative_to(ROOT)))
    return out


def mentions(files):
    """Sources of tests and of the cluster's scripts that name a file that no
    graph has: a script, a page, a table of a README."""
    sources = {path: path.read_text(errors="replace")
               for folder in ("tests", "deploy") for path in
               (ROOT / folder).rglob("*")
               if path.suffix in (".py", ".cc", ".h", ".sh") or
               path.is_file() and not path.suffix}
    out = collections.defaultdict(set)
    for name in files:
        if name.endswith((".cc", ".h", ".proto", "README.md")):
            continue
        word = re.compile(rf"\b{re.escape(os.path.basename(name))}\b")
        out[name] = {str(path.relative_to(ROOT))
                     for path, text in sources.items() if word.search(text)}
    return out


def programs():
    """{target: its program} of the build."""
    text = (BUILD / "build.ninja").read_text().replace("$\n", "")
    found = re.findall(r"^build (\w+): phony (\S+)$", text, re.M)
    return {name: str(BUILD / path) for name, path in found}


def all_tests():
    """[(name, command, folder, labels)] as ctest knows them; of a program that
    is not built, which ctest shows no command of, the build's."""
    targets = programs()
    shown = subprocess.run(
        ["ctest", "--test-dir", BUILD, "--show-only=json-v1"], check=True,
        capture_output=True, text=True).stdout
    out = []
    for test in json.loads(shown)["tests"]:
        facts = {fact["name"]: fact["value"] for fact in test["properties"]}
        name = test["name"]
        known = [targets[name]] if name in targets else []
        out.append((name, test.get("command") or known,
                    facts.get("WORKING_DIRECTORY", str(ROOT)),
                    facts.get("LABELS", [])))
    return out


def is_reached(test, reached, any_program):
    _, command, folder, labels = test
    if "lint" in labels:
        return True  # reads every file, in a second
    for word in command:
        path = os.path.normpath(os.path.join(folder, word))
        if path.startswith(f"{ROOT}/") and under_root(path) in reached:
            return True
    is_script = any("python" in word or "run_in_venv" in word
                    for word in command[:1])
    return any_program and is_script and bool({"cluster", "http"} & {*labels})


def room(path):
    """common/engine/x.cc and tests/engine/y.cc have one room: engine."""
    parts = pathlib.PurePath(path).parts[1:-1]
    return parts[:2] if parts[:1] in (("services",), ("tools",)) else parts[:1]


def ring(test, rooms):
    _, command, folder, labels = test
    if "cluster" in labels or "http" in labels:
        return 2
    for word in command:
        path = under_root(os.path.join(folder, word))
        path = path.removeprefix(f"{under_root(BUILD)}/")
        if path.startswith("tests/") and room(path) in rooms:
            return 0
    return 0 if "lint" in labels else 1


def program_of(test):
    """Its name as a target of the build; none for what is no program."""
    path = under_root(test[1][0]) if test[1] else ""
    return pathlib.PurePath(path).name if path.startswith("build/") else None


def run_ring(number, tests):
    if number == 2:
        targets = ["all"]
    else:
        targets = sorted({program_of(test) for test in tests} - {None})
    if targets:
        subprocess.run(["cmake", "--build", BUILD, "--target", *targets],
                       cwd=ROOT, check=True)
    names = "|".join(re.escape(test[0]) for test in tests)
    return subprocess.run(
        ["ctest", "--test-dir", BUILD, "--output-on-failure", "-j",
         str(os.cpu_count()), "-R", f"^({names})$"], check=False).returncode


def choose(files, tests):
    """[[test]] by ring: those that `files` can reach."""
    rooms, rings = {room(name) for name in files}, [[], [], []]
    if any(REACHES_ALL.search(name) for name in files):
        chosen = tests
    else:
        edges = built_from()
        for more in (imports(), mentions(files)):
            for name, users in more.items():
                edges[name] |= users
        if any(name.startswith("tests/golden/") for name in files):
            files = [*files, *GOLDEN_USERS]
        reached = reached_from(files, edges)
        programs = {f"{under_root(BUILD)}/{name}" for name in PROGRAMS}
        any_program = bool(programs & reached) or any(
            name.startswith("deploy/local/") for name in files)
        chosen = [test for test in tests
                  if is_reached(test, reached, any_program)]
    for test in chosen:
        rings[ring(test, rooms)].append(test)
    return rings


def main():
    words = sys.argv[1:]
    if words[:1] == ["--changed"]:
        files = changed_since(words[1] if len(words) > 1 else "HEAD")
    else:
        files = [os.path.relpath(os.path.abspath(word), ROOT)
                 for word in words]
    if not files:
        print("nothing has changed")
        return 0
    if not (BUILD / "build.ninja").exists():
        sys.exit(f"{BUILD} is not there: run `tests/run --quick` once")
    # tests/run leaves most unit tests to another build.
    subprocess.run(["cmake", "-DSLUICE_UNIT_TESTS=ON", "-DSLUICE_LEFT_OUT=", BUILD],
                   check=True, stdout=subprocess.DEVNULL)
    tests = all_tests()
    rings = choose(files, tests)
    print(f"{len(files)} files reach {sum(map(len, rings))} of {len(tests)} "
          f"tests: {len(rings[0])} near, {len(rings[1])} without and "
          f"{len(rings[2])} with a cluster", flush=True)
    for number, chosen in enumerate(rings):
        if chosen and run_ring(number, chosen):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
