"""deploy/examples with the packages of build/venv and build/node/node; of the
others the settings, and the requests that they lead to."""

import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from client_cluster import ANSWER, ClientCluster, skip
import api
import examples
import harness

try:
    import langchain_openai  # noqa: F401
    import openai  # noqa: F401
except ImportError:
    skip("needs the packages of build/venv (tests/run installs them)")

NODE_PACKAGES = harness.ROOT / "build" / "node" / "node" / "node_modules"


class ExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def test_openai_for_python_streams_and_keeps_to_a_schema(self):
        out = examples.run(self, self.cluster, sys.executable, "-B",
                           examples.FOLDER / "openai/chat.py")
        answer = json.loads(out[out.index("{"):])
        self.assertEqual(sorted(answer), ["city", "country"])

    @unittest.skipUnless(shutil.which("node") and NODE_PACKAGES.exists(),
                         "needs node and build/node/node")
    def test_openai_for_node_streams(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "chat.mjs"
            shutil.copy(examples.FOLDER / "openai/chat.mjs", path)
            (pathlib.Path(folder) / "node_modules").symlink_to(NODE_PACKAGES)
            examples.run(self, self.cluster, "node", path)

    def test_langchain_streams(self):
        examples.run(self, self.cluster, sys.executable, "-B",
                     examples.FOLDER / "langchain/chat.py")

    def test_home_assistants_request_is_answered(self):
        text = examples.text_of("home-assistant/configuration.yaml",
                                self.cluster)
        url = re.search(r"url: (http\S+/completions)$", text, re.M)[1]
        # The template's object, with its one name filled in.
        made = re.search(r"\{\{ (\{.*\}) \| to_json \}\}", text, re.S)[1]
        body = json.loads(made.replace("prompt}",
                                       json.dumps(examples.QUESTION) + "}"))
        path = url.removeprefix(self.cluster.url)
        status, answer = api.post(self.cluster.url, path, body)
        self.assertEqual(status, 200, answer)
        self.assertIn(ANSWER, answer["choices"][0]["message"]["content"])

    def test_n8ns_files_belong_together(self):
        credential, = json.loads(examples.text_of("n8n/credentials.json",
                                                  self.cluster))
        workflow = json.loads((examples.FOLDER / "n8n/workflow.json")
                              .read_text())
        nodes = {node["name"]: node for node in workflow["nodes"]}
        self.assertEqual(nodes["Sluice"]["credentials"]["openAiApi"]["id"],
                         credential["id"])
        for name, ways in workflow["connections"].items():
            self.assertIn(name, nodes)
            for ends in ways.values():
                self.assertIn(ends[0][0]["node"], nodes)
        self.assertEqual(api.get(credential["data"]["url"].removesuffix("/v1"),
                                 "/v1/models")[0], 200)

    def test_every_example_names_the_same_address_and_is_in_the_table(self):
        page = (examples.FOLDER / "README.md").read_text()
        self.assertIn(examples.URL, page)
        for path in sorted(examples.FOLDER.glob("*/*")):
            with self.subTest(path=path.name):
                self.assertIn(f"({path.parent.name}", page)
                if path.suffix == ".json":
                    json.loads(path.read_text())
                if path.name != "workflow.json":
                    self.assertIn(examples.URL, path.read_text())


class GrafanaTest(unittest.TestCase):
    def test_the_llm_app_gets_root_and_path_apart(self):
        text = (examples.FOLDER / "grafana/llm-app.yaml").read_text()
        self.assertRegex(text, rf"url: {examples.URL}\n +apiPath: /v1\n")


if __name__ == "__main__":
    harness.main()
