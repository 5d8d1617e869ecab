"""What the tests against answers that they write share."""

import json
import pathlib
import tempfile

import harness
import page_case
import scripted_gateway
from page_case import ENDED, TEXT

TOOLS = [{"type": "function", "function": {
    "name": "weather", "parameters": {"type": "object", "properties": {
        "place": {"type": "string"}}}}}]
CALLS = [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
                          "function": {"name": "weather", "arguments": ""}}]},
         {"tool_calls": [{"index": 0, "function": {
             "arguments": '{"place": '}}]},
         {"tool_calls": [{"index": 0, "function": {
             "arguments": '"Delft"}'}}]}]
THOUGHTS = [{"reasoning_content": "The user "},
            {"reasoning_content": "greets me."}]
SHOWCASE = """# A sluice

It *lets* **water** `through`:

1. Water gathers
2. [The gate](https://example.org/gate) opens

> Step by step

```python
def flow(gate, rate=0.5):  # litres per second
    return gate.width * rate
```

| Part | Since |
|:--|--:|
| Gate | 1820 |"""
PICTURE = harness.ROOT / "services/gateway/page/screenshot.png"


class ScriptedCase(page_case.PageCase):
    @classmethod
    def make_gateway(cls):
        return scripted_gateway.Gateway()

    def setUp(self):
        self.gateway.answers.clear()
        self.gateway.asked.clear()
        self.gateway.resumed.clear()
        self.gateway.cluster = scripted_gateway.reading()
        super().setUp()

    def count(self, selector):
        return self.page.value(
            f"document.querySelectorAll({json.dumps(selector)}).length")

    def text(self, selector):
        return self.page.value(
            f"document.querySelector({json.dumps(selector)}).textContent")

    def set_field(self, selector, value):
        """Writes a value into a field of the settings, as a person does."""
        self.page.value(
            f"(() => {{ const e = document.querySelector({selector!r});"
            f"e.value = {json.dumps(value)};"
            "e.dispatchEvent(new Event('input', {bubbles: true})); })()")

    def press(self, label):
        """Presses the last button of that label by the keyboard."""
        self.page.value("[...document.querySelectorAll('button')].filter(b => "
                        f"b.ariaLabel === {json.dumps(label)} || "
                        f"b.textContent === {json.dumps(label)})"
                        ".at(-1).focus()")
        self.page.key("Enter")

    def stored(self):
        """The number of messages that the browser keeps."""
        return self.page.value(
            "import('/page/chats.js').then(c => c.loadAll()).then(all => "
            "all.reduce((n, one) => n + one.messages.length, 0))")

    def wait_until_kept(self):
        self.page.wait("import('/page/chats.js').then(c => !c.hasUnwritten())")

    def everything(self):
        """A chat with each thing that a message can have."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "notes.md"
            path.write_text("# Notes\n")
            self.page.choose("#choose-files", path)
            self.page.wait("document.querySelector('.chip')")
            self.gateway.answers.append([*THOUGHTS, SHOWCASE])
            self.ask("Show it all.")
        self.press("Regenerate this answer")
        self.page.wait(f"{ENDED} && {TEXT}.startsWith('You said')")
        self.press("Earlier version")
        self.set_field("#tools", json.dumps(TOOLS))
        self.gateway.answers += [(THOUGHTS + CALLS, "tool_calls"),
                                 (["It rains"], "length")]
        self.ask("What is the weather?")
        self.page.value("document.querySelector('.calls textarea').focus()")
        self.page.type("Rain")
        self.press("Send the result")
        self.page.wait(f"{TEXT} === 'It rains' && {ENDED}")
        self.gateway.answers.append([
            "Half", {"content": "way"}, scripted_gateway.BROKEN])
        self.ask("Fail.")
        self.gateway.answers.append((THOUGHTS + CALLS, "tool_calls"))
        self.ask("Call once more.")
        self.page.choose("#choose-files", __file__, PICTURE)
        self.page.wait("document.querySelector('#refused p')")
