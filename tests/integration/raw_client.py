"""HTTP/1.1 over a raw socket, for tests that look at the bytes."""

import json
import re
import socket
import urllib.parse


def post(path, body, *headers, length=True):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost",
             "Content-Type: application/json", *headers]
    if length:
        lines.append(f"Content-Length: {len(raw)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def generation(stream, count=8, **fields):
    return {"prompt": "Once upon a time", "max_tokens": count,
            "temperature": 0, "ignore_eos": True, "stream": stream, **fields}


class Raw:
    """A socket to the gateway; every wait is bounded."""

    def __init__(self, url, timeout=60):
        parts = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port),
                                               timeout)
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, raw):
        self.socket.sendall(raw)

    def until(self, end):
        while end not in self.left:
            more = self.socket.recv(65536)
            if not more:
                raise AssertionError(f"ended before {end}: {self.left}")
            self.left += more
        out, _, self.left = self.left.partition(end)
        return out + end

    def exactly(self, count):
        while len(self.left) < count:
            more = self.socket.recv(65536)
            if not more:
                raise AssertionError(f"ended after {self.left}")
            self.left += more
        out, self.left = self.left[:count], self.left[count:]
        return out

    def rest(self):
        """All up to the end of the connection, however it ends."""
        out, self.left = self.left, b""
        try:
            while more := self.socket.recv(65536):
                out += more
        except ConnectionError:
            pass
        return out

    def head(self):
        """(status, {name in lower case: value})"""
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = re.fullmatch(r"HTTP/1\.1 (\d{3}) [ -~]+", lines[0])
        if not status:
            raise AssertionError(lines[0])
        fields = (line.split(": ", 1) for line in lines[1:-2])
        return int(status[1]), {name.lower(): value for name, value in fields}

    def chunks(self):
        """The chunks of a chunked body, as bytes."""
        out = []
        while True:
            size = self.until(b"\r\n")
            if not re.fullmatch(rb"[0-9a-f]+\r\n", size):
                raise AssertionError(size)
            chunk = self.exactly(int(size, 16))
            if self.exactly(2) != b"\r\n":
                raise AssertionError("a chunk ends otherwise")
            if not chunk:
                return out
            out.append(chunk)

    def answer(self):
        """(status, headers, body)"""
        status, headers = self.head()
        return status, headers, self.exactly(int(headers["content-length"]))

    def ask(self, path):
        """(status, text) of a GET; the connection stays."""
        self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        status, _, body = self.answer()
        return status, body.decode()

    def streamed_text(self):
        """The text of a streamed completion, whose head was read."""
        events = [json.loads(chunk.split(b"\n")[0][6:])
                  for chunk in self.chunks()[:-1]]
        return "".join(event["choices"][0]["text"] for event in events)
