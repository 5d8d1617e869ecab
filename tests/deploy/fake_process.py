"""A stage or a gateway that is none: ROLE RUN_DIR PORT.

Files in the run folder hold it up: hold-ready (/readyz is 503), hold-answer
(requests wait) and hold-end (SIGTERM waits). It tells of itself by files too:
answering, draining and drained.
"""

import http.server
import json
import os
import pathlib
import signal
import sys
import time

ROLE, RUN_DIR, PORT = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])


def wait_while(name):
    while (RUN_DIR / name).exists():
        time.sleep(0.01)


def drain(number, frame):
    if ROLE == "gateway":
        (RUN_DIR / "draining").touch()
        wait_while("hold-end")
        (RUN_DIR / "drained").touch()
    os._exit(0)


class Gateway(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/readyz":
            held = (RUN_DIR / "hold-ready").exists()
            self.answer(503 if held else 200, {})
        else:
            self.answer(200, {"data": [{"id": "fake"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        (RUN_DIR / "answering").touch()
        wait_while("hold-answer")
        self.answer(200, {"choices": [{"message": {"content": "a gate"}}]})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words):
        pass


signal.signal(signal.SIGTERM, drain)
if ROLE == "gateway":
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT),
                                    Gateway).serve_forever()
while True:
    signal.pause()
