"""promtool and amtool accept what deploy/monitoring has, and the rules' unit
tests pass."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import series
import tools

PROMTOOL, AMTOOL = tools.need("promtool", "amtool")


class RulesTest(unittest.TestCase):
    def run_tool(self, *command, folder=series.FOLDER, expect=0):
        done = subprocess.run([str(word) for word in command], cwd=folder,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect,
                         f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def test_the_files_are_well_formed(self):
        self.run_tool(PROMTOOL, "check", "rules", "--lint-fatal",
                      *series.RULE_FILES)
        self.run_tool(PROMTOOL, "check", "config", "prometheus.yml")
        self.run_tool(PROMTOOL, "check", "config", "--syntax-only",
                      series.ROOT / "docker/prometheus.yml")
        self.run_tool(AMTOOL, "check-config", "alertmanager.yml")

    def test_the_unit_tests_pass(self):
        for name in ("rules_test.yaml", "alerts_test.yaml"):
            self.run_tool(PROMTOOL, "test", "rules", name)

    def test_panels_of_gpus_give_what_processes_on_a_gpu_serve(self):
        # By a stage and by a host of experts.
        served = {"memory_used_bytes": (30e9, 20e9),
                  "memory_total_bytes": (80e9, 24e9),
                  "busy_ratio": (0.5, 0.25), "xid_errors_total": (3, 4),
                  "ecc_errors_total": (2, 5)}
        wanted = {"GPU memory in use": [30e9, 20e9],
                  "GPU memory free": [50e9, 4e9],
                  "GPU busy": [0.5, 0.25], "GPU errors": [3, 2, 4, 5]}
        labels = 'cluster="a",gpu="GPU-a",instance="s0"'
        found, checks = {}, []
        for _, title, query in filter(lambda one: series.needs_gpu(one[2]),
                                      series.queries()):
            value = wanted[title][found.setdefault(title, 0)]
            found[title] += 1
            # What is computed has no name.
            name = query.split("{")[0] if query.count("{") == 1 else ""
            checks.append({"expr": query, "eval_time": "2m", "exp_samples": [
                {"labels": f"{name}{{{labels}}}", "value": value}]})
        self.assertEqual(found, {title: len(values)
                                 for title, values in wanted.items()})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "panels.yaml"
            path.write_text(json.dumps({"tests": [{
                "interval": "1m", "promql_expr_test": checks,
                "input_series": [
                    {"series": f"{process}{name}{{{labels}}}",
                     "values": f"{value:f}x5"}
                    for name, values in served.items()
                    for process, value in zip(series.GPU, values)]}]}))
            self.run_tool(PROMTOOL, "test", "rules", path)
            path.write_text(path.read_text().replace('"value": 0.5',
                                                     '"value": 0.6'))
            self.run_tool(PROMTOOL, "test", "rules", path, expect=1)

    def test_each_rule_and_alert_has_a_unit_test(self):
        text = (series.FOLDER / "alerts_test.yaml").read_text()
        for alert in re.findall(r"alert: (\w+)", series.rules_text()):
            self.assertTrue(re.search(rf"alertname: {alert}\n +eval_time: .*\n"
                                      " +exp_alerts:", text),
                            f"{alert} never fires")
            self.assertTrue(re.search(rf"alertname: {alert}, eval_time",
                                      text), f"{alert} never keeps still")
        text = (series.FOLDER / "rules_test.yaml").read_text()
        for name in series.recorded():
            self.assertIn(name, text)

    def test_the_operators_rules_are_the_files(self):
        self.run_tool(sys.executable, "-B", "prometheus_rule.py", "--check")
        lines = (series.FOLDER / "prometheus-rule.yaml").read_text().split(
            "\nspec:\n")[1].splitlines(True)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rules.yaml"
            path.write_text("".join(line[2:] or "\n" for line in lines))
            out = self.run_tool(PROMTOOL, "check", "rules", path)
        count = len(re.findall(r"(?m)^ +- (?:alert|record): ",
                               series.rules_text()))
        self.assertIn(f"{count} rules found", out)

    def test_each_alert_has_a_heading_of_the_runbook(self):
        page = (series.FOLDER / "RUNBOOK.md").read_text()
        text = (series.FOLDER / "alerts.yaml").read_text()
        alerts = re.findall(r"alert: (\w+)", text)
        self.assertEqual(re.findall(r"(?m)^## (\w+)$", page), alerts)
        self.assertEqual(re.findall(r"runbook_url: \S+/RUNBOOK.md#(\w+)\n", text),
                         [name.lower() for name in alerts])

    def test_a_wrong_threshold_fails_the_unit_tests(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in series.FOLDER.glob("*.yaml"):
                changed = path.read_text().replace(
                    "sluice:kv_used:ratio > 0.9", "sluice:kv_used:ratio > 0.99")
                (pathlib.Path(folder) / path.name).write_text(changed)
            out = self.run_tool(PROMTOOL, "test", "rules", "alerts_test.yaml",
                                folder=folder, expect=1)
        self.assertIn("SluiceKvNearFull", out)


if __name__ == "__main__":
    unittest.main()
