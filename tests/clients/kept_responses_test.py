"""The openai package, unmodified, at a server that keeps responses: a conversation
that goes on by previous_response_id and by references, what is read, listed and
deleted, and nothing of it by another key."""

import pathlib
import tempfile
import unittest

from client_cluster import MESSAGES, skip
import harness

try:
    import openai
except ImportError:
    skip("needs the openai package (tests/run installs it)")

KEYS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-0123456789"}
QUESTION = MESSAGES[0]["content"]
NEXT = "And of Spain?"


class KeptResponsesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-kept-")
        cls.addClassCleanup(folder.cleanup)
        keys = pathlib.Path(folder.name) / "keys"
        keys.write_text("".join(f"{name}:{key}\n"
                                for name, key in KEYS.items()))
        keys.chmod(0o600)
        cluster = harness.Cluster(
            harness.default_model(), "--threads", 1, "--response-store", 1,
            "--api-key-file", keys)
        cls.addClassCleanup(cluster.close)
        cls.alice, cls.bob = (
            openai.OpenAI(base_url=cluster.url + "/v1", api_key=key,
                          max_retries=0) for key in KEYS.values())
        cls.model = cls.alice.models.list().data[0].id

    def respond(self, client=None, **fields):
        return (client or self.alice).responses.create(
            **{"model": self.model, "input": QUESTION, "temperature": 0,
               "max_output_tokens": 24, **fields})

    def refusal(self, kind, call):
        """The code of the error that `call` raises."""
        with self.assertRaises(kind) as caught:
            call()
        return caught.exception.code

    def whole(self, first):
        """The answer to the whole conversation, without what is kept."""
        return self.respond(store=False, input=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": NEXT}])

    def test_a_conversation_goes_on_by_the_id_of_a_response(self):
        first = self.respond()
        wanted = self.whole(first)
        for stream in (False, True):
            answer = self.respond(input=NEXT, previous_response_id=first.id,
                                  stream=stream)
            if stream:
                answer = list(answer)[-1].response
            self.assertEqual(answer.output_text, wanted.output_text)
            self.assertEqual(answer.usage.input_tokens,
                             wanted.usage.input_tokens)
            self.assertEqual(answer.previous_response_id, first.id)
        third = self.respond(input="Thanks.", previous_response_id=answer.id)
        items = self.alice.responses.input_items.list(third.id, order="asc",
                                                      limit=2)
        self.assertEqual(
            [item.content[0].text for item in items],  # page by page
            [QUESTION, first.output_text, NEXT, answer.output_text, "Thanks."])

    def test_a_reference_stands_for_an_item(self):
        first = self.respond()
        wanted = self.whole(first)
        item = {"type": "item_reference", "id": first.output[0].id}
        ask = lambda *items, **fields: self.respond(  # noqa: E731
            **fields, input=[{"role": "user", "content": QUESTION}, *items,
                             {"role": "user", "content": NEXT}])
        answer = ask(item)
        self.assertEqual(answer.output_text, wanted.output_text)
        self.assertEqual(answer.usage.input_tokens, wanted.usage.input_tokens)
        listed = self.alice.responses.input_items.list(answer.id, order="asc")
        self.assertEqual(listed.data[1].content[0].text, first.output_text)
        self.assertEqual(
            self.alice.responses.input_tokens.count(
                model=self.model, input=[
                    {"role": "user", "content": QUESTION}, item,
                    {"role": "user", "content": NEXT}]).input_tokens,
            wanted.usage.input_tokens)
        self.assertEqual(self.refusal(openai.BadRequestError,
                                      lambda: ask(item, item)),
                         "unsupported_content")
        for fields in ({"client": self.bob}, {}):
            other = item if fields else {**item, "id": "msg_none_0"}
            self.assertEqual(self.refusal(openai.BadRequestError,
                                          lambda: ask(other, **fields)),
                             "item_not_found")

    def test_a_response_is_read_and_deleted_by_its_key_alone(self):
        first = self.respond(metadata={"a": "b"})
        self.assertTrue(first.to_dict()["store"])
        kept = self.alice.responses.retrieve(first.id)
        self.assertEqual(kept.to_dict(), first.to_dict())
        others = self.bob.responses
        for call in (lambda: others.retrieve(first.id),
                     lambda: others.delete(first.id),
                     lambda: others.cancel(first.id),
                     lambda: others.input_items.list(first.id)):
            self.assertEqual(self.refusal(openai.NotFoundError, call),
                             "not_found")
        self.assertEqual(self.refusal(
            openai.BadRequestError, lambda: self.respond(
                self.bob, previous_response_id=first.id)),
            "previous_response_not_found")
        self.refusal(openai.BadRequestError,
                     lambda: self.alice.responses.cancel(first.id))
        self.alice.responses.delete(first.id)
        self.refusal(openai.NotFoundError,
                     lambda: self.alice.responses.retrieve(first.id))
        self.assertEqual(self.refusal(
            openai.BadRequestError, lambda: self.respond(
                previous_response_id=first.id)),
            "previous_response_not_found")

    def test_what_is_not_kept_is_not_there(self):
        response = self.respond(store=False)
        self.assertFalse(response.to_dict()["store"])
        self.refusal(openai.NotFoundError,
                     lambda: self.alice.responses.retrieve(response.id))
        self.assertEqual(self.refusal(
            openai.BadRequestError, lambda: self.respond(background=True)),
            "unsupported_parameter")

    def test_the_oldest_make_room(self):
        first = self.respond()
        filler = "word " * 6000  # 30 kB
        last = None
        for _ in range(40):
            last = self.respond(input=[
                {"role": "user", "content": QUESTION},
                {"type": "later", "text": filler}], max_output_tokens=16)
        self.assertEqual(self.alice.responses.retrieve(last.id).id, last.id)
        self.refusal(openai.NotFoundError,
                     lambda: self.alice.responses.retrieve(first.id))


if __name__ == "__main__":
    harness.main()
