"""compare_peers.py reads what the engines print, and runs all in turns."""

import contextlib
import csv
import io
import json
import pathlib
import stat
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

import compare_peers as peers

LLAMA_BENCH = json.dumps([
    {"n_prompt": 512, "n_gen": 0, "avg_ts": 400.5},
    {"n_prompt": 0, "n_gen": 128, "avg_ts": 40.25}])
BATCHED = """main: n_kv_max = 4096

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|------|--------|----------|----------|----------|----------|
|    16 |    128 |    8 |   1152 |    0.500 |   256.00 |    8.000 |   128.00 |\
    8.500 |   135.53 |
"""
DLLAMA = """Evaluation
   tokens/s: 83.80 (11.93 ms/tok)
Prediction
   tokens/s: 26.60 (37.59 ms/tok)
"""


class Texts(unittest.TestCase):
    def test_each_tools_rates_are_read(self):
        self.assertEqual(peers.read_llama_bench("warning\n" + LLAMA_BENCH),
                         {"prefill": 400.5, "decode": 40.25})
        self.assertEqual(peers.read_batched_bench(BATCHED), {"batch": 128.0})
        self.assertEqual(peers.read_dllama(DLLAMA),
                         {"prefill": 83.8, "decode": 26.6})

    def test_other_texts_end_the_run(self):
        for read in (peers.read_batched_bench, peers.read_dllama):
            with self.assertRaises(SystemExit):
                read("| nothing |")
        with self.assertRaises(ValueError):
            peers.read_llama_bench("no list")


class Summaries(unittest.TestCase):
    ROUNDS = [{"sluice": {"decode": 20.0}, "ik": {"decode": 10.0}},
              {"sluice": {"decode": 10.0}, "ik": {"decode": 10.0}},
              {"sluice": {"decode": 45.0}, "ik": {"decode": 30.0}}]

    def test_ratios_are_of_rounds_and_their_median_counts(self):
        row = peers.summary(self.ROUNDS, ["sluice", "ik"])["decode"]
        self.assertEqual(row["sluice"]["ratio"], 1.0)
        self.assertEqual(row["ik"], {"median": 10.0, "least": 10.0,
                                     "most": 30.0, "ratio": 1.5})
        self.assertEqual(peers.fastest(row), ("ik", 1.5))
        self.assertIsNone(peers.fastest({"sluice": row["sluice"]}))

    def test_the_plot_has_a_bar_for_each_ratio(self):
        results = {"Q4_0": peers.summary(self.ROUNDS, ["sluice", "ik"])}
        drawn = xml.etree.ElementTree.fromstring(peers.plot(results))
        bars = [node for node in drawn if node.tag.endswith("rect")]
        self.assertEqual(len(bars), 1)
        self.assertAlmostEqual(float(bars[0].get("width")), 400, places=1)


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)

    def tool(self, name, text):
        path = self.at / name
        path.write_text(f"#!/bin/sh\necho {name} >> {self.at}/turns\n"
                        f"cat <<'END'\n{text}\nEND\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def test_all_engines_take_turns_and_every_figure_is_kept(self):
        ours = self.tool("ours", '{"prefill": 801, "decode": 80.5, '
                         '"batch": 256}')
        bench = self.tool("bench", LLAMA_BENCH)
        batched = self.tool("batched", BATCHED)
        table = self.at / "peers.csv"
        words = ["compare_peers.py", "--decode-bench", ours, "--llama-bench",
                 f"ik={bench}", "--llama-batched-bench", f"ik={batched}",
                 "--types", "Q4_0", "--rounds", "2", "--no-pin", "--threads",
                 "1", "--csv", str(table), "--plot", str(self.at / "p.svg"),
                 "--json", str(self.at / "p.json")]
        with unittest.mock.patch.object(sys, "argv", words), \
                unittest.mock.patch.object(
                    peers, "make_models", lambda *_: {"gguf": "m.gguf"}), \
                unittest.mock.patch.object(
                    peers.machine, "describe", lambda: {"cpu": "X"}), \
                contextlib.redirect_stdout(io.StringIO()) as shown:
            peers.main()
        self.assertEqual((self.at / "turns").read_text().split(),
                         ["ours", "bench", "batched",
                          "bench", "batched", "ours"])
        with open(table, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 2 * 2 * 3)
        self.assertIn("2.00 times the fastest peer, ik", shown.getvalue())
        found = json.loads((self.at / "p.json").read_text())
        self.assertEqual(found["machine"], {"cpu": "X"})
        self.assertEqual(
            found["ours_to_theirs"]["Q4_0"]["batch"]["ik"]["ratio"], 2.0)

    def test_without_peers_there_is_nothing_to_do(self):
        with unittest.mock.patch.object(sys, "argv", ["compare_peers.py"]), \
                contextlib.redirect_stdout(io.StringIO()) as shown:
            peers.main()
        self.assertIn("no peer is named", shown.getvalue())

    def test_a_peer_that_fails_ends_the_run_with_its_words(self):
        failing = self.at / "failing"
        failing.write_text("#!/bin/sh\necho no such type\nexit 3\n")
        failing.chmod(0o755)
        with self.assertRaisesRegex(SystemExit, "exit status 3\nno such type"):
            peers.run([failing], peers.parse(["--no-pin"]))


if __name__ == "__main__":
    unittest.main()
