"""The repository's own files, and C++ text without comments and strings."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CXX = (".h", ".cc", ".inc")
CODE = CXX + (".py", ".rs", ".sh", ".proto", ".cmake")
SKIPPED = {"build", ".git", "__pycache__", "target", "run", ".ccache"}


def files(root=ROOT):
    """Root-relative paths of the files that git knows or would add, sorted.
    Outside a git checkout: all but build outputs."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files",
         "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")
                 if not SKIPPED & set(path.relative_to(root).parts)]
    return sorted(name for name in names if (root / name).is_file())


def read(name, root=ROOT):
    return (root / name).read_text(encoding="utf-8")


_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"'
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)


def strip_cxx(text):
    """`text` with comments and literals blanked; every newline stays."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return _TOKENS.sub(blank, text)
