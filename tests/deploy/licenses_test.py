"""The SBOM and the NOTICE say what is built and fetched, no less and no more."""

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

    def test_the_models_are_those_that_are_fetched_and_shipped(self):
        self.assertEqual(
            self.components["model:default"]["hashes"][0]["content"],
            model.SHA256)
        self.assertIn("model:demo", self.components)

    def test_all_that_is_built_has_a_licence_in_the_notice(self):
        notice = (FOLDER / "NOTICE").read_text()
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


if __name__ == "__main__":
    unittest.main()
