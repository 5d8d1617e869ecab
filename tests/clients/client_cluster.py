"""One cluster of the default model for all tests of clients.

As a program, ctest's fixture: `client_cluster.py up DIR` starts the cluster
with DIR as its run folder, `client_cluster.py down DIR` stops it. As a module:
`ClientCluster()` is that cluster (SLUICE_CLIENTS_RUN_DIR names DIR), or one of
its own where the fixture does not run.
"""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import api  # noqa: E402
import harness  # noqa: E402

RUN_DIR = "SLUICE_CLIENTS_RUN_DIR"
MESSAGES = [{"role": "user", "content": "Name the capital of France."}]
ANSWER = "Paris"
# The name that deploy/examples have, beside the model's own.
EXAMPLES_NAME = "sluice"


def _names(model):
    return ["--model-name", f"{pathlib.Path(model).stem},{EXAMPLES_NAME}"]


class ClientCluster:
    """`url` (without /v1), `base_url` (with it) and `model` of a cluster."""

    def __init__(self):
        self._own = None
        file = pathlib.Path(os.environ.get(RUN_DIR, "")) / "cluster.json"
        if RUN_DIR in os.environ and file.exists():
            self.url = json.loads(file.read_text())["url"]
        else:
            self._start()
        self._find_model()

    @classmethod
    def of_its_own(cls, *options):
        """A cluster that no other test has, with `options`."""
        cluster = cls.__new__(cls)
        cluster._start(*options)
        cluster._find_model()
        return cluster

    def _start(self, *options):
        model = harness.default_model()
        self._own = harness.Cluster(model, *_names(model), *options)
        self.url = self._own.url

    def _find_model(self):
        self.base_url = self.url + "/v1"
        _, models = api.get(self.url, "/v1/models")
        self.model = json.loads(models)["data"][0]["id"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        if self._own:
            self._own.close()

    def wait_until_idle(self, seconds=10):
        """Fails unless nothing runs or waits within `seconds`."""
        wait_until_idle(self, seconds)


def wait_until_idle(cluster, seconds=10):
    """Fails unless nothing runs or waits at `cluster.url` within `seconds`."""
    def idle():
        now = api.metrics(cluster.url)
        return not (now["vllm:num_requests_running"] or
                    now["vllm:num_requests_waiting"])
    harness.wait_for(idle, seconds, "no request is left over")


def run_client(command, cluster, seconds, environment=None):
    """Runs a client's own program against `cluster`; its output on failure.

    The program sees the cluster in the variables that OpenAI's clients read.
    """
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True,
        timeout=seconds, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "OPENAI_BASE_URL": cluster.base_url,
             "OPENAI_API_KEY": "none", "SLUICE_MODEL": cluster.model,
             **(environment or {})})
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}\n"
                             f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
    return done


def skip(why):
    """Ends the whole test as skipped."""
    print("skipped:", why)
    sys.exit(harness.SKIPPED)


def only_in_long_mode(what):
    if not harness.LONG:
        skip(f"{what} takes minutes to install and run: SLUICE_LONG=1 "
             "(tests/run --long)")


def _down(run_dir):
    return subprocess.run(
        [str(harness.ROOT / "deploy/local/down"), "--run-dir", run_dir],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False).returncode


def main(verb, run_dir):
    if verb == "down":
        sys.exit(_down(run_dir))
    try:
        model = harness.default_model()
    except harness.unittest.SkipTest as reason:
        skip(reason)
    if (pathlib.Path(run_dir) / "cluster.json").exists():
        _down(run_dir)  # left over by a run that was killed
    # One thread: beside other tests a second one waits more than it computes.
    command = [harness.ROOT / "deploy/local/up", "--model", model, "--port",
               "0", "--run-dir", run_dir, "--detach", "--packed", "off",
               "--threads", "1", *_names(model)]
    sys.exit(subprocess.run([str(word) for word in command],
                            stdin=subprocess.DEVNULL, timeout=900,
                            check=False).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
