"""Pods of rendered manifests as processes of this machine, with what a kubelet
does to them: variables, names, probes, the preStop sleep, grace.

Each pod has a loopback address of its own, so that ports are the manifest's; a
hosts file that its processes alone see has the pods' names.
"""

import http.client
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import manifests

# Seconds that a balancer needs to read its endpoints anew on a busy machine.
SHORTEST_SLEEP = 2

# In a mount namespace of its own, with the hosts file $0.
WITH_HOSTS = ["unshare", "--mount", "sh", "-c",
              'mount --bind "$0" /etc/hosts && exec "$@"']


def can_mount():
    """Whether a process may have a hosts file of its own."""
    return subprocess.run([*WITH_HOSTS, "/etc/hosts", "true"], check=False,
                          capture_output=True).returncode == 0


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def write_certificates(documents, folder):
    """A folder for each Secret of a Certificate, by the Job's script."""
    path = manifests.ROOT / "k8s/components/cert-job/make_certificates.py"
    spec = importlib.util.spec_from_file_location("made", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    folder.mkdir()
    made.make_authority(folder, "2")
    for one in documents:
        uris = one["kind"] == "Certificate" and one["spec"].get("uris")
        if not uris:
            continue
        role = uris[0].removeprefix(made.ROLE_URI)
        made.make(folder, role, one["spec"].get("dnsNames", []), "2")
        secret = folder / one["spec"]["secretName"]
        secret.mkdir()
        for source, name in ((f"{role}.crt", "tls.crt"),
                             (f"{role}.key", "tls.key"), ("ca.crt", "ca.crt")):
            shutil.copy(folder / source, secret / name)


def status(address, port, path, timeout):
    """The status of a GET; None without an answer."""
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Pod:
    """One container of a template, started and ended as a kubelet does it.

    `version` has "binaries" (a build folder) and "model"; `paths` says what the
    container's folders are here. Times of the manifest are multiplied by
    `scale`. `on_change` is called when readiness may have changed."""

    def __init__(self, name, address, template, variables, scale, on_change):
        self.name, self.address = name, address
        self.spec = template["spec"]
        self.container = self.spec["containers"][0]
        self.binary = self.container["command"][0]
        self.faults = []
        self.exit_code = None
        self._variables, self._scale = variables, scale
        self._on_change = on_change
        self._ready = self._terminating = False
        self._process = None

    @property
    def ready(self):
        return self._ready and not self._terminating

    def start(self, version, paths, hosts, log):
        variables = {**self._variables, "SLUICE_MODEL": str(version["model"])}
        arguments = []
        for argument in self.container["args"]:
            argument = re.sub(r"\$\((\w+)\)", lambda m: variables[m[1]],
                              argument)
            argument = argument.replace("0.0.0.0:", f"{self.address}:")
            for inside, here in paths.items():
                argument = argument.replace(inside, str(here))
            arguments.append(argument)
        binary = pathlib.Path(version["binaries"],
                              manifests.BINARIES[self.binary])
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                [*WITH_HOSTS, hosts, binary, *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
        threading.Thread(target=self._probe, daemon=True).start()

    def _get(self, probe):
        """The status; None without an answer in time."""
        spec = self.container[probe]
        port = next(one["containerPort"] for one in self.container["ports"]
                    if one["name"] == spec["httpGet"]["port"])
        return status(self.address, port, spec["httpGet"]["path"],
                      spec.get("timeoutSeconds", 1))

    def _running(self):
        return self._process.poll() is None and not self._terminating

    def _probe(self):
        """Startup first, then readiness; liveness at its own pace."""
        startup, failed = self.container["startupProbe"], 0
        while self._running() and self._get("startupProbe") != 200:
            failed += 1
            if failed > startup["failureThreshold"] / self._scale:
                self.faults.append("the startup probe failed")
                return
            time.sleep(startup["periodSeconds"] * self._scale)
        liveness = self.container["livenessProbe"]
        next_liveness, failed = time.monotonic(), 0
        late = 0
        while self._running():
            seen = self._get("readinessProbe")
            late = late + 1 if seen is None else 0
            # Probes come oftener than the manifest says, and have its time for
            # their answers.
            ready = self._ready if 0 < late * self._scale < 1 else seen == 200
            if ready != self._ready:
                self._ready = ready
                self._on_change()
            if time.monotonic() >= next_liveness:
                next_liveness += liveness["periodSeconds"] * self._scale
                failed = 0 if self._get("livenessProbe") == 200 else failed + 1
                if failed >= liveness["failureThreshold"] and self._running():
                    self.faults.append("the liveness probe failed")
                    return
            time.sleep(self.container["readinessProbe"]["periodSeconds"]
                       * self._scale)

    def delete(self):
        """Out of the endpoints, preStop, SIGTERM, and SIGKILL after the grace.
        Returns when the process has ended."""
        self._terminating = True
        self._on_change()
        sleep = self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
        time.sleep(max(sleep * self._scale, SHORTEST_SLEEP))
        if self._process.poll() is not None:
            self.faults.append(f"ended by itself: {self._process.returncode}")
        self._process.terminate()
        grace = self.spec["terminationGracePeriodSeconds"] - sleep
        try:
            self.exit_code = self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.faults.append(f"killed after {grace} s of grace")
            self.kill()
        if self.exit_code != 0:
            self.faults.append(f"exit code {self.exit_code}")

    def kill(self):
        self._terminating = True
        self._process.kill()
        self.exit_code = self._process.wait()

    @property
    def alive(self):
        return self._process is not None and self._process.poll() is None


class Set:
    """What a Deployment or StatefulSet has of pods, and its rolling update."""

    def __init__(self, document, make_pod):
        self.document = document
        self._make_pod = make_pod  # ordinal to a Pod, started; by version
        self.pods = {}
        self.ended = []

    @property
    def ordinals(self):
        return range(self.document["spec"]["replicas"])

    def start(self, version):
        for ordinal in self.ordinals:
            self.pods[ordinal] = self._make_pod(ordinal, version)

    def update(self, version, wait_ready):
        """A StatefulSet's order: from the last one, each ready before the next.
        A Deployment's (Recreate) is the same with its one pod."""
        for ordinal in reversed(self.ordinals):
            old = self.pods[ordinal]
            old.delete()
            self.ended.append(old)
            self.pods[ordinal] = self._make_pod(ordinal, version)
            if self.document["kind"] == "StatefulSet":
                wait_ready(self.pods[ordinal])

    def all(self):
        return [*self.ended, *self.pods.values()]
