"""LiteLLM's proxy, unmodified, with the settings of deploy/examples: chats, and
the dialects that it makes of them (long mode)."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from client_cluster import ANSWER, ClientCluster, only_in_long_mode, skip
import api
import examples
import harness

sys.path.append(str(harness.ROOT / "deploy" / "local" / "cluster"))
import ports  # noqa: E402

only_in_long_mode("LiteLLM's proxy")
PROGRAM = pathlib.Path(sys.executable).parent / "litellm"
try:
    import litellm.proxy.proxy_cli  # noqa: F401
except ImportError:
    skip("needs litellm[proxy] in build/venv-litellm-proxy (tests/run --long "
         "installs it)")
KEY = "sk-" + 24 * "0a"


class LiteLlmProxyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        home = tempfile.TemporaryDirectory(prefix="sluice-litellm-")
        cls.addClassCleanup(home.cleanup)
        config = examples.write("litellm/config.yaml", cls.cluster, home.name)
        port, = ports.choose(1)
        cls.url = f"http://127.0.0.1:{port}"
        cls.log = open(pathlib.Path(home.name) / "log", "w+")
        cls.addClassCleanup(cls.log.close)
        child = subprocess.Popen(
            [str(PROGRAM), "--config", str(config), "--host", "127.0.0.1",
             "--port", str(port)], stdin=subprocess.DEVNULL, stdout=cls.log,
            stderr=cls.log, cwd=home.name, env={
                **os.environ, "HOME": home.name, "LITELLM_MASTER_KEY": KEY,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
        cls.addClassCleanup(child.wait, 60)
        cls.addClassCleanup(child.terminate)
        harness.wait_for(lambda: child.poll() is not None or api.try_get(
            cls.url, "/health/liveliness")[0] == 200, 120, "the proxy")

    def ask(self, path, body, **headers):
        status, _, raw = api.request(
            self.url, "POST", path, {"model": "sluice", **body},
            {"Authorization": f"Bearer {KEY}", **headers})
        self.assertEqual(status, 200, raw)
        return json.loads(raw)

    def test_a_chat_is_passed_on(self):
        answer = self.ask("/v1/chat/completions", {
            "max_tokens": 24, "temperature": 0, "messages": [
                {"role": "user", "content": examples.QUESTION}]})
        self.assertIn(ANSWER, answer["choices"][0]["message"]["content"])

    def test_anthropics_messages_become_chats(self):
        answer = self.ask("/v1/messages", {
            "max_tokens": 24, "temperature": 0, "messages": [
                {"role": "user", "content": examples.QUESTION}]},
            **{"anthropic-version": "2023-06-01"})
        self.assertIn(ANSWER, answer["content"][0]["text"])
        self.assertGreater(answer["usage"]["output_tokens"], 0)

    def test_responses_become_chats(self):
        answer = self.ask("/v1/responses", {
            "max_output_tokens": 24, "temperature": 0,
            "input": examples.QUESTION})
        self.assertIn(ANSWER, json.dumps(answer["output"]))

    def test_a_wrong_key_is_refused(self):
        status, _, _ = api.request(
            self.url, "POST", "/v1/chat/completions",
            {"model": "sluice", "messages": []},
            {"Authorization": "Bearer sk-another"})
        # 400: without a database no other key can be known.
        self.assertIn(status, (400, 401))


if __name__ == "__main__":
    harness.main()
