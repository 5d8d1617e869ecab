"""Header guards, words that must not be committed, a README per folder."""

import os
import re

import sources

# Split so that this file does not find itself.
_BANNED = [
    (re.compile(r"/" r"work/(main|shared)|(?<![\w.~])/" r"(root|home)/\w"),
     "a path of one machine"),
    (re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"), "unfinished work"),
    (re.compile(r"^(<{7}|>{7}) ", re.M), "a merge conflict"),
]
# Words of prose and names that the field's own terms have replaced.
_OLD_WORDS = [
    (re.compile(r"\b(whoever|nobody)\b", re.I),
     "name the type or the process, in a sentence with a subject"),
    (re.compile(r"\b(Token|Row)Asks?\b"), "TokenTask, RowTask"),
    (re.compile(r"\b(ExpertOwner|ExpertAsk|SendQuestion)\b"),
     "ExpertTransport, RoutedRows, SendProbe"),
    (re.compile(r"\b[Pp]ledge"), "reserve"),
]
_PRODUCT = ("common/", "kernels/", "proto/", "services/")
_TEXT = sources.CODE + (".md", ".txt", ".json", ".toml", ".yaml", ".yml")
_README_LINES = 60
_NO_README = {".ci", "proto/sluice", "proto/sluice/v1"}


def check_guard(name, text):
    """The include guard is the path in capitals."""
    want = "SLUICE_" + re.sub(r"\W", "_", name).upper() + "_"
    guard = re.search(r"^#ifndef (\S+)\n#define (\S+)", text, re.M)
    if guard and guard.group(1) == guard.group(2) == want:
        return []
    return [f"{name}: its include guard is not {want}"]


def check_words(name, text):
    findings = []
    old = _OLD_WORDS if name.startswith(_PRODUCT) else []
    for pattern, meaning in _BANNED + old:
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            findings.append(f"{name}:{line}: {match.group()!r}: {meaning}")
    return findings


def check_guards():
    return [finding for name in sources.files() if name.endswith(".h")
            for finding in check_guard(name, sources.read(name))]


def check_all_words():
    return [finding for name in sources.files()
            if name.endswith(_TEXT) or name.endswith("CMakeLists.txt")
            for finding in check_words(name, sources.read(name))]


def folders_without_readme(names):
    """Folders that hold files and no README.md. Below common/ and services/
    every folder has one; below tests/ and inside a room the parent's
    speaks for what it lists."""
    folders = {os.path.dirname(name) for name in names} - {""}
    parents = {"/".join(folder.split("/")[:depth]) for folder in folders
               for depth in range(1, folder.count("/") + 2)}
    missing = []
    for folder in sorted(parents):
        parts = folder.split("/")
        deep = len(parts) > 2 or (
            len(parts) == 2 and parts[0] not in ("common", "services",
                                                 "deploy"))
        if deep or folder in _NO_README or folder.startswith("."):
            continue
        if folder + "/README.md" not in names:
            missing.append(folder)
    return missing


def long_readme(name, text):
    """A room's README is read in a minute: longer pages are files beside it."""
    lines = text.count("\n")
    if lines <= _README_LINES or not re.fullmatch(
            r"(common/.+|kernels|proto|services/(gateway|cli))/README\.md", name):
        return []
    return [f"{name}: {lines} lines, at most {_README_LINES}"]


def check_readmes():
    names = set(sources.files())
    return [f"{folder}/README.md is missing"
            for folder in folders_without_readme(names)] + [
        finding for name in sorted(names) if name.endswith("/README.md")
        for finding in long_readme(name, sources.read(name))]
