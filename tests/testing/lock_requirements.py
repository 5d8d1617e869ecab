"""Writes REQUIREMENTS' lock beside it: all packages that pip would install for
it, with their versions and digests, for the Python that runs this script.

usage: lock_requirements.py tests/requirements.txt    (writes requirements.lock)
"""

import json
import pathlib
import platform
import subprocess
import sys


def lines(requirements):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet",
         "--ignore-installed", "--only-binary=:all:",
         "--disable-pip-version-check", "--report", "-", "-r", requirements],
        stdout=subprocess.PIPE, check=True)
    for one in json.loads(done.stdout)["install"]:
        about, file = one["metadata"], one["download_info"]["archive_info"]
        yield (f"{about['name'].lower()}=={about['version']} "
               f"--hash=sha256:{file['hashes']['sha256']}")


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    source = pathlib.Path(arguments[0])
    made = sorted(lines(source))
    major, minor, _ = platform.python_version_tuple()
    source.with_suffix(".lock").write_text(
        f"# {source.name} with all it needs, for CPython {major}.{minor} on "
        f"{platform.machine()}: made by\n# tests/testing/lock_requirements.py"
        "\n" + "\n".join(made) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
