"""Processes with little memory survive requests that ask for much of it."""

import contextlib
import json
import pathlib
import resource
import shutil
import socket
import tempfile
import threading
import unittest

import api
import harness

LIMIT = 2 << 30  # bytes of address space
POSITIONS = 4096


KEYS = {"hostile": "hostile-0123456789", "patient": "patient-0123456789"}


def key(name):
    return {"Authorization": f"Bearer {KEYS[name]}"}


def make_model(folder):
    """A tiny model with long contexts and a template that takes one call per
    message."""
    shutil.copytree(harness.golden("stories"), folder,
                    dirs_exist_ok=True)
    path = pathlib.Path(folder) / "config.json"
    config = json.loads(path.read_text())
    config["max_position_embeddings"] = POSITIONS
    path.chmod(0o644)
    path.write_text(json.dumps(config))
    shutil.copy(
        harness.test_data("templates/meta-llama-Llama-3.1-8B-Instruct.jinja"),
        pathlib.Path(folder) / "chat_template.jinja")


def calls_with_a_long_name():
    """714 KiB: the name stands in every message that is made of it."""
    calls = [{"id": f"c{i}", "type": "function",
              "function": {"name": "f", "arguments": "{}"}}
             for i in range(512)]
    return "/v1/chat/completions", {"max_tokens": 1, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "name": "n" * (680 << 10), "tool_calls": calls},
        {"role": "user", "content": "and?"}]}


def many_prompt_logprobs():
    prompt = [1] + [403 + i % 50 for i in range(1000)]
    return "/v1/completions", {"prompt": prompt, "prompt_logprobs": 20,
                               "n": 128, "max_tokens": 1}


def text_of_8_mib():
    return "/tokenize", {"prompt": "word " * ((8 << 20) // 5 - 100)}


def address_space(pid):
    """Bytes of address space that a process has."""
    pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def leave(pid, more):
    """Leaves a process `more` bytes of address space; None: no limit."""
    soft = (resource.RLIM_INFINITY if more is None else
            address_space(pid) + more)
    resource.prlimit(pid, resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))


class MemoryLimitTest(unittest.TestCase):
    def test_what_asks_for_too_much_is_refused_and_the_rest_is_served(self):
        with tempfile.TemporaryDirectory() as folder:
            make_model(folder)
            keys = pathlib.Path(folder) / "keys"
            keys.write_text("".join(f"{n}:{k}\n" for n, k in KEYS.items()))
            keys.chmod(0o600)
            with harness.Cluster(folder, "--stages", 1, "--threads", 1,
                                 "--api-key-file", str(keys)) as cluster:
                self.check(cluster)

    def test_half_requests_at_the_metrics_port_end_no_stage(self):
        model = harness.golden("stories")
        with harness.Cluster(str(model), "--stages", 1,
                             "--threads", 1) as cluster:
            stage = cluster.process("stage")
            host, port = stage["metrics_address"].rsplit(":", 1)
            for more in (256 << 10, 1 << 20, 2 << 20):
                leave(stage["pid"], more)
                half = [socket.create_connection((host, int(port)), 10)
                        for _ in range(600)]
                for one in half:
                    with contextlib.suppress(OSError):
                        one.sendall(b"GET /livez HT")
                for one in half:
                    one.close()
                leave(stage["pid"], None)
                status, _ = api.get(f"http://{host}:{port}", "/livez")
                self.assertEqual(status, 200)
            api.completion(cluster.url, [1, 403], max_tokens=2)

    def check(self, cluster):
        pid = cluster.process("gateway")["pid"]
        resource.prlimit(pid, resource.RLIMIT_AS, (LIMIT, LIMIT))
        stop, streams = threading.Event(), []

        def stream():
            while not stop.is_set():
                status, _, events = api.request(
                    cluster.url, "POST", "/v1/completions",
                    {"prompt": [1, 403, 407], "max_tokens": 200,
                     "ignore_eos": True, "stream": True},
                    headers=key("patient"))
                streams.append((status, events[-200:]))
        beside = threading.Thread(target=stream)
        beside.start()
        try:
            for body in (calls_with_a_long_name, many_prompt_logprobs,
                         text_of_8_mib):
                self.ask(cluster.url, body, times=1)
                self.ask(cluster.url, body, times=2)
        finally:
            stop.set()
            beside.join(120)
        for status, events in streams:
            self.assertEqual(status, 200, events)
            self.assertTrue(events.endswith(b"data: [DONE]\n\n"), events)
        self.assertGreater(len(streams), 0)
        self.assertEqual(cluster.process("gateway")["pid"], pid)
        status, _, text = api.request(cluster.url, "GET", "/metrics",
                                      headers=key("patient"))
        self.assertEqual(status, 200)
        print("\n".join(line for line in text.decode().splitlines()
                        if line.startswith("sluice_exceptions_total")))

    def ask(self, url, make, times):
        path, body = make()
        raw, seen = json.dumps(body).encode(), []

        def ask():
            status, _, answer = api.request(url, "POST", path, raw,
                                            headers=key("hostile"))
            seen.append((status, len(answer)))
        threads = [threading.Thread(target=ask) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        print(f"{make.__name__} ({len(raw) >> 10} KiB) x {times}: {seen}",
              flush=True)
        self.assertEqual(len(seen), times)
        for status, _ in seen:
            self.assertIn(status, (200, 400, 413, 429, 503))


if __name__ == "__main__":
    harness.main()
