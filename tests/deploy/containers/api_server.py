"""A real kube-apiserver for tests, built from Kubernetes' module, on Debian's
etcd."""

import json
import pathlib
import secrets
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import manifests
from manifests import ROOT

sys.path.append(str(ROOT / "deploy/local/cluster"))
import ports  # noqa: E402

SERVER = manifests.TOOLS / "bin/kube-apiserver"
ETCD = manifests.TOOLS / "etcd/usr/bin/etcd"


def is_there():
    return SERVER.exists() and ETCD.exists()


class ApiServer:
    """An API server with a store of its own; everything is allowed."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)
        client, peer, self._port = ports.choose(3)
        self._token = secrets.token_hex(16)
        self._children = []
        self._resources = {}
        url = f"http://127.0.0.1:{client}"
        self._start("etcd", ETCD, "--data-dir", self._folder / "etcd",
                    "--listen-client-urls", url, "--advertise-client-urls",
                    url, "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                    "--initial-advertise-peer-urls",
                    f"http://127.0.0.1:{peer}", "--initial-cluster",
                    f"default=http://127.0.0.1:{peer}")
        key = self._folder / "account.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True,
                       capture_output=True)
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f"{self._token},admin,admin,system:masters\n")
        self._start("apiserver", SERVER, f"--etcd-servers={url}",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={self._port}",
                    f"--cert-dir={self._folder / 'certs'}",
                    f"--token-auth-file={tokens}",
                    "--authorization-mode=AlwaysAllow",
                    "--service-cluster-ip-range=10.0.0.0/24",
                    "--service-account-issuer=https://sluice.test",
                    f"--service-account-key-file={key}",
                    f"--service-account-signing-key-file={key}")
        self._wait("/readyz", 120)

    def _start(self, name, *command):
        with open(self._folder / f"{name}.log", "wb") as log:
            self._children.append(subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log))

    def close(self):
        for child in reversed(self._children):
            child.terminate()
        for child in reversed(self._children):
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _wait(self, path, seconds):
        end = time.monotonic() + seconds
        while True:
            try:
                if self.call("GET", path)[0] == 200:
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                logs = "".join(log.read_text()[-3000:]
                               for log in self._folder.glob("*.log"))
                raise AssertionError(f"{path} is not there\n{logs}")
            time.sleep(0.2)

    def call(self, method, path, body=None, kind="application/json"):
        """(status, text, warnings)."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}",
                     "Content-Type": kind})
        context = ssl.create_default_context()
        context.check_hostname = False  # It makes its certificate itself.
        context.verify_mode = ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=60,
                                        context=context) as answer:
                return (answer.status, answer.read().decode(),
                        answer.headers.get_all("Warning") or [])
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), []

    def path_of(self, one):
        """Where the object is; None for a kind that is not known."""
        version = one["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if base not in self._resources:
            status, text, _ = self.call("GET", base)
            self._resources[base] = {} if status != 200 else {
                each["kind"]: each for each in json.loads(text)["resources"]
                if "/" not in each["name"]}
        found = self._resources[base].get(one["kind"])
        if found is None:
            return None
        space = one["metadata"].get("namespace", "default")
        where = f"/namespaces/{space}" if found["namespaced"] else ""
        return f"{base}{where}/{found['name']}/{one['metadata']['name']}"

    def apply(self, one, dry=True):
        options = "?fieldManager=test&fieldValidation=Strict" + (
            "&dryRun=All" if dry else "")
        return self.call("PATCH", self.path_of(one) + options, one,
                         "application/apply-patch+yaml")

    def set_status(self, one, status):
        """Writes the status of an object, as a controller does."""
        code, text, _ = self.call(
            "PATCH", self.path_of(one) + "/status", {"status": status},
            "application/merge-patch+json")
        assert code == 200, text[:500]

    def write_config(self, path):
        """A file by which clients of Kubernetes find the server."""
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": f"https://127.0.0.1:{self._port}",
                "insecure-skip-tls-verify": True}}],
            "users": [{"name": "test", "user": {"token": self._token}}],
            "contexts": [{"name": "test", "context": {
                "cluster": "test", "user": "test"}}]}))

    def define_all(self):
        """The custom resources of build/deploy-tools."""
        for path in sorted((manifests.TOOLS / "crds").glob("*.yaml")):
            for definition in manifests.objects(path.read_text()):
                self.define(definition)

    def define(self, definition):
        """Makes a custom resource, and waits until it is served."""
        path = ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                f"/{definition['metadata']['name']}")
        status, text, _ = self.call(
            "PATCH", path + "?fieldManager=test&force=true", definition,
            "application/apply-patch+yaml")
        assert status in (200, 201), text[:500]
        spec = definition["spec"]
        for version in spec["versions"]:
            if version["served"]:
                self._wait(f"/apis/{spec['group']}/{version['name']}/"
                           f"{spec['names']['plural']}", 60)
