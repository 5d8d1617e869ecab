"""Where tests may read the folder beside the checkout (SLUICE_SHARED, else
../shared), which no user has: what is made or fetched is read instead."""

import re

import sources

# Split so that this file does not find itself.
_NAMES = re.compile(r"\.\./sha" r"red\b|\bSLUICE_(REQUIRE_)?SHA" r"RED\b"
                    r"|\bShared(Data|Tokenizer)\(|\bharness\.sha" r"red\(")
_LIST = "tests/lint/shared_users.txt"
# History and figures of earlier machines.
_LEFT_OUT = ("CHANGELOG.md", "tests/benchmarks/results/", "tests/gpu/results/",
             "tests/chaos/results/", "tests/lint/")
_TEXT = sources.CODE + (".md", ".txt", ".json", ".toml", ".yaml", ".yml")


def check_file(name, text, users):
    """`users`: the files that may name it."""
    if name in users:
        return [] if _NAMES.search(text) else [
            f"{name}: names the shared folder no more: take it off {_LIST}"]
    return [f"{name}:{text.count(chr(10), 0, match.start()) + 1}: "
            f"{match.group()!r}: no user has that folder (tests/test_data and "
            "tests/testing/test_data.h have what can be fetched)"
            for match in _NAMES.finditer(text)]


def is_script(name):
    with open(sources.ROOT / name, "rb") as file:
        return file.read(2) == b"#!"


def check():
    users = set(sources.read(_LIST).split())
    names = [name for name in sources.files()
             if not name.startswith(_LEFT_OUT)
             and (name.endswith(_TEXT) or is_script(name))]
    gone = sorted(users - set(names))
    return [f"{_LIST}: there is no {name}" for name in gone] + [
        finding for name in names
        for finding in check_file(name, sources.read(name), users)]
