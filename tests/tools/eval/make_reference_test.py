"""The parts of `sluice eval make-reference` that need no torch: prompts, the file,
the environment, and what the command says where something is missing. Programs of
this test stand for Python and pip."""

import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SOURCE = (pathlib.Path(__file__).resolve().parents[3] /
          "services/cli/make_reference")
sys.path.insert(0, str(SOURCE))

import environment
import prompts
import reference_file
from failure import Failure


class Words:
    """A tokenizer: a word or a mark is an id, by its first appearance."""

    chat_template = None

    def __init__(self):
        self._ids = {}

    def __call__(self, text, add_special_tokens=True):
        words = text.replace(".", " .").replace("\n", " \n ").split(" ")
        return {"input_ids": [self._ids.setdefault(word, len(self._ids))
                              for word in words if word]}


class InFolder(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


class PromptsTest(InFolder):
    def test_there_are_twenty_of_many_kinds(self):
        found = prompts.read(prompts.OWN)
        self.assertEqual(len(found), 20)
        self.assertEqual(len({entry["name"] for entry in found}), 20)
        self.assertEqual(sum("messages" in entry for entry in found), 5)
        text = " ".join(entry.get("prompt", "") for entry in found)
        for part in ("def ", "SELECT", "ö", "é", "¿", "运", "К", " = "):
            self.assertIn(part, text)

    def test_a_long_prompt_has_exactly_its_tokens_and_ends_with_a_question(self):
        for tokens in (500, 2000, 4000):
            tokenizer = Words()
            ids = prompts.long_ids(tokenizer, tokens)
            self.assertEqual(len(ids), tokens)
            self.assertEqual(ids, prompts.long_ids(Words(), tokens))
            names = {token: word for word, token in tokenizer._ids.items()}
            end = " ".join(names[token] for token in ids[-6:])
            self.assertTrue(end.endswith("number of goods:"), end)

    def test_the_question_is_answered_in_the_text(self):
        days = 2000 // 24
        question = prompts.long_question(days)
        day = int(question.split("on day ")[1].split(",")[0])
        who = question.split(", ", 1)[1].split(" noted ")[0].split(", ")[-1]
        line = prompts.long_text(days).splitlines()[day - 1]
        self.assertIn(f"Day {day}. ", line)
        self.assertIn(f"{who} noted ", line)

    def test_a_text_of_more_days_begins_with_that_of_fewer(self):
        self.assertTrue(prompts.long_text(30).startswith(prompts.long_text(20)))

    def test_a_tokenizer_that_does_not_spell_texts_gives_no_long_prompt(self):
        def unknown(text, add_special_tokens=True):
            return {"input_ids": [0] * len(text)}
        self.assertIsNone(prompts.long_ids(unknown, 2000))

    def test_a_bad_line_is_named(self):
        for line, words in (("{", ":2: "), ("[1]", "not a JSON object"),
                            ('{"name": "a"}', "got neither"),
                            ('{"prompt": "a", "messages": []}',
                             "got prompt and messages"),
                            ('{"prompt": ""}', "at least one"),
                            ('{"prompt": [1, -1]}', "token ids"),
                            ('{"prompt": [1, true]}', "token ids"),
                            ('{"messages": [{"role": "user"}]}', '"content"'),
                            ('{"prompt": "a", "name": 3}', '"name"')):
            path = self.write("p.jsonl", '{"prompt": "good"}\n' + line + "\n")
            with self.assertRaises(Failure, msg=line) as caught:
                prompts.read(path)
            self.assertIn(words, str(caught.exception))
            self.assertIn(f"{path}:2", str(caught.exception))
            self.assertEqual(caught.exception.code, 2)
        with self.assertRaises(Failure):
            prompts.read(self.folder / "nowhere")
        with self.assertRaises(Failure):
            prompts.read(self.write("empty", "\n"))

    def test_chats_without_a_template_are_their_texts(self):
        entry = {"messages": [{"role": "user", "content": "a b"},
                              {"role": "assistant", "content": "c"}]}
        tokenizer = Words()
        ids = prompts.ids_of(entry, tokenizer)
        self.assertEqual(ids[:2], tokenizer("a b")["input_ids"])
        self.assertIn(tokenizer("c")["input_ids"][0], ids)
        self.assertEqual(prompts.ids_of({"prompt": [7, 8]}, tokenizer), [7, 8])


class ReferenceFileTest(InFolder):
    HEAD = {"made_by": {"dtype": "float32"}}

    def out(self, head=None):
        return reference_file.ReferenceFile(self.folder / "out.json",
                                            head or self.HEAD)

    def test_the_file_is_there_when_it_is_whole(self):
        out = self.out()
        out.add({"name": "b", "ids": [1]})
        out.add({"name": "a", "ids": [2]})
        self.assertFalse((self.folder / "out.json").exists())
        out.finish(["a", "b"], {"long": "why"})
        self.assertEqual([path.name for path in self.folder.iterdir()],
                         ["out.json"])
        made = json.loads((self.folder / "out.json").read_text())
        self.assertEqual([p["name"] for p in made["prompts"]], ["a", "b"])
        self.assertEqual(made["left_out"], {"long": "why"})
        self.assertEqual(made["made_by"], self.HEAD["made_by"])

    def test_a_cut_run_goes_on_behind_its_last_whole_prompt(self):
        out = self.out()
        out.add({"name": "a", "ids": [1]})
        out.add({"name": "b", "ids": [2]})
        part = self.folder / "out.json.part"
        part.write_text(part.read_text()[:-9])  # In the midst of b.
        again = self.out()
        self.assertTrue(again.has("a"))
        self.assertFalse(again.has("b"))
        again.add({"name": "b", "ids": [2]})
        again.finish(["a", "b"], {})
        made = json.loads((self.folder / "out.json").read_text())
        self.assertEqual([p["ids"] for p in made["prompts"]], [[1], [2]])

    def test_another_head_begins_anew(self):
        self.out().add({"name": "a", "ids": [1]})
        self.assertEqual(self.out({"made_by": {"dtype": "float64"}}).prompts,
                         [])

    def test_a_folder_that_takes_no_file_is_named(self):
        with self.assertRaises(Failure) as caught:
            reference_file.ReferenceFile(self.folder / "no/out.json", {})
        self.assertIn("no/out.json.part", str(caught.exception))

    def test_the_digest_is_that_of_sha256sum(self):
        self.write("config.json", "{}")
        self.write("model.safetensors", "weights")
        self.write("README.md", "x")
        found = reference_file.digest(self.folder)
        listed = subprocess.run(
            ["sha256sum", "config.json", "model.safetensors"],
            cwd=self.folder, capture_output=True, check=True).stdout
        self.assertEqual("".join(f"{value}  {name}\n" for name, value in
                                 found["files"].items()), listed.decode())
        before = found["sha256"]
        self.write("model.safetensors", "Weights")
        self.assertNotEqual(reference_file.digest(self.folder)["sha256"],
                            before)

    def tensors(self, **dtypes):
        header = json.dumps({name: {"dtype": dtype, "shape": [3, 1000],
                                    "data_offsets": [0, 0]}
                             for name, dtype in dtypes.items()}).encode()
        (self.folder / "model.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header)
        return reference_file.count_parameters(self.folder)

    def test_parameters_are_counted_by_headers(self):
        self.assertEqual(self.tensors(a="F32", b="BF16"), 6000)
        self.assertIsNone(self.tensors(a="F32", b="U8"))

    def test_weights_that_memory_cannot_hold_are_refused_with_numbers(self):
        reference_file.check_memory(1000, 4, "float32", 4000)
        reference_file.check_memory(None, 4, "float32", 1)
        reference_file.check_memory(1000, 4, "float32", None)
        with self.assertRaises(Failure) as caught:
            reference_file.check_memory(8 * 10**9, 4, "float32", 20 * 10**9)
        for words in ("32.0 GB in float32", "8.00 billion", "20.0 GB",
                      "--dtype bfloat16 takes half"):
            self.assertIn(words, str(caught.exception))

    def test_memory_counts_swap(self):
        path = self.write("meminfo", "MemTotal: 9 kB\nMemAvailable: 5 kB\n"
                          "SwapFree: 2 kB\n")
        self.assertEqual(reference_file.available_memory(path), 7 * 1024)
        self.assertIsNone(reference_file.available_memory(
            self.folder / "nowhere"))


# Stands for Python: a venv is a folder with itself, pip writes what it is asked.
PYTHON = """#!/bin/sh
echo "$@" >>"$LOG"
case "$*" in
*"import sys, venv"*) [ -z "$NO_VENV" ] || { echo "ModuleNotFoundError: No \
module named 'ensurepip'" >&2; exit 1; }; echo 3 "${MINOR:-12}" ;;
*"-m venv"*) for last; do :; done
  mkdir -p "$last/bin"; touch "$last/pyvenv.cfg"; cp "$0" "$last/bin/python3" ;;
*"-m pip"*) case "$*" in *$FAIL_PIP*) [ -z "$FAIL_PIP" ] || exit 1 ;; esac ;;
*answers.py*) [ -z "$KILL" ] || kill -9 $$; exit "${ANSWERED:-0}" ;;
esac
"""


class CommandTest(InFolder):
    """__main__.py with a PATH that has the program above alone, and the model of
    an empty folder."""

    def setUp(self):
        super().setUp()
        self.python = self.write("bin/python3", PYTHON, 0o755)
        self.log = self.folder / "log"
        self.model = self.folder / "model"
        self.model.mkdir()

    def run_command(self, *words, code=0, **variables):
        self.log.write_text("")
        done = subprocess.run(
            [sys.executable, "-ISB", SOURCE, "--model", self.model, "--name",
             "m", "--out", self.folder, *words],
            capture_output=True, text=True, check=False,
            env={"PATH": f"{self.folder}/bin:/bin:/usr/bin", "LOG": self.log,
                 "XDG_CACHE_HOME": self.folder / "cache", "HOME": "/nowhere",
                 **variables})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def calls(self, part):
        return [line for line in self.log.read_text().splitlines()
                if part in line]

    def test_an_environment_is_made_once(self):
        said = self.run_command()
        self.assertIn("cache/sluice/reference-venv", said)
        first, second = self.calls("-m pip")
        self.assertIn("--index-url https://", first)
        self.assertIn("torch==", first)
        self.assertIn("requirements.txt", second)
        answers, = self.calls("answers.py")
        self.assertIn(f"--out {self.folder}/m.reference.json", answers)
        self.assertIn("--dtype float32", answers)
        self.assertEqual(self.run_command(), "")
        self.assertEqual(self.calls("-m pip"), [])
        self.assertEqual(len(self.calls("answers.py")), 1)

    def test_other_versions_make_it_anew(self):
        self.run_command()
        marker = self.folder / "cache/sluice/reference-venv/installed.txt"
        self.assertEqual(marker.read_text(),
                         environment.REQUIREMENTS.read_text())
        marker.write_text("torch==1\n")
        self.run_command()
        self.assertEqual(len(self.calls("-m pip")), 2)

    def test_an_index_of_ones_own_gives_torch_too(self):
        self.run_command(PIP_INDEX_URL="https://mirror.invalid/simple")
        self.assertEqual(len(self.calls("-m pip")), 1)

    def test_where_the_small_torch_is_not_had_the_usual_one_is(self):
        said = self.run_command(FAIL_PIP="--index-url")
        self.assertIn("the usual one is taken", said)
        self.assertEqual(len(self.calls("answers.py")), 1)

    def test_without_a_network_it_says_what_to_do(self):
        said = self.run_command(code=1, FAIL_PIP="install")
        self.assertIn("could not be installed", said)
        self.assertIn("--python PATH", said)
        self.assertIn("torch==", said)
        self.assertEqual(self.calls("answers.py"), [])
        # Half an environment is not used.
        self.run_command()
        self.assertEqual(len(self.calls("-m pip")), 2)

    def test_python_without_venv_is_named_with_the_package(self):
        # The usual interpreter of this machine might have it.
        found = environment._pythons
        self.addCleanup(setattr, environment, "_pythons", found)
        environment._pythons = lambda: [str(self.python)]
        os.environ.update(LOG=str(self.log), NO_VENV="1")
        self.addCleanup(os.environ.pop, "NO_VENV")
        with self.assertRaises(Failure) as caught:
            environment.python_of(self.folder / "venv")
        for words in (str(self.python), "No module named 'ensurepip'",
                      "apt-get install python3-venv", "--python PATH"):
            self.assertIn(words, str(caught.exception))
        del os.environ["NO_VENV"]
        os.environ.update(NO_VENV="", MINOR="8")
        self.addCleanup(os.environ.pop, "MINOR")
        with self.assertRaises(Failure) as caught:
            environment.python_of(self.folder / "venv")
        self.assertIn("it is Python 3.8, and transformers needs 3.10",
                      str(caught.exception))

    def test_a_folder_of_other_things_is_left_alone(self):
        kept = self.write("mine/letter.txt", "dear")
        said = self.run_command("--venv", self.folder / "mine", code=2)
        self.assertIn("other files, and is no virtual environment", said)
        self.assertEqual(kept.read_text(), "dear")

    def test_a_python_of_ones_own_needs_no_environment(self):
        self.run_command("--python", self.python)
        self.assertEqual(self.calls("-m"), self.calls("answers.py"))
        self.assertFalse((self.folder / "cache").exists())
        said = self.run_command("--python", self.folder / "none", code=2)
        self.assertIn(f"--python {self.folder}/none: No such file", said)
        said = self.run_command("--python", self.python, "--venv", "x", code=2)
        self.assertIn("take one", said)

    def test_a_python_without_the_packages_is_named(self):
        bare = self.write("bin/bare", f"#!/bin/sh\nexec {sys.executable} -S "
                          '"$@"\n', 0o755)
        said = self.run_command("--python", bare, code=1)
        self.assertIn("No module named 'torch'", said)
        self.assertIn("make-reference needs torch==", said)

    def test_a_process_that_memory_ended_is_told(self):
        said = self.run_command("--python", self.python, KILL="1", code=137)
        for words in ("ended by SIGKILL", "memory ran out", "--dtype bfloat16",
                      "m.reference.json.part"):
            self.assertIn(words, said)

    def test_its_exit_code_is_the_commands(self):
        self.run_command("--python", self.python, ANSWERED="1", code=1)

    def test_prompts_are_read_before_anything_is_made(self):
        said = self.run_command("--prompts", self.write("p", "{}\n"), code=2)
        self.assertIn(f"{self.folder}/p:1: ", said)
        self.assertEqual(self.log.read_text(), "")

    def test_a_place_that_is_not_there_is_told(self):
        said = self.run_command("--out", self.folder / "no/x.json", code=2)
        self.assertIn("there is no folder", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
