"""A headless Chromium, driven over its DevTools protocol by a pipe.

Standard library alone: the pipe (--remote-debugging-pipe) needs no WebSocket.
"""

import base64
import collections
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser",
         "google-chrome")
KEYS = {
    "Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""), "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowDown": ("ArrowDown", 40, ""), " ": ("Space", 32, " "),
    "/": ("Slash", 191, "/"),
}
SHIFT = 8


def find():
    """Path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page; a context manager. Not for threads."""

    def __init__(self, program):
        self._profile = tempfile.TemporaryDirectory(prefix="sluice-page-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The browser reads from 3 and writes to 4.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10)
                for fd in (to_browser, from_browser)]

        def take_ends():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe",
             "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-background-networking", "--disable-component-update",
             "--disable-default-apps", "--disable-extensions",
             "--disable-sync", "--no-first-run", "--hide-scrollbars",
             "--force-color-profile=srgb", "--window-size=1360,860",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
             f"--user-data-dir={self._profile.name}",
             *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=take_ends, pass_fds=(3, 4))
        for fd in (to_browser, from_browser, *ends):
            os.close(fd)
        self._buffer = b""
        self._next_id = 0
        self._session = None
        self._answers = {}
        self.requests = []   # URLs that the page asked for
        self.faults = []     # exceptions, failed checks of the policy
        self.fulfil = None   # (part of a URL, status, headers, body) or None
        self.done = collections.Counter()  # events by method
        self._open_page()

    def _open_page(self):
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self._attach(page["targetId"])

    def _attach(self, target):
        self._session = self.call("Target.attachToTarget", flatten=True,
                                  targetId=target)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with contextlib.suppress(Exception):
            session, self._session = self._session, None
            del session
            self.call("Browser.close")
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    # The protocol.

    def call(self, method, timeout=20, **params):
        """The result of one command."""
        self._next_id += 1
        number = self._next_id
        self._send(number, method, params)
        end = time.monotonic() + timeout
        while number not in self._answers:
            self._receive(end, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _send(self, number, method, params):
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]

    def _receive(self, end, what):
        ready, _, _ = select.select([self._in], [], [],
                                    max(0, end - time.monotonic()))
        if not ready:
            raise AssertionError(f"the browser does not answer {what}")
        data = os.read(self._in, 1 << 20)
        if not data:
            raise AssertionError(f"the browser is gone, awaiting {what}")
        *whole, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._on_event(message["method"], message["params"])

    def _on_event(self, method, params):
        self.done[method] += 1
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get(
                "description", details["text"]))
        elif method == "Log.entryAdded":
            entry = params["entry"]
            if entry["source"] in ("security", "javascript"):
                self.faults.append(entry["text"])
        elif method == "Fetch.requestPaused":
            self._on_paused(params["requestId"])

    def _on_paused(self, request):
        self._next_id += 1
        _, status, headers, body = self.fulfil
        self._send(self._next_id, "Fetch.fulfillRequest", {
            "requestId": request, "responseCode": status,
            "responseHeaders": [{"name": name, "value": value}
                                for name, value in headers.items()],
            "body": base64.b64encode(body.encode()).decode()})

    @contextlib.contextmanager
    def answering(self, url_part, status, headers, body):
        """Requests with `url_part` in their address get this answer."""
        self.fulfil = (url_part, status, headers, body)
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{url_part}*"}])
        yield
        self.call("Fetch.disable")

    # The page.

    def open(self, url):
        self._load("Page.navigate", url=url)

    def _load(self, method, **params):
        before = self.done["Page.loadEventFired"]
        self.call(method, **params)
        end = time.monotonic() + 20
        while self.done["Page.loadEventFired"] == before:
            self._receive(end, method)

    def reload(self):
        self._load("Page.reload")

    def forget(self, origin):
        """Leaves the page; all that its origin keeps is gone."""
        self.open("about:blank")
        self.call("Storage.clearDataForOrigin", origin=origin,
                  storageTypes="all")

    @contextlib.contextmanager
    def other_tab(self, url):
        """Within it, calls go to a second tab."""
        first, self._session = self._session, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._attach(target)
        self.open(url)
        yield
        self._session = first
        self.call("Target.closeTarget", targetId=target)

    def drop(self, selector, *paths):
        """Files are dragged onto the element and dropped."""
        x, y = self._middle(selector)
        data = {"items": [], "files": list(map(str, paths)),
                "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def choose(self, selector, *paths):
        """Files for a file input."""
        found = self.call("Runtime.evaluate",
                          expression=f"document.querySelector({selector!r})")
        self.call("DOM.setFileInputFiles", files=list(map(str, paths)),
                  objectId=found["result"]["objectId"])

    def save_downloads(self, folder):
        self.call("Browser.setDownloadBehavior", behavior="allow",
                  downloadPath=str(folder))

    def value(self, expression):
        """What a JavaScript expression (or its promise) gives."""
        result = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=10):
        """Until the expression, or what its promise gives, is true."""
        end = time.monotonic() + seconds
        while not self.value(f"Promise.resolve({expression}).then(v => !!v)"):
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {expression}")
            # Paced by the browser: its next frame, or 50 ms.
            self.value("new Promise(r => setTimeout(r, 50))")

    def key(self, name, modifiers=0):
        code, number, text = KEYS[name]
        common = {"key": name, "code": code, "modifiers": modifiers,
                  "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", text=text,
                  type="keyDown" if text else "rawKeyDown", **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        """A real click at the element's middle."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y,
                      button="left", clickCount=1)

    def _middle(self, selector):
        return self.value(
            f"(() => {{ const e = document.querySelector({selector!r});"
            "e.scrollIntoView({block: 'nearest'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()")

    def look(self, width=1360, height=860, dark=False, scale=1):
        """The size of the window, and the system's theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=scale,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme",
             "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        # What moves has arrived, and is on the screen.
        self.value("Promise.all(document.getAnimations().filter(a => "
                   "isFinite(a.effect.getComputedTiming().endTime))"
                   ".map(a => a.finished.catch(() => 0))).then(() => "
                   "new Promise(r => requestAnimationFrame("
                   "() => requestAnimationFrame(r))))")
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
