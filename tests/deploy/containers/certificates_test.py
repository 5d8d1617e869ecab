"""k8s/components/cert-job: the Job's script against an API server that answers
as Kubernetes' does, and openssl's opinion of what the script made."""

import base64
import http.server
import json
import os
import pathlib
import re
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
ROLES = ("gateway", "stage", "expert")


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
        if name in self.server.secrets:
            self.answer(409, {"reason": "AlreadyExists"})
            return
        self.server.secrets[name] = self.server.instead.get(name, secret)
        self.answer(201, secret)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        folder, _, name = self.path.rpartition("/")
        if not self.allowed(folder):
            return
        if name not in self.server.secrets:
            self.answer(404, {"reason": "NotFound"})
            return
        self.server.secrets[name] = json.loads(body)
        self.answer(200, self.server.secrets[name])

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
        self.server.secrets, self.server.instead = {}, {}
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

    def files(self, role):
        data = self.server.secrets[f"sluice-tls-{role}"]["data"]
        folder = self.folder / role
        folder.mkdir(exist_ok=True)
        for name, text in data.items():
            (folder / name).write_bytes(base64.b64decode(text))
        return folder

    def verify(self, folder, *words):
        return subprocess.run(
            ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", *words,
             "tls.crt"], cwd=folder, capture_output=True, check=False
        ).returncode == 0

    def test_a_certificate_of_a_role_serves_both_sides_and_every_pod(self):
        self.run_script()
        for role, host in (
                ("stage", "sluice-stage-a-1.sluice-stage.sluice.svc"),
                ("stage", "sluice-0-2.sluice.sluice.svc"),
                ("expert", "sluice-expert-0.sluice-expert.sluice.svc")):
            folder = self.files(role)
            for purpose in ("sslserver", "sslclient"):
                self.assertTrue(self.verify(folder, "-purpose", purpose,
                                            "-verify_hostname", host))
            self.assertFalse(self.verify(folder, "-verify_hostname",
                                         "sluice-stage-0.other.svc"))
        self.assertTrue(self.verify(self.files("gateway"), "-purpose",
                                    "sslclient"))

    def test_a_certificate_names_its_role_and_no_other(self):
        self.run_script()
        for role in ROLES:
            text = subprocess.run(
                ["openssl", "x509", "-in", "tls.crt", "-noout", "-ext",
                 "subjectAltName"], cwd=self.files(role), check=True,
                capture_output=True, text=True).stdout
            self.assertEqual(re.findall(r"URI:([^\s,]+)", text),
                             [f"sluice://role/{role}"])
        self.assertFalse(self.verify(
            self.files("expert"), "-verify_hostname",
            "sluice-stage-0.sluice-stage.sluice.svc"))

    def test_cert_managers_certificates_have_the_same_names(self):
        self.run_script()
        text = (ROOT / "k8s/components/cert-manager/certificates.yaml"
                ).read_text()
        wanted = {one["metadata"]["name"]: one["spec"] for one in
                  manifests.objects(text) if one["kind"] == "Certificate"}
        for role in ROLES:
            names = subprocess.run(
                ["openssl", "x509", "-in", "tls.crt", "-noout", "-ext",
                 "subjectAltName"], cwd=self.files(role), check=True,
                capture_output=True, text=True).stdout
            spec = wanted[f"sluice-tls-{role}"]
            self.assertEqual(spec["secretName"], f"sluice-tls-{role}")
            self.assertEqual(re.findall(r"URI:([^\s,]+)", names),
                             spec["uris"])
            self.assertEqual(re.findall(r"DNS:([^\s,]+)", names),
                             spec.get("dnsNames", []))

    def test_the_authoritys_key_is_not_kept(self):
        self.run_script()
        for role in ROLES:
            self.assertEqual(
                set(self.server.secrets[f"sluice-tls-{role}"]["data"]),
                {"tls.crt", "tls.key", "ca.crt"})

    def test_a_second_run_changes_nothing(self):
        self.run_script()
        before = json.dumps(self.server.secrets)
        self.assertIn("stay", self.run_script())
        self.assertEqual(json.dumps(self.server.secrets), before)

    def test_what_a_run_that_died_left_is_made_anew(self):
        self.run_script()
        old = self.server.secrets.pop("sluice-tls-stage")
        self.assertIn("made", self.run_script())
        authorities = {one["data"]["ca.crt"]
                       for one in self.server.secrets.values()}
        self.assertEqual(len(authorities), 1)
        self.assertNotEqual(authorities, {old["data"]["ca.crt"]})

    def test_another_job_beside_this_one_is_told_and_mended(self):
        self.run_script()
        other = dict(self.server.secrets)
        self.server.secrets.clear()
        self.server.instead["sluice-tls-stage"] = other["sluice-tls-stage"]
        self.assertIn("several authorities", self.run_script(code=1))
        self.assertIn("made", self.run_script())

    def test_a_refusal_is_told(self):
        (self.folder / "token").write_text("another")
        self.assertIn("401", self.run_script(code=1))

    def test_the_role_allows_what_the_script_asks_and_no_more(self):
        text = (ROOT / "k8s/components/cert-job/rbac.yaml").read_text()
        role = next(one for one in manifests.objects(text)
                    if one["kind"] == "Role")
        self.assertEqual(
            [(rule["verbs"], rule.get("resourceNames")) for rule in
             role["rules"]],
            [(["create"], None),
             (["get", "update"], [f"sluice-tls-{role}" for role in ROLES])])


if __name__ == "__main__":
    manifests.need(manifests.yaml,
                   "no PyYAML: tests/run makes build/venv-containers")
    manifests.need(shutil.which("openssl"), "no openssl")
    unittest.main()
