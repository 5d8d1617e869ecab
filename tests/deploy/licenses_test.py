"""The SBOM and the NOTICE say what is built and fetched, no less and no more."""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/licenses"
sys.path.insert(0, str(FOLDER))
sys.path.insert(0, str(ROOT / "deploy/local/cluster"))

import make_sbom  # noqa: E402
import model  # noqa: E402


class SbomTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bom = json.loads((FOLDER / "sbom.cdx.json").read_text())
        cls.components = {one["bom-ref"]: one
                          for one in cls.bom["components"]}

    def test_what_the_script_would_write_is_there(self):
        done = subprocess.run(
            [sys.executable, "-B", FOLDER / "make_sbom.py", "--check"],
            env={"PATH": "/nowhere"}, capture_output=True, text=True,
            check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_locked_crate_is_listed_with_its_digest(self):
        with open(ROOT / "common/text/bridge/Cargo.lock", "rb") as file:
            locked = {(one["name"], one["version"]): one["checksum"]
                      for one in tomllib.load(file)["package"]
                      if "checksum" in one}
        listed = {(one["name"], one["version"]): one["hashes"][0]["content"]
                  for ref, one in self.components.items()
                  if ref.startswith("pkg:cargo/")}
        self.assertGreater(len(locked), 50)
        self.assertEqual(listed, locked)

    def test_every_package_that_is_installed_is_linked_or_a_tool(self):
        text = (ROOT / "deploy/local/lib.sh").read_text()
        installed = re.search(r"SLUICE_BUILD_PACKAGES=\(([^)]*)\)", text)
        self.assertEqual(
            set(installed.group(1).split()),
            make_sbom.TOOLS
            | (make_sbom.LINKED.keys() - make_sbom.WITH_COMPILER))
        listed = {one["name"] for ref, one in self.components.items()
                  if ref.startswith("pkg:deb/")}
        self.assertEqual(listed, make_sbom.LINKED.keys())

    def test_the_pages_scripts_are_listed_and_are_those_of_npm(self):
        packages = json.loads((make_sbom.PAGE / "packages.json").read_text())
        files = {pathlib.PurePath(one["file"]).name: one for one in packages}
        self.assertEqual(
            files.keys(), {path.name for path in make_sbom.PAGE.glob("*.js")})
        embedded = (make_sbom.PAGE.parent / "CMakeLists.txt").read_text()
        for name, one in files.items():
            text = (make_sbom.PAGE / name).read_bytes()
            digest = hashlib.sha256(text).hexdigest()
            self.assertEqual(digest, one["sha256"], name)
            self.assertIn(one["version"].encode(), text[:200], name)
            self.assertTrue((make_sbom.PAGE / f"{name}.LICENSE").exists())
            self.assertIn(f"third_party/{name}", embedded)
            (listed,) = [component for component in self.bom["components"]
                         if component["name"] == one["name"]]
            self.assertEqual(listed["hashes"][0]["content"], digest)

    def test_what_cuda_builds_link_is_of_the_locked_wheels(self):
        lock = (ROOT / "tests/requirements-cuda.lock").read_text()
        for name in make_sbom.CUDA_LINKED:
            one = self.components[f"nvidia:{name}"]
            self.assertIn(f"{name}=={one['version']} --hash=sha256:"
                          f"{one['hashes'][0]['content']}\n", lock)

    def test_what_cuda_builds_load_is_what_the_code_opens(self):
        opened = set()
        for path in ("common/nvml", "common/device/cuda"):
            for source in (ROOT / path).glob("*.[ch]*"):
                opened |= set(re.findall(r'"(lib[\w.-]+\.so\.\d+)"',
                                         source.read_text()))
        self.assertEqual(opened | {"libcuda.so.1"},
                         make_sbom.CUDA_LOADED.keys())

    def test_the_models_are_those_that_are_fetched_and_shipped(self):
        self.assertEqual(
            self.components["model:default"]["hashes"][0]["content"],
            model.SHA256)
        self.assertIn("model:demo", self.components)

    def test_all_that_is_built_has_a_licence_in_the_notice(self):
        notice = (FOLDER / "NOTICE").read_text(encoding="utf-8")
        for one in self.components.values():
            if one["scope"] == "excluded":
                continue
            name = " ".join(filter(None, [one["name"], one.get("version")]))
            self.assertIn(f"\n{name}: {one['licenses'][0]['expression']}\n",
                          notice)

    def test_the_graph_names_components_alone(self):
        refs = self.components.keys() | {"sluice"}
        for node in self.bom["dependencies"]:
            self.assertIn(node["ref"], refs)
            self.assertLessEqual(set(node["dependsOn"]), refs)


class LockTest(unittest.TestCase):
    """tests/requirements*.lock: what tests/run installs, by digest."""

    def test_a_lock_has_what_its_requirements_pin_and_only_digests(self):
        locks = sorted((ROOT / "tests").glob("requirements*.lock"))
        self.assertGreater(len(locks), 1)
        for lock in locks:
            lines = lock.read_text().splitlines()
            versions = {}
            for line in lines:
                if line.startswith("#"):
                    continue
                found = re.fullmatch(
                    r"([a-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line)
                self.assertTrue(found, f"{lock.name}: {line}")
                versions[found[1].replace("_", "-")] = found[2]
            for line in lock.with_suffix(".txt").read_text().splitlines():
                pinned = re.match(r"([\w.-]+)(?:\[.*\])?==(\S+)", line)
                if pinned:
                    name = pinned[1].lower().replace("_", "-")
                    self.assertEqual(versions.get(name), pinned[2],
                                     f"{lock.name}: {name}")


    def test_a_node_lock_has_what_its_package_pins_and_digests(self):
        folder = ROOT / "tests/clients/node"
        package = json.loads((folder / "package.json").read_text())
        locked = json.loads((folder / "package-lock.json").read_text())
        for name, version in package["dependencies"].items():
            self.assertEqual(
                locked["packages"]["node_modules/" + name]["version"],
                version)
        for path, one in locked["packages"].items():
            if path:
                self.assertIn("integrity", one, path)


if __name__ == "__main__":
    unittest.main()
