"""k8s/components/cert-job: the Job's script against an API server that answers
as Kubernetes' does, and openssl's opinion of what the script made."""

import base64
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import manifests
from manifests import ROOT

SCRIPT = ROOT / "k8s/components/cert-job/make_certificates.py"
TOKEN = "a-token-of-the-account"


class Api(http.server.BaseHTTPRequestHandler):
    """Secrets of one namespace, for who has the token."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        folder, _, name = self.path.rpartition("/")
        if not self.allowed(folder):
            return
        found = self.server.secrets.get(name)
        self.answer(200 if found else 404, found or {"reason": "NotFound"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.allowed(self.path):
            return
        secret = json.loads(body)
        name = secret["metadata"]["name"]
        if name in self.server.secrets or self.server.race:
            self.answer(409, {"reason": "AlreadyExists"})
            return
        self.server.secrets[name] = secret
        self.answer(201, secret)

    def allowed(self, folder):
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.answer(401, {"reason": "Unauthorized"})
            return False
        if folder != "/api/v1/namespaces/sluice/secrets":
            self.answer(403, {"reason": "Forbidden"})
            return False
        return True

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class CertificatesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "token").write_text(TOKEN + "\n")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        self.server.secrets, self.server.race = {}, False
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def run_script(self, code=0, **changes):
        job = manifests.objects(
            (ROOT / "k8s/components/cert-job/job.yaml").read_text())[0]
        container = job["spec"]["template"]["spec"]["containers"][0]
        environment = {one["name"]: one["value"] for one in container["env"]}
        environment |= {
            "SLUICE_API": f"http://127.0.0.1:{self.server.server_port}",
            "SLUICE_ACCOUNT": str(self.folder), "PATH": os.environ["PATH"]}
        done = subprocess.run([sys.executable, "-B", SCRIPT],
                              env=environment | changes, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def files(self):
        data = self.server.secrets["sluice-tls"]["data"]
        for name, text in data.items():
            (self.folder / name).write_bytes(base64.b64decode(text))
        return self.folder

    def test_one_certificate_serves_both_sides_and_every_pod(self):
        self.run_script()
        folder = self.files()
        for purpose in ("sslserver", "sslclient"):
            for host in ("sluice-stage-a-1.sluice-stage.sluice.svc",
                         "sluice-expert-0.sluice-expert.sluice.svc",
                         "sluice-0-2.sluice.sluice.svc"):
                subprocess.run(
                    ["openssl", "verify", "-x509_strict", "-purpose", purpose,
                     "-CAfile", "ca.crt", "-verify_hostname", host, "tls.crt"],
                    cwd=folder, check=True, stdout=subprocess.DEVNULL)
        wrong = subprocess.run(
            ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname",
             "sluice-stage-0.other.svc", "tls.crt"], cwd=folder,
            capture_output=True, check=False)
        self.assertNotEqual(wrong.returncode, 0)

    def test_the_authoritys_key_is_not_kept(self):
        self.run_script()
        self.assertEqual(set(self.server.secrets["sluice-tls"]["data"]),
                         {"tls.crt", "tls.key", "ca.crt"})

    def test_a_second_run_changes_nothing(self):
        self.run_script()
        before = json.dumps(self.server.secrets)
        self.assertIn("stays", self.run_script())
        self.assertEqual(json.dumps(self.server.secrets), before)

    def test_another_job_that_was_faster_is_no_error(self):
        self.server.race = True
        self.assertIn("faster", self.run_script())

    def test_a_refusal_is_told(self):
        (self.folder / "token").write_text("another")
        self.assertIn("401", self.run_script(code=1))

    def test_the_role_allows_what_the_script_asks_and_no_more(self):
        text = (ROOT / "k8s/components/cert-job/rbac.yaml").read_text()
        role = next(one for one in manifests.objects(text)
                    if one["kind"] == "Role")
        self.assertEqual(
            [(rule["verbs"], rule.get("resourceNames")) for rule in
             role["rules"]], [(["create"], None), (["get"], ["sluice-tls"])])


if __name__ == "__main__":
    manifests.need(manifests.yaml,
                   "no PyYAML: tests/run makes build/venv-containers")
    manifests.need(shutil.which("openssl"), "no openssl")
    unittest.main()
