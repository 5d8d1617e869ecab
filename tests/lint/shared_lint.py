"""No test reads a folder beside the checkout, which no user has: what is made
(tests/golden) or fetched (tests/test_data) is read instead."""

import re

import sources

# Split so that this file does not find itself.
_NAMES = re.compile(r"\.\./sha" r"red\b|\bSLUICE_(REQUIRE_)?SHA" r"RED\b")
# History and figures of earlier machines.
_LEFT_OUT = ("CHANGELOG.md", "tests/benchmarks/results/", "tests/gpu/results/",
             "tests/chaos/results/")
_TEXT = sources.CODE + (".md", ".txt", ".json", ".toml", ".yaml", ".yml")


def check_file(name, text):
    return [f"{name}:{text.count(chr(10), 0, match.start()) + 1}: "
            f"{match.group()!r}: no user has that folder (tests/golden makes "
            "models, tests/test_data fetches what packages ship)"
            for match in _NAMES.finditer(text)]


def is_script(name):
    with open(sources.ROOT / name, "rb") as file:
        return file.read(2) == b"#!"


def check():
    names = [name for name in sources.files()
             if not name.startswith(_LEFT_OUT)
             and (name.endswith(_TEXT) or is_script(name))]
    return [finding for name in names
            for finding in check_file(name, sources.read(name))]
