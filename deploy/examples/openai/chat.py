"""openai for Python: a streamed answer, then one that keeps to a schema.

pip install openai
"""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"))
model = client.models.list().data[0].id

stream = client.chat.completions.create(
    model=model, stream=True, max_completion_tokens=24, temperature=0,
    messages=[{"role": "user", "content": "Name the capital of France."}])
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()

answer = client.chat.completions.create(
    model=model, max_completion_tokens=64, temperature=0,
    messages=[{"role": "user", "content": "Give me a city and its country."}],
    response_format={"type": "json_schema", "json_schema": {
        "name": "city", "schema": {
            "type": "object", "additionalProperties": False,
            "properties": {"city": {"type": "string", "maxLength": 20},
                           "country": {"type": "string", "maxLength": 20}},
            "required": ["city", "country"]}}})
print(answer.choices[0].message.content)
