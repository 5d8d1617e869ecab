"""A live cluster of the packaged demo model, under load, with hosts of experts
and TLS between all processes, watched by Prometheus and Alertmanager: every
panel has data, every series of rules and alerts is there (of GPUs none), and a
stage that is killed fires its alert and clears it when it is back."""

import contextlib
import json
import math
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

import series
import tools

tools.need("prometheus", "prometheus-alertmanager", "openssl")
import watch  # noqa: E402
import api  # noqa: E402
import harness  # noqa: E402

MODEL = harness.ROOT / "deploy" / "demo_model" / "weights"
STREAMS = 6
# Ranges of the panels' queries: a scrape a second.
INTERVAL = "8s"


class Load:
    """Requests of all kinds, again and again; a context manager."""

    def __init__(self, url):
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(at,))
                         for at in range(STREAMS)]
        self.done = self.failed = 0

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, at):
        body = {"prompt": "Once upon a time " * (1 + at),
                "max_tokens": 24 + at, "temperature": 0.8,
                "ignore_eos": at % 2 == 0}
        while not self._stop.is_set():
            try:
                status, _ = api.stream(self._url, "/v1/completions", body,
                                       timeout=30)
            except OSError:
                status = 0
            if status == 200:
                self.done += 1
            else:
                self.failed += 1
                time.sleep(0.1)


class LiveTest(unittest.TestCase):
    def make_certificate(self, folder):
        """Options of TLS, with a certificate of one day."""
        cert, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
             "-days", "1", "-subj", "/CN=sluice", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
             str(cert)], check=True, capture_output=True)
        return ["--tls-cert", str(cert), "--tls-key", str(key), "--tls-ca",
                str(cert)]

    def secure(self, cluster, *options):
        """Every process again, with `options`: clusters of deploy/local have
        no TLS."""
        for entry in cluster.file["processes"]:
            cluster.kill(entry["role"], entry["index"])
        for entry in cluster.file["processes"]:
            self.start(cluster, entry["role"], entry["index"], options)
        self.wait_ready(cluster)

    def start(self, cluster, role, index, options):
        besides = ["--expert-series"] if role == "expert" else []
        child = cluster.restart(role, index, *options, *besides)
        self.children[role, index] = child
        self.stack.callback(child.kill)

    def wait_ready(self, cluster):
        harness.wait_for(lambda: api.try_get(cluster.url, "/readyz")[0] == 200,
                         60, "ready")

    def has_data(self, watched, query):
        return any(math.isfinite(value)
                   for _, value in watched.query(query))

    def check_panels(self, watched):
        """Every panel's query, until each has once given a number."""
        queries = list(series.queries(INTERVAL))
        for one in queries:
            # A process on a CPU has no GPU, as the page of the series says.
            if series.needs_gpu(one[2]):
                self.assertEqual(watched.query(one[2]), [], one)
        waiting = dict.fromkeys(one for one in queries
                                if not series.needs_gpu(one[2]))
        count = len(waiting)

        def all_answered():
            for one in list(waiting):
                if self.has_data(watched, one[2]):
                    del waiting[one]
            return not waiting
        try:
            watched.wait_for(all_answered, 20, "panels")
        except AssertionError:
            self.fail("no data: " + "; ".join(map(str, waiting)))
        print(f"{count} queries of panels have data")

    def check_rules(self, watched):
        """Rules are evaluated without error, and what they name is there."""
        rules = watched.rules()
        for rule in rules:
            self.assertEqual(rule["health"], "ok", rule)
            for selector in series.selectors(rule["query"]):
                # Nor does an autoscaler add or remove this cluster.
                self.assertEqual(bool(watched.query(selector)),
                                 not series.needs_gpu(selector)
                                 and 'set!=""' not in selector,
                                 f"{rule['name']}: {selector}")
        for name in sorted(series.recorded()):
            # A rate is NaN until steps end within its window again.
            watched.wait_for(lambda one=name: self.has_data(watched, one), 20,
                             f"{name} has data")
        print(f"{len(rules)} rules and alerts have data")

    def check_page(self, watched):
        """What Prometheus scraped is what services/METRICS.md lists."""
        page = series.page_names()
        scraped = {labels["__name__"] for labels, _ in watched.query(
            'group by (__name__) ({job="sluice"})')}
        strangers = {name for name in scraped
                     if not (series.listed(name, page)
                             or name in series.recorded()
                             or name in series.OWN | {"ALERTS",
                                                      "ALERTS_FOR_STATE"}
                             or name.startswith("scrape_"))}
        self.assertEqual(strangers, set())

    def check_stage_alert(self, watched, cluster, options):
        quiet = watched.firing()
        self.assertNotIn("SluiceStageSilent", quiet)
        self.assertNotIn("SluiceNotReady", quiet)
        self.assertIn("SluiceCertificateExpires", quiet)
        begin = time.monotonic()
        self.children["stage", 1].kill()
        self.children["stage", 1].wait()
        fired = watched.wait_for(
            lambda: {"SluiceStageSilent", "SluiceNotReady"}
            <= set(watched.firing()) and watched.firing(), 20,
            "the alerts fire")
        labels, = fired["SluiceStageSilent"]
        self.assertEqual((labels["role"], labels["index"]), ("stage", "1"))
        fired_in = time.monotonic() - begin
        self.start(cluster, "stage", 1, options)
        begin = time.monotonic()
        watched.wait_for(
            lambda: not {"SluiceStageSilent", "SluiceNotReady"}
            & set(watched.firing()), 30, "the alerts clear")
        print(f"the killed stage's alert fired after {fired_in:.1f} s, cleared "
              f"{time.monotonic() - begin:.1f} s after its start")

    def test_panels_have_data_and_a_killed_stage_fires_and_clears(self):
        self.children = {}
        # `down` knows no process with options of ours: the stack ends them.
        with (harness.Cluster(MODEL, "--tcp", "--stages", "2",
                              "--expert-hosts", "2", "--expert-replicas", "2",
                              "--ranks", "2", "--threads", "2") as cluster,
              contextlib.ExitStack() as self.stack,
              tempfile.TemporaryDirectory(prefix="sluice-watch-") as name):
            folder = pathlib.Path(name)
            options = self.make_certificate(folder)
            self.secure(cluster, *options)
            (folder / "watch").mkdir()
            with watch.Watch(folder / "watch", cluster.run_dir) as watched:
                self.watch_a_loss(cluster, watched, options)

    def test_a_split_that_goes_on_and_targets_that_are_gone(self):
        with (harness.Cluster(MODEL, "--tcp", "--stages", "2",
                              "--resplit-after", "0.5", "--rejoin-after",
                              "0.5") as cluster,
              tempfile.TemporaryDirectory(prefix="sluice-watch-") as name,
              watch.Watch(name, cluster.run_dir) as watched):
            watched.wait_for(lambda: len(watched.query("up == 1")) == 3, 30,
                             "targets")
            self.check_split(watched, cluster)
            self.check_gone(watched)

    def check_split(self, watched, cluster):
        """A stage's layers are the other's: a warning, and nothing that is
        critical or silences what is."""
        cluster.kill("stage", 1)
        self.wait_ready(cluster)

        def errors_fire():
            api.request(cluster.url, "POST", "/v1/completions",
                        {"prompt": "Once", "max_tokens": 200},
                        {"X-Request-Timeout": "0.001"})
            return {"SluiceMissingStages", "SluiceErrors"} <= set(
                watched.firing()) and not watched.silenced()
        watched.wait_for(errors_fire, 40, "errors of a smaller cluster fire")
        watched.wait_for(lambda: not {"SluiceStageSilent", "SluiceNotReady"}
                         & set(watched.firing()), 20, "no stage is silent")
        cluster.restart("stage", 1)
        watched.wait_for(lambda: "SluiceMissingStages" not in watched.firing(),
                         40, "the alert clears")

    def check_gone(self, watched):
        """A gateway that discovery has no more."""
        before = watched.targets.read_text()
        watched.targets.write_text(json.dumps(
            [one for one in json.loads(before)
             if one["labels"]["role"] != "gateway"]))
        labels = watched.wait_for(lambda: watched.firing().get("SluiceGone"),
                                  30, "the alert fires")
        self.assertEqual({one["role"] for one in labels}, {"gateway"})
        watched.targets.write_text(before)
        watched.wait_for(lambda: "SluiceGone" not in watched.firing(), 30,
                         "the alert clears")

    def watch_a_loss(self, cluster, watched, options):
        with Load(cluster.url) as load:
            self.check_panels(watched)
            self.check_page(watched)
            self.assertEqual(load.failed, 0)
            # A lost stage is a pause: what ends with 5xx is a deadline.
            status, _, raw = api.request(
                cluster.url, "POST", "/v1/completions",
                {"prompt": "Once", "max_tokens": 200, "ignore_eos": True},
                {"X-Request-Timeout": "0.001"})
            self.assertEqual(status, 504, raw)
            self.check_stage_alert(watched, cluster, options)
            self.wait_ready(cluster)
            done = load.done
            harness.wait_for(lambda: load.done > done + STREAMS, 30,
                             "requests are answered again")
            self.check_rules(watched)
        print(f"{load.done} requests answered, {load.failed} not")


if __name__ == "__main__":
    harness.main()
