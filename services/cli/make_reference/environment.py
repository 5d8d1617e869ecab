"""The virtual environment of make-reference: made once in the user's cache, by the
versions of requirements.txt. Standard library alone."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

from failure import Failure

REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "requirements.txt"
# Where torch comes without the libraries of GPUs, which take gigabytes.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OLDEST_PYTHON = (3, 10)
_CAN_MAKE = "import sys, venv, ensurepip; print(*sys.version_info[:2])"


def default_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache) / "sluice" / "reference-venv"


def requirements():
    """The lines of requirements.txt, without comments."""
    return [line.strip() for line in REQUIREMENTS.read_text().splitlines()
            if line.strip() and not line.startswith("#")]


def _pythons():
    """Interpreters that may make an environment; a bundle's own has no pip."""
    found = [shutil.which("python3"), "/usr/bin/python3", sys.executable]
    return [path for at, path in enumerate(found)
            if path and path not in found[:at] and os.path.exists(path)]


def _base_python():
    """An interpreter with venv and ensurepip; Failure says what is missing."""
    seen = []
    for path in _pythons():
        done = subprocess.run([path, "-I", "-c", _CAN_MAKE], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              check=False)
        version = tuple(map(int, done.stdout.split()[:2]))
        if done.returncode == 0 and version >= OLDEST_PYTHON:
            return path
        why = done.stderr.strip().splitlines()[-1:] or [
            f"it is Python {'.'.join(map(str, version))}, and transformers "
            f"needs {'.'.join(map(str, OLDEST_PYTHON))}"]
        seen.append(f"{path} ({why[0]})")
    raise Failure(
        "no Python can make a virtual environment: "
        f"{'; '.join(seen) or 'there is no python3'}. Install Python's venv "
        "(Debian, Ubuntu: apt-get install python3-venv), or name a Python that "
        f"has {', '.join(requirements())}: --python PATH")


def _install(python, words, what):
    command = [str(python), "-m", "pip", "install",
               "--disable-pip-version-check", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL,
                          stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise Failure(
            f"{what} could not be installed (pip's words are above). Without a "
            "network, name a Python that has the packages "
            f"{', '.join(requirements())}: --python PATH")


def _install_torch(python):
    """From the index without libraries of GPUs, if that can be reached; those who
    name an index of their own get torch of it with the other packages."""
    if os.environ.get("PIP_INDEX_URL") or os.environ.get("PIP_NO_INDEX"):
        return
    torch = [line for line in requirements() if line.startswith("torch==")]
    try:
        _install(python, ["--index-url", CPU_INDEX, "--retries", "1", *torch],
                 "torch")
    except Failure:
        print("torch for CPUs alone could not be had; the usual one is taken, "
              "which is larger", file=sys.stderr)


def _make(folder):
    base = _base_python()
    print(f"making a virtual environment in {folder}: torch and transformers, "
          "about 1.5 GB, once", file=sys.stderr)
    marker = folder / "installed.txt"
    marker.unlink(missing_ok=True)
    done = subprocess.run([base, "-I", "-m", "venv", "--clear", str(folder)],
                          text=True, stdin=subprocess.DEVNULL,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{folder}: {base} -m venv failed: "
                      f"{(done.stderr + done.stdout).strip()}")
    python = folder / "bin/python3"
    _install_torch(python)
    _install(python, ["--requirement", str(REQUIREMENTS)],
             "transformers and torch")
    marker.write_text(REQUIREMENTS.read_text())


def python_of(folder):
    """The interpreter of the environment in `folder`, which is made if it is not
    there, or has other versions. Two processes make one, one after the other. A
    folder with other things in it is refused."""
    folder = pathlib.Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(str(folder) + ".lock", "w", encoding="ascii")
    except OSError as error:
        raise Failure(f"--venv {folder}: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker, python = folder / "installed.txt", folder / "bin/python3"
        wanted = REQUIREMENTS.read_text()
        if marker.exists() and marker.read_text() == wanted and python.exists():
            return str(python)
        if any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
            raise Failure(f"--venv {folder}: the folder has other files, and "
                          "is no virtual environment", 2)
        _make(folder)
        return str(python)
