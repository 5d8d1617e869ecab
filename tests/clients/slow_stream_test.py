"""Streams whose first token takes long, over Node's own fetch and behind nginx.

In the long mode besides: 7,000 tokens on a cluster that is slowed to more than
the 300 s of Node and the 60 s of nginx, both as they are.
"""

import contextlib
import json
import shutil
import subprocess
import tempfile
import unittest

from client_cluster import ClientCluster, skip, wait_until_idle
import api
import harness
import nginx

NODE = shutil.which("node")
if NODE is None:
    skip("needs node (Debian: apt-get install nodejs)")
SCRIPT = harness.ROOT / "tests/clients/node/slow_stream.mjs"


def messages(cluster, tokens, word):
    """A chat of nearly `tokens` tokens, its own by `word`."""
    def chat(lines):
        text = "\n".join(f"{word} {n}: the sluice was opened at dawn."
                         for n in range(lines))
        return [{"role": "user", "content": text + "\nWhat was opened?"}]

    def count(lines):
        status, answer = api.post(cluster.url, "/tokenize",
                                  {"messages": chat(lines)})
        if status != 200:
            raise AssertionError(answer)
        return answer["count"]
    few, many = count(100), count(200)
    lines = 100 + (tokens - few) * 100 // (many - few)
    while count(lines) > tokens:
        lines -= 1
    return chat(lines)


@contextlib.contextmanager
def slowed_cluster(chunk, delay_ms, *options):
    """A cluster whose one stage waits `delay_ms` before each step of at most
    `chunk` tokens of a prompt; `.model` names its model."""
    with harness.Cluster(harness.default_model(), "--stages", 1,
                         "--prefill-chunk", chunk, *options) as cluster:
        cluster.kill("stage")
        stage = cluster.restart("stage", 0, "--debug-step-delay-ms",
                                str(delay_ms))
        harness.wait_for(lambda: api.get(cluster.url, "/readyz")[0] == 200,
                         60, "the slowed stage is ready")
        cluster.model = json.loads(api.get(
            cluster.url, "/v1/models")[1])["data"][0]["id"]
        try:
            yield cluster
        finally:
            stage.kill()  # it is not one of those that the cluster ends


class Fetch:
    """A request on its way through Node's fetch."""

    def __init__(self, url, body):
        self._file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(body, self._file)
        self._file.flush()
        self._process = subprocess.Popen(
            [NODE, SCRIPT, url + "/v1/chat/completions", self._file.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def result(self, seconds):
        out, _ = self._process.communicate(timeout=seconds)
        self._file.close()
        return json.loads(out)


class SlowStreamCase(unittest.TestCase):
    def body(self, cluster, tokens, word, **fields):
        return {"model": cluster.model, "stream": True, "temperature": 0,
                "max_tokens": 8,
                "messages": messages(cluster, tokens, word), **fields}

    def cluster(self):
        cluster = ClientCluster()
        self.addCleanup(cluster.close)
        return cluster

    def nginx(self, url, options=""):
        if nginx.binary() is None:
            self.skipTest("needs nginx (tests/run unpacks Debian's)")
        return nginx.Nginx(url, options)

    def expect_whole(self, seen):
        self.assertIsNone(seen["error"], seen)
        self.assertEqual(seen["status"], 200)
        self.assertTrue(seen["done"], seen)
        self.assertTrue(seen["text"], seen)
        self.assertIn(seen["finish"], ("stop", "length"))


class SlowStreamTest(SlowStreamCase):
    # 2,500 tokens take 10 steps of this chunk: 4 s, however fast the CPU is.
    CHUNK = 256
    DELAY_MS = 400

    def test_the_header_comes_long_before_the_first_token(self):
        with slowed_cluster(self.CHUNK, self.DELAY_MS) as cluster:
            seen = Fetch(cluster.url, self.body(
                cluster, 2500, "One", sse_ping_interval=1)).result(300)
        print(seen, flush=True)
        self.expect_whole(seen)
        self.assertGreater(seen["first"], 3.5, "the prefill is not slow")
        self.assertLess(seen["head"], seen["first"] / 2)
        self.assertGreaterEqual(seen["comments"], int(seen["first"]) - 1)

    def test_a_proxy_that_waits_shorter_than_the_prefill_passes_it_on(self):
        with slowed_cluster(self.CHUNK, self.DELAY_MS) as cluster:
            with self.nginx(cluster.url, "proxy_read_timeout 2s;") as proxy:
                seen = Fetch(proxy.url, self.body(
                    cluster, 2500, "Two", sse_ping_interval=1)).result(300)
                silent = Fetch(proxy.url, self.body(
                    cluster, 2500, "Three", sse_ping_interval=-1)).result(300)
                log = proxy.log()
            wait_until_idle(cluster)
        print(seen, silent, sep="\n", flush=True)
        self.expect_whole(seen)
        self.assertGreater(seen["first"], 3.5, "the prefill is not slow")
        # The same without comments is what nginx cuts off.
        self.assertFalse(silent["done"], silent)
        self.assertIn("upstream timed out", log)


@unittest.skipUnless(harness.LONG, "takes minutes: SLUICE_LONG=1")
class SevenThousandTokensTest(SlowStreamCase):
    TOKENS = 7000
    # Tokens of a prompt in a step, and what each step waits: 330 s for two
    # prompts if a step has both, else twice as long.
    CHUNK = 64
    DELAY_MS = 3000

    def run_all(self, cluster, cases):
        """{name: what came}, all at once; `cases`: (name, url, fields)."""
        fetches = {name: Fetch(url, self.body(cluster, self.TOKENS, name,
                                              **fields))
                   for name, url, fields in cases}
        results = {name: fetch.result(1000)
                   for name, fetch in fetches.items()}
        for name, seen in results.items():
            print(name, seen, flush=True)
        return results

    def test_at_its_own_pace(self):
        cluster = self.cluster()
        with self.nginx(cluster.url) as proxy:
            for name, url in (("Direct", cluster.url), ("Proxied", proxy.url)):
                seen = self.run_all(cluster, [(name, url, {})])[name]
                self.expect_whole(seen)
                self.assertLess(seen["head"], seen["first"])

    def test_slower_than_node_and_nginx_wait(self):
        with slowed_cluster(self.CHUNK, self.DELAY_MS,
                            "--max-queue-wait", 3600) as cluster:
            with self.nginx(cluster.url) as proxy:
                seen = self.run_all(cluster, [
                    ("Direct", cluster.url, {}),
                    ("Proxied", proxy.url, {}),
                    ("Silent", proxy.url, {"sse_ping_interval": -1})])
                log = proxy.log()
        for name in ("Direct", "Proxied"):
            self.expect_whole(seen[name])
            self.assertGreater(seen[name]["first"], 300)
            self.assertGreater(seen[name]["comments"], 25)
        self.assertFalse(seen["Silent"]["done"])
        self.assertIn("upstream timed out", log)


if __name__ == "__main__":
    harness.main()
