"""A rolling restart of every process under load: no request fails, and no
stream is cut.

Every process, gateways too, is told to end and started again, one after the
other, as a rolling update does it. Clients ask both gateways as a load balancer
asks them. SLUICE_ROLLING_REQUESTS: the restarts go on until there were so many
requests, in a cluster with a spare and in one with hosts of experts.
"""

import collections
import http.client
import itertools
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
import unittest
import urllib.parse

import api
import harness

sys.path.insert(0, str(harness.ROOT / "tests/chaos"))
import traffic  # noqa: E402

MODEL = harness.ROOT / "deploy/demo_model/weights"
REQUESTS = int(os.environ.get("SLUICE_ROLLING_REQUESTS", 0))
SEED = int(os.environ.get("SLUICE_ROLLING_SEED", random.randrange(1 << 30)))
CLIENTS = 6
# Gateways that one request is sent to, at the most, where the ones before
# refuse the connection or the request. nginx.conf says 3, too.
TRIES = 3
SECONDS = 60  # of one process's end and start, at the most

# What becomes of a request at one gateway: why it may go to another one, what
# is wrong, and what it told.
Outcome = collections.namedtuple("Outcome", "retry wrong told")


def told_by(answer):
    """The Transcript of an answer that is not streamed."""
    told = traffic.Transcript()
    choices = []
    for choice in answer["choices"]:
        message = choice.get("message")
        if message is not None:
            calls = [{**call, "index": index} for index, call
                     in enumerate(message.get("tool_calls") or [])]
            choice = {**choice, "delta": {**message, "tool_calls": calls}}
        choices.append(choice)
    told.take(json.dumps({"choices": choices, "usage": answer["usage"]}))
    told.take("[DONE]")
    return told


class Balancer:
    """Knows which gateways are ready, and counts the requests at each."""

    def __init__(self, urls):
        self.urls = urls
        self._turn = itertools.count()
        self._ready = [True] * len(urls)
        self.streaming = [0] * len(urls)  # streams that have an event
        self.lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._probe, args=(at,))
                         for at in range(len(urls))]
        for thread in self._threads:
            thread.start()

    def _probe(self, index):
        while not self._stop.wait(0.1):
            status = api.try_get(self.urls[index], "/readyz", 2)[0]
            self._ready[index] = status == 200

    def order(self):
        """The gateways in the order in which a new request is for them."""
        turn = next(self._turn)
        indices = [(turn + at) % len(self.urls)
                   for at in range(len(self.urls))]
        return sorted(indices, key=lambda index: not self._ready[index])

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Request:
    """One request by way of the balancer. `retries`: why a gateway was left
    for another one; `problem`: what went wrong; None: nothing."""

    def __init__(self, balancer, path, body, stream):
        self._balancer = balancer
        self._path = path
        self._stream = stream
        self._body = {**body, "return_token_ids": True}
        if stream:
            self._body |= {"stream": True,
                           "stream_options": {"include_usage": True}}
        self.retries = []
        self.told = None
        for index in itertools.islice(itertools.cycle(balancer.order()),
                                      TRIES):
            outcome = self._ask(index)
            self.told, self.problem = outcome.told, outcome.wrong
            if outcome.retry is None:
                return
            self.retries.append(f"gateway {index}: {outcome.retry}")
        self.problem = f"no gateway took it: {self.retries}"

    def _ask(self, index):
        parts = urllib.parse.urlsplit(self._balancer.urls[index])
        connection = http.client.HTTPConnection(parts.hostname, parts.port,
                                                timeout=120)
        try:
            connection.connect()
        except ConnectionRefusedError:
            return Outcome("refused", None, None)
        begun = []  # the answer's head
        try:
            connection.request("POST", self._path, json.dumps(self._body),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            begun.append(answer.status)
            return self._take(index, answer)
        except (OSError, http.client.HTTPException) as error:
            where = "cut" if begun else "closed without a byte of the answer"
            return Outcome(None, f"gateway {index}: {where}: {error!r}", None)
        finally:
            connection.close()

    def _take(self, index, answer):
        if answer.status == 503 and answer.headers["Retry-After"]:
            return Outcome("503", None, answer.read())
        if answer.status != 200:
            return Outcome(None, f"{answer.status}: {answer.read()}", None)
        if not self._stream:
            return Outcome(None, None, told_by(json.loads(answer.read())))
        told = self._read(index, answer)
        cut = None if told.over else f"gateway {index}: cut: no [DONE]"
        return Outcome(None, told.problem or cut, told)

    def _read(self, index, answer):
        told = traffic.Transcript()
        counted = False
        try:
            for line in answer:
                if not line.startswith(b"data: "):
                    continue
                if not counted:
                    counted = True
                    self._count(index, 1)
                told.take(line[6:].decode().rstrip("\r\n"))
        finally:
            if counted:
                self._count(index, -1)
        return told

    def _count(self, index, change):
        with self._balancer.lock:
            self._balancer.streaming[index] += change


class Load:
    """Clients that ask without pause, streamed and not."""

    def __init__(self, balancer, bodies, want, draw):
        self.done = 0
        self.wrong = []
        self.retries = collections.Counter()
        self.gaps = []
        self._balancer, self._bodies, self._want = balancer, bodies, want
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run,
                             args=(random.Random(draw.random()),))
            for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, draw):
        while not self._stop.is_set():
            which = draw.randrange(len(self._bodies))
            stream = draw.random() < 0.6
            try:
                request = Request(self._balancer, *self._bodies[which],
                                  stream)
            except Exception as error:  # an answer that is none
                with self._lock:
                    self.wrong.append(repr(error))
                continue
            with self._lock:
                self._take(request, which, stream)

    def _take(self, request, which, stream):
        self.done += 1
        for retry in request.retries:
            self.retries[retry.split(": ")[1]] += 1
        if request.problem is not None:
            self.wrong.append(request.problem)
        elif request.told.whole() != self._want[which][stream]:
            self.wrong.append({"request": self._bodies[which],
                               "stream": stream, "got": request.told.whole(),
                               "want": self._want[which][stream]})
        elif stream:
            self.gaps.append(request.told.gap)

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(150)


class RollingTest(unittest.TestCase):
    def test_every_process_is_restarted(self):
        with harness.Cluster(MODEL, "--gateways", "2", "--stages", "2",
                             "--spares", "1", "--weights",
                             "f32") as cluster:
            self.roll_all(cluster)

    @unittest.skipUnless(REQUESTS, "long: set SLUICE_ROLLING_REQUESTS")
    def test_hosts_of_experts_too(self):
        with harness.Cluster(MODEL, "--gateways", "2", "--stages", "2",
                             "--expert-hosts", "2", "--expert-replicas", "2",
                             "--weights", "f32") as cluster:
            self.roll_all(cluster)

    def roll_all(self, cluster):
        print(f"SLUICE_ROLLING_SEED={SEED}", flush=True)
        self.cluster = cluster
        self.entries = cluster.file["processes"]
        self.children = {}  # those that were started again, by role and index
        draw = random.Random(SEED)
        bodies = traffic.requests(draw)
        urls = [f"http://{entry['addresses'][0]}" for entry in self.entries
                if entry["role"] == "gateway"]
        self.balancer = Balancer(urls)
        self.addCleanup(self.balancer.stop)
        self.wait_settled()
        want = self.calm(bodies)
        load = Load(self.balancer, bodies, want, draw)
        self.addCleanup(load.stop)
        restarts, running = 0, 0
        while restarts == 0 or load.done < REQUESTS:
            for entry in self.entries:
                running += self.roll(entry)
                restarts += 1
                self.assertEqual(load.wrong, [],
                                 f"{entry['role']} {entry['index']}")
        load.stop()
        self.assertEqual(load.wrong, [])
        print(f"{load.done} requests, {len(load.wrong)} failed; {restarts} "
              f"restarts of {len(self.entries)} processes, {running} streams "
              "were under way at gateways that were told to end; "
              f"{dict(load.retries)} tried at the other gateway; the longest "
              f"gap of a stream: {max(load.gaps):.2f} s", flush=True)
        self.assertGreater(running, 0)

    def calm(self, bodies):
        """What each request is told, whole and streamed."""
        want = []
        for path, body in bodies:
            told = []
            for stream in (False, True):
                request = Request(self.balancer, path, body, stream)
                self.assertEqual((request.problem, request.retries),
                                 (None, []), body)
                told.append(request.told.whole())
            want.append(told)
        return want

    def roll(self, entry):
        """Tells the process to end, and starts it again once it is gone;
        returns how many streams a gateway had then."""
        role, index = entry["role"], entry["index"]
        running = 0
        if role == "gateway":
            running = harness.wait_for(
                lambda: self.balancer.streaming[index], SECONDS,
                f"a stream at gateway {index}")
        begin = time.monotonic()
        self.end(entry)
        gone = time.monotonic()
        self.children[role, index] = self.cluster.restart(role, index)
        harness.wait_for(
            lambda: api.try_get("http://" + entry["metrics_address"],
                                "/readyz", 5)[0] == 200,
            SECONDS, f"{role} {index} is ready again")
        self.wait_settled()
        print(f"  {role} {index}: gone after {gone - begin:.2f} s, all is "
              f"ready after {time.monotonic() - begin:.2f} s", flush=True)
        return running

    def end(self, entry):
        """SIGTERM, and the process ends well."""
        child = self.children.get((entry["role"], entry["index"]))
        name = f"{entry['role']} {entry['index']}"
        if child is not None:
            child.terminate()
            self.assertEqual(child.wait(SECONDS), 0, name)
            return
        os.kill(entry["pid"], signal.SIGTERM)
        stat = pathlib.Path(f"/proc/{entry['pid']}/stat")

        def gone():
            try:
                return stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                return True
        harness.wait_for(gone, SECONDS, f"{name} ends")

    def wait_settled(self):
        """Until both gateways are ready, and one of them leads."""
        def settled():
            roles = []
            for url in self.balancer.urls:
                status, text = api.try_get(url, "/readyz", 5)
                if status != 200:
                    return False
                roles.append(json.loads(text)["role"])
            return sorted(roles) == ["leader", "standby"]
        harness.wait_for(settled, SECONDS, "both gateways are ready")


if __name__ == "__main__":
    harness.main()
