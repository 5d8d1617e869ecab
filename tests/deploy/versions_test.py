"""One version everywhere: what the project's CMakeLists.txt says is what
packages, images, manifests, pages and the changelog say; and the page on
upgrades quotes what the code says."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"^project\(sluice VERSION (\S+)",
                    (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
LINES = 60  # of a release's section of the changelog

# Where else the version stands, and how often at least. A release changes
# these, and nothing else, by hand.
ELSEWHERE = {
    "common/text/bridge/Cargo.toml": (r'^version = "(.*)"$', 1),
    "common/text/bridge/Cargo.lock":
        (r'name = "sluice-text-bridge"\nversion = "(.*)"', 1),
    "deploy/apptainer/README.md": (r"sluice-(\d+\.\d+\.\d+)-", 2),
    "deploy/apptainer/sluice.def":
        (r"(?:image\.version |sluice-)(\d+\.\d+\.\d+)", 2),
    "deploy/licenses/NOTICE": (r"^Sluice (.*)$", 1),
    "deploy/packages/README.md": (r"sluice-(\d+\.\d+\.\d+)-", 1),
    "docker/Dockerfile": (r"(?:VERSION=|sluice:)(\d+\.\d+\.\d+)", 3),
    "docker/README.md": (r"(?:sluice:|VERSION` \| )(\d+\.\d+\.\d+)", 3),
    "docker/compose.yaml": (r"SLUICE_VERSION:-(\d+\.\d+\.\d+)", 3),
    "k8s/README.md": (r"sluice:(\d+\.\d+\.\d+)", 1),
    "deploy/UPGRADING.md": (r"^sluice-gateway (\d+\.\d+\.\d+)$", 1),
}


def read(path):
    return (ROOT / path).read_text()


class VersionsTest(unittest.TestCase):
    def test_every_file_with_a_version_has_the_projects(self):
        for path, (pattern, least) in ELSEWHERE.items():
            found = re.findall(pattern, read(path), re.M)
            self.assertGreaterEqual(len(found), least, path)
            self.assertEqual(set(found), {VERSION}, path)

    def test_every_image_of_a_manifest_has_it(self):
        tags = {path: re.findall(r"newTag: (\S+)", path.read_text())
                for path in (ROOT / "k8s").rglob("kustomization.yaml")}
        found = [tag for ones in tags.values() for tag in ones]
        self.assertGreater(len(found), 5)
        for path, ones in tags.items():
            for tag in ones:
                self.assertIn(tag, (VERSION, VERSION + "-cuda"), path)

    def test_the_sbom_is_this_versions(self):
        self.assertIn(f'"version": "{VERSION}"',
                      read("deploy/licenses/sbom.cdx.json")
                      .partition('"components"')[0])

    def test_the_newest_section_of_the_changelog_is_this_version_and_short(self):
        sections = re.split(r"^## ", read("CHANGELOG.md"), flags=re.M)[1:]
        self.assertEqual(sections[0].split("\n")[0], "Unreleased")
        title = sections[1].split("\n")[0]
        self.assertRegex(title, rf"^{re.escape(VERSION)} - \d{{4}}-\d\d-\d\d$")
        for section in sections:
            self.assertLessEqual(len(section.rstrip().split("\n")), LINES,
                                 section.split("\n")[0])
        versions = [tuple(map(int, one.split(" ")[0].split(".")))
                    for one in sections[1:]]
        self.assertEqual(versions, sorted(set(versions), reverse=True))


class UpgradingTest(unittest.TestCase):
    PAGE = read("deploy/UPGRADING.md")

    def protocols(self):
        header = read("common/wire/protocol_versions.h")
        return {name: int(re.search(rf" {name} = (\d+);", header)[1])
                for name in ("kProtocolVersion", "kExpertProtocolVersion",
                             "kRanksProtocolVersion")}

    def test_the_protocols_are_this_builds(self):
        stages, experts, ranks = self.protocols().values()
        self.assertIn(f"\nprotocols: stages {stages}, experts {experts}, "
                      f"ranks {ranks}\n", self.PAGE)
        changelog = re.sub(r"\s+", " ", read("CHANGELOG.md"))
        self.assertIn(f"protocols are {stages} (stages), {experts} (experts) "
                      f"and {ranks} (ranks)", changelog)

    def test_what_is_quoted_is_what_the_code_says(self):
        stages, experts, ranks = self.protocols().values()
        quoted = {
            f"`protocol version differs: this stage has {stages}, the peer "
            f"has {stages - 1}`":
                ("common/pipeline/stage/stage_checks.cc",
                 ('CheckSame("protocol version"', '" differs: this stage has "',
                  '", the peer has "')),
            f"`protocol version differs: this host has {experts}, STAGE has "
            f"{experts - 1}`":
                ("common/experts/host/expert_session.cc",
                 ('"protocol version differs: this host has "', '" has "')),
            f"`the lead has protocol version {ranks} of Ranks, the follower "
            f"{ranks - 1}`":
                ("common/pipeline/ranks/rank_frames.cc",
                 ('"the lead has protocol version "',
                  '" of Ranks, the follower "')),
            "`its numerics is f32-canonical-2, that of STAGE is "
            "f32-canonical-3`":
                ("common/pipeline/gateway/handshake.cc",
                 ('"its "', '" is "', '", that of "', "NumericsKey(")),
            "`the hosts have different versions: ":
                ("deploy/local/cluster/fleet.py",
                 ('"the hosts have different "', '"versions: "')),
        }
        for quote, (path, parts) in quoted.items():
            self.assertIn(quote, self.PAGE)
            for part in parts:
                self.assertIn(part, read(path), path)

    def test_its_options_are_there(self):
        """Options of programs that no test here can run as the page does."""
        known = "".join(
            path.read_text(errors="replace")
            for folder in ("services", "deploy/local", "common/rpc")
            for path in (ROOT / folder).rglob("*") if path.is_file())
        known += read("deploy/release")
        rows = [line for line in self.PAGE.split("\n")
                if not line.startswith("| scripts with")]
        words = set(re.findall(r"`(--[\w-]+)", "\n".join(rows)))
        self.assertGreater(len(words), 5)
        for word in words:
            name = word[2:].replace("-", "_")
            self.assertRegex(known, rf"{word}\b|\b{name}\b", word)


if __name__ == "__main__":
    sys.exit(unittest.main())
