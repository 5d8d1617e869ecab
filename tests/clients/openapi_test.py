"""GET /openapi.json of a live cluster: valid OpenAPI 3.1 by the validator of
openapi-spec-validator, and true: answers fit the schemas that it gives them."""

import json
import unittest

from client_cluster import MESSAGES, ClientCluster, skip
import api

try:
    import jsonschema
    import openapi_spec_validator
except ImportError:
    skip("needs openapi-spec-validator (tests/run installs it)")


class OpenApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        status, text = api.get(cls.cluster.url, "/openapi.json")
        assert status == 200, text
        cls.document = json.loads(text)

    def check(self, value, name):
        jsonschema.Draft202012Validator({
            **self.document, "$ref": "#/components/schemas/" + name,
        }).validate(value)

    def ask(self, path, **fields):
        status, answer = api.post(self.cluster.url, path,
                                  {"max_tokens": 8, **fields})
        return status, answer

    def test_the_document_is_valid(self):
        openapi_spec_validator.validate(
            self.document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)

    def test_answers_fit_their_schemas(self):
        status, answer = self.ask("/v1/chat/completions", messages=MESSAGES,
                                  logprobs=True)
        self.assertEqual(status, 200, answer)
        self.check(answer, "ChatCompletion")
        status, answer = self.ask("/v1/completions", prompt="Once", logprobs=1)
        self.assertEqual(status, 200, answer)
        self.check(answer, "Completion")
        status, answer = self.ask("/v1/completions", prompt=5)
        self.assertEqual(status, 400, answer)
        self.check(answer, "Error")
        for model in json.loads(api.get(self.cluster.url,
                                        "/v1/models")[1])["data"]:
            self.check(model, "Model")

    def test_events_fit_their_schemas(self):
        for path, name, fields in (
                ("/v1/chat/completions", "ChatCompletionChunk",
                 {"messages": MESSAGES}),
                ("/v1/completions", "Completion", {"prompt": "Once"})):
            status, events = api.stream(
                self.cluster.url, path,
                {"max_tokens": 8, "stream_options": {"include_usage": True},
                 **fields})
            self.assertEqual(status, 200)
            self.assertEqual(events.pop(), "[DONE]")
            for event in events:
                self.check(json.loads(event), name)

    # What the default model has no key or tokens for, and what a refusal names.
    WITHOUT = {"/v1/embeddings": "pooling_type", "/api/embed": "pooling_type",
               "/api/embeddings": "pooling_type", "/infill": "fim_prefix"}

    def test_examples_are_taken(self):
        name = json.loads(api.get(self.cluster.url, "/v1/models")[1])
        name = name["data"][0]["id"]
        for path, operations in self.document["paths"].items():
            body = operations.get("post", {}).get("requestBody")
            if body is None:
                continue
            content = body["content"]["application/json"]
            jsonschema.Draft202012Validator(
                {**self.document, **content["schema"]}).validate(
                    content["example"])
            example = content["example"]
            if example.get("model") == "NAME":
                example = {**example, "model": name}
            status, _, answer = api.request(self.cluster.url, "POST", path,
                                            example)
            if path in self.WITHOUT:
                self.assertEqual(status, 400, (path, answer))
                self.assertIn(self.WITHOUT[path], answer.decode())
                continue
            self.assertEqual(status, 200, (path, answer))


if __name__ == "__main__":
    import harness
    harness.main()
