"""What command lines, environments and files of options mean to the three
services: lines.jsonl has a case per line, and options/ the table of every service.

A case: the service, the words behind those of BASE, the environment, the text of
the TOML file ("FILE" in a word is its path), and what the service gives: the options
that differ from their defaults, or the error. "before" is what it gave while Abseil
read the words, where that was something else; "since" tells why it changed.

  options_test.py BINARIES         checks; BINARIES/stage/sluice-stage, ..
  options_test.py BINARIES --write writes OPTIONS.md of the services
"""

import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SERVICES = ("gateway", "stage", "expert")
# A model that is not there: what passes every check of options ends with it.
BASE = {"gateway": ["--model", "/nonexistent", "--stages", "127.0.0.1:1"],
        "stage": ["--model", "/nonexistent"],
        "expert": ["--model", "/nonexistent", "--experts", "all"]}
# Options of the command sluice that prose tells with a number.
OF_SLUICE = {"lines"}
# Headers with members of an option's name that are about something else.
OTHERS = ("probe_server.h",)
ACCEPTED = "/nonexistent: no such file"
binaries = pathlib.Path()


def call(service, words, env=None):
    return subprocess.run(
        [binaries / service / f"sluice-{service}", *words], text=True,
        env={"PATH": "/usr/bin"} | (env or {}), capture_output=True,
        timeout=60, check=False)


def written(service, words):
    """The text that the words ask for; an error where there is none."""
    ran = call(service, words)
    if ran.returncode != 0 or not ran.stdout:
        raise AssertionError(f"sluice-{service} {words} ended with "
                             f"{ran.returncode}: {ran.stderr}")
    return ran.stdout


def message(line):
    """A line of the log, or of Abseil's parser, without time and level."""
    if line.startswith("{"):
        return json.loads(line)["message"]
    return re.sub(r"^\S+Z E |^ERROR: ", "", line)


def value(text):
    """A value of TOML as --print options writes it."""
    if text[0] in "'\"":
        return text[1:-1]
    return json.loads(text)


def printed(text):
    return {name: value(rest) for name, rest in
            (line.split(" = ", 1) for line in text.splitlines())}


@functools.cache
def defaults(service):
    return printed(written(service, ["--print=options", *BASE[service]]))


def outcome(case, usual):
    """What a case gives: {"options": ..} or {"error": ..} or {"writes": ..}, and
    the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "o.toml"
        file.write_text(case.get("file", ""), encoding="utf-8")
        put = lambda text: text.replace("FILE", str(file))
        words = [*BASE[case["service"]], *map(put, case["words"])]
        env = {name: put(text) for name, text in case.get("env", {}).items()}
        ran = call(case["service"], words, env)
        lines = [message(line).replace(str(file), "FILE")
                 for line in ran.stderr.splitlines()]
        if ran.stdout:
            first = ran.stdout.splitlines()[0].split(":")[0]
            return {"writes": re.sub(r'\d+\.\d+\.\d+[^\s"]*', "VERSION", first),
                    "code": ran.returncode}
        if not lines or lines[-1] != ACCEPTED:
            return {"error": lines[-1] if lines else "", "code": ran.returncode}
        ran = call(case["service"], ["--print=options", *words], env)
        now = printed(ran.stdout)
        return {"options": {name: now[name] for name in now
                            if now[name] != usual[name]},
                "code": ran.returncode}


class OptionsTest(unittest.TestCase):
    def test_every_line_means_what_it_meant(self):
        usual = {service: defaults(service) for service in SERVICES}
        lines = (HERE / "lines.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertGreater(len(lines), 300)
        for line in lines:
            case = json.loads(line)
            with self.subTest(line):
                self.assertEqual(outcome(case, usual[case["service"]]),
                                 case["gives"])
                self.assertEqual("before" in case, "since" in case)
                self.assertNotEqual(case.get("before"), case["gives"])

    def test_what_is_printed_is_a_file_with_the_same_meaning(self):
        kept = ("", "a b", "a#b", " # ", 'a "b", c', "it's, here", "a'b\"c")
        refused = ("a, 'b' \"c\"", "a\nb", "'a b'")
        for service in SERVICES:
            for text in kept + refused:
                with (self.subTest(f"{service} {text}"),
                      tempfile.TemporaryDirectory() as folder):
                    file = pathlib.Path(folder) / "o.toml"
                    words = ["--print=options", f"--port-file={text}"]
                    if service == "gateway":
                        words += ["--stages=a:1,unix:/b#c", "--lost-after=0.25"]
                    if text in refused:
                        ran = call(service, words)
                        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
                        self.assertIn("--port-file", ran.stderr)
                        continue
                    first = written(service, words)
                    self.assertEqual(printed(first)["port-file"], text)
                    file.write_text(first, encoding="utf-8")
                    self.assertEqual(first, written(
                        service, ["--print=options", f"--config={file}"]))

    def test_pages_have_the_tables(self):
        for service in SERVICES:
            page = ROOT / "services" / service / "OPTIONS.md"
            self.assertEqual(page.read_text(encoding="utf-8"), page_of(service),
                             "written by options_test.py BINARIES --write")

    def test_prose_has_the_tables_defaults(self):
        """`--lost-after` (2.5 s) in prose says what the table says; of a 0, which
        stands for a value that is found later, prose may tell that value."""
        named = re.compile(r"`--([a-z-]+)` \((\d[\d,.]*)( MiB)?")
        found = 0
        for page in sorted((ROOT / "services").rglob("*.md")):
            service = page.relative_to(ROOT / "services").parts[0]
            of = [service] if service in SERVICES else SERVICES
            known = {}
            for name in of:
                known |= defaults(name)
            for option, number, mib in named.findall(page.read_text("utf-8")):
                self.assertIn(option, known.keys() | OF_SLUICE, page)
                if known.get(option, 0) == 0:
                    continue
                found += 1
                told = float(number.replace(",", "").rstrip("."))
                self.assertIn(known[option], (told, told * 2**20 if mib else told),
                              f"{page}: --{option}")
        self.assertGreater(found, 0)

    def test_no_default_is_written_twice(self):
        """No variable of a row has, in a service, the value that a member of that
        name has in a room: it is made from that, `ExpertLoopOptions().join_window`."""
        member = re.compile(r"^  [\w:<>,]+ (\w+) = ([^;]*[1-9\"][^;]*);", re.M)
        bound, here, below = set(), {}, {}
        for source in (ROOT / "services").rglob("*.cc"):
            bound |= set(re.findall(r"[({,] *&\w+(?:\.\w+)*\.(\w+)",
                                    source.read_text("utf-8")))
        for room, found in (("services", here), ("common", below)):
            for header in sorted((ROOT / room).rglob("*.h")):
                for name, text in member.findall(header.read_text("utf-8")):
                    if name in bound and header.name not in OTHERS:
                        found[name, text] = header.name
        self.assertGreater(len(bound), 80)
        self.assertGreater(len(here), 3)
        self.assertEqual({default: header for default, header in here.items()
                          if default in below}, {})

    def test_no_other_page_has_a_table_of_options(self):
        for service in SERVICES:
            for page in sorted((ROOT / "services" / service).rglob("*.md")):
                if page.name != "OPTIONS.md":
                    self.assertNotIn("\n| `--", page.read_text("utf-8"), page)


def page_of(service):
    table = written(service, ["--print=markdown"])
    return (f"# Options of sluice-{service}\n\n"
            "Where a value comes from: [options](../OPTIONS.md). `sluice-"
            f"{service} --print markdown` writes this table.\n\n{table}")


if __name__ == "__main__":
    binaries = pathlib.Path(sys.argv.pop(1)).resolve()
    if sys.argv[1:] == ["--write"]:
        for one in SERVICES:
            (ROOT / "services" / one / "OPTIONS.md").write_text(
                page_of(one), encoding="utf-8")
    else:
        unittest.main()
