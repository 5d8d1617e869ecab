"""A hub of models on this machine, by the protocol of Hugging Face's: listing,
HEAD, redirects to a second server (the "CDN"), ranges; with faults on demand.
"""

import hashlib
import http.server
import json
import ssl
import sys
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    def __init__(self, files, lfs=(), commit=COMMIT, revisions=("main",)):
        self.files = files  # path -> bytes
        self.lfs = set(lfs)
        self.commit = commit
        self.revisions = {*revisions, commit}
        self.gated = None  # status of refusals: 401 or 403
        self.digests = {}  # path -> another one than is true
        self.sizes = {}  # path -> likewise
        self.listed = True  # the list has sizes and digests

    def digest(self, path):
        data = self.files[path]
        true = (hashlib.sha256(data).hexdigest() if path in self.lfs
                else git_digest(data))
        return self.digests.get(path, true)

    def size(self, path):
        return self.sizes.get(path, len(self.files[path]))

    def listing(self):
        siblings = []
        for path in self.files:
            entry = {"rfilename": path}
            if self.listed:
                entry["size"] = self.size(path)
                entry["blobId"] = git_digest(self.files[path])
                if path in self.lfs:
                    entry["blobId"] = "f" * 40  # of the pointer
                    entry["lfs"] = {"sha256": self.digest(path),
                                    "size": self.size(path),
                                    "pointerSize": 130}
            siblings.append(entry)
        return {"sha": self.commit, "siblings": siblings}


class FakeHub:
    """Both servers. `faults` maps a file's path to a list, one fault for each
    request in turn: ("cut", bytes), ("status", code, headers), ("hang",),
    ("gate",): waits until `gate` is set, ("slow",), ("whole",): no range is
    given."""

    def __init__(self, certificate=None):
        """`certificate`: a file of a certificate and its key; the hub then
        speaks TLS, the CDN does not."""
        self.repositories = {}
        self.faults = {}
        self.requests = []  # (server, method, path, headers)
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.gate = threading.Event()
        self.hub = self._serve("hub")
        self.cdn = self._serve("cdn")
        self.url = f"http://127.0.0.1:{self.hub.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.hub.socket = context.wrap_socket(self.hub.socket,
                                                  server_side=True)
            self.url = "https" + self.url[4:]

    def _serve(self, name):
        outer = self

        class Handler(_Handler):
            fake = outer
            server_name_ = name

        server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,),
                         daemon=True).start()
        return server

    def close(self):
        self.ended.set()
        self.gate.set()
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def next_fault(self, path):
        with self.lock:
            waiting = self.faults.get(path)
            return waiting.pop(0) if waiting else None

    def asked(self, server=None, method=None, ends=""):
        """The requests that fit, as (path, headers)."""
        with self.lock:
            return [(path, headers)
                    for one, verb, path, headers in self.requests
                    if server in (None, one) and method in (None, verb)
                    and path.endswith(ends)]


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # It waits for the client's delayed ACKs.
    fake = None
    server_name_ = ""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        with self.fake.lock:
            self.fake.requests.append((self.server_name_, self.command,
                                       self.path, dict(self.headers)))
        path = urllib.parse.unquote(self.path.partition("?")[0])
        parts = path.strip("/").split("/")
        if self.server_name_ == "cdn":
            return self.file("/".join(parts[:2]), "/".join(parts[2:]), True)
        if parts[:2] == ["api", "models"]:
            return self.listing("/".join(parts[2:4]), "/".join(parts[5:]))
        if len(parts) > 4 and parts[2] == "resolve":
            return self.file("/".join(parts[:2]), "/".join(parts[4:]), False)
        return self.refuse(404, "EntryNotFound")

    def refuse(self, status, code, extra=None):
        body = json.dumps({"error": code}).encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", f"The hub says {code}.")
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def may(self, repository):
        token = self.headers.get("Authorization", "")
        if repository.gated and token != "Bearer good":
            self.refuse(repository.gated, "GatedRepo")
            return False
        return True

    def listing(self, name, revision):
        fault = self.fake.next_fault("listing")
        if fault:
            return self.refuse(fault[1], "Fault", fault[2])
        repository = self.fake.repositories.get(name)
        if repository is None:
            return self.refuse(401, "RepoNotFound")
        if revision not in repository.revisions:
            return self.refuse(404, "RevisionNotFound")
        if not self.may(repository):
            return None
        body = json.dumps(repository.listing()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def file(self, name, path, at_cdn):
        repository = self.fake.repositories.get(name)
        if repository is None or path not in repository.files:
            return self.refuse(404, "EntryNotFound")
        if not at_cdn and not self.may(repository):
            return None
        if not at_cdn and path in repository.lfs:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:"
                             f"{self.fake.cdn.server_port}/{name}/{path}"
                             "?signature=s")
            self.send_header("X-Repo-Commit", repository.commit)
            self.send_header("X-Linked-Etag", f'"{repository.digest(path)}"')
            self.send_header("X-Linked-Size", str(repository.size(path)))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        return self.body(repository, path)

    def body(self, repository, path):
        data = repository.files[path]
        fault = (None if self.command == "HEAD"
                 else self.fake.next_fault(path)) or ("none",)
        if fault[0] == "status":
            return self.refuse(fault[1], "Fault", fault[2])
        begin, end, status = 0, len(data), 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and fault[0] != "whole":
            first, _, last = asked[6:].partition("-")
            begin, status = int(first), 206
            end = min(len(data), int(last) + 1 if last else len(data))
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range",
                             f"bytes {begin}-{end - 1}/{len(data)}")
        self.send_header("ETag", f'W/"{repository.digest(path)}"')
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command != "HEAD":
            self.send(data[begin:end], fault)
        return None

    def send(self, data, fault):
        if fault[0] == "cut":
            self.wfile.write(data[:fault[1]])
            self.wfile.flush()
            self.close_connection = True
        elif fault[0] == "hang":
            self.wfile.write(data[:10])
            self.wfile.flush()
            self.fake.ended.wait(30)
            self.close_connection = True
        elif fault[0] == "gate":
            self.wfile.write(data[:10])
            self.wfile.flush()
            self.fake.gate.wait(30)
            self.wfile.write(data[10:])
        elif fault[0] == "slow":
            for at in range(0, len(data), 1 + len(data) // 8):
                self.wfile.write(data[at:at + 1 + len(data) // 8])
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self.wfile.write(data)
