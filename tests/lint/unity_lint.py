"""Holds names of a target's unnamed namespaces apart: a unity build compiles
several of its sources as one, and which ones changes with every new file."""

import collections
import pathlib
import re

import sources

_TARGET = re.compile(
    r"^\s*sluice_\w+\(\s*(\w+)[^)]*?\bSRCS\b([^)]*)\)", re.M | re.S)
_UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}", re.M | re.S)
# At the block's own level. Functions may be overloaded, aliases repeated.
_NAMES = (
    re.compile(r"^(?:inline )?const(?:expr|init)? [^=({;]*?\b(\w+)(?:\[\w*\])?"
               r" ?[={]", re.M),
    re.compile(r"^(?:class|struct|enum(?: class)?) (\w+)\b[^;]*?\{", re.M),
)


def names(text):
    """The names that are defined once in the unnamed namespaces of a file."""
    plain = sources.strip_cxx(text)
    found = set()
    for block in _UNNAMED.finditer(plain):
        for pattern in _NAMES:
            found.update(pattern.findall(block.group(1)))
    return found


def targets(root=sources.ROOT):
    """(target, sources) of every CMakeLists.txt."""
    for name in sources.files(root):
        if pathlib.PurePath(name).name != "CMakeLists.txt":
            continue
        folder = pathlib.PurePath(name).parent
        for match in _TARGET.finditer(sources.read(name, root)):
            listed = [word for word in match.group(2).split()
                      if word.endswith(".cc")]
            yield match.group(1), [str(folder / word) for word in listed
                                   if (root / folder / word).is_file()]


def check(root=sources.ROOT):
    findings = []
    for target, files in targets(root):
        places = collections.defaultdict(list)
        for file in files:
            for name in names(sources.read(file, root)):
                places[name].append(file)
        findings += [f"{target}: {name} is defined in " + " and in ".join(where)
                     for name, where in sorted(places.items())
                     if len(where) > 1]
    return findings
