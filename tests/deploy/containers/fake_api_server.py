"""What a controller asks of Kubernetes' API server, where there is no real one:
discovery, lists and watches of a few kinds, whatever a test puts there. It
validates nothing: api_server has the same methods, and does."""

import collections
import http.server
import json
import threading
import urllib.parse

# (group/version, kind, plural)
KINDS = (("v1", "Pod", "pods"),
         ("inference.networking.k8s.io/v1", "InferencePool", "inferencepools"),
         ("inference.networking.x-k8s.io/v1alpha2", "InferenceObjective",
          "inferenceobjectives"),
         ("inference.networking.x-k8s.io/v1alpha2", "InferenceModelRewrite",
          "inferencemodelrewrites"))
INITIAL_END = {"annotations": {"k8s.io/initial-events-end": "true"}}


class FakeApiServer:
    """Serves in the background until close()."""

    def __init__(self, _folder=None):
        self._changed = threading.Condition()
        self._events = collections.defaultdict(list)  # of a plural, in order
        self._now = collections.defaultdict(dict)  # of a plural, by name
        self._version = 1
        self._closed = False
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                                       handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever,
                         daemon=True).start()

    def close(self):
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def write_config(self, path):
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": f"http://127.0.0.1:{self._server.server_port}"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test",
                                                      "user": "test"}}],
            "users": [{"name": "test", "user": {}}]}))

    def define_all(self):
        """Its kinds are there."""

    def apply(self, one, dry=True):
        """(status, text, warnings); a kind that it does not have is nobody's."""
        plural = next((each[2] for each in KINDS if each[1] == one["kind"]),
                      None)
        if plural and not dry:
            self._put(plural, one)
        return 200, "", []

    def set_status(self, one, status):
        plural = next(each[2] for each in KINDS if each[1] == one["kind"])
        before = self._now[plural][one["metadata"]["name"]]
        self._put(plural, {**before, "status": status})

    def _put(self, plural, one):
        with self._changed:
            self._version += 1
            name = one["metadata"]["name"]
            before = self._now[plural].get(name)
            made = {**(before or {}), **one, "metadata": {
                **one["metadata"], "uid": f"{plural}-{name}",
                "resourceVersion": str(self._version)}}
            self._now[plural][name] = made
            self._events[plural].append((
                self._version, "MODIFIED" if before else "ADDED", made))
            self._changed.notify_all()

    def list(self, plural):
        """(version, the objects that are there)."""
        with self._changed:
            return str(self._version), list(self._now[plural].values())

    def wait(self, plural, version, seconds):
        """Events later than `version`, when there are some; None: it is over."""
        def later():
            return [one for one in self._events[plural] if one[0] > version]
        with self._changed:
            self._changed.wait_for(lambda: self._closed or later(), seconds)
            return None if self._closed else later()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):  # noqa: N802
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        words = parts.path.strip("/").split("/")
        found = next((each for each in KINDS if each[2] == words[-1]), None)
        if found and query.get("watch") in ("1", "true"):
            self._watch(found, query)
        elif found:
            version, items = self.api.list(found[2])
            self._answer({"kind": f"{found[1]}List", "apiVersion": found[0],
                          "metadata": {"resourceVersion": version},
                          "items": items})
        else:
            self._discover(words)

    def do_POST(self):  # noqa: N802  (events, which nobody reads)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer({}, 201)

    do_PATCH = do_PUT = do_POST

    def _discover(self, words):
        versions = sorted({each[0] for each in KINDS} - {"v1"})
        if words == ["api"]:
            self._answer({"kind": "APIVersions", "versions": ["v1"]})
        elif words == ["apis"]:
            self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": one.split("/")[0],
                 "versions": [self._version_of(one)],
                 "preferredVersion": self._version_of(one)}
                for one in versions]})
        elif "/".join(words[1:]) in ("v1", *versions):
            version = "/".join(words[1:])
            self._answer({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": version, "resources": [
                    {"name": plural, "singularName": "", "namespaced": True,
                     "kind": kind, "verbs": ["get", "list", "watch"]}
                    for of, kind, plural in KINDS if of == version]})
        else:
            self._answer({"kind": "Status", "apiVersion": "v1", "code": 404,
                          "status": "Failure", "reason": "NotFound"}, 404)

    @staticmethod
    def _version_of(text):
        return {"groupVersion": text, "version": text.split("/")[1]}

    def _answer(self, body, status=200):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, kind, query):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        version = int(query.get("resourceVersion") or 0)
        try:
            if query.get("sendInitialEvents") == "true":
                now, items = self.api.list(kind[2])
                for one in items:
                    self._event("ADDED", one, kind)
                version = int(now)
                self._event("BOOKMARK", {"metadata": {
                    "resourceVersion": now, **INITIAL_END}}, kind)
            while (events := self.api.wait(kind[2], version, 5)) is not None:
                for version, what, one in events:
                    self._event(what, one, kind)
                self.wfile.flush()
        except OSError:
            pass
        self.close_connection = True

    def _event(self, what, one, kind):
        data = json.dumps({"type": what, "object": {
            "apiVersion": kind[0], "kind": kind[1], **one}}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
