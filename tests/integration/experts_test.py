"""Hosts of experts as processes: placements, replicas that die or stop, and
what is said when none is left. SLUICE_LONG=1: fifty deaths and stops."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

import api
import expert_load
import harness

STREAMS = 4
# Losses at random, and the longest gap between tokens that may come of them
# (the 99th percentile, seconds).
ROUNDS = 50 if harness.LONG else 4
WORST_P99 = 1.0
# The longest of all.
WORST = 5.0


class ExpertsTest(unittest.TestCase):
    def model(self):
        return harness.golden("glm4_moe-air")

    def host_up(self, cluster, stages):
        """How many streams from stages to hosts stand."""
        return sum(
            api.metrics(cluster.process("stage", i)["metrics_address"])
            .get("sluice_stage_expert_up", 0) for i in range(stages))

    def lose_and_return(self, cluster, index, number, load):
        """One host dies or stops, load goes on, the host comes back."""
        begin = time.monotonic()
        os.kill(self.pids[index], number)
        load.wait_done(STREAMS)
        if number == signal.SIGKILL:
            child = cluster.restart("expert", index)
            self.pids[index] = child.pid
        else:
            os.kill(self.pids[index], signal.SIGCONT)
        harness.wait_for(lambda: self.host_up(cluster, 2) == 4, 60,
                         f"expert {index} is used again")
        # A host that was stopped may be reckoned up all the time: it must be
        # heard of again before the other one goes.
        harness.wait_for(lambda: sum(
            api.metrics(cluster.process("stage", i)["metrics_address"])
            .get("sluice_stage_expert_silent", 0) for i in range(2)) == 0,
            60, f"expert {index} is heard of")
        return begin, time.monotonic()

    def test_replicas_may_die_and_stop_under_load(self):
        chance = random.Random(7)
        with harness.Cluster(self.model(), "--stages", "2",
                             "--expert-hosts", "2",
                             "--expert-replicas", "2") as cluster:
            self.pids = [cluster.process("expert", i)["pid"] for i in range(2)]
            want = expert_load.expected(cluster.url, STREAMS)
            lost = []
            with expert_load.Load(cluster.url, want) as load:
                load.wait_done(2 * STREAMS)
                for round_number in range(ROUNDS):
                    number = (signal.SIGKILL, signal.SIGSTOP)[
                        round_number % 2 if not harness.LONG
                        else chance.randrange(2)]
                    time.sleep(chance.random() * 0.3)
                    lost.append(self.lose_and_return(
                        cluster, chance.randrange(2), number, load))
            during = [gap for when, gap in load.gaps
                      if any(a <= when <= b for a, b in lost)]
            steady = [gap for when, gap in load.gaps
                      if not any(a <= when <= b for a, b in lost)]
            sums = [api.metrics(cluster.process("stage", i)
                                ["metrics_address"]) for i in range(2)]
            print(f"{ROUNDS} losses, {load.done} requests: "
                  f"{len(load.failed)} failed, {load.differing} differ; "
                  "gap between tokens p50 / p99 / worst, ms: "
                  + "; ".join(
                      f"{name} " + " / ".join(
                          f"{1000 * value:.0f}" for value in (
                              expert_load.percentile(gaps, 0.5),
                              expert_load.percentile(gaps, 0.99), max(gaps)))
                      for name, gaps in (("during", during),
                                         ("steady", steady)) if gaps)
                  + "; hedges %d, retries %d" % tuple(
                      sum(s.get(f"sluice_stage_expert_{what}_total", 0)
                          for s in sums) for what in ("hedges", "retries")))
            self.assertEqual(load.failed, [])
            self.assertEqual(load.differing, 0)
            self.assertGreater(load.done, 0)
            self.assertLess(expert_load.percentile(during, 0.99), WORST_P99)
            self.assertLess(max(during), WORST)

    def test_without_a_host_requests_wait_for_one(self):
        with harness.Cluster(self.model(), "--stages", "2", "--no-supervise",
                             "--expert-hosts", "1") as cluster:
            want = expert_load.expected(cluster.url, STREAMS)
            with expert_load.Load(cluster.url, want) as load:
                load.wait_done(STREAMS)
                pid = cluster.process("expert", 0)["pid"]
                for seconds in (0.2, 2):
                    os.kill(pid, signal.SIGKILL)
                    harness.wait_for(lambda: api.metrics(cluster.url)[
                        "sluice_gateway_suspended_sequences"] > 0, 10,
                        "sequences wait")
                    time.sleep(seconds)
                    pid = cluster.restart("expert", 0).pid
                    load.wait_done(2 * STREAMS)
                harness.wait_for(lambda: api.metrics(cluster.url)[
                    "sluice_gateway_suspended_sequences"] == 0, 10,
                    "no sequence waits")
            self.assertEqual(load.failed, [])
            self.assertEqual(load.differing, 0)

    def test_without_a_host_requests_end_in_503_and_service_returns(self):
        with harness.Cluster(self.model(), "--stages", "2", "--no-supervise",
                             "--recovery-timeout", "1",
                             "--expert-hosts", "1") as cluster:
            want = expert_load.expected(cluster.url, 2)
            cluster.kill("expert", 0)
            harness.wait_for(lambda: self.host_up(cluster, 2) == 0, 10,
                             "the stages know")
            status, answer = api.post(cluster.url, "/v1/completions",
                                      expert_load.body(0))
            self.assertEqual(status, 503, answer)
            self.assertIn("experts 0-7 of layers 1-3 have no host left of: e0",
                          answer["error"]["message"])
            self.assertEqual(api.get(cluster.url, "/livez")[0], 200)
            harness.wait_for(
                lambda: api.get(cluster.url, "/readyz")[0] == 503, 10,
                "the gateway knows")
            self.assertIn("some of its experts have no host left",
                          str(api.get(cluster.url, "/readyz")[1]))
            cluster.restart("expert", 0)
            harness.wait_for(lambda: self.host_up(cluster, 2) == 2, 30,
                             "the host is back")
            harness.wait_for(
                lambda: api.get(cluster.url, "/readyz")[0] == 200, 10,
                "the gateway is ready again")
            self.assertEqual(expert_load.expected(cluster.url, 2), want)

    def test_a_placement_by_hand_gives_the_same_tokens(self):
        with harness.Cluster(self.model(), "--stages", "1") as cluster:
            want = expert_load.expected(cluster.url, 4)
        hosts = [{"name": "north"}, {"name": "south"}]
        layers = "1-3"
        placement = {"hosts": hosts, "experts": [
            {"layers": layers, "experts": "0-2", "hosts": ["north", "south"]},
            {"layers": layers, "experts": "3-6", "hosts": ["local"]},
            {"layers": layers, "experts": "7", "hosts": ["south"]}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "placement.json"
            path.write_text(json.dumps(placement))
            with harness.Cluster(self.model(), "--stages", "2", "--ranks", "2",
                                 "--placement", path) as cluster:
                roles = [(p["role"], p["index"])
                         for p in cluster.file["processes"]]
                self.assertIn(("expert", 0), roles)
                self.assertIn(("expert", 1), roles)
                self.assertEqual(expert_load.expected(cluster.url, 4), want)

    def test_bad_placements_are_refused_by_name(self):
        def refused(entries, *options):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "placement.json"
                path.write_text(json.dumps(
                    {"hosts": [{"name": "a"}], "experts": entries}))
                with harness.Cluster(self.model(), "--placement", path,
                                     *options, expect=6) as cluster:
                    return cluster.up.stderr
        whole = {"layers": "1-3", "experts": "0-7", "hosts": ["a"]}
        self.assertIn("layer 3: experts 0 to 7 are placed nowhere",
                      refused([{**whole, "layers": "1-2"}]))
        self.assertIn("layer 2: expert 4 is placed twice",
                      refused([whole, {**whole, "layers": "2",
                                       "experts": "4"}]))

    def test_plan_follows_the_memory_and_says_what_does_not_fit(self):
        def plan(*options):
            sluice = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) \
                / "services/cli/sluice"
            return subprocess.run([sluice, "plan", self.model(), *options],
                                  capture_output=True, text=True, check=False)
        # 8 experts of 3 layers: an id takes 110,592 bytes in all of them.
        hosts = "big=127.0.0.1:1:864K,small=127.0.0.1:2:288K"
        made = plan("--hosts", hosts)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(plan("--hosts", hosts).stdout, made.stdout)
        self.assertEqual(json.loads(made.stdout), {
            "hosts": [{"name": "big", "address": "127.0.0.1:1"},
                      {"name": "small", "address": "127.0.0.1:2"}],
            "experts": [
                {"layers": "1-3", "experts": "0-5", "hosts": ["big"]},
                {"layers": "1-3", "experts": "6-7", "hosts": ["small"]}]})
        refused = plan("--hosts", "big=127.0.0.1:1:400K")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("there is room for", refused.stderr)
        for words in (("--hosts", "a"), ("--hosts", "a=h:1:x"), (),
                      ("--hosts", "a=h:1", "--replicas", "2")):
            self.assertEqual(plan(*words).returncode, 2, words)

    def test_plan_splits_layers_by_bytes(self):
        def plan(*options):
            sluice = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) \
                / "services/cli/sluice"
            done = subprocess.run([sluice, "plan", self.model(), *options],
                                  capture_output=True, text=True, check=False)
            return done, re.findall(r"--layers (\S+)", done.stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "placement.json"
            path.write_text(json.dumps({
                "hosts": [{"name": "a"}],
                "experts": [{"layers": "1-2", "experts": "0-7",
                             "hosts": ["a"]},
                            {"layers": "3", "experts": "0-7",
                             "hosts": ["local"]}]}))
            few = ("--kv-blocks", "1")
            for options, wanted in (
                    (("--stages", "2"), ["0-1", "2-3"]),
                    (("--stages", "4"), ["0-0", "1-1", "2-2", "3-3"]),
                    (("--stage-memory", "4M,900K"), ["0-2", "3-3"]),
                    # Experts of the last layer alone are on their stage.
                    (("--stages", "2", "--placement", path),
                     ["0-2", "3-3"])):
                done, layers = plan(*options, *few)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(layers, wanted, done.stdout)
            for code, options, words in (
                    (2, ("--stages", "5"), "5 stages for 4 layers"),
                    (2, ("--stages", "0"), "0 stages for 4 layers"),
                    (2, ("--stages", "2", "--stage-memory", "1G"),
                     "2 stages have 1 sizes of memory"),
                    (2, ("--stage-memory", "1G,x"), "--stage-memory"),
                    (2, ("--stages", "2", "--kv-blocks", "0"),
                     "--kv-blocks: must be between"),
                    (2, ("--stages", "2", "--weights", "f64"), "'f64'"),
                    (2, ("--stages", "2", "--out", "x"),
                     "--out requires --hosts"),
                    (2, ("--hosts", "a=h:1", "--kv-blocks", "2"),
                     "--kv-blocks goes with --stages"),
                    (2, ("--hosts", "a=h:1", "--ranks", "2"),
                     "--ranks goes with --stages"),
                    (2, ("--stages", "2", "--context", "64"),
                     "--context goes with --machines or --machine"),
                    (2, ("--machine", "8G,9", "--max-context", "64"),
                     "do not go with"),
                    (2, ("--stages", "2", "--max-context", "2147483647"),
                     "--max-context: must be between 1 and"),
                    (2, ("--stages", "2", "--max-step-tokens", "0"),
                     "--max-step-tokens: must be between 1 and 65536"),
                    (2, ("--stages", "2", "--ranks", "13"),
                     "--ranks: must be between 1 and 12"),
                    (2, ("--hosts", "a=h:1", "--placement", path),
                     "--hosts excludes --placement"),
                    (1, ("--stage-memory", "100K,1M"), "no split fits")):
                done, _ = plan(*options)
                self.assertIn(words, done.stderr, options)
                self.assertEqual(done.returncode, code, options)
            # A plan whose layers do not fit leaves no placement behind.
            out = pathlib.Path(folder) / "out.json"
            plan("--hosts", "a=h:1", "--out", out, "--stage-memory", "9K,9K")
            self.assertFalse(out.exists())
            # One KV head: each of 4 ranks has it. 1600 tokens are 100 blocks.
            mega = [re.findall(r"([\d.]+) MB of KV", plan(
                "--stages", "1", *options)[0].stdout) for options in (
                    ("--max-context", "1600"), ("--max-context", "3200"),
                    ("--kv-blocks", "100", "--ranks", "4"))]
            one, two, ranks = (float(size) for (size,) in mega)
            self.assertGreater(one, 0)
            self.assertAlmostEqual(two, 2 * one, delta=0.02)
            self.assertAlmostEqual(ranks, 4 * one, delta=0.02)

    def test_options_that_cannot_be_are_refused(self):
        for options, words in (
                (("--expert-hosts", "2", "--expert-replicas", "3"),
                 "--expert-replicas 3"),
                (("--expert-hosts", "9"), "number of hosts must be between 1 "
                 "and 8"),
                (("--placement", "/nowhere"), "--placement /nowhere")):
            with harness.Cluster(self.model(), *options, expect=2) as cluster:
                self.assertIn(words, cluster.up.stderr)


if __name__ == "__main__":
    harness.main()
