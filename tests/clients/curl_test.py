"""curl as a person types it, against a live cluster."""

import json
import shutil
import subprocess
import tempfile
import unittest

from client_cluster import ANSWER, MESSAGES, ClientCluster, skip
import harness

if shutil.which("curl") is None:
    skip("needs curl")


class CurlTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def curl(self, path, *options, seconds=60):
        done = subprocess.run(
            ["curl", "--silent", "--show-error", *options,
             self.cluster.url + path],
            capture_output=True, timeout=seconds, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def post(self, path, body, *options):
        return self.curl(path, "-H", "Content-Type: application/json", "-d",
                         json.dumps(body), *options)

    def question(self, **fields):
        return {"model": self.cluster.model, "messages": MESSAGES,
                "temperature": 0, "max_tokens": 24, **fields}

    def test_a_chat_is_answered(self):
        answer = json.loads(self.post("/v1/chat/completions",
                                      self.question()))
        self.assertIn(ANSWER, answer["choices"][0]["message"]["content"])

    def test_a_stream_ends_with_done(self):
        text = self.post("/v1/chat/completions", self.question(stream=True),
                         "-N")
        events = text.split("\n\n")
        self.assertEqual(events[-2:], ["data: [DONE]", ""])
        said = ""
        for event in events[:-2]:
            if event == ": ping":  # a machine that is busy otherwise
                continue
            data, name = event.split("\n")
            self.assertTrue(name.startswith("id: "), event)
            self.assertTrue(data.startswith("data: "), event)
            choice = json.loads(data[6:])["choices"][0]
            said += choice["delta"].get("content") or ""
        self.assertIn(ANSWER, said)

    def test_the_status_tells_of_an_error(self):
        text = self.post("/v1/chat/completions", self.question(model="nope"),
                         "-w", "\n%{http_code}")
        body, status = text.rsplit("\n", 1)
        self.assertEqual(status, "404")
        self.assertIn("nope", json.loads(body)["error"]["message"])
        text = self.curl("/v1/chat/completions", "-w", "%{http_code}", "-o",
                         "/dev/null", "-d", "{not json")
        self.assertEqual(text, "400")

    def test_a_body_over_a_megabyte_is_sent_after_100_continue(self):
        padding = {"metadata": {"padding": "x" * 1_200_000}}
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump(self.question(**padding), file)
            file.flush()
            text = self.curl("/v1/chat/completions", "-v", "-H",
                             "Content-Type: application/json", "-H",
                             "Expect: 100-continue", "-d", "@" + file.name,
                             "--stderr", "-")
        self.assertIn("HTTP/1.1 100 Continue", text)
        self.assertIn("HTTP/1.1 200", text)

    def test_a_chunked_body_is_taken(self):
        text = self.post("/v1/chat/completions", self.question(), "-H",
                         "Transfer-Encoding: chunked")
        self.assertIn(ANSWER, json.loads(text)["choices"][0]["message"]
                      ["content"])

    def test_one_connection_serves_several_requests(self):
        url = self.cluster.url + "/v1/models"
        text = self.curl("/v1/models", url, "-o", "/dev/null", "-o",
                         "/dev/null", "-w", "%{num_connects} ")
        self.assertEqual(text.split(), ["1", "0"])

    def test_head_and_options_are_answered(self):
        head = self.curl("/health", "-I")
        self.assertTrue(head.startswith("HTTP/1.1 200"), head)
        wrong = self.curl("/v1/chat/completions", "-X", "DELETE", "-w",
                          "%{http_code}", "-o", "/dev/null")
        self.assertEqual(wrong, "405")


if __name__ == "__main__":
    harness.main()
