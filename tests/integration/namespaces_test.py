"""Several machines: stages and a gateway started by hand, each in a network
namespace of its own, as services/stage/README.md tells. Needs root and ip."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import harness

BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
RELAY = harness.ROOT / "tests/testing/delay_relay.py"
BRIDGE = "sluice-test"
HOSTS = {"sluice-s0": "10.231.0.1", "sluice-s1": "10.231.0.2",
         "sluice-gw": "10.231.0.3"}


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True,
                          text=True)


def inside(host, *words, **options):
    return subprocess.run(["ip", "netns", "exec", host,
                           *map(str, words)], **options)


class NamespacesTest(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("needs root and the ip command")
        self.model = harness.golden("stories")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.children = []
        self.addCleanup(self.tear_network)
        self.tear_network()
        try:
            self.make_network()
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces here: {error.stderr}")
        self.addCleanup(self.stop_children)

    def make_network(self):
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for number, (host, address) in enumerate(HOSTS.items()):
            veth = f"slt{number}"
            ip("netns", "add", host)
            ip("link", "add", veth, "type", "veth", "peer", "name", "eth0",
               "netns", host)
            ip("link", "set", veth, "master", BRIDGE, "up")
            ip("-n", host, "addr", "add", address + "/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")

    def tear_network(self):
        for host in HOSTS:
            ip("netns", "del", host, check=False)
        ip("link", "del", BRIDGE, check=False)

    def start(self, host, service, *options):
        log = pathlib.Path(self.folder.name, host + ".log")
        command = ["ip", "netns", "exec", host,
                   BUILD / "services" / service / ("sluice-" + service),
                   "--model", self.model, *options]
        with open(log, "wb") as out:
            child = subprocess.Popen([str(word) for word in command],
                                     stdout=out, stderr=out,
                                     stdin=subprocess.DEVNULL)
        self.children.append(child)
        return child, log

    def stop_children(self):
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            child.wait(30)

    def curl(self, path, *options):
        done = inside("sluice-gw", "curl", "-s", *options,
                      "http://127.0.0.1:8080" + path, capture_output=True,
                      text=True, check=False)
        return done.stdout

    def start_all(self, *security, tls=lambda host, role: (), port=7001):
        """`security` is of every process, `tls` of a role on a host, `port`
        where the stages are reached."""
        for number, host in enumerate(("sluice-s0", "sluice-s1")):
            self.start(host, "stage", "--listen", HOSTS[host] + ":7001",
                       "--layers", ("0-1", "2-4")[number], *security,
                       *tls(host, "stage"))
        self.start("sluice-gw", "gateway", "--listen", "127.0.0.1:8080",
                   "--stages", f"10.231.0.1:{port},10.231.0.2:{port}", *security,
                   *tls("sluice-gw", "gateway"))
        harness.wait_for(
            lambda: self.curl("/readyz", "-o", "/dev/null", "-w",
                              "%{http_code}") == "200", 60, "ready")

    def check_answer(self):
        ids, expected = harness.golden_answer("stories", 1)
        answer = json.loads(self.curl(
            "/v1/completions", "-H", "Content-Type: application/json", "-d",
            json.dumps({"prompt": ids, "max_tokens": 20, "temperature": 0,
                        "return_token_ids": True})))
        self.assertEqual(answer["choices"][0]["token_ids"], expected[:20])

    def test_a_cluster_over_three_addresses_answers(self):
        self.start_all("--insecure")
        self.check_answer()

    def test_a_cluster_over_three_addresses_answers_by_tls(self):
        certificates = self.make_certificates()
        self.start_all(*certificates)
        self.check_answer()

    def test_a_certificate_opens_what_its_role_may_call(self):
        tls = self.certificates()
        self.start_all(tls=tls)
        self.check_answer()
        stage_log = pathlib.Path(self.folder.name, "sluice-s0.log")
        before = stage_log.read_text()
        self.start("sluice-gw", "gateway", "--listen", "127.0.0.1:8081",
                   "--stages", "10.231.0.1:7001,10.231.0.2:7001",
                   *tls("sluice-gw", "stage"))
        harness.wait_for(
            lambda: "/sluice.v1.Stage/Control is for a gateway; the caller's "
            "certificate says stage" in stage_log.read_text(), 30,
            "the stage's certificate is refused")
        self.assertNotIn("for a gateway", before)
        self.check_answer()

    def certificates(self):
        """Made by the command: a function of host and role to options."""
        folder = pathlib.Path(self.folder.name, "tls")
        hosts = [word for host, address in HOSTS.items()
                 for word in ("--host", f"{host}={address}")]
        subprocess.run([harness.ROOT / "deploy/local/certificates", folder,
                        *hosts, "--roles", "gateway,stage"], check=True,
                       capture_output=True)

        def tls(host, role):
            return ("--tls-cert", folder / f"{host}-{role}.pem", "--tls-key",
                    folder / f"{host}-{role}.key", "--tls-ca",
                    folder / "ca.pem")

        return tls

    def relay(self, host, milliseconds):
        """A link of this length before the stage of `host`, at port 7101."""
        address = HOSTS[host]
        child = subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, "-B", RELAY,
             f"{address}:7101", f"{address}:7001", str(milliseconds)],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.children.append(child)
        self.assertEqual(child.stdout.readline(), "listening\n")

    def stream(self):
        """A stream of 64 tokens; `output` has its bytes."""
        output = open(pathlib.Path(self.folder.name, "stream"), "w+b")
        self.addCleanup(output.close)
        child = subprocess.Popen(
            ["ip", "netns", "exec", "sluice-gw", "curl", "-sN",
             "http://127.0.0.1:8080/v1/completions", "-H",
             "Content-Type: application/json", "-d",
             '{"prompt": "Once upon a time", "max_tokens": 64, "stream": true,'
             ' "temperature": 0, "ignore_eos": true}'], stdout=output)
        self.addCleanup(child.wait)
        return child, pathlib.Path(output.name)

    @staticmethod
    def text(path):
        """The tokens that are there, and whether the stream is whole."""
        lines = [line[6:] for line in path.read_text().splitlines()
                 if line.startswith("data: ")]
        whole = bool(lines) and lines[-1].strip() == "[DONE]"
        pieces = [json.loads(line)["choices"][0]["text"]
                  for line in (lines[:-1] if whole else lines[:-2])]
        return "".join(pieces), whole

    def timed_stream(self, what):
        begin = time.monotonic()
        child, path = self.stream()
        self.assertEqual(child.wait(120), 0)
        text, whole = self.text(path)
        self.assertTrue(whole, path.read_text()[-300:])
        print(f"{what}: 64 tokens in {time.monotonic() - begin:.2f} s",
              flush=True)
        return text

    def test_long_links_and_a_machine_cut_off_change_no_token(self):
        tls = self.certificates()
        self.start_all(tls=tls)
        expected = self.timed_stream("no delay")
        for milliseconds in (1, 20):
            self.stop_children()
            self.children.clear()
            for host in ("sluice-s0", "sluice-s1"):
                self.relay(host, milliseconds)
            self.start_all(tls=tls, port=7101)
            self.assertEqual(self.timed_stream(f"{milliseconds} ms"), expected)
        child, path = self.stream()
        harness.wait_for(lambda: len(self.text(path)[0]) > 10, 30, "a token")
        ip("link", "set", "slt1", "down")
        harness.wait_for(lambda: self.curl(
            "/readyz", "-o", "/dev/null", "-w", "%{http_code}") != "200", 30,
                         "the loss is noticed")
        self.assertFalse(self.text(path)[1], "the stream was over too soon")
        ip("link", "set", "slt1", "up")
        self.assertEqual(child.wait(60), 0)
        self.assertEqual(self.text(path), (expected, True))

    def make_certificates(self):
        """Options that name a certificate for all three hosts."""
        folder = pathlib.Path(self.folder.name)
        names = ",".join("IP:" + address for address in HOSTS.values())
        openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                   "-days", "2", "-subj", "/CN=sluice", "-addext",
                   "subjectAltName=" + names, "-keyout", folder / "key.pem",
                   "-out", folder / "cert.pem"]
        subprocess.run([str(word) for word in openssl], check=True,
                       capture_output=True)
        return ["--tls-cert", folder / "cert.pem", "--tls-key",
                folder / "key.pem", "--tls-ca", folder / "cert.pem"]

    def test_an_open_address_without_tls_is_refused(self):
        child, log = self.start("sluice-s0", "stage", "--listen",
                                "10.231.0.1:7001")
        self.assertNotEqual(child.wait(60), 0)
        self.assertIn("--insecure", log.read_text())


if __name__ == "__main__":
    harness.main()
