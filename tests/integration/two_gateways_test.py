"""Two gateways for the same stages: one leads, the other one passes requests on
to it, and takes over when it is killed, stopped, or told to end."""

import json
import os
import signal
import threading
import time
import unittest

import api
import harness
from raw_client import Raw, post
from streams import Streams, ids_of

SECONDS = 60  # of a start or a change of roles, at the most
TAKEOVER = 15  # seconds, at the most: the lease is 3 s


def body_of(index, tokens=450):
    return {"prompt": [1, 403, 407, 261 + index], "max_tokens": tokens,
            "temperature": 0.8, "seed": index, "ignore_eos": True,
            "return_token_ids": True}


def ready_of(url):
    """(status, JSON) of /readyz; (0, {}) where nobody answers."""
    status, text = api.try_get(url, "/readyz", timeout=5)
    return status, json.loads(text) if status else {}


class TwoGatewaysTest(unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster(
            harness.golden("stories"), "--gateways", "2")
        self.addCleanup(self.cluster.close)
        self.urls = [f"http://{one['addresses'][0]}"
                     for one in self.cluster.file["processes"]
                     if one["role"] == "gateway"]
        self.assertEqual(self.cluster.file["url"], self.urls[0])
        self.pids = {one["index"]: one["pid"]
                     for one in self.cluster.file["processes"]
                     if one["role"] == "gateway"}
        self.term = 0

    def wait_for_role(self, index, role):
        def found():
            status, ready = ready_of(self.urls[index])
            return status == 200 and ready["role"] == role and ready
        return harness.wait_for(found, SECONDS, f"gateway {index} is {role}")

    def settle(self):
        """The indices of leader and standby, once there is one of each."""
        def found():
            roles = [ready_of(url)[1].get("role") for url in self.urls]
            return sorted(map(str, roles)) == ["leader", "standby"] and (
                roles.index("leader"), roles.index("standby"))
        leader, standby = harness.wait_for(found, SECONDS,
                                           "a leader and a standby")
        ready = self.wait_for_role(standby, "standby")
        self.assertEqual("http://" + ready["leader"], self.urls[leader])
        term = self.wait_for_role(leader, "leader")["term"]
        self.assertGreater(term, self.term, "each lead has a term")
        self.term = term
        return leader, standby

    def ids(self, index, body):
        answer = api.completion(self.urls[index], **body, timeout=120)
        return api.choice_of(answer)["token_ids"]

    def took(self, what, begin):
        seconds = time.monotonic() - begin
        print(f"{what}: the standby's first answer after {seconds:.2f} s",
              flush=True)
        self.assertLess(seconds, TAKEOVER)

    def test_both_give_the_same_verdict(self):
        leader, standby = self.settle()
        body = {"prompt": [1, 403], "max_tokens": 1, "temperature": 0}

        def verdict(index, raw):
            with Raw(self.urls[index]) as client:
                client.send(raw)
                status, _, answer = client.answer()
                told = json.loads(answer)
                return status, told.get("object"), told.get("error")
        get = "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
        for raw, status in (
                (post("/v1/completions", body, "Connection: host"), 200),
                (post("/v1/completions", body, "Connection: Content-Type, "
                      "accept, content-length"), 200),
                (post("//v1//completions/", body), 200),
                (b"\r\n\r\n" + post("/v1/completions", body), 200),
                ((get % ("/v1/models/", "")).encode(), 200),
                ((get % ("///v1/models", "Connection: host\r\n")).encode(),
                 200),
                ((get % ("/v1/models//x/", "")).encode(), 404),
                ((get % ("//v1/streams//x/", "")).encode(), 404),
                ((get % ("/v1/nothing/", "")).encode(), 404),
                ((get % ("//peer/streams/", "")).encode(), 404),
                ((get % ("/v1/completions/", "")).encode(), 405),
                ((get % ("/v1/models", "Origin: null\r\n")).encode(), 403)):
            first, second = (verdict(one, raw) for one in (leader, standby))
            self.assertEqual(first[0], status, raw)
            self.assertEqual(first, second, raw)

    def test_the_standby_forwards_and_takes_over(self):
        leader, standby = self.settle()
        self.want = self.ids(leader, body_of(1, 20))
        self.check_forwarded(leader, standby)
        self.check_stage_killed(leader, standby)
        leader, standby = self.check_told_to_end(leader, standby)
        leader, standby = self.check_killed(leader, standby)
        self.check_stopped(leader, standby)

    def check_forwarded(self, leader, standby):
        """Every path but the process's own is the leader's."""
        for url in self.urls:
            self.assertEqual(api.get(url, "/peer/streams")[0], 404)
        name = "sluice_gateway_forwarded_requests_total"
        before = [api.metrics(url)[name] for url in self.urls]
        self.assertEqual(self.ids(standby, body_of(1, 20)), self.want)
        status, headers, _ = api.request(
            self.urls[standby], "POST", "/v1/completions", {"prompt": 5},
            {"X-Request-Id": "of-the-test"})
        self.assertEqual((status, headers["X-Request-Id"]),
                         (400, "of-the-test"))
        self.assertEqual(api.get(self.urls[standby], "/none")[0], 404)
        status = json.loads(api.get(self.urls[standby], "/cluster")[1])
        self.assertEqual((status["role"], status["term"]),
                         ("leader", self.term))
        own, other = (api.metrics(self.urls[at]) for at in (standby, leader))
        self.assertEqual((own["sluice_gateway_leader"],
                          other["sluice_gateway_leader"]), (0, 1))
        self.assertEqual(own[name], before[standby] + 4)
        self.assertEqual(other[name], before[leader])
        self.assertEqual(other["sluice_gateway_takeovers_total"], 1)
        self.assertEqual(own["sluice_gateway_steps_total"], 0)

    def check_stage_killed(self, leader, standby):
        """A lost first stage is a pause, whoever asks: the standby leaves the
        stages to the leader."""
        want = self.ids(leader, body_of(5))
        pids = [self.cluster.process("stage", at)["pid"] for at in (0, 1)]
        for index in (0, 0, 1, 0):
            streams = [Streams(self.urls[at], [body_of(5)])
                       for at in (leader, standby)]
            for one in streams:
                one.wait_for_tokens()
            os.kill(pids[index], signal.SIGKILL)
            time.sleep(1)  # the standby would have asked for it by now
            pids[index] = self.cluster.restart("stage", index).pid
            for one in streams:
                self.assertTrue(one.join(120))
                self.assertEqual(ids_of(one.outcomes[0]), want)
            ready = self.wait_for_role(leader, "leader")
            self.assertEqual(ready["term"], self.term)
            self.wait_for_role(standby, "standby")
        for at, takeovers in ((leader, 1), (standby, 0)):
            self.assertEqual(
                api.metrics(self.urls[at])["sluice_gateway_takeovers_total"],
                takeovers)

    def check_told_to_end(self, leader, standby):
        """SIGTERM: streams end whole, and the standby takes over."""
        want = self.ids(leader, body_of(2))
        streams = [Streams(self.urls[at], [body_of(2)])
                   for at in (leader, standby)]
        for one in streams:
            one.wait_for_tokens()
        os.kill(self.pids[leader], signal.SIGTERM)
        for one in streams:
            self.assertTrue(one.join(120))
        begin = time.monotonic()
        self.assertEqual(self.ids(standby, body_of(1, 20)), self.want)
        self.took("the leader told to end, from its streams' end", begin)
        for one in streams:
            self.assertEqual(ids_of(one.outcomes[0]), want)
        return self.bring_back(leader)

    def bring_back(self, index):
        """Starts the old leader again: it stands by."""
        self.pids[index] = self.cluster.restart("gateway", index).pid
        leader, standby = self.settle()
        self.assertEqual(standby, index)
        self.assertEqual(self.ids(standby, body_of(1, 20)), self.want)
        return leader, standby

    def ids_by_request(self, index, request_id):
        """The token ids of a stream that is asked for by its request's id."""
        status, text = api.get(self.urls[index], "/v1/streams/" + request_id,
                               timeout=60)
        self.assertEqual(status, 200, text)
        return ids_of((status, [line[6:] for line in text.splitlines()
                                if line.startswith("data: ")]))

    def wait_for_copies(self):
        """Until both gateways keep the same number of streams."""
        def equal():
            kept = {api.metrics(url)["sluice_gateway_stream_journal_streams"]
                    for url in self.urls}
            return len(kept) == 1 and kept.pop() > 0
        harness.wait_for(equal, SECONDS, "the standby has the streams")

    def check_killed(self, leader, standby):
        """A client that knows the id alone gets its stream from the next."""
        body = {**body_of(6), "stream": True}
        del body["seed"]
        status, _, raw = api.request(self.urls[standby], "POST",
                                     "/v1/completions", body,
                                     {"X-Request-Id": "known-by-its-id"})
        self.stream = ids_of((status, [
            line[6:] for line in raw.decode().splitlines()
            if line.startswith("data: ")]))
        self.wait_for_copies()
        os.kill(self.pids[leader], signal.SIGKILL)
        begin = time.monotonic()
        self.assertEqual(self.ids(standby, body_of(1, 20)), self.want)
        self.took("the leader killed", begin)
        self.assertEqual(self.ids_by_request(standby, "known-by-its-id"),
                         self.stream)
        return self.bring_back(leader)

    def check_stopped(self, leader, standby):
        """SIGSTOP: its stages are the standby's after the lease."""
        self.wait_for_copies()
        want = self.ids(leader, body_of(4))
        streams = Streams(self.urls[leader], [body_of(3)])
        streams.wait_for_tokens()
        whole = []
        asking = threading.Thread(
            target=lambda: whole.append(self.ids(leader, body_of(4))))
        asking.start()
        os.kill(self.pids[leader], signal.SIGSTOP)
        try:
            begin = time.monotonic()
            self.assertEqual(self.ids(standby, body_of(1, 20)), self.want)
            self.took("the leader stopped", begin)
        finally:
            os.kill(self.pids[leader], signal.SIGCONT)
        self.assertEqual(self.settle(), (standby, leader))
        asking.join(60)
        self.assertEqual(whole, [want], "no answer was begun: the next one's")
        # It was gone, and has a copy since it is back.
        self.assertEqual(self.ids_by_request(standby, "known-by-its-id"),
                         self.stream)
        self.assertTrue(streams.join(60))
        status, events = streams.outcomes[0]
        self.assertEqual(status, 200)
        # Unless it had all its tokens before.
        if events[-1] != "[DONE]" or "error" in events[-2]:
            self.assertIn("another gateway has taken the stages", events[-2])
        self.assertEqual(self.ids(leader, body_of(1, 20)), self.want)
        metrics = api.metrics(self.urls[leader])
        self.assertEqual(metrics["sluice_gateway_leader"], 0)
        self.assertGreater(
            metrics["sluice_gateway_forwarded_requests_total"], 0)


if __name__ == "__main__":
    harness.main()
