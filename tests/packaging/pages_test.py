"""What pages ask and what they say is answered: each question in a curl line of
a page is asked, of the model that the line names, and the answer compared."""

import json
import pathlib
import re
import shlex
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import api  # noqa: E402
import harness  # noqa: E402

PAGES = [harness.ROOT / "README.md", *sorted(
    path for folder in ("deploy", "docker", "k8s", "services")
    for path in (harness.ROOT / folder).rglob("*.md"))]
# Pages of who starts Sluice for the first time: each has a question.
FIRST = ("README.md", "deploy/packages/INSTALL.md", "deploy/systemd/README.md",
         "docker/README.md")
DEMO = "sluice-demo"


def questions(path):
    """(path of the request, body, answer that the page tells) of each curl line
    that asks a model something."""
    for block in re.findall(r"^```\n(.*?)^```", path.read_text(),
                            re.M | re.S):
        for line in block.splitlines():
            if not re.match(r"\s*curl .*-d '.*\"(messages|prompt)\"", line):
                continue
            words = shlex.split(line)
            told = re.search(r"^answer: (.*)$", block, re.M)
            yield ("/v1/" + words[1].partition("/v1/")[2],
                   json.loads(words[words.index("-d") + 1]),
                   told and told[1])


class PagesTest(unittest.TestCase):
    def asked(self, cluster, pages):
        """How many questions of these pages are for the cluster's model."""
        name = json.loads(api.get(cluster.url, "/v1/models")[1])["data"][0]["id"]
        count = 0
        for path in pages:
            for at, body, told in questions(path):
                if body["model"] != name:
                    continue
                with self.subTest(page=str(path), body=body):
                    status, _, raw = api.request(cluster.url, "POST", at, body)
                    self.assertEqual(status, 200, raw)
                    message = json.loads(raw)["choices"][0]["message"]
                    self.assertEqual(message["content"].strip(), told)
                count += 1
        return count

    def test_every_first_page_has_a_question_and_its_answer(self):
        for name in FIRST:
            found = list(questions(harness.ROOT / name))
            self.assertTrue(found, name)
            for _, body, told in found:
                self.assertTrue(told, f"{name}: {body} without an answer")

    def test_the_demo_model_answers_as_the_pages_say(self):
        with harness.Cluster(harness.ROOT / "deploy/demo_model/weights"
                             ) as cluster:
            self.assertGreaterEqual(self.asked(cluster, PAGES), 3)

    def test_the_default_model_answers_as_the_pages_say(self):
        with harness.Cluster(harness.default_model()) as cluster:
            self.assertGreaterEqual(self.asked(cluster, PAGES), 1)


if __name__ == "__main__":
    harness.main()
