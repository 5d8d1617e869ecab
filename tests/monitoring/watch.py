"""A live Prometheus and Alertmanager over run folders, in a folder of their
own, on loopback: deploy/monitoring with shorter times."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.parse

import series
import tools

sys.path[:0] = [str(series.ROOT / "tests" / "integration"),
                str(series.ROOT / "deploy" / "local" / "cluster")]
import api  # noqa: E402
import harness  # noqa: E402
import ports  # noqa: E402

# Seconds that become one here; a rate needs two scrapes, of one second each.
SPEED = 20
SHORTEST_RANGE = 5


def _seconds(text):
    count, unit = re.fullmatch(r"(\d+)(s|m|h)", text).groups()
    return int(count) * {"s": 1, "m": 60, "h": 3600}[unit]


def shorter(text):
    """A rule file's text with times divided by SPEED."""
    def window(match):
        return f"[{max(SHORTEST_RANGE, _seconds(match[1]) // SPEED)}s]"

    def wait(match):
        return f"for: {max(1, _seconds(match[1]) // SPEED)}s"
    text = re.sub(r"\[(\d+[smh])\]", window, text)
    return re.sub(r"for: (\d+[smh])", wait, text)


class Watch:
    """A context manager; `folder` is empty and outlives it."""

    def __init__(self, folder, *run_dirs):
        self.folder = pathlib.Path(folder)
        self._children = []
        found = ports.choose(2)
        self.prometheus, self.alertmanager = (
            f"http://127.0.0.1:{port}" for port in found)
        self._write_config(run_dirs)
        prometheus, = tools.need("prometheus")
        self._start("alertmanager", *tools.alertmanager(),
                    "--config.file=alertmanager.yml",
                    "--storage.path=alerts",
                    f"--web.listen-address={self.alertmanager[7:]}",
                    "--cluster.listen-address=")
        self._start("prometheus", prometheus, "--config.file=prometheus.yml",
                    "--storage.tsdb.path=tsdb",
                    f"--web.listen-address={self.prometheus[7:]}",
                    "--query.lookback-delta=5s",
                    "--rules.alert.resend-delay=1s")

    def __enter__(self):
        try:
            for url in (self.prometheus, self.alertmanager):
                harness.wait_for(lambda at=url: api.try_get(at, "/-/ready")[0]
                                 == 200, 30, f"{url} is ready")
        except AssertionError as error:
            self.__exit__(AssertionError, error, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        for child in self._children:
            child.send_signal(signal.SIGTERM)
        for child in self._children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if kind is not None:
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}",
                      file=sys.stderr)

    def _write_config(self, run_dirs):
        for name in series.RULE_FILES:
            (self.folder / name).write_text(
                shorter((series.FOLDER / name).read_text()))
        text = (series.FOLDER / "prometheus.yml").read_text()
        text = re.sub(r"(scrape|evaluation)_interval: \d+s",
                      r"\1_interval: 1s", text)
        text = re.sub(r"scrape_timeout: \d+s", "scrape_timeout: 1s", text)
        (self.folder / "prometheus.yml").write_text(
            text.replace("127.0.0.1:9093", self.alertmanager[7:]))
        (self.folder / "alertmanager.yml").write_text(
            (series.FOLDER / "alertmanager.yml").read_text())
        (self.folder / "targets").mkdir()
        with open(self.targets, "wb") as out:
            subprocess.run(
                [sys.executable, "-B", str(series.FOLDER / "targets.py"),
                 *map(str, run_dirs)], stdout=out, check=True)

    def _start(self, name, *command):
        with open(self.folder / f"{name}.log", "wb") as log:
            self._children.append(subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}))

    def query(self, expr):
        """The samples of an instant query: [(labels, value)]."""
        status, text = api.get(self.prometheus, "/api/v1/query?"
                               + urllib.parse.urlencode({"query": expr}))
        answer = json.loads(text)
        if status != 200:
            raise AssertionError(f"{expr}: {answer['error']}")
        return [(sample["metric"], float(sample["value"][1]))
                for sample in answer["data"]["result"]]

    def rules(self):
        """Every rule as Prometheus has it."""
        answer = json.loads(api.get(self.prometheus, "/api/v1/rules")[1])
        return [rule for group in answer["data"]["groups"]
                for rule in group["rules"]]

    def alerts(self):
        """What Alertmanager has, inhibited or not."""
        return json.loads(api.get(self.alertmanager, "/api/v2/alerts")[1])

    def firing(self):
        """{name: [labels]} of alerts()."""
        found = {}
        for alert in self.alerts():
            found.setdefault(alert["labels"]["alertname"], []).append(
                alert["labels"])
        return found

    def silenced(self):
        """Names of the alerts that another one inhibits."""
        return {alert["labels"]["alertname"] for alert in self.alerts()
                if alert["status"]["state"] == "suppressed"}

    @property
    def targets(self):
        """The file of the targets, which Prometheus reads again."""
        return self.folder / "targets" / "local.json"

    def wait_for(self, condition, seconds, what):
        """harness.wait_for, that asks five times a second."""
        def asked():
            time.sleep(0.2)
            return condition()
        return harness.wait_for(asked, seconds, what)
