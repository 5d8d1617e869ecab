"""A plain HTTP client for tests: status, JSON, streams, metrics."""

import http.client
import json
import re
import urllib.parse


def _connect(url, timeout):
    parts = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port,
                                      timeout=timeout)


def request(url, method, path, body=None, headers=None, timeout=300):
    """(status, headers, bytes). `body`: None, bytes, or JSON."""
    connection = _connect(url, timeout)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    try:
        connection.request(method, path, body,
                           {"Content-Type": "application/json",
                            **(headers or {})})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def get(url, path, timeout=30):
    """(status, text)."""
    status, _, body = request(url, "GET", path, timeout=timeout)
    return status, body.decode()


def try_get(url, path, timeout=30):
    """get, or (0, the error) where nobody answers."""
    try:
        return get(url, path, timeout)
    except OSError as error:
        return 0, str(error)


def post(url, path, body, timeout=300):
    """(status, JSON)."""
    status, _, raw = request(url, "POST", path, body, timeout=timeout)
    return status, json.loads(raw)


def completion(url, prompt, timeout=300, **fields):
    """The answer to a completion, which must be 200."""
    status, answer = post(url, "/v1/completions",
                          {"prompt": prompt, **fields}, timeout)
    if status != 200:
        raise AssertionError(f"{status}: {answer}")
    return answer


def stream(url, path, body, timeout=300, on_event=None):
    """(status, [data of every event]) of a streamed answer."""
    connection = _connect(url, timeout)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            return answer.status, [answer.read().decode()]
        events = []
        for line in answer:
            text = line.decode().rstrip("\r\n")
            if text.startswith("data: "):
                events.append(text[6:])
                if on_event:
                    on_event(text[6:])
        return 200, events
    finally:
        connection.close()


def metrics(address_or_url):
    """{name: sum over its labels} of a Prometheus text."""
    url = address_or_url if "://" in address_or_url \
        else "http://" + address_or_url
    _, text = get(url, "/metrics")
    sums = {}
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)", line)
        if match:
            name = match.group(1)
            sums[name] = sums.get(name, 0.0) + float(match.group(3))
    return sums


def choice_of(answer):
    return answer["choices"][0]


def token_id(text):
    """5 of "token_id:5" (return_tokens_as_token_ids)."""
    return int(text.removeprefix("token_id:"))
