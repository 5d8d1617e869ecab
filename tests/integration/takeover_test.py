"""A gateway that leads is killed; its clients ask the standby for the rest.

Streams of every kind of resume_test.py are cut by kill -9 of the leader. Each
client asks the other gateway at once, with Last-Event-ID: the events before the
kill and the rest together are the uncut stream. The killed gateway starts again
and is the next standby. SLUICE_TAKEOVER_ROUNDS: how many times; SLUICE_TAKEOVER_SEED
repeats the moments. The times from the kill are printed.
"""

import json
import os
import random
import threading
import time
import unittest

import api
import harness
import resume_test as resumed

ROUNDS = int(os.environ.get("SLUICE_TAKEOVER_ROUNDS", 20 if harness.LONG else 2))
SEED = int(os.environ.get("SLUICE_TAKEOVER_SEED", random.randrange(1 << 30)))
LATEST = 60  # seconds, of anything


class Client(threading.Thread):
    """One stream: at the leader until it is cut, then at the standby."""

    def __init__(self, kind, request, leader, standby, on_event):
        super().__init__()
        self.kind, self.begun = kind, threading.Event()
        self.part = self.rest = self.error = None
        self.answered = None  # by the standby: the first event of the rest
        self._path, self._body = request[0], json.dumps(request[1])
        self._leader, self._standby = leader, standby
        self._on_event = on_event
        self.start()

    def post(self, url, last=None):
        return resumed.Stream(url, "POST", self._path, self._body, last)

    def whole(self):
        """The uncut stream, from its beginning."""
        return self.post(self._standby,
                         resumed.start_of(self.part.events[0])).part()

    def run(self):
        try:
            self.part = resumed.kept(
                self.post(self._leader).part(on_event=self._tell))
            if not self.part.done:
                self.rest = self.post(
                    self._standby,
                    self.part.events[-1].id).part(on_event=self._answer)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
        finally:
            self.begun.set()

    def _tell(self):
        self.begun.set()
        self._on_event()

    def _answer(self):
        self.answered = self.answered or time.monotonic()


class TakeoverTest(unittest.TestCase):
    def use(self, cluster):
        self.cluster = cluster
        self.urls = ["http://" + self.cluster.process("gateway", index)[
            "addresses"][0] for index in range(2)]
        self.kinds = {**resumed.KINDS,
                      "bytes": resumed.many_bytes(self.cluster.url)}
        self.restarted = {}

    def role(self, index):
        status, body = api.try_get(self.urls[index], "/readyz")
        return json.loads(body).get("role") if status == 200 else None

    def wait_for_both(self):
        """The indices of the leader and of a standby that knows it."""
        roles = []

        def both():
            roles[:] = [self.role(0), self.role(1)]
            return sorted(map(str, roles)) == ["leader", "standby"]

        harness.wait_for(both, LATEST, "one leads, and the other stands by")
        return roles.index("leader"), roles.index("standby")

    def kill(self, index):
        if index in self.restarted:
            self.restarted[index].kill()
        else:
            self.cluster.kill("gateway", index)

    def take_over(self, draw):
        leader, standby = self.wait_for_both()
        events = threading.Semaphore(0)
        clients = [Client(kind, request, self.urls[leader], self.urls[standby],
                          events.release)
                   for kind, request in self.kinds.items()]
        for client in clients:
            self.assertTrue(client.begun.wait(LATEST), client.kind)
            self.assertIsNone(client.error, client.kind)
        for _ in range(draw.randrange(1, 100)):
            # Fewer than asked for are left if the streams were quick.
            if not events.acquire(timeout=0.05):
                break
        killed = time.monotonic()
        self.kill(leader)
        for client in clients:
            client.join(2 * LATEST)
            self.assertFalse(client.is_alive(), client.kind)
        cut = [client for client in clients if client.rest is not None]
        for client in clients:
            with self.subTest(kind=client.kind):
                self.assertIsNone(client.error)
                self.assertTrue(client.part.done or client.rest is not None)
        for client in cut:
            with self.subTest(kind=client.kind, seed=SEED):
                self.check(client)
        harness.wait_for(lambda: self.role(standby) == "leader", LATEST,
                         "the standby leads")
        self.restarted[leader] = self.cluster.restart("gateway", leader)
        return [client.answered - killed for client in cut if client.answered]

    def check(self, client):
        self.assertTrue(client.rest.done)
        self.assertEqual(client.rest.request_id, client.part.request_id)
        self.assertEqual(
            resumed.told_by(client.part.events + client.rest.events),
            resumed.told_by(client.whole().events))

    def test_a_killed_leaders_clients_get_the_rest_of_the_standby(self):
        print(f"SLUICE_TAKEOVER_SEED={SEED} SLUICE_TAKEOVER_ROUNDS={ROUNDS}",
              flush=True)
        draw, firsts, times = random.Random(SEED), [], []
        with harness.Cluster(resumed.MODEL, "--gateways", "2", "--weights",
                             "f32") as cluster:
            self.use(cluster)
            for _ in range(ROUNDS):
                answered = self.take_over(draw)
                if answered:
                    firsts.append(min(answered))
                    times += answered
        self.assertTrue(times, "no kill cut a stream")
        times.sort()
        print(f"{ROUNDS} kills cut {len(times)} streams; seconds from the kill "
              "to the standby's next event: the first of each kill "
              f"{max(firsts):.2f} at most, each "
              f"{times[len(times) // 2]:.2f} (median), "
              f"{times[99 * len(times) // 100]:.2f} (p99), "
              f"{times[-1]:.2f} at most", flush=True)


if __name__ == "__main__":
    harness.main()
