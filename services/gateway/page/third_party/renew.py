"""Writes the page's libraries beside itself, as npm has them, and packages.json:
versions, licences, SHA-256 digests.

usage: renew.py [NAME=VERSION]...     without one: the versions that are here

Needs npm, which checks each package's own digest. Afterwards: make_sbom.py of
deploy/licenses, and the test `page`.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "packages.json"


def write(package, folder):
    """Writes a package's file and licence; returns its row with the digest."""
    done = subprocess.run(
        ["npm", "pack", "--json", f"{package['name']}@{package['version']}"],
        cwd=folder, stdout=subprocess.PIPE, check=True)
    (packed,) = json.loads(done.stdout)
    with tarfile.open(folder / packed["filename"]) as archive:
        def read(name):
            return archive.extractfile(f"package/{name}").read()
        text = read(package["file"])
        about = json.loads(read("package.json"))
        name = pathlib.PurePath(package["file"]).name
        (HERE / name).write_bytes(text)
        (HERE / f"{name}.LICENSE").write_bytes(read("LICENSE"))
    return {**package, "licence": about["license"].strip("()"),
            "sha256": hashlib.sha256(text).hexdigest()}


def main(arguments):
    packages = json.loads(TABLE.read_text())
    wanted = dict(one.rpartition("=")[::2] for one in arguments)
    unknown = wanted.keys() - {one["name"] for one in packages}
    if unknown or not all(wanted.values()):
        print(__doc__, file=sys.stderr)
        return 2
    for one in packages:
        one["version"] = wanted.get(one["name"], one["version"])
    with tempfile.TemporaryDirectory() as folder:
        made = [write(one, pathlib.Path(folder)) for one in packages]
    TABLE.write_text(json.dumps(made, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
