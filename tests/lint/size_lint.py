"""Holds files and functions to the sizes the house allows.

A class has the lines of its definition and of its members', wherever in its
room they are, and its own methods: what overrides, is pure or defaulted, and
accessors on one line are not counted.

There are two limits: one that is never exceeded, and one beyond which the
opening comment gives the reason, in a paragraph that begins with "Size:". A
file's opening comment (or docstring) is what it begins with, include guards
aside; a function's stands right above its definition. `check()` fails on both,
`report()` lists the largest, for review.
"""

import dataclasses
import re

import sources

@dataclasses.dataclass(frozen=True)
class Limit:
    reason: int  # beyond it a reason is needed
    never: int


HEADER_LINES = Limit(250, 400)
SOURCE_LINES = Limit(450, 600)
FUNCTION_LINES = Limit(60, 100)
KERNEL_LINES = Limit(60, 150)
PARAMETERS = Limit(6, 8)
CLASS_LINES = 480
CLASS_METHODS = 25
SHELL_LINES = 800  # of a service; past it something belongs in a room

_REASON = re.compile(r"^\W*Size: \w", re.M)

_NOT_A_FUNCTION = re.compile(
    r"(^|[\s;}])(namespace|class|struct|enum|union|extern|concept)\b[^()]*$")


@dataclasses.dataclass
class Function:
    file: str
    line: int
    lines: int
    parameters: int
    name: str


@dataclasses.dataclass
class Class:
    file: str
    line: int
    lines: int  # of the definition
    methods: int
    name: str  # with the classes around it
    members: int = 0  # lines of members that are defined elsewhere


def _plain(text):
    """C++ without comments, literals and preprocessor lines."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda m: "\n" * m.group().count("\n"),
                  sources.strip_cxx(text), flags=re.M)


_CLASS = re.compile(
    r"\b(?:class|struct) (?:(?:SLUICE|ABSL)_\w+(?:\([^()]*\))? )?"
    r"([A-Z]\w*(?:::[A-Z]\w*)*)(?: final)?\s*(?::[^;{}()]*)?\{")


def classes(name, text):
    """The class definitions of a C++ file."""
    plain = _plain(text)
    found = []
    for match in _CLASS.finditer(plain):
        depth, at = 1, match.end()
        while at < len(plain) and depth:
            depth += {"{": 1, "}": -1}.get(plain[at], 0)
            at += 1
        around = [outer for outer, end in found if end > at]
        full = "::".join([outer.name for outer in around[-1:]]
                         + [match.group(1)])
        first = plain.count("\n", 0, match.start()) + 1
        lines = plain.count("\n", match.start(), at) + 1
        found.append((Class(name, first, lines,
                            _methods(plain[match.end():at - 1]), full), at))
    return [one for one, _ in found]


def _methods(body):
    """How many methods of its own a class with that body has."""
    count, depth, head, inside = 0, 0, "", ""
    for char in body:
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
        if depth or char == "}":
            inside += char
        if char == ";" and not depth or char == "}" and not depth:
            count += _is_method(head, inside)
            head, inside = "", ""
        elif not depth:
            head += char
    return count


def _is_method(head, inside):
    head = re.sub(r"\b(ABSL|SLUICE)_[A-Z_]+\([^()]*\)", "", head)
    head = re.sub(r"\b(public|private|protected):", "", head)
    while re.search(r"<[^<>]*>", head):
        head = re.sub(r"<[^<>]*>", "", head)
    if "(" not in head or re.match(r"\s*(using|friend|typedef|static_assert|"
                                   r"class|struct|enum|union)\b", head):
        return False
    if re.search(r"\boverride\b|\bfinal\b|=\s*(0|default|delete)\s*$", head):
        return False
    # An accessor: one statement on one line.
    return not inside or "\n" in inside or inside.count(";") > 1


def functions(name, text):
    """The function definitions of a C++ file, by its braces: a `{` at
    namespace or class level that follows a parameter list opens a body."""
    plain = _plain(text)
    found, stack, head_start = [], [], 0
    body_depth = None
    for match in re.finditer(r"[{};]", plain):
        at, sign = match.start(), match.group()
        if sign == "{":
            head = plain[head_start:at]
            if body_depth is None and _opens_body(head):
                body_depth = len(stack)
                begin = head_start + len(head) - len(head.lstrip())
            stack.append(at)
        elif sign == "}":
            if stack:
                stack.pop()
            if body_depth is not None and len(stack) == body_depth:
                first = plain.count("\n", 0, begin) + 1
                last = plain.count("\n", 0, at) + 1
                found.append(Function(name, first, last - first + 1,
                                      *_signature(plain[begin:at])))
                body_depth = None
        if body_depth is None:
            head_start = at + 1
    return found


def _opens_body(head):
    if "(" not in head or _NOT_A_FUNCTION.search(head):
        return False
    return not re.search(r"=\s*$", head)  # an initializer


def _signature(text):
    """(number of parameters, name) of the definition that starts `text`."""
    head = re.sub(r"\b(ABSL|SLUICE)_[A-Z_]+\([^()]*\)\s*", "", text)
    match = re.search(r"([~\w:]+|operator\W{1,3})\s*\(", head)
    if not match:
        return 0, "?"
    depth, count, inside = 1, 1, ""
    for char in head[match.end():]:
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        if depth == 0:
            break
        if char == "," and depth == 1:
            count += 1
        inside += char
    return (count if inside.strip() else 0), match.group(1)


def _opening(name, text):
    """The comment that a file begins with."""
    if name.endswith(".py"):
        match = re.match(r'(?:#[^\n]*\n)*"""(.*?)"""', text, re.S)
        return match.group(1) if match else ""
    guard = r"\s*#ifndef [^\n]*\n#define [^\n]*\n\s*"
    mark = "//" if name.endswith(sources.CXX + (".rs", ".proto")) else "#"
    match = re.match(rf"(?:{guard})?((?:{mark}[^\n]*\n)+)", text)
    return match.group(1) if match else ""


def _above(lines, line):
    """The comment that ends right above the line of that number (from 1)."""
    first = line - 1
    while first > 0 and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    return "\n".join(lines[first:line - 1])


def _judge(where, size, unit, limit, comment):
    """Findings about one size. `comment`: where its reason would stand."""
    if size > limit.never:
        return [f"{where}: {size} {unit}, at most {limit.never}"]
    if size > limit.reason and not _REASON.search(comment):
        return [f"{where}: {size} {unit}; above {limit.reason} the opening "
                "comment tells why ('Size: ...')"]
    return []


def check_file(name, text):
    lines = text.splitlines()
    limit = HEADER_LINES if name.endswith(".h") else SOURCE_LINES
    findings = _judge(name, text.count("\n"), "lines", limit,
                      _opening(name, text))
    if not name.endswith(sources.CXX):
        return findings
    limit = KERNEL_LINES if name.startswith("kernels/") else FUNCTION_LINES
    for function in functions(name, text):
        where = f"{name}:{function.line}: {function.name}"
        comment = _above(lines, function.line)
        if not name.startswith("tests/"):
            findings += _judge(where, function.lines, "lines", limit, comment)
        findings += _judge(where, function.parameters, "parameters",
                           PARAMETERS, comment)
    return findings


def all_classes(texts):
    """Every class of {name: text}, with the lines of its members."""
    found = {}
    for name, text in texts.items():
        for one in classes(name, text):
            found.setdefault((name.rpartition("/")[0], one.name), one)
    for name, text in texts.items():
        for function in functions(name, text):
            owner = function.name.rpartition("::")[0]
            one = found.get((name.rpartition("/")[0], owner))
            if one:
                one.members += function.lines
    return list(found.values())


def check_classes(texts):
    findings = []
    for one in all_classes(texts):
        where = f"{one.file}:{one.line}: class {one.name}"
        if one.lines + one.members > CLASS_LINES:
            findings.append(f"{where}: {one.lines + one.members} lines of "
                            f"members, at most {CLASS_LINES}")
        if one.methods > CLASS_METHODS:
            findings.append(f"{where}: {one.methods} methods, at most "
                            f"{CLASS_METHODS}")
    return findings


def _product():
    return {name: sources.read(name) for name in _measured()
            if name.endswith(sources.CXX) and not name.startswith("tests/")}


def _measured():
    return [name for name in sources.files() if name.endswith(sources.CODE)]


def check():
    return [finding for name in _measured()
            for finding in check_file(name, sources.read(name))
            ] + check_classes(_product())


def _shells(sizes):
    """Lines of text: how much C++ each service's shell has, by folder."""
    shells = {}
    for name, lines in sizes.items():
        parts = name.split("/")
        if parts[0] != "services" or len(parts) < 3 or \
                not name.endswith(sources.CXX):
            continue
        folders = shells.setdefault("/".join(parts[:2]), {})
        folder = parts[2] if len(parts) > 3 else "itself"
        folders[folder] = folders.get(folder, 0) + lines
    out = [f"lines of C++ per service shell (past about {SHELL_LINES} "
           "something in it belongs in a room):"]
    for shell, folders in sorted(shells.items()):
        among = ", ".join(f"{folder} {lines}" for folder, lines in
                          sorted(folders.items(), key=lambda at: -at[1]))
        out.append(f"  {sum(folders.values()):6}  {shell}"
                   + (f" ({among})" if len(folders) > 1 else ""))
    return out


def report(count=15):
    """Lines of text: lines of code per folder and per service shell, largest
    files, classes, functions."""
    sizes = {name: sources.read(name).count("\n") for name in _measured()}
    folders = {}
    for name, lines in sizes.items():
        parts = name.split("/")
        deep = parts[0] in ("common", "services", "tests") and len(parts) > 2
        folder = "/".join(parts[:2] if deep else parts[:1])
        folders[folder] = folders.get(folder, 0) + lines
    every = [function for name in sizes if name.endswith(sources.CXX)
             for function in functions(name, sources.read(name))]
    every.sort(key=lambda function: -function.lines)
    out = ["lines per folder:"]
    out += [f"  {lines:6}  {name}" for name, lines in sorted(folders.items())]
    out += [f"  {sum(folders.values()):6}  in all"]
    out += _shells(sizes)
    out += ["largest files:"]
    out += [f"  {lines:6}  {name}" for name, lines in
            sorted(sizes.items(), key=lambda item: -item[1])[:count]]
    largest = sorted(all_classes(_product()),
                     key=lambda one: -one.lines - one.members)
    out += ["largest classes (lines of members, methods of their own):"]
    out += [f"  {one.lines + one.members:6} {one.methods:3}  {one.file}: "
            f"{one.name}" for one in largest[:count]]
    out += ["largest functions:"]
    out += [f"  {f.lines:6}  {f.file}:{f.line} {f.name}"
            for f in every[:count]]
    return out
