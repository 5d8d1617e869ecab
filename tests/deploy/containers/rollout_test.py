"""A rolling update of k8s/overlays/two-replica under load, by processes: the
manifests' own arguments, probes, sleeps and grace, mTLS by the Job's
certificates, nginx with docker/nginx.conf in front. No request fails.

Each update changes the model, as another build would the protocol: a gateway and
a stage of different ones refuse each other. SLUICE_OTHER_BUILD names a build
folder with the binaries of the other version. With SLUICE_LONG kubelets take the
manifests' times; otherwise a tenth.
"""

import http.client
import itertools
import json
import os
import pathlib
import pwd
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import manifests
import pods
from manifests import ROOT

MODEL = ROOT / "deploy/demo_model/weights"
KEY = "a-key-of-this-test-alone"
REQUESTS = 1000  # at least, all of them while replicas are replaced
MOST_UPDATES = 30
CLIENTS = 6
# Where nginx listens; pods have 127.77.1.x and 127.77.2.x.
ADDRESS, PORT = "127.77.0.1", 8080
SCALE = 1.0 if os.environ.get("SLUICE_LONG") else 0.1
UNPACKED_NGINX = ROOT / "build/nginx/usr/sbin/nginx"

NGINX = """
daemon off;
user {user};
worker_processes 1;
pid {folder}/pid;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  include {folder}/sluice.conf;
}}
"""


def nginx_binary():
    return shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin") or (
        str(UNPACKED_NGINX) if UNPACKED_NGINX.exists() else None)


def other_model(folder):
    """A copy of the demo model whose answers are others: the last norm's weights
    are turned around."""
    shutil.copytree(MODEL, folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    begin, end = header["model.norm.weight"]["data_offsets"]
    part = slice(8 + size + begin, 8 + size + end)
    values = bytes(data[part])
    pairs = [values[at:at + 2] for at in range(0, len(values), 2)]
    data[part] = b"".join(reversed(pairs))
    path.write_bytes(data)
    return folder


class Balancer:
    """nginx with docker/nginx.conf over the gateways that are ready."""

    def __init__(self, folder):
        self._folder = folder
        self._lock = threading.Lock()
        self._endpoints = []
        self._process = None
        self.was_empty = False

    def update(self, find_endpoints):
        """As an ingress controller does it: another file, and a reload. Without
        endpoints the file from before stays."""
        with self._lock:
            endpoints = find_endpoints()
            if not endpoints:
                self.was_empty |= bool(self._endpoints)
                return
            if endpoints == self._endpoints:
                return
            self._endpoints = endpoints
            text = (ROOT / "docker/nginx.conf").read_text()
            lines = "".join(f"  server {one} max_fails=1 fail_timeout=2s;\n"
                            for one in endpoints)
            text, count = re.subn(r"(  server 127\S+ .*\n)+", lines, text)
            assert count == 1
            text, count = re.subn(r"listen \S+;",
                                  f"listen {ADDRESS}:{PORT};", text)
            assert count == 1
            (self._folder / "sluice.conf").write_text(text)
            if self._process:
                self._process.send_signal(1)  # SIGHUP

    def start(self):
        (self._folder / "nginx.conf").write_text(NGINX.format(
            folder=self._folder, user=pwd.getpwuid(os.getuid()).pw_name))
        self._process = subprocess.Popen(
            [nginx_binary(), "-p", self._folder, "-e",
             self._folder / "error.log", "-c", self._folder / "nginx.conf"],
            stdin=subprocess.DEVNULL)
        pods.wait_for(lambda: self._process.poll() is not None
                 or pods.status(ADDRESS, PORT, "/livez", 2), 20,
                 "nginx answers")
        if self._process.poll() is not None:
            raise AssertionError((self._folder / "error.log").read_text())

    def stop(self):
        if self._process:
            self._process.terminate()
            self._process.wait(30)


class Load:
    """Clients that ask without pause: whole answers and streams, short ones and
    now and then a long one."""

    def __init__(self):
        self._count = itertools.count()
        self._stop = threading.Event()
        self.failed, self.texts, self.done = [], set(), 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run)
                         for _ in range(CLIENTS)]

    def start(self):
        for thread in self._threads:
            thread.start()

    def finish(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self):
        while not self._stop.is_set():
            number = next(self._count)
            tokens = 300 if number % 20 == 0 else 12
            try:
                text = ask(tokens, number % 2 == 0)
                with self._lock:
                    self.done += 1
                    if tokens == 12:
                        self.texts.add(text)
            except Exception as error:  # pylint: disable=broad-except
                with self._lock:
                    self.failed.append(f"request {number}: {error!r}")


def ask(tokens, stream):
    """The text of an answer; an error for anything but a whole one."""
    body = {"model": "sluice-demo", "prompt": "Once upon a time", "seed": 1,
            "temperature": 0, "max_tokens": tokens, "stream": stream,
            "ignore_eos": True}
    connection = http.client.HTTPConnection(ADDRESS, PORT, timeout=120)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json",
                            "Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise AssertionError(f"{answer.status} {data[:300]}")
    if not stream:
        return json.loads(data)["choices"][0]["text"]
    events = [line[6:] for line in data.decode().split("\n")
              if line.startswith("data: ")]
    if events[-1] != "[DONE]":
        raise AssertionError(f"a stream without an end: {data[-300:]}")
    choices = [json.loads(event) for event in events[:-1]]
    if any("error" in one for one in choices):
        raise AssertionError(f"an error in the stream: {data[-300:]}")
    return "".join(one["choices"][0]["text"] for one in choices
                   if one["choices"])


class RolloutTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-rollout-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.documents = manifests.objects(manifests.kustomize(
            ROOT / "k8s/overlays/two-replica"))
        build = os.environ["SLUICE_BUILD_DIR"]
        cls.old = {"model": MODEL,
                   "binaries": os.environ.get("SLUICE_OTHER_BUILD", build)}
        cls.new = {"model": other_model(cls.folder / "new-model"),
                   "binaries": build}

    def setUp(self):
        self.maps = {one["metadata"]["name"]: one["data"]
                     for one in self.documents if one["kind"] == "ConfigMap"}
        self.replicas = {"a": [], "b": []}  # the Sets of each
        self.addCleanup(self.kill_all)
        (self.folder / "keys").mkdir()
        (self.folder / "keys/api-keys").write_text(f"test:{KEY}\n")
        pods.write_certificates(self.documents, self.folder / "tls")
        (self.folder / "nginx").mkdir()
        self.balancer = Balancer(self.folder / "nginx")
        self.addCleanup(self.balancer.stop)
        for document in self.documents:
            if document["kind"] in ("Deployment", "StatefulSet"):
                self.add_set(document)
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{self.address(one, ordinal)} {self.pod_name(one, ordinal)}."
            f"{one['spec'].get('serviceName', 'none')}.sluice.svc\n"
            for sets in self.replicas.values()
            for one in (each.document for each in sets)
            for ordinal in range(one["spec"]["replicas"])))

    @staticmethod
    def replica_of(document):
        return document["metadata"]["labels"]["app.kubernetes.io/instance"]

    def address(self, document, ordinal):
        replica = "ab".index(self.replica_of(document)) + 1
        role = 0 if document["kind"] == "Deployment" else 10
        return f"127.77.{replica}.{role + ordinal + 1}"

    @staticmethod
    def pod_name(document, ordinal):
        return f"{document['metadata']['name']}-{ordinal}"

    def add_set(self, document):
        template = document["spec"]["template"]
        sources = template["spec"]["containers"][0]["envFrom"]
        variables = {"SLUICE_THREADS": "1"}
        for source in sources:
            variables |= self.maps[source["configMapRef"]["name"]]

        def make_pod(ordinal, version):
            pod = pods.Pod(
                self.pod_name(document, ordinal),
                self.address(document, ordinal), template,
                {**variables, "SLUICE_STAGE_INDEX": str(ordinal)}, SCALE,
                self.on_change)
            packed = self.folder / f"packed-{pod.name}"
            secret = next(one["secret"]["secretName"] for one in
                          template["spec"]["volumes"] if one["name"] == "tls")
            pod.start(version, {"/etc/sluice/tls":
                                self.folder / "tls" / secret,
                                "/etc/sluice/keys": self.folder / "keys",
                                "=/packed": f"={packed}"},
                      self.folder / "hosts", self.folder / f"{pod.name}.log")
            return pod

        self.replicas[self.replica_of(document)].append(
            pods.Set(document, make_pod))

    def all_pods(self):
        return [pod for sets in self.replicas.values() for one in sets
                for pod in one.all()]

    def gateways(self, replica):
        return [pod for one in self.replicas[replica]
                if one.document["kind"] == "Deployment"
                for pod in one.pods.values()]

    def on_change(self):
        self.balancer.update(lambda: sorted(
            f"{pod.address}:8000" for replica in self.replicas
            for pod in self.gateways(replica) if pod.ready))

    def kill_all(self):
        for pod in self.all_pods():
            if pod.alive:
                pod.kill()

    def wait_ready(self, pod):
        pods.wait_for(lambda: pod.ready or pod.faults, 120,
                 f"{pod.name} is ready: {self.log(pod)}")

    def log(self, pod):
        path = self.folder / f"{pod.name}.log"
        return path.read_text()[-2000:] if path.exists() else ""

    def update(self, replica, version):
        """`kubectl apply`, and `kubectl rollout status` until all is done."""
        threads = [threading.Thread(target=one.update,
                                    args=(version, self.wait_ready))
                   for one in self.replicas[replica]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in self.replicas[replica]:
            for pod in one.pods.values():
                self.wait_ready(pod)

    def test_no_request_fails_while_every_replica_is_replaced(self):
        for sets in self.replicas.values():
            for one in sets:
                one.start(self.old)
        for pod in self.all_pods():
            self.wait_ready(pod)
        self.balancer.start()
        texts = {"old": ask(12, False)}
        load, took = Load(), []
        load.start()
        try:
            for version in itertools.cycle((self.new, self.old)):
                began = time.monotonic()
                for replica in self.replicas:
                    self.update(replica, version)
                took.append(time.monotonic() - began)
                texts.setdefault("new", ask(12, False))
                if load.done + len(load.failed) >= REQUESTS:
                    break
                self.assertLess(len(took), MOST_UPDATES)
        finally:
            load.finish()
        print(f"{load.done} requests, {len(load.failed)} failed; "
              f"{len(took)} updates of two replicas, {max(took):.1f} s at most, "
              f"at {SCALE} of the manifests' times, preStop sleeps "
              f"{pods.SHORTEST_SLEEP} s at least")
        self.assertEqual(load.failed, [])
        self.assertFalse(self.balancer.was_empty, "no gateway was ready")
        # Each answer is one model's or the other's.
        self.assertNotEqual(texts["old"], texts["new"])
        self.assertEqual(load.texts, set(texts.values()))
        for pod in self.all_pods():
            self.assertEqual(pod.faults, [], pod.name + self.log(pod))


if __name__ == "__main__":
    manifests.need_kustomize()
    manifests.need(nginx_binary(), "no nginx")
    manifests.need(shutil.which("openssl"), "no openssl")
    manifests.need(shutil.which("unshare") and pods.can_mount(),
                   "no mount namespaces here")
    unittest.main()
