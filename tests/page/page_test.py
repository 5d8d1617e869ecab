"""The gateway's page in headless Chromium, against a live cluster.

Screenshots are left in build/artefacts/page.
"""

import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import api  # noqa: E402
import browser  # noqa: E402
import harness  # noqa: E402
import page_case  # noqa: E402
from hostile_markdown import DEEP, MARKDOWN  # noqa: E402
from page_case import ANSWER, ENDED, FOCUS, TEXT  # noqa: E402

# The markup of a text that a view gets in pieces of a length, without copy
# buttons and newlines between elements.
SHOWN = r"""import('/page/markdown.js').then(m => {
    const text = %s, step = %d, root = document.createElement('div');
    const view = new m.MarkdownView(root);
    for (let at = step; at < text.length; at += step) {
      view.show(text.slice(0, at), true);
    }
    view.show(text, false);
    return root.innerHTML.replace(/<button.*?<\/button>/gs, 'COPY')
        .replace(/\n(?=<[a-z/])/g, '').replace(/>\n/g, '>');
})"""
# Whether a block that two others follow is left alone.
KEPT = r"""import('/page/markdown.js').then(m => {
    const root = document.createElement('div');
    const view = new m.MarkdownView(root);
    view.show('# A\n\n- b\n\nc', true);
    const [heading, list] = root.children;
    view.show('# A\n\n- b\n\nc\n\nd', true);
    view.show('# A\n\n- b\n\nc\n\nd\n\ne', false);
    return root.children[0] === heading && root.children[1] === list;
})"""
# The languages left of those whose grammars were too slow, by a clock that
# jumps; the texts name the grammars by an alias and in capitals.
DROPPED = r"""Promise.all([import('/page/markdown.js'),
                         import('/page/third_party/highlight.min.js')])
.then(([m, {default: hljs}]) => {
    const now = performance.now;
    let time = 0;
    performance.now = () => time += 1000;
    new m.MarkdownView(document.createElement('div')).show(
        '```js\nlet a\n```\n\n```C++\nint a;\n```', false);
    performance.now = now;
    return ['javascript', 'js', 'cpp', 'c++', 'python'].filter(
        name => hljs.getLanguage(name));
})"""
SHOWCASE = """Of course. A **sluice** is a gate that *lets water through*:

1. Water gathers behind the gate
2. The gate opens, step by step

```python
def flow(gate, rate=0.5):
    # litres per second
    return gate.width * rate
```

| Part | Made of | Since |
|:--|:--|--:|
| Gate | oak | 1820 |
| Frame | iron | 1874 |

See [how locks work](https://example.org/locks)."""


EVENTS = {"Content-Type": "text/event-stream"}


def chunk(text):
    """What a streamed chat sends of `text`."""
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def stream(*events):
    """Server-sent events, each an object or a text."""
    return "".join(
        f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
        for data in events)


class PageTest(page_case.PageCase):
    @classmethod
    def make_gateway(cls):
        cls.cluster = harness.Cluster(harness.default_model())
        return cls.cluster

    def test_an_answer_streams_and_can_be_asked_for_again(self):
        page = self.page
        self.set_parameters(temperature=0, max_tokens=40)
        page.value("window.lengths = new Set(); new MutationObserver(() => "
                   f"lengths.add({TEXT}.length)).observe(document."
                   "getElementById('messages'), {childList: true, "
                   "subtree: true, characterData: true}); 0")
        self.send("What is a sluice? Answer in one sentence.")
        page.wait(f"{TEXT} !== '' && {ENDED}", 30)
        # A busy machine draws few of them.
        self.assertGreater(
            page.value("[...lengths].filter(length => length > 0).length"), 1,
            "the text grew in steps")
        meta = page.value(f"{ANSWER}.querySelector('.meta').textContent")
        self.assertRegex(meta, r"\d+ tokens · \d+(\.\d)? tokens/s · "
                               r"first after \d+(\.\d)? m?s")
        first = page.value(TEXT)
        page.value(f"{ANSWER}.querySelector('[aria-label=\"Regenerate this "
                   "answer\"]').click()")
        page.wait(f"!({ENDED})")
        page.wait(ENDED, 30)
        self.assertEqual(page.value(TEXT), first, "greedy, so the same")
        self.assertEqual(page.value("document.querySelectorAll('.message')"
                                    ".length"), 2)
        page.reload()
        page.wait(f"{TEXT} !== ''")
        self.assertEqual(page.value(TEXT), first, "kept by the browser")

    def test_a_reload_takes_up_the_answer_again(self):
        page = self.page
        self.set_parameters(temperature=0, max_tokens=150)
        page.value("import('/page/store.js').then(s => s.saveSettings())")
        self.ask("Write a long story about a river.")
        whole = page.value(TEXT)
        page.click("#new-chat")
        self.send("Write a long story about a river.")
        page.wait("import('/page/chats.js').then(c => c.loadAll()).then(all =>"
                  " all.some(one => one.messages.at(-1).pending?.event))", 30)
        page.reload()
        page.wait(f"{TEXT} !== '' && {ENDED}", 30)
        self.assertEqual(page.value(TEXT), whole)
        self.assertEqual(page.value("document.querySelectorAll('.error')"
                                    ".length"), 0)

    def test_the_time_of_each_token_is_measured(self):
        page = self.page
        self.set_parameters(temperature=0, max_tokens=24)
        self.ask("Name some rivers.")
        page.click("[aria-label='Time of this answer']")
        page.wait("/ms each/.test(document.getElementById('times-of')"
                  ".textContent)")
        parts = page.value("[...document.querySelectorAll('#times-parts li')]"
                           ".map(one => one.textContent)")
        self.assertIn("Stage 0 computes", parts[0])
        self.assertIn("Stage 1 computes", parts[1])
        self.assertIn("Between processes", parts[2])
        shares = [float(part.split()[-2].removeprefix("ms"))
                  for part in parts]
        self.assertAlmostEqual(sum(shares), 100, delta=1.5)

    def test_json_mode_gives_json(self):
        page = self.page
        schema = {"type": "object", "additionalProperties": False,
                  "required": ["river", "km"], "properties": {
                      "river": {"type": "string", "maxLength": 20},
                      "km": {"type": "integer", "maximum": 9999}}}
        self.set_parameters(temperature=0, max_tokens=60)
        page.value("import('/page/store.js').then(s => Object.assign("
                   "s.settings, {format: 'schema', schema: "
                   f"{json.dumps(json.dumps(schema))}}}))")
        self.ask("A river and its length.")
        answer = json.loads(page.value(
            f"{ANSWER}.querySelector('.code code').textContent"))
        self.assertEqual(list(answer), ["river", "km"])

    def test_the_keyboard_is_enough(self):
        page = self.page
        self.assertEqual(page.value(FOCUS), "prompt")
        for _ in range(12):
            page.key("Tab", browser.SHIFT)
            if page.value(FOCUS) == "open-settings":
                break
        page.key("Enter")
        page.wait("document.getElementById('settings').open")
        for _ in range(4):
            page.key("Tab")
            if page.value(FOCUS) == "system":
                break
        self.assertEqual(page.value(FOCUS), "system")
        page.type("You speak of water.")
        page.key("Escape")
        page.wait("!document.getElementById('settings').open")
        self.assertEqual(page.value(FOCUS), "open-settings")
        page.value("document.activeElement.blur()")
        page.key("/")
        self.assertEqual(page.value(FOCUS), "prompt")
        page.type("Write a long story about a river.")
        page.key("Enter", browser.SHIFT)
        self.assertEqual(page.value("document.querySelectorAll('.message')"
                                    ".length"), 0, "Shift+Enter: a new line")
        page.key("Enter")
        page.wait(f"{TEXT}.length > 10", 30)
        page.key("Escape")
        page.wait(ENDED, 2)
        self.assertIn("stopped", page.value(
            f"{ANSWER}.querySelector('.meta').textContent"))
        harness.wait_for(lambda: self.reading()["engine"]["running"] == 0,
                         5, "the engine has let go of the stopped answer")
        page.key("ArrowUp")
        self.assertIn("river", page.value("document.activeElement.value"))
        page.key("Escape")
        self.assertTrue(page.value("document.activeElement.closest("
                                   "'.message.user') !== null"))

    def test_the_api_is_described(self):
        page = self.page
        page.open(self.cluster.url + "/docs")
        page.wait("document.querySelector('#document section')")
        _, text = api.get(self.cluster.url, "/openapi.json")
        paths = json.loads(text)["paths"]
        self.assertEqual(
            page.value("[...document.querySelectorAll('#links a')].map("
                       "a => a.textContent)"),
            [f"{method.upper()} {path}" for path, methods in paths.items()
             for method in methods])
        row = "document.querySelector('[data-field=temperature]')"
        self.assertRegex(page.value(f"{row}.textContent"),
                         "number or null.*from 0; to 2; default 1")
        page.value("document.getElementById('filter').focus()")
        page.type("top_")
        self.assertTrue(page.value(f"{row}.hidden"))
        self.assertFalse(page.value(
            "document.querySelector('[data-field=top_p]').hidden"))
        self.screenshot("docs")
        self.check_axe("docs")

    def check_axe(self, name):
        axe = harness.test_data("axe/axe.min.js").read_text()
        for width, height in ((1360, 860), (390, 844)):
            for dark in (False, True):
                self.page.look(width, height, dark=dark)
                # Colors are there with the next frame.
                self.page.value("new Promise(done => requestAnimationFrame("
                                "() => requestAnimationFrame(() => done(1))))")
                with self.subTest(name, width=width, dark=dark):
                    self.assertEqual(self.page.value(page_case.AXE % axe), "")

    def reading(self):
        status, text = api.get(self.cluster.url, "/cluster")
        self.assertEqual(status, 200)
        return json.loads(text)

    def seconds_of_a_reading(self):
        begin = time.monotonic()
        self.reading()
        return time.monotonic() - begin

    def test_a_message_can_be_edited(self):
        page = self.page
        self.set_parameters(temperature=0, max_tokens=8)
        for text in ("Say one.", "Say two."):
            self.send(text)
            page.wait(f"{TEXT} !== '' && {ENDED}", 30)
        self.assertEqual(len(self.messages()), 4)
        page.value("document.querySelector('.message.user "
                   "[aria-label=\"Edit this message\"]').click()")
        page.value("document.activeElement.select()")
        page.type("Say three.")
        page.key("Enter")
        page.wait(f"{TEXT} !== '' && {ENDED}", 30)
        self.assertEqual(self.messages()[0], "Say three.")
        self.assertEqual(len(self.messages()), 2, "what followed is gone")

    def test_the_theme_is_chosen_and_kept(self):
        page = self.page
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.value(ground)
        page.click("#theme")
        dark = page.value(ground)
        self.assertNotEqual(dark, light)
        page.reload()
        self.assertEqual(page.value(ground), dark)
        page.look(dark=True)
        self.assertEqual(page.value(ground), dark)
        page.click("#theme")
        self.assertEqual(page.value(ground), light)

    def test_what_a_model_writes_is_never_run(self):
        page = self.page
        for text, want in MARKDOWN:
            with self.subTest(text):
                self.assertEqual(self.shown(text), want)
        hostile = "\n\n".join(text for text, _ in MARKDOWN)
        self.load_conversation(("user", hostile), ("assistant", hostile))
        page.wait("document.querySelectorAll('.message').length === 2")
        pieces = [hostile[i:i + 7] for i in range(0, len(hostile), 7)]
        with page.answering("/v1/chat/completions", 200, EVENTS,
                            stream(*map(chunk, pieces), "[DONE]")):
            self.send("<img src=x onerror=window.pwned=1>")
            page.wait(f"{TEXT} !== '' && {ENDED}")
        self.assertEqual(len(self.messages()), 4)
        self.assertEqual(self.messages()[3], self.messages()[1])
        self.assertIsNone(page.value("window.pwned ?? null"))
        self.assertEqual(page.value("document.querySelectorAll("
                                    "'#messages :is(img, script)').length"),
                         0)
        # The policy stands behind the renderer.
        self.assertEqual(page.value(
            "(() => { try { document.createElement('p').innerHTML = '<b>'; "
            "return 'allowed'; } catch (e) { return e.name; } })()"),
            "TypeError")
        page.faults.clear()  # the policy's report of just that

    def shown(self, text, step=1 << 30):
        return self.page.value(SHOWN % (json.dumps(text), step))

    def test_a_text_looks_the_same_however_it_came(self):
        several = ("a\n\n- b\n\n- c\n\n  d\n- e\n---\n===\n1. f\n\n2. g\r\nh\n\n"
                   "    i\n\n> j\nk\n~~~\nl\n\nm\n~~~\n|n|\n|-|\n|o|\np")
        for text in (SHOWCASE, several, "\n\n".join(
                text for text, _ in MARKDOWN)):
            for step in (1, 7):
                self.assertEqual(self.shown(text, step), self.shown(text))
        self.assertTrue(self.page.value(KEPT))

    def test_a_hostile_text_is_shown_in_time(self):
        for text in DEEP:
            with self.subTest(text[:20]):
                begin = time.monotonic()
                self.assertGreater(len(self.shown(text, len(text) // 20)),
                                   len(text) / 2)
                self.assertLess(time.monotonic() - begin, 10)

    def test_a_slow_grammar_is_dropped_by_each_of_its_names(self):
        self.assertEqual(self.page.value(DROPPED), ["python"])

    def test_refusals_say_what_to_do(self):
        page = self.page
        error = json.dumps({"error": {"message": "The queue is full"}})
        with page.answering("/v1/chat/completions", 429,
                            {"Retry-After": "2"}, error):
            self.send("Hello")
            page.wait("document.querySelector('.error')")
        shown = page.value("document.querySelector('.error').textContent")
        self.assertIn("429", shown)
        self.assertIn("The queue is full", shown)
        self.assertRegex(shown, r"Try again in [12] s")
        self.assertTrue(page.value(
            "document.querySelector('.error button').disabled"))
        page.wait("!document.querySelector('.error button').disabled", 4)
        with page.answering("/v1/chat/completions", 401, {}, error):
            page.click(".error button")
            page.wait("document.querySelectorAll('.error button').length"
                      " === 2")
            page.click(".error button + button")
        self.assertEqual(page.value(FOCUS), "api-key")
        page.type("a-key-of-tests")
        page.key("Escape")
        self.assertEqual(page.value("sessionStorage.getItem('sluice.key')"),
                         "a-key-of-tests")
        self.assertNotIn("a-key-of-tests",
                         page.value("JSON.stringify(localStorage)"))

    def test_an_answer_cut_short_says_why_and_keeps_its_text(self):
        page = self.page
        lost = {"error": {"message": "stage 1 was lost", "param": None,
                          "type": "service_unavailable_error",
                          "code": "unavailable"}}
        with page.answering("/v1/chat/completions", 200, EVENTS,
                            stream(chunk("A sluice is"), lost)):
            self.send("Hello")
            page.wait("document.querySelector('.error')")
        shown = page.value("document.querySelector('.error').textContent")
        self.assertIn("The answer was cut short", shown)
        self.assertIn("stage 1 was lost", shown)
        self.assertNotRegex(shown, r"\d{3}")
        self.assertEqual(page.value(TEXT), "A sluice is")

    def test_pictures_are_taken(self):
        page = self.page
        self.load_conversation(
            ("user", "What is a sluice? Show me some code and a table."),
            ("assistant", SHOWCASE))
        page.wait("document.querySelector('.message.assistant table')")
        taken = threading.Event()

        def keep_asking():
            while not taken.is_set():
                api.completion(self.cluster.url, "A story:", max_tokens=200)

        work = [threading.Thread(target=keep_asking) for _ in range(4)]
        self.addCleanup(taken.set)
        for thread in work:
            thread.start()
        page.wait("document.getElementById('tile-running').textContent > 2")
        page.wait("parseFloat(document.getElementById('tile-rate')"
                  ".textContent) > 5")
        self.screenshot("light")
        page.look(dark=True)
        self.screenshot("dark")
        taken.set()
        for thread in work:
            thread.join()
        page.look(390, 844, dark=True)
        self.screenshot("narrow")
        self.assertLessEqual(
            page.value("document.documentElement.scrollWidth"), 390)
        page.click("#pill")
        page.wait("document.body.classList.contains('cluster-open')")
        self.screenshot("narrow-cluster")
        page.key("Escape")
        self.assertEqual(page.value(FOCUS), "pill")

    def test_the_picture_shows_a_lost_stage_and_its_return(self):
        page = self.page
        self.assertEqual(self.states(), ["ready", "ready"])
        layers = page.value("[...document.querySelectorAll("
                            "'#picture .stage')].map(s => s.textContent)")
        self.assertIn("[0, 15)", layers[0])
        self.assertIn("[15, 30)", layers[1])
        self.set_parameters(max_tokens=400, temperature=0)
        self.send("Write a long story about a river.")
        page.wait("parseFloat(document.getElementById('tile-rate')"
                  ".textContent) > 1", 30)
        page.wait(f"{TEXT}.length > 100", 30)
        self.screenshot("streaming")
        seconds = sorted(self.seconds_of_a_reading() for _ in range(20))
        print(f"/cluster under load: median {1e3 * seconds[10]:.1f} ms, "
              f"longest {1e3 * seconds[-1]:.1f} ms")
        self.assertLess(seconds[10], 0.05)
        self.cluster.kill("stage", 1)
        page.wait("document.querySelectorAll('#picture .stage')[1]"
                  ".dataset.state === 'lost'", 3)
        page.wait("document.getElementById('pill-text').textContent"
                  " === 'stage 1 lost'", 3)
        page.wait("document.getElementById('events').textContent"
                  ".includes('Stage 1')", 3)
        self.assertIn("[15, 30)", page.value(
            "document.querySelectorAll('#picture .stage')[1].textContent"))
        self.screenshot("killed")
        with harness.measured("from restart to a picture that shows it"):
            self.cluster.restart("stage", 1)
            page.wait("document.getElementById('pill-text').textContent"
                      " === 'ready'", 30)
        self.assertEqual(self.states(), ["ready", "ready"])
        page.wait(ENDED, 60)
        self.assertEqual(page.value("document.querySelectorAll('.error')"
                                    ".length"), 0, "the answer goes on")
        self.assertRegex(page.value(f"{ANSWER}.querySelector('.meta')"
                                    ".textContent"),
                         r"4\d\d tokens .* longest pause \d+\.\d s")
        page.click("[aria-label='Time of this answer']")
        page.wait("/ms each/.test(document.getElementById('times-of')"
                  ".textContent)")
        self.screenshot("returned")

    def states(self):
        return self.page.value("[...document.querySelectorAll("
                               "'#picture .stage')].map(s => "
                               "s.dataset.state)")


if __name__ == "__main__":
    harness.main()
