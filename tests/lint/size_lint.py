"""Tells where a file, a function or a class has grown beyond its subject.

The figures are warnings for the eye of a reviewer, never targets: code that
reads well may exceed each. `shells()` alone fails: a service's shell, which
translates and moves, grows in no commit that does not say why.

clang-tidy's readability-function-size counts functions alone, and needs a build and
3 s a source on two cores; this counts classes too, in 2 s for the whole tree.
"""

import dataclasses
import re
import subprocess

import sources

FILE_LINES = 450
FUNCTION_LINES = 40  # beyond it there may be two subjects
PARAMETERS = 6
CLASS_MEMBERS = 15  # that change after construction
CLASS_METHODS = 15  # that are public

_NOT_A_FUNCTION = re.compile(
    r"(^|[\s;}])(namespace|class|struct|enum|union|extern|concept)\b[^()]*$")
_NOT_A_MEMBER = re.compile(
    r"\s*(using|friend|typedef|static|static_assert|constexpr|class|struct|"
    r"enum|union|template)\b")


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
    name: str  # with the class around it
    members: int  # that are neither const nor references
    methods: int  # public, without constructors


def _plain(text):
    """C++ without comments, literals and preprocessor lines."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda m: "\n" * m.group().count("\n"),
                  sources.strip_cxx(text), flags=re.M)


_CLASS = re.compile(
    r"(?<!enum )\bclass (?:(?:SLUICE|ABSL)_\w+(?:\([^()]*\))? )?"
    r"([A-Z]\w*(?:::[A-Z]\w*)*)(?: final)?\s*(?::[^;{}()]*)?\{")


def classes(name, text):
    """The class definitions of a C++ file. A struct is a value: its fields
    are its interface, and it is not counted."""
    plain = _plain(text)
    found = []
    for match in _CLASS.finditer(plain):
        depth, at = 1, match.end()
        while at < len(plain) and depth:
            depth += {"{": 1, "}": -1}.get(plain[at], 0)
            at += 1
        around = [outer for outer, end in found if end > at]
        own = match.group(1)
        full = "::".join([outer.name for outer in around[-1:]] + [own])
        first = plain.count("\n", 0, match.start()) + 1
        found.append((Class(name, first, full, *_count(
            own.rpartition("::")[2], plain[match.end():at - 1])), at))
    return [one for one, _ in found]


def _count(name, body):
    """(members that change, public methods) of a class with that body."""
    members = methods = 0
    access = "private"
    for head in _statements(body):
        for label in re.findall(r"\b(public|protected|private)\s*:(?!:)",
                                head):
            access = label
        head = re.sub(r"\b(public|protected|private)\s*:(?!:)", "", head)
        head = re.sub(r"\b(ABSL|SLUICE)_[A-Z_]+(\([^()]*\))?", "", head)
        while re.search(r"<[^<>]*>", head):
            head = re.sub(r"<[^<>]*>", "", head)
        head = re.sub(r"\s*template(?=\s)", "", head)
        if not head.strip() or _NOT_A_MEMBER.match(head):
            continue
        if "(" in head:
            called = re.search(r"([~\w]+|operator\W{1,3})\s*\(", head)
            methods += (access == "public" and called is not None
                        and called.group(1).lstrip("~") != name
                        and not re.search(r"=\s*(delete|default)\s*$", head))
        elif not re.match(r"\s*const\b[^*]*$|.*&|.*\*\s*const\b", head, re.S):
            members += 1
    return members, methods


def _statements(body):
    """The declarations of a class body, without initial values and bodies."""
    depth, head, value = 0, "", False
    for at, char in enumerate(body):
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            # A function's body ends the declaration; an initializer's does
            # not, and the `;` behind it does.
            if not depth and "(" in head:
                yield head
                head, value = "", False
        elif not depth and char == ";":
            yield head
            head, value = "", False
        elif not depth and char == "=" and "(" not in head and \
                "operator" not in head and head.count("<") == head.count(">"):
            value = True
        elif not depth and not value:
            head += char


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


def check_file(name, text):
    findings = []
    if text.count("\n") > FILE_LINES:
        findings.append(f"{name}: {text.count(chr(10))} lines; "
                        f"{FILE_LINES} are a long file")
    if not name.endswith(sources.CXX) or name.startswith("tests/"):
        return findings
    for function in functions(name, text):
        where = f"{name}:{function.line}: {function.name}"
        if function.lines > FUNCTION_LINES:
            findings.append(f"{where}: {function.lines} lines; beyond "
                            f"{FUNCTION_LINES} look for a second subject")
        if function.parameters > PARAMETERS:
            findings.append(f"{where}: {function.parameters} parameters; "
                            f"{PARAMETERS} are many")
    for one in classes(name, text):
        where = f"{name}:{one.line}: class {one.name}"
        if one.members > CLASS_MEMBERS:
            findings.append(f"{where}: {one.members} members change; "
                            f"{CLASS_MEMBERS} are many")
        if one.methods > CLASS_METHODS:
            findings.append(f"{where}: {one.methods} public methods; "
                            f"{CLASS_METHODS} are many")
    return findings


def _measured():
    return [name for name in sources.files() if name.endswith(sources.CODE)]


def warnings():
    return [finding for name in _measured()
            for finding in check_file(name, sources.read(name))]


def _shells(sizes):
    """{shell: {folder in it: lines of C++}} of {file: lines}."""
    shells = {}
    for name, lines in sizes.items():
        parts = name.split("/")
        if parts[0] != "services" or len(parts) < 3 or \
                not name.endswith(sources.CXX):
            continue
        folders = shells.setdefault("/".join(parts[:2]), {})
        folder = parts[2] if len(parts) > 3 else "itself"
        folders[folder] = folders.get(folder, 0) + lines
    return shells


def grown(before, after, message):
    """Findings about shells that grew between two {file: lines} by a commit
    with that message: a line `Shell: NAME: why` lets NAME grow."""
    old, findings = _shells(before), []
    for shell, folders in sorted(_shells(after).items()):
        lines, was = (sum(one.values()) for one in (folders, old.get(shell, {})))
        name = shell.partition("/")[2]
        if was and lines > was and \
                not re.search(rf"^Shell: {name}: \w", message, re.M):
            findings.append(f"{shell}: {lines} lines of C++, {was} in the "
                            "commit before: a decision belongs in a room; "
                            f"else the commit says `Shell: {name}: why`")
    return findings


def _git(*arguments):
    return subprocess.run(["git", "-c", f"safe.directory={sources.ROOT}", "-C",
                           str(sources.ROOT), *arguments],
                          capture_output=True, text=True, check=False)


def _lines_at(commit):
    """{file of services: lines} at a commit; nothing where there is none."""
    told = _git("grep", "-c", "", commit, "--", "services")
    rows = (row.split(":", 1)[1].rpartition(":")
            for row in told.stdout.splitlines())
    return {name: int(lines) for name, _, lines in rows}


def shells():
    """Findings about the last commit; None where git does not have the commit
    before. A merge is judged with the messages of all that it brings."""
    if _git("rev-parse", "--verify", "--quiet", "HEAD^").returncode != 0:
        return None
    return grown(_lines_at("HEAD^"), _lines_at("HEAD"),
                 _git("log", "--format=%B", "HEAD^..HEAD").stdout)


def report(count=15):
    """Lines of text: lines of code per folder and per service shell, the
    largest files, classes and functions."""
    sizes = {name: sources.read(name).count("\n") for name in _measured()}
    folders = {}
    for name, lines in sizes.items():
        parts = name.split("/")
        deep = parts[0] in ("common", "services", "tests") and len(parts) > 2
        folder = "/".join(parts[:2] if deep else parts[:1])
        folders[folder] = folders.get(folder, 0) + lines
    cxx = {name: sources.read(name) for name in sizes
           if name.endswith(sources.CXX)}
    every = sorted((one for name, text in cxx.items()
                    for one in functions(name, text)),
                   key=lambda one: -one.lines)
    largest = sorted((one for name, text in cxx.items()
                      if not name.startswith("tests/")
                      for one in classes(name, text)),
                     key=lambda one: -one.members - one.methods)
    out = ["lines per folder:"]
    out += [f"  {lines:6}  {name}" for name, lines in sorted(folders.items())]
    out += [f"  {sum(folders.values()):6}  in all", "C++ per service shell:"]
    out += [f"  {sum(parts.values()):6}  {shell} (" + ", ".join(
        f"{folder} {lines}" for folder, lines in
        sorted(parts.items(), key=lambda at: -at[1])) + ")"
            for shell, parts in sorted(_shells(sizes).items())]
    out += ["largest files:"]
    out += [f"  {lines:6}  {name}" for name, lines in
            sorted(sizes.items(), key=lambda item: -item[1])[:count]]
    out += ["largest classes (members that change, public methods):"]
    out += [f"  {one.members:4} {one.methods:3}  {one.file}: {one.name}"
            for one in largest[:count]]
    out += ["largest functions:"]
    out += [f"  {one.lines:6}  {one.file}:{one.line} {one.name}"
            for one in every[:count]]
    return out
