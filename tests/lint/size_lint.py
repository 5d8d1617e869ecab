"""Holds files and functions to the sizes the house allows.

`check()` fails on the limits that are never exceeded; `report()` lists the
largest, for review.
"""

import dataclasses
import re

import sources

HEADER_LINES = 400
SOURCE_LINES = 600
FUNCTION_LINES = 100
KERNEL_LINES = 150
PARAMETERS = 8

_NOT_A_FUNCTION = re.compile(
    r"(^|[\s;}])(namespace|class|struct|enum|union|extern|concept)\b[^()]*$")


@dataclasses.dataclass
class Function:
    file: str
    line: int
    lines: int
    parameters: int
    name: str


def functions(name, text):
    """The function definitions of a C++ file, by its braces: a `{` at
    namespace or class level that follows a parameter list opens a body."""
    plain = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                   lambda m: "\n" * m.group().count("\n"),
                   sources.strip_cxx(text), flags=re.M)
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


def check_file(name, text):
    lines = text.count("\n")
    limit = HEADER_LINES if name.endswith(".h") else SOURCE_LINES
    findings = []
    if lines > limit:
        findings.append(f"{name}: {lines} lines, at most {limit}")
    if not name.endswith(sources.CXX):
        return findings
    limit = KERNEL_LINES if name.startswith("kernels/") else FUNCTION_LINES
    for function in functions(name, text):
        where = f"{name}:{function.line}: {function.name}"
        if function.lines > limit and not name.startswith("tests/"):
            findings.append(f"{where}: {function.lines} lines, "
                            f"at most {limit}")
        if function.parameters > PARAMETERS:
            findings.append(f"{where}: {function.parameters} parameters, "
                            f"at most {PARAMETERS}")
    return findings


def _measured():
    return [name for name in sources.files() if name.endswith(sources.CODE)]


def check():
    return [finding for name in _measured()
            for finding in check_file(name, sources.read(name))]


def report(count=15):
    """Lines of text: lines of code per folder, largest files, functions."""
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
    out += [f"  {sum(folders.values()):6}  in all", "largest files:"]
    out += [f"  {lines:6}  {name}" for name, lines in
            sorted(sizes.items(), key=lambda item: -item[1])[:count]]
    out += ["largest functions:"]
    out += [f"  {f.lines:6}  {f.file}:{f.line} {f.name}"
            for f in every[:count]]
    return out
