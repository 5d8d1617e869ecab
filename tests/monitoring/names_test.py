"""Boards, rules and alerts name series that services/METRICS.md has."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import series

TARGETS = series.FOLDER / "targets.py"


class NamesTest(unittest.TestCase):
    def setUp(self):
        self.page = series.page_names()
        self.recorded = series.recorded()

    def check(self, names, where):
        self.assertTrue(names, where)
        for name in names - series.OWN:
            self.assertTrue(series.listed(name, self.page)
                            or name in self.recorded,
                            f"{where}: {name} is not in services/METRICS.md")

    def test_there_are_four_boards_whose_panels_have_queries(self):
        boards = series.boards()
        self.assertEqual(sorted(boards), ["experts.json", "machine.json",
                                          "pipeline.json", "service.json"])
        for name, board in boards.items():
            found = list(series.panels(board))
            self.assertGreater(len(found), 10, name)
            for panel in found:
                self.assertTrue(panel.get("targets"), panel["title"])
        self.assertEqual(
            len({panel["id"] for panel in boards["service.json"]["panels"]}),
            len(boards["service.json"]["panels"]), "ids of panels")

    def test_every_series_of_a_panel_is_on_the_page(self):
        for board, title, query in series.queries():
            self.check(series.names(query), f"{board}, {title}")
        self.check(set(series.variable_series()), "variables")

    def test_panels_need_no_recording_rule(self):
        for board, title, query in series.queries():
            self.assertEqual(series.names(query) & self.recorded, set(),
                             f"{board}, {title}")

    def test_every_series_of_a_rule_or_alert_is_on_the_page(self):
        names = series.names(series.rules_text())
        self.check(names, "rules")
        self.assertTrue(self.recorded <= names)

    def test_the_panels_of_vllms_own_board_are_there(self):
        # Its reference board's series, with its label.
        wanted = """e2e_request_latency_seconds prompt_tokens_total
            generation_tokens_total inter_token_latency_seconds
            num_requests_running num_requests_waiting
            time_to_first_token_seconds kv_cache_usage_perc
            request_prompt_tokens request_generation_tokens
            request_success_total request_queue_time_seconds
            request_prefill_time_seconds request_decode_time_seconds
            request_max_num_generation_tokens""".split()
        text = " ".join(query for board, _, query in series.queries()
                        if board == "service.json")
        for name in wanted:
            self.assertRegex(text, rf"vllm:{name}(_bucket|_sum)?\{{[^}}]*"
                             "model_name")


class TargetsTest(unittest.TestCase):
    def test_a_run_folder_becomes_targets(self):
        with tempfile.TemporaryDirectory() as folder:
            run_dir = pathlib.Path(folder) / "mine"
            run_dir.mkdir()
            (run_dir / "cluster.json").write_text(json.dumps({"processes": [
                {"role": "stage", "index": 1,
                 "metrics_address": "127.0.0.1:4711"}]}))
            done = subprocess.run(
                [sys.executable, "-B", str(TARGETS), str(run_dir)],
                capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(done.stdout), [
            {"targets": ["127.0.0.1:4711"],
             "labels": {"cluster": "mine", "role": "stage", "index": "1"}}])

    def test_a_folder_without_a_cluster_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-B", str(TARGETS), folder],
                capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no cluster runs in {folder}", done.stderr)


if __name__ == "__main__":
    unittest.main()
