"""`sluice bench` and `sluice eval` against a live cluster of a tiny model."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
from xml.etree import ElementTree

import api
import harness
import metrics_page


class BenchEvalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.command = pathlib.Path(os.environ["SLUICE_BUILD_DIR"],
                                   "services/cli/sluice")
        model = harness.golden("stories")
        cls.cluster = harness.Cluster(model, "--stages", "2", "--debug")
        cls.addClassCleanup(cls.cluster.close)
        cls.other = harness.Cluster(model, "--stages", "1", "--ranks", "2",
                                    "--debug")
        cls.addClassCleanup(cls.other.close)

    def sluice(self, *words, code=0, run_dir=None):
        done = subprocess.run(
            [self.command, *words, "--run-dir",
             run_dir or self.cluster.run_dir],
            capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def path(self, name):
        return os.path.join(self.cluster.run_dir, name)

    def test_a_closed_loop_counts_and_times_every_request(self):
        text = self.sluice(
            "bench", "--concurrency", "4", "--requests", "20",
            "--prompt-tokens", "10:40", "--output-tokens", "12",
            "--slo", "ttft=60000",
            "--json", self.path("bench.json"))
        self.assertIn("20 of 20 requests answered", text)
        self.assertIn("exact lengths", text)
        result = json.loads(pathlib.Path(self.path("bench.json")).read_text())
        summary = result["summary"]
        self.assertEqual(summary["done"], 20)
        self.assertEqual(summary["output_tokens"], 240)
        self.assertEqual(summary["token_source"], "usage")
        self.assertEqual(summary["goodput_share"], 1)
        self.assertEqual(summary["itl_ms"]["count"], 20 * 11)
        for request in result["requests"]:
            self.assertTrue(10 <= request["prompt_tokens"] <= 40, request)
            self.assertAlmostEqual(
                request["ttft_ms"] + sum(request["itl_ms"]),
                request["e2e_ms"], delta=0.2 * request["e2e_ms"] + 20)
        self.assertEqual([row["outcome"] for row in result["requests"]],
                         ["done"] * 20)

    def test_an_open_loop_keeps_its_arrivals(self):
        self.sluice("bench", "--rate", "40", "--requests", "30", "--seed",
                    "7", "--prompt-tokens", "8", "--output-tokens", "4",
                    "--quiet", "--json", self.path("open.json"))
        first = json.loads(pathlib.Path(self.path("open.json")).read_text())
        self.assertEqual(first["summary"]["done"], 30)
        due = [request["scheduled_s"] for request in first["requests"]]
        self.assertEqual(due, sorted(due))
        self.sluice("bench", "--rate", "40", "--requests", "30", "--seed",
                    "7", "--prompt-tokens", "8", "--output-tokens", "4",
                    "--quiet", "--json", self.path("again.json"))
        again = json.loads(pathlib.Path(self.path("again.json")).read_text())
        for a, b in zip(due, [r["scheduled_s"] for r in again["requests"]]):
            self.assertAlmostEqual(a, b, delta=1e-6)

    def test_a_refusal_is_a_failure(self):
        text = self.sluice("bench", "--requests", "4", "--warmup", "0",
                           "--extra", '{"top_p": 2}', code=1)
        self.assertIn("0 of 4 requests answered", text)
        self.assertIn("http_error 400: 4", text)

    def test_a_cluster_agrees_with_references_itself_and_another(self):
        reference = self.path("reference.json")
        report = self.path("report.md")
        self.sluice("eval", "--write-reference", reference, run_dir=str(
            self.other.run_dir))
        self.sluice("eval", "--reference", reference, "--tolerance", "0",
                    "--batch", "--other", self.other.url, "--max-tokens",
                    "12", "--out", report)
        text = pathlib.Path(report).read_text()
        self.assertEqual(text.count("| passed |"), 3, text)

    def test_a_wrong_reference_fails_and_is_reported(self):
        reference = self.path("wrong.json")
        self.sluice("eval", "--write-reference", reference)
        wrong = json.loads(pathlib.Path(reference).read_text())
        wrong["prompts"][0]["greedy_logprobs"][3] -= 0.5
        ids = wrong["prompts"][1]["greedy_ids"]
        ids[5] = (ids[5] + 1) % 512
        pathlib.Path(reference).write_text(json.dumps(wrong))
        text = self.sluice("eval", "--reference", reference, code=1)
        self.assertIn("**FAILED**", text)
        self.assertIn("| 5.0e-01 |", text)
        self.assertIn("parts at 5", text)

    def test_a_plot_of_errors_is_beside_the_report(self):
        reference, report = self.path("for_plots.json"), self.path("plots.md")
        self.sluice("eval", "--write-reference", reference)
        self.sluice("eval", "--reference", reference, "--out", report,
                    "--plots", self.path("plots"))
        text = pathlib.Path(report).read_text()
        self.assertIn("![Errors by position](plots/errors.svg)", text)
        self.assertIn("have the reference's likeliest id", text)
        self.assertIn("Perplexity of the prompts: ", text)
        svg = pathlib.Path(self.path("plots/errors.svg")).read_text()
        ElementTree.fromstring(svg)
        text = self.sluice("eval", "--batch", "--plots", "x", code=2)
        self.assertIn("give --reference, too", text)

    def test_forms_of_weights_are_compared_with_one_reference(self):
        reference, report = self.path("f32.json"), self.path("costs.md")
        self.sluice("eval", "--write-reference", reference)
        state = tempfile.TemporaryDirectory(prefix="sl")
        self.addCleanup(state.cleanup)
        done = subprocess.run(
            [self.command, "eval", "costs", harness.golden("stories"),
             "--reference", reference, "--weights", "f32,q8_0,q4_0,none",
             "--out", report, "--plots", self.path("costs"),
             "--rate-tokens", "8"],
            capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "XDG_STATE_HOME": state.name})
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 1, said)
        self.assertIn("could not be measured: none", said)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]]
                for line in pathlib.Path(report).read_text().splitlines()
                if line.startswith("| ")]
        head, forms = rows[0], {row[0]: row for row in rows[2:]}
        self.assertEqual(list(forms), ["f32", "q8_0", "q4_0"], rows)
        cell = lambda form, name: forms[form][head.index(name)]
        self.assertEqual(float(cell("f32", "divergence: mean")), 0)
        self.assertEqual(cell("f32", "answers"), "none parts")
        sizes, errors = ([float(cell(form, name)) for form in forms]
                         for name in ("weights, MB", "divergence: mean"))
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertLess(sizes[2], sizes[0] / 2)
        self.assertEqual(errors, sorted(errors))
        self.assertGreater(errors[2], 2 * errors[1])
        for name in ("costs.svg", "divergence.svg"):
            svg = pathlib.Path(self.path("costs"), name).read_text()
            ElementTree.fromstring(svg)
            self.assertIn(">q4_0</text>", svg)

    def test_stages_tell_what_steps_wait_for(self):
        def counts(cluster):
            """{(name, label=value): value} of its first stage."""
            address = cluster.process("stage")["metrics_address"]
            _, text = api.get("http://" + address, "/metrics")
            metrics_page.check(self, "stage", text)
            return {(name, label): float(value) for name, labels, value in
                    re.findall(r"^(\w+)[{](.*)[}] (\S+)$", text, re.M)
                    for label in labels.split(",")}
        for cluster in (self.cluster, self.other):
            api.completion(cluster.url, [1, 403], max_tokens=8,
                           temperature=0, ignore_eos=True)
        waits = "sluice_stage_wait_seconds_count"
        found = counts(self.cluster)  # two stages of one rank
        self.assertGreaterEqual(found[waits, 'for="output_window"'], 8)
        self.assertNotIn((waits, 'for="collective"'), found)
        found = counts(self.other)  # one stage of two ranks
        self.assertGreaterEqual(found[waits, 'for="collective"'], 8)
        for op in ("reduce", "gather"):
            self.assertGreaterEqual(
                found["sluice_stage_collective_seconds_count", f'op="{op}"'],
                8)
        for rank in "01":
            self.assertGreater(
                found["sluice_stage_rank_wait_seconds_total",
                      f'tp_rank="{rank}"'], 0)

    def test_wrong_command_lines_end_with_2(self):
        self.sluice("bench", "--rate", "-1", code=2)
        self.sluice("eval", code=2)

    def test_status_fails_for_a_dead_process(self):
        with harness.Cluster(harness.golden("stories"),
                             "--stages", "2") as cluster:
            self.sluice("status", run_dir=cluster.run_dir)
            cluster.kill("stage", 1, signal.SIGKILL)
            harness.wait_for(
                lambda: subprocess.run(
                    [self.command, "status", "--run-dir", cluster.run_dir],
                    capture_output=True, check=False).returncode == 1,
                30, "status sees the dead stage")
            text = self.sluice("status", code=1, run_dir=cluster.run_dir)
            self.assertIn("DEAD", text)
            self.assertIn("dead: stage 1", text)


if __name__ == "__main__":
    harness.main()
