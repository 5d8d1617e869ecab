"""A gateway whose answers a test writes: the page's own files with the
gateway's policy, streams that wait or break off where the test says, and their
rest again.

What the page asks is what the real gateway answers (page_test.py); here it
comes in an order and at a time that no model keeps to.
"""

import http.server
import json
import re
import socketserver
import threading
import urllib.parse

import harness

PAGE = harness.ROOT / "services" / "gateway" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".svg": "image/svg+xml",
         ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8"}
CUT = object()  # in an answer: the connection breaks
BROKEN = object()  # in an answer: an error ends it
LOST = {"error": {"message": "stage 1 was lost", "param": None,
                  "type": "service_unavailable_error", "code": "unavailable"}}
STAGE = {"ranks": 1, "threads": 2, "isa": "avx2", "weights_bytes": 1 << 28,
         "kv_bytes": 1 << 26, "last_heard_ms": 5, "rtt_ms": 0.2,
         "hop_ms": 0.3, "steps_done": 10, "queue_depth": 0, "busy_ms": 100,
         "state": "ready", "message": ""}


def policy():
    """The Content-Security-Policy that the gateway sends."""
    source = (PAGE.parent / "handlers" / "page.cc").read_text()
    text = re.search(r"kPagePolicy\[\] =(.*?);\n\n", source, re.S).group(1)
    return "".join(re.findall(r'"(.*)"', text))


def reading():
    """What GET /cluster says of two stages that are ready."""
    return {
        "time_ms": 1000, "version": "1", "ready": True, "why": "", "epoch": 1,
        "term": 1, "role": "leader",
        "model": {"name": "scripted", "num_layers": 4, "hidden_size": 8,
                  "weights_dtype": "F32", "numerics": "f32", "digest": "0",
                  "max_context": 8192},
        "engine": dict.fromkeys(
            ("running", "waiting", "plans_in_flight", "blocks_total",
             "blocks_used", "kv_usage", "prompt_tokens", "generation_tokens",
             "computed_tokens", "prefix_query_tokens", "prefix_hit_tokens",
             "preemptions", "steps", "last_step_ms"), 0),
        "full_stages": 2,
        "stages": [{"index": at, "address": f"127.0.0.1:{5001 + at}",
                    "first_layer": 2 * at, "last_layer": 2 * at + 2, **STAGE}
                   for at in range(2)]}


def trace(tokens):
    """What GET /debug/traces/ID says: parts of each token, one of them slow."""
    parts = [("plan_wait", "gateway", 40), ("wire", "hop 0", 100),
             ("compute", "stage 0", 3000), ("wire", "hop 1", 200),
             ("wait", "stage 1", 60), ("compute", "stage 1", 2500),
             ("sample", "stage 1", 80), ("wire", "hop 2", 120),
             ("commit", "gateway", 30)]
    out, at = [], 0
    for index in range(tokens):
        begin, token = at, []
        for part, where, us in parts:
            us *= 40 if index == tokens // 2 and where == "stage 0" else 1
            token.append({"part": part, "where": where, "start_us": at,
                          "stop_us": at + us})
            at += us
        out.append({"index": index, "tokens": 1, "wall_us": at - begin,
                    "parts": token})
    return {"request_id": "", "arrival_unix_us": 0, "wall_us": at,
            "truncated": False, "stages": [],
            "choices": [{"index": 0, "wall_us": at, "sum_us": at,
                         "truncated": False, "incomplete_tokens": 0,
                         "summary": [], "tokens": out}]}


class Gateway(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A context manager. `answers` holds an answer for each request to come:
    a list of deltas, texts of content, threading.Events to wait for, CUT and
    BROKEN, or such a list and a finish reason; a request without one is
    answered by what it says. `asked` are the bodies."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.policy = policy()
        self.cluster = reading()
        self.answers = []
        self.asked = []
        self.resumed = []  # (request id, event id)
        self.streams = {}  # by request id: events that were sent, and the rest
        self._thread = threading.Thread(target=self.serve_forever,
                                        kwargs={"poll_interval": 0.05})

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, error, trace_back):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # the browser went away, as tests want it to

    def script(self, body):
        """The answer's steps: events to send, Events to wait for, CUT."""
        if self.answers:
            steps = self.answers.pop(0)
        else:
            said = next(m["content"] for m in reversed(body["messages"])
                        if m["role"] in ("user", "tool"))
            steps = ["You said: ", said.split("\n")[-1][:80]]
        finish = "stop"
        if isinstance(steps, tuple):
            steps, finish = steps
        for step in steps:
            if isinstance(step, threading.Event) or step is CUT:
                yield step
            elif step is BROKEN:
                yield LOST
            else:
                delta = {"content": step} if isinstance(step, str) else step
                yield {"choices": [{"index": 0, "delta": delta,
                                    "finish_reason": None}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        count = sum(isinstance(step, (str, dict)) for step in steps)
        yield {"choices": [], "usage": {
            "prompt_tokens": 40, "completion_tokens": count,
            "prompt_tokens_details": {"cached_tokens": 32}}}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        if path == "/" or path.startswith("/page/"):
            self.send_file(path)
        elif path == "/cluster":
            self.send_json(self.server.cluster)
        elif path.startswith("/debug/traces/"):
            self.send_json(trace(24))
        elif path.startswith("/v1/streams/"):
            request = path.rsplit("/", 1)[1]
            self.server.resumed.append(
                (request, self.headers["Last-Event-ID"]))
            self.resume(request, int(self.headers["Last-Event-ID"] or 0))
        else:
            self.send_error(404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        request = self.headers["X-Request-Id"]
        self.server.streams[request] = ([], self.server.script(body))
        self.resume(request, 0)

    def send_file(self, path):
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        data = (PAGE / name).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", TYPES[(PAGE / name).suffix])
        self.send_header("Content-Security-Policy", self.server.policy)
        self.end_headers()
        self.wfile.write(data)

    def send_json(self, value):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def resume(self, request, last):
        """Sends a stream's events behind the one of the number `last`."""
        sent, rest = self.server.streams[request]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number, event in enumerate(sent[last:], last + 1):
            self.send_event(number, event)
        for step in rest:
            if step is CUT:
                return
            if isinstance(step, threading.Event):
                self.wait(step)
            else:
                sent.append(step)
                self.send_event(len(sent), step)
        self.wfile.write(b"data: [DONE]\n\n")

    def send_event(self, number, event):
        self.wfile.write(f"data: {json.dumps(event)}\nid: {number}\n\n"
                         .encode())

    def wait(self, event):
        """Until the event is set, or the browser has gone."""
        while not event.wait(0.05):
            self.wfile.write(b": waits\n\n")
