"""A server that answers chats by scripts, in the streams of four dialects."""

import http.server
import json
import threading


def _sse(name, data):
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def chat(thinking, pieces):
    """The events of /v1/chat/completions."""
    def chunk(delta, finish=None):
        return b"data: " + json.dumps({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta,
                         "finish_reason": finish}]}).encode() + b"\n\n"
    yield b": ping\n\n"
    yield chunk({"role": "assistant", "content": ""})
    for text in thinking:
        yield chunk({"reasoning_content": text})
    for text in pieces:
        yield chunk({"content": text})
    yield chunk({}, "stop")
    yield b"data: " + json.dumps({"choices": [], "usage": {
        "prompt_tokens": 12, "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4}}}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def responses(thinking, pieces):
    """The events of /v1/responses, in order, with their numbers."""
    number = iter(range(10000))

    def event(name, **fields):
        return _sse(name, {"type": name, "sequence_number": next(number),
                           **fields})
    response = {"id": "resp_1", "object": "response", "status": "in_progress",
                "model": "m", "output": [], "error": None,
                "incomplete_details": None, "usage": None}
    yield event("response.created", response=response)
    yield event("response.in_progress", response=response)
    yield event("keepalive")
    if thinking:
        yield event("response.output_item.added", output_index=0, item={
            "type": "reasoning", "id": "rs_1", "summary": [], "content": []})
        for text in thinking:
            yield event("response.reasoning_text.delta", item_id="rs_1",
                        output_index=0, content_index=0, delta=text)
        yield event("response.reasoning_text.done", item_id="rs_1",
                    output_index=0, content_index=0, text="".join(thinking))
    yield event("response.output_item.added", output_index=1, item={
        "type": "message", "id": "msg_1", "role": "assistant", "content": []})
    for text in pieces:
        yield event("response.output_text.delta", item_id="msg_1",
                    output_index=1, content_index=0, delta=text, logprobs=[])
    yield event("response.output_text.done", item_id="msg_1", output_index=1,
                content_index=0, text="".join(pieces), logprobs=[])
    yield event("response.completed", response={
        **response, "status": "completed", "usage": {
            "input_tokens": 12, "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 7, "total_tokens": 19,
            "output_tokens_details": {"reasoning_tokens": 0}}})


def messages(thinking, pieces):
    """The events of /v1/messages."""
    yield _sse("message_start", {"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 8, "output_tokens": 1,
                  "cache_read_input_tokens": 4}}})
    yield _sse("ping", {"type": "ping"})
    blocks = [("thinking", thinking)] * bool(thinking) + [("text", pieces)]
    for index, (kind, texts) in enumerate(blocks):
        yield _sse("content_block_start", {
            "type": "content_block_start", "index": index,
            "content_block": {"type": kind, kind: ""}})
        for text in texts:
            yield _sse("content_block_delta", {
                "type": "content_block_delta", "index": index,
                "delta": {"type": kind + "_delta", kind: text}})
        yield _sse("content_block_stop", {"type": "content_block_stop",
                                          "index": index})
    yield _sse("message_delta", {
        "type": "message_delta", "usage": {"output_tokens": 7},
        "delta": {"stop_reason": "end_turn", "stop_sequence": None}})
    yield _sse("message_stop", {"type": "message_stop"})


def ollama(thinking, pieces):
    """The lines of /api/chat."""
    def line(done=False, **fields):
        return json.dumps({"model": "m", "created_at": "2026-11-28T00:00:00Z",
                           "done": done, **fields}).encode() + b"\n"
    for text in thinking:
        yield line(message={"role": "assistant", "content": "",
                            "thinking": text})
    for text in pieces:
        yield line(message={"role": "assistant", "content": text})
    yield line(done=True, done_reason="stop",
               message={"role": "assistant", "content": ""},
               total_duration=1, load_duration=1, prompt_eval_count=12,
               prompt_eval_duration=1, eval_count=7, eval_duration=1)


STREAMS = {"/v1/chat/completions": chat, "/v1/responses": responses,
           "/v1/messages": messages, "/api/chat": ollama}


def refusal(path, words):
    """The body of status 400."""
    error = {"type": "invalid_request_error", "message": words}
    if path == "/api/chat":
        return {"error": words}
    return {"type": "error", "error": error} if path == "/v1/messages" else {
        "error": error}


class RecordedServer(http.server.ThreadingHTTPServer):
    """Has `paths` alone. An answer is what `pieces` and `thinking` hold at that
    time; a piece that is None waits until `go_on` is set or the client has
    left. `status` other than 200 refuses with `words`. Keeps all bodies and
    headers."""

    daemon_threads = True

    def __init__(self, paths=tuple(STREAMS), models=True):
        self.paths = paths
        self.models = models
        self.pieces, self.thinking = ["Hello."], []
        self.status, self.words = 200, "no such thing"
        self.bodies, self.headers = [], []
        self.go_on = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        lists = {}
        if server.models:
            lists["/v1/models"] = {"object": "list", "data": [{"id": "m"}]}
        if "/api/chat" in server.paths:
            lists["/api/version"] = {"version": "0.1"}
            lists["/api/tags"] = {"models": [{"name": "m"}]}
        if self.path in lists:
            self.answer(200, lists[self.path])
        else:
            self.answer(405 if self.path in server.paths else 404,
                        {"error": {"message": "not here"}})

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.bodies.append((self.path, json.loads(body)))
        server.headers.append(self.headers)
        if self.path not in server.paths:
            self.answer(404, {"error": {"message": "not here"}})
        elif server.status != 200:
            self.answer(server.status, refusal(self.path, server.words))
        else:
            self.stream(STREAMS[self.path], server)

    def stream(self, dialect, server):
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson"
                         if dialect is ollama else "text/event-stream")
        self.end_headers()

        def waited():
            for piece in server.pieces:
                if piece is None:
                    server.go_on.wait(60)
                else:
                    yield piece
        try:
            for event in dialect(server.thinking, waited()
                                 if dialect is not responses
                                 else _Again(waited())):
                self.wfile.write(event)
                self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


class _Again:
    """An iterator that remembers, for the whole text behind its pieces."""

    def __init__(self, pieces):
        self.pieces, self.seen = pieces, []

    def __iter__(self):
        yield from self.seen
        for piece in self.pieces:
            self.seen.append(piece)
            yield piece
