"""One stage and one gateway, started as they are or by another command."""

import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
POLL_S = 0.005


def get(url, data=None, seconds=60):
    """The status of an answer; None without one."""
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


class Pair:
    """A stage with all layers of a model and its gateway; a context manager,
    which waits until they are ready. `begun` is the time of the start, by
    time.monotonic(); `folder` is theirs. `prefixes`: {"stage" or "gateway":
    words that start it}."""

    def __init__(self, build, model, stage_options=(), gateway_options=(),
                 prefixes=None, patience_s=120):
        self._own_folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._own_folder.name)
        self._until = time.monotonic() + patience_s
        socket, port = f"unix:{self.folder}/stage.sock", self.folder / "port"
        self.begun = time.monotonic()
        self._children = []
        prefixes = prefixes or {}
        try:
            self.stage = self._start(
                [*prefixes.get("stage", ()),
                 build / "services/stage/sluice-stage", "--model", model, "--listen", socket, "--layers", "auto",
                 *stage_options])
            self.gateway = self._start(
                [*prefixes.get("gateway", ()),
                 build / "services/gateway/sluice-gateway", "--model", model, "--stages", socket, "--listen", "127.0.0.1:0",
                 "--port-file", port, *gateway_options])
            while not port.exists():
                self._wait()
            self.url = "http://" + port.read_text(encoding="ascii").strip()
            while get(self.url + "/readyz") != 200:
                self._wait()
        except BaseException:
            self.close()
            raise

    def _start(self, words):
        with open(self.folder / "log", "ab") as log:
            self._children.append(subprocess.Popen(
                [str(word) for word in words], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, cwd=self.folder))
        return self._children[-1]

    def _wait(self):
        time.sleep(POLL_S)
        if time.monotonic() > self._until or any(
                child.poll() is not None for child in self._children):
            raise SystemExit((self.folder / "log").read_text("utf-8"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for child in self._children:
            child.kill()
            child.wait()
        self._own_folder.cleanup()
