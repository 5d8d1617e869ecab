"""Checks every #include against the layer table in rules.py."""

import re

import rules
import sources

_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)


def check_file(name, text):
    """Findings ("path:line: message") for one file."""
    room = rules.room_of(name)
    if room is None:
        return []
    findings = []
    for match in _INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        problem = _check(name, room, match.group(1), match.group(2))
        if problem:
            findings.append(f"{name}:{line}: {problem}")
    return findings


def _check(name, room, quote, header):
    rooms, families = rules.ROOMS[room]
    family = rules.family_of(header)
    if rules.GRPC_FREE.match(name) and family in ("grpc", "protobuf",
                                                  "generated"):
        return f"{header}: a server's header is free of gRPC and protobuf"
    if header.startswith(rules.WING) and \
            not name.startswith(rules.WING_READERS):
        return f"{header}: services/cli and tests alone include the tools"
    if room in rules.PURE and rules.PURE[room].match(header):
        return f"{header}: {room} measures nothing and opens no files"
    if rooms is None:
        return None
    if family:
        if family not in families:
            return f"{room} may not include {family} ({header})"
        return None
    target = rules.room_of(header)
    if target:
        if target != room and target not in rooms and \
                (room, header) not in rules.EXTRA:
            return f"{room} may not include {target} ({header})"
        return None
    if header.startswith(("services/", "common/", "proto/")):
        return f"{header} is in no room that tests/lint/rules.py knows"
    if quote == '"':
        return f'"{header}" is not relative to the repository root'
    return None


def check():
    findings = []
    for name in sources.files():
        if name.endswith(sources.CXX):
            findings += check_file(name, sources.read(name))
    return findings
