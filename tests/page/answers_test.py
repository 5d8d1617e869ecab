"""What answers have, and what is asked for, in headless Chromium: thinking,
tools, settings, files, counts and times, against answers that tests write."""

import json
import pathlib
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402
import scripted_case  # noqa: E402
from page_case import ENDED, FOCUS, TEXT  # noqa: E402
from scripted_case import CALLS, THOUGHTS, TOOLS  # noqa: E402


class AnswersTest(scripted_case.ScriptedCase):
    def test_speed_and_counts_are_shown(self):
        self.gateway.answers.append(["a", "b", "c"])
        self.ask("Letters.")
        self.assertRegex(self.text(".assistant .meta"),
                         r"^3 tokens · .* · first after .* · prompt of 40, "
                         "32 cached$")
        self.assertEqual(self.text("#context"), "43 of 8,192 tokens")

    def test_thinking_is_folded(self):
        gate = threading.Event()
        self.gateway.answers.append([*THOUGHTS, gate, "Hello."])
        self.send("Hi.")
        self.page.wait("document.querySelector('.reasoning summary')"
                       ".textContent === 'Thinking …' && !document."
                       "querySelector('.reasoning').hidden")
        gate.set()
        self.page.wait(f"{TEXT} === 'Hello.' && {ENDED}")
        self.assertRegex(self.text(".reasoning summary"), r"^Thought for \d")
        self.assertFalse(self.page.value(
            "document.querySelector('.reasoning').open"))
        self.page.value("document.querySelector('.reasoning summary').focus()")
        self.page.key("Enter")
        self.assertTrue(self.page.value(
            "document.querySelector('.reasoning').open"))
        self.assertEqual(self.text(".reasoning pre"),
                         "The user greets me.")
        self.ask("Again.")
        self.assertEqual(self.gateway.asked[-1]["messages"][1],
                         {"role": "assistant", "content": "Hello."})

    def test_calls_of_tools_are_shown_and_answered(self):
        page = self.page
        self.set_field("#tools", json.dumps(TOOLS))
        self.gateway.answers += [(THOUGHTS + CALLS, "tool_calls"),
                                 ["It rains in Delft."]]
        self.ask("What is the weather?")
        self.assertEqual(self.gateway.asked[0]["tools"], TOOLS)
        self.assertIn("Calls weather", self.text(".call"))
        self.assertEqual(self.text(".call code"), '{\n  "place": "Delft"\n}')
        page.value("document.querySelector('.calls textarea').focus()")
        page.type("Rain, 12 degrees")
        page.key("Tab")
        page.key("Enter")
        page.wait(f"{TEXT} === 'It rains in Delft.' && {ENDED}")
        asked = self.gateway.asked[-1]["messages"]
        self.assertEqual(asked[1], {
            "role": "assistant", "content": "",
            "reasoning_content": "The user greets me.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {
                "name": "weather", "arguments": '{"place": "Delft"}'}}]})
        self.assertEqual(asked[2], {
            "role": "tool", "content": "Rain, 12 degrees",
            "tool_call_id": "call_1"})
        self.assertIn("Result of weather", self.text(".message.tool"))
        self.assertEqual(self.count(".calls textarea"), 0)
        self.wait_until_kept()
        page.reload()
        page.wait("document.querySelectorAll('.message').length === 4")
        self.assertIn("Calls weather", self.text(".call"))

    def test_settings_are_sent(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        self.press("Settings")
        self.set_field("#system", "Answer in verse.")
        self.set_field("#parameter-temperature", "0.25")
        self.set_field("#parameter-max_tokens", "17")
        self.set_field("#stop", "END\nSTOP")
        self.set_field("#thinking", "low")
        self.set_field("#format", "schema")
        self.set_field("#schema", json.dumps(schema))
        self.page.key("Escape")
        self.gateway.answers.append(['{"n": ', "7}"])
        self.ask("A number.")
        asked = self.gateway.asked[-1]
        self.assertEqual(asked["messages"][0],
                         {"role": "system", "content": "Answer in verse."})
        self.assertEqual(asked["temperature"], 0.25)
        self.assertEqual(asked["max_tokens"], 17)
        self.assertEqual(asked["stop"], ["END", "STOP"])
        self.assertEqual(asked["reasoning_effort"], "low")
        self.assertEqual(asked["response_format"], {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema}})
        self.assertEqual(self.text(".assistant .code code"), '{\n  "n": 7\n}')
        self.page.reload()
        self.page.wait("document.querySelectorAll('.message').length === 2")
        self.set_field("#format", "json")
        self.ask("Another.")
        self.assertEqual(self.gateway.asked[-1]["response_format"],
                         {"type": "json_object"})
        self.assertEqual(self.gateway.asked[-1]["temperature"], 0.25)

    def test_wrong_settings_are_told_of_and_not_sent(self):
        self.press("Settings")
        self.set_field("#tools", "[{")
        self.assertIn("The tools in the settings:", self.text("#tools-wrong"))
        self.set_field("#parameter-top_p", "7")
        self.assertIn("Not sent", self.text("#parameter-top_p-hint"))
        self.page.key("Escape")
        self.send("Hello.")
        self.page.wait("document.querySelector('.error')")
        self.assertIn("The tools in the settings", self.text(".error p"))
        self.assertEqual(self.gateway.asked, [])
        self.press("Open the settings")
        self.set_field("#tools", "{}")
        self.assertIn("must be an array, got object",
                      self.text("#tools-wrong"))
        self.set_field("#tools", "")
        self.page.key("Escape")
        self.press("Try again")
        self.page.wait(f"{TEXT} === 'You said: Hello.' && {ENDED}")
        self.assertNotIn("top_p", self.gateway.asked[-1])

    def test_a_system_prompt_belongs_to_its_chat(self):
        self.press("Settings")
        self.set_field("#system", "One.")
        self.page.key("Escape")
        self.ask("Chat of one")
        self.page.click("#new-chat")
        self.press("Settings")
        self.set_field("#system", "Two.")
        self.page.key("Escape")
        self.ask("Chat of two")
        self.press("Chat of one")
        self.page.wait(f"{TEXT} === 'You said: Chat of one'")
        self.ask("More")
        self.assertEqual(self.gateway.asked[-1]["messages"][0]["content"],
                         "One.")

    def test_files_are_dropped_as_text(self):
        page = self.page
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "notes.md").write_text("# Notes\n```\ncode\n```\n")
            (folder / "wide.txt").write_bytes("Größe".encode("utf-16"))
            (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
            (folder / "large.txt").write_text("x" * (1 << 20) + "x")
            page.drop("main", *sorted(folder.iterdir()))
            page.wait("document.querySelectorAll('.chip').length === 2")
            self.assertEqual(page.value(
                "[...document.querySelectorAll('#refused p')].map("
                "p => p.textContent)"),
                ["“large.txt” has 1.0 MiB, limit 1.0 MiB",
                 "“picture.png” is not text: this model reads text"])
            self.assertEqual(page.value(FOCUS), "prompt")
            self.press("Remove wide.txt")
            page.choose("#choose-files", folder / "wide.txt")
            page.wait("document.querySelectorAll('.chip').length === 2")
        self.ask("What is in them?")
        self.assertEqual(
            self.gateway.asked[-1]["messages"][-1]["content"],
            "File: notes.md\n````md\n# Notes\n```\ncode\n```\n````\n\n"
            "File: wide.txt\n```txt\nGröße\n```\n\nWhat is in them?")
        self.assertEqual(self.count(".chip"), 0)
        self.assertIn("notes.md", self.text(".file summary"))
        self.wait_until_kept()
        page.reload()
        page.wait("document.querySelectorAll('.file').length === 2")

    def test_the_time_of_each_token_is_shown(self):
        self.ask("Hello.")
        self.press("Time of this answer")
        self.page.wait("/ms each/.test(document.getElementById('times-of')"
                       ".textContent)")
        parts = self.text("#times-parts")
        for name in ("Stage 0 computes", "Stage 1 computes",
                     "Between processes", "Waits", "Gateway"):
            self.assertIn(name, parts)
        self.assertRegex(self.text("#times-of"),
                         r"24 tokens .* first after .* ms, then .* ms each")
        self.assertGreater(self.count("#times-columns rect"), 24 * 4)


if __name__ == "__main__":
    harness.main()
