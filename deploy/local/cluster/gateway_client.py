"""The few HTTP calls that `up` makes to its gateway."""

import json
import urllib.error
import urllib.request

PROMPT = "What is a sluice? Answer in one sentence."


def call(url, body=None, timeout=600):
    """(status, text) of a GET, or of a POST of `body` as JSON. Status 0 if
    there is no connection."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, headers={"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, str(error)


def served_model(url):
    status, text = call(url + "/v1/models", timeout=10)
    return json.loads(text)["data"][0]["id"] if status == 200 else None


def curl_line(url, model):
    body = json.dumps({"model": model, "messages": [
        {"role": "user", "content": PROMPT}]})
    return (f"curl {url}/v1/chat/completions "
            f"-H 'Content-Type: application/json' -d '{body}'")


def first_answer(url, model):
    """(prompt, answer) of a chat, or of a plain completion where the model
    has no chat template."""
    status, text = call(url + "/v1/chat/completions", {
        "model": model, "max_tokens": 64, "temperature": 0,
        "messages": [{"role": "user", "content": PROMPT}]})
    if status == 200:
        return PROMPT, json.loads(text)["choices"][0]["message"]["content"]
    prompt = "Once upon a time"
    chat_status, chat_text = status, text
    status, text = call(url + "/v1/completions", {
        "model": model, "max_tokens": 32, "temperature": 0,
        "prompt": prompt})
    if status == 200:
        return prompt, prompt + json.loads(text)["choices"][0]["text"]
    return PROMPT, f"[no answer: {chat_status} {chat_text.strip()}]"
