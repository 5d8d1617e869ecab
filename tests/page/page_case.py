"""What the tests of the page share: a browser, and steps that a person does."""

import json
import unittest

import browser
import harness

PICTURES = harness.ROOT / "build" / "artefacts" / "page"
ANSWER = "document.querySelector('.message.assistant:last-child')"
TEXT = f"({ANSWER}?.querySelector('.body').textContent ?? '')"
ENDED = f"{ANSWER}?.getAttribute('aria-busy') === 'false'"
FOCUS = "document.activeElement.id"

# What axe-core finds, each with its elements; its source comes with the call.
AXE = """(() => { %s; return axe.run(document).then(found =>
    found.violations.map(one => `${one.id}: ` + one.nodes.map(node =>
        node.target.join(' ') + ' ' + node.failureSummary).join('; '))
    .join('\\n')); })()"""


class PageCase(unittest.TestCase):
    """A class's `make_gateway` gives a context manager with a `url`."""

    @classmethod
    def setUpClass(cls):
        program = browser.find()
        if program is None:
            raise unittest.SkipTest("needs Chromium (deploy/local/setup "
                                    "--tests installs Debian's)")
        cls.gateway = cls.enterClassContext(cls.make_gateway())
        cls.page = cls.enterClassContext(browser.Browser(program))

    def setUp(self):
        self.page.look()
        self.page.requests.clear()
        self.page.faults.clear()
        self.open()

    def open(self):
        self.page.open(self.gateway.url + "/")
        self.page.wait("document.getElementById('pill-text').textContent"
                       " === 'ready'")

    def tearDown(self):
        own = (self.gateway.url, "data:", "about:", f"blob:{self.gateway.url}")
        outside = [url for url in self.page.requests if not url.startswith(own)]
        self.page.forget(self.gateway.url)
        self.assertEqual(outside, [])
        self.assertEqual(self.page.faults, [])

    def send(self, text):
        self.page.value("document.getElementById('prompt').focus()")
        self.page.type(text)
        self.page.key("Enter")

    def ask(self, text, seconds=30):
        """Sends a text and awaits the whole answer."""
        before = self.page.value("document.querySelectorAll('.message').length")
        self.send(text)
        self.page.wait("document.querySelectorAll('.message').length === "
                       f"{before + 2} && {ENDED}", seconds)

    def set_parameters(self, **parameters):
        self.page.value(
            "import('/page/store.js').then(s => { Object.assign("
            f"s.settings.parameters, {json.dumps(parameters)}) }})")

    def load_conversation(self, *messages):
        """Shows a conversation as older pages kept them."""
        kept = [{"id": "1", "title": "Kept", "updated": 1, "messages": [
            {"role": role, "content": content} for role, content in messages]}]
        self.page.value("localStorage.setItem('sluice.conversations', "
                        f"{json.dumps(json.dumps(kept))})")
        self.page.reload()
        self.page.wait("document.querySelector('.conversation')")
        self.page.value("document.querySelector('.conversation').click()")
        self.page.wait("document.querySelectorAll('.message').length === "
                       f"{len(messages)}")

    def messages(self):
        return self.page.value("[...document.querySelectorAll("
                               "'.message .body:not(.call)')]"
                               ".map(b => b.textContent)")

    def screenshot(self, name):
        self.page.screenshot(PICTURES / f"{name}.png")
