"""Writes the SBOM of a bundle (CycloneDX 1.5) to stdout: that of the sources, and
each Debian package and wheel that the bundle holds.

usage: bundle_sbom.py SBOM ARCH WHEEL... <PACKAGES
A line of PACKAGES is "NAME VERSION", and a SHA-256 where a lock has one.
"""

import hashlib
import json
import pathlib
import sys
import urllib.parse


def package(name, version, arch, digest):
    quoted = urllib.parse.quote(version, safe="")
    ref = (f"pkg:deb/debian/{urllib.parse.quote(name)}@{quoted}"
           f"?arch={arch}&distro=debian-12")
    made = {"type": "library", "bom-ref": ref, "name": name,
            "version": version, "purl": ref, "scope": "required",
            "description": "files of this Debian package are in the bundle; "
            f"licences: share/doc/sluice/debian/{name}"}
    if digest:
        made["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return made


def wheel(path):
    name, version = path.name.split("-")[:2]
    ref = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": ref, "name": name,
            "version": version, "purl": ref, "scope": "required",
            "description": "a wheel of Debian's python3-pip-whl",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(
                path.read_bytes()).hexdigest()}]}


def main(sbom, arch, *wheels):
    bom = json.loads(pathlib.Path(sbom).read_text())
    digests = {}
    for line in sys.stdin:
        name, version, *digest = line.split()
        digests.setdefault((name, version), None)
        if digest:
            digests[name, version] = digest[0]
    held = [package(name, version, arch, digest)
            for (name, version), digest in sorted(digests.items())]
    held += [wheel(pathlib.Path(path)) for path in wheels]
    bom["components"] += held
    for node in bom["dependencies"]:
        if node["ref"] == "sluice":
            node["dependsOn"] += [one["bom-ref"] for one in held]
    print(json.dumps(bom, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
