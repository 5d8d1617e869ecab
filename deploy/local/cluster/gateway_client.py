"""The few HTTP calls that `up` makes to its gateway."""

import json
import ssl
import urllib.error
import urllib.request


def first_key(path):
    """The first key of a file that sluice-gateway takes; None without one."""
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        lines = (line.strip() for line in file)
        keys = (line.partition(":")[2].strip() or line for line in lines
                if line and not line.startswith("#"))
        return next(keys, None)


def _context(certificate):
    """Trusts the certificate of the cluster's own gateway, by whatever name."""
    if certificate is None:
        return None
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    # The file may have the certificate alone, without who signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def call(url, body=None, timeout=600, key=None, certificate=None):
    """(status, text) of a GET, or of a POST of `body` as JSON. Status 0 if
    there is no connection. `certificate`: the PEM file of the gateway's, of an
    address with https."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=_context(certificate)))
        with opener.open(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, str(error)


def served_model(url, **trust):
    """`trust`: key and certificate, as `call` takes them."""
    status, text = call(url + "/v1/models", timeout=10, **trust)
    return json.loads(text)["data"][0]["id"] if status == 200 else None


def curl_line(url, path, body, with_key=False):
    key = ' -H "Authorization: Bearer $API_KEY"' if with_key else ""
    return (f"curl {url}{path} -H 'Content-Type: application/json'{key} "
            f"-d '{json.dumps(body)}'")


def first_answer(url, model, question, **trust):
    """(path, body, prompt, answer) of a chat that asks `question`, or of a
    plain completion where the model has no chat template."""
    asked = {"model": model, "max_tokens": 64, "temperature": 0}
    path, body = "/v1/chat/completions", {
        **asked, "messages": [{"role": "user", "content": question}]}
    status, text = call(url + path, body, **trust)
    if status == 200:
        message = json.loads(text)["choices"][0]["message"]
        # Of a model that reasons longer than it may answer there is no more.
        answer = message["content"] or message.get("reasoning_content") or ""
        return path, body, question, answer
    path, prompt = "/v1/completions", "Once upon a time"
    body = {**asked, "prompt": prompt, "max_tokens": 32}
    status, text = call(url + path, body, **trust)
    if status == 200:
        return path, body, prompt, prompt + json.loads(
            text)["choices"][0]["text"]
    return path, body, prompt, f"[no answer: {status} {text.strip()}]"
