"""Chats in headless Chromium: how they are kept, their versions, their streams,
against answers that the tests write (scripted_gateway.py)."""

import base64
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402
import scripted_case  # noqa: E402
import scripted_gateway  # noqa: E402
from page_case import ANSWER, ENDED, TEXT  # noqa: E402


class ChatsTest(scripted_case.ScriptedCase):
    # Kept

    def test_fifty_turns_are_kept_over_a_reload(self):
        for turn in range(50):
            self.ask(f"Turn {turn}: " + "water " * 200)
        before = self.messages()
        self.assertEqual(len(before), 100)
        self.wait_until_kept()
        begin = time.monotonic()
        self.page.reload()
        self.page.wait("document.querySelectorAll('.message').length === 100")
        print(f"50 turns are back {time.monotonic() - begin:.2f} s after a "
              "reload")
        self.assertEqual(self.messages(), before)
        self.ask("And one more.")
        self.assertEqual(len(self.gateway.asked[-1]["messages"]), 101)
        self.assertEqual(self.stored(), 102)

    def test_chats_of_older_pages_move_over(self):
        self.load_conversation(("user", "Old"), ("assistant", "Older"))
        self.wait_until_kept()
        self.assertIsNone(self.page.value(
            "localStorage.getItem('sluice.conversations')"))
        self.page.reload()
        self.page.wait("document.querySelectorAll('.message').length === 2")
        self.assertEqual(self.messages()[0], "Old")

    def test_a_full_browser_is_told_of_and_loses_nothing(self):
        page, origin = self.page, self.gateway.url
        # Chromium asks for the room that is left when it opens the database.
        page.forget(origin)
        page.call("Storage.overrideQuotaForOrigin", origin=origin,
                  quotaSize=1 << 20)
        self.addCleanup(page.call, "Storage.overrideQuotaForOrigin",
                        origin=origin)
        self.open()
        self.ask("Small.")
        self.wait_until_kept()
        self.gateway.answers.append([base64.b64encode(
            random.Random(1).randbytes(1 << 21)).decode()])
        self.ask("Write much.")
        page.wait("!document.getElementById('trouble').hidden")
        self.assertIn("its storage is full", self.text("#trouble-text"))
        self.assertEqual(len(self.messages()), 4)
        with tempfile.TemporaryDirectory() as folder:
            page.save_downloads(folder)
            page.click("#trouble-export")
            kept = self.downloaded(folder)
        self.assertEqual(len(kept["chats"][0]["messages"]), 4)
        self.assertTrue(page.value(
            "import('/page/chats.js').then(c => c.hasUnwritten())"))
        page.call("Storage.overrideQuotaForOrigin", origin=origin)
        self.ask("Again.")
        page.wait("document.getElementById('trouble').hidden")
        page.reload()
        page.wait("document.querySelectorAll('.message').length === 6")

    def downloaded(self, folder):
        path = harness.wait_for(
            lambda: next(iter(pathlib.Path(folder).glob("*.json")), None),
            10, "a download")
        return json.loads(path.read_text())

    def test_chats_are_exported_and_imported(self):
        page = self.page
        self.ask("One.")
        self.press("Edit this message")
        page.value("document.activeElement.select()")
        page.type("Two.")
        page.key("Enter")
        page.wait(f"{TEXT} === 'You said: Two.' && {ENDED}")
        with tempfile.TemporaryDirectory() as folder:
            page.save_downloads(folder)
            page.click("#export")
            file = self.downloaded(folder)
            self.assertEqual(len(file["chats"][0]["messages"]), 4)
            path = next(pathlib.Path(folder).glob("*.json"))
            page.forget(self.gateway.url)
            self.open()
            for _ in range(2):  # the second time changes nothing
                page.choose("#choose-import", path)
                page.wait(f"{TEXT} === 'You said: Two.'")
                page.wait("document.getElementById('toast').textContent"
                          ".startsWith('1 imported')")
                page.value("document.getElementById('toast')"
                           ".replaceChildren()")
            self.assertEqual(self.count("#conversations li"), 1)
            self.assertEqual(self.stored(), 4)
            self.assertEqual(self.text(".message.user .versions span"),
                             "2 of 2")
            self.refuse_imports(pathlib.Path(folder) / "file.json")

    def refuse_imports(self, path):
        for text, why in (
                ("{", "it is no JSON"),
                ('{"a": 1}', "the chat has no list of messages"),
                ('{"format": "sluice-chats", "version": 2}',
                 "version is 2, not 1"),
                ('[{"role": "user", "content": 5}]',
                 "the chat.messages[0].content is no text"),
                ('[{"role": "king", "content": ""}]',
                 "the chat.messages[0].role must be"),
                ('{"messages": [{"role": "user", "content": "", "id": "a", '
                 '"parent": "a"}]}',
                 "the chat.messages[0].parent is not the id")):
            path.write_text(text)
            self.page.choose("#choose-import", path)
            self.page.wait("document.getElementById('toast').textContent"
                           f".includes({json.dumps(why)})")
        self.assertEqual(self.count("#conversations li"), 1)
        path.write_text(json.dumps({"messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "<b>"}]},
            {"role": "assistant", "content": "<script>"}]}))
        self.page.choose("#choose-import", path)
        self.page.wait(f"{TEXT} === '<script>'")
        self.press("Settings")
        self.assertEqual(self.page.value(
            "document.getElementById('system').value"), "Be kind.")
        self.page.key("Escape")

    def test_a_chat_is_named_found_deleted_and_brought_back(self):
        page = self.page
        for name in "abcdef":
            page.click("#new-chat")
            self.ask(f"Chat {name}")
        self.set_field("#search", "chat c")
        self.assertEqual(self.count("#conversations li"), 1)
        self.press("Rename “Chat c”")
        page.type("Rivers")
        page.key("Enter")
        page.wait("import('/page/chats.js').then(c => "
                  "c.heads.some(h => h.title === 'Rivers'))")
        self.set_field("#search", "")
        self.assertEqual(self.count("#conversations li"), 6)
        self.press("Delete “Rivers”")
        page.wait("document.querySelectorAll('#conversations li').length"
                  " === 5")
        self.assertEqual(page.value("document.activeElement.className"),
                         "conversation")
        self.press("Undo")
        page.wait(f"{TEXT} === 'You said: Chat c'")
        self.wait_until_kept()
        page.reload()
        page.wait(f"{TEXT} === 'You said: Chat c'")
        self.assertEqual(self.text(".current .conversation"), "Rivers")

    def test_two_tabs_share_their_chats(self):
        page = self.page
        self.ask("From the first.")
        self.wait_until_kept()
        address = page.value("location.href")
        with page.other_tab(address):
            page.wait("document.querySelectorAll('.message').length === 2")
            self.ask("From the second.")
            self.wait_until_kept()
        page.wait("document.querySelectorAll('.message').length === 4")
        self.assertEqual(self.messages()[2], "From the second.")

    # Versions

    def test_edits_and_answers_again_are_versions(self):
        page = self.page
        self.ask("First.")
        self.ask("Second.")
        page.value("document.querySelector('.message.user [aria-label=\"Edit "
                   "this message\"]').click()")
        page.value("document.activeElement.select()")
        page.type("Other.")
        page.key("Enter")
        page.wait(f"{TEXT} === 'You said: Other.' && {ENDED}")
        self.assertEqual(self.messages(), ["Other.", "You said: Other."])
        self.gateway.answers.append(["Once more."])
        self.press("Regenerate this answer")
        page.wait(f"{TEXT} === 'Once more.' && {ENDED}")
        self.assertEqual([one["content"] for one in
                          self.gateway.asked[-1]["messages"]], ["Other."])
        self.assertEqual(page.value(
            "[...document.querySelectorAll('.versions span')].map("
            "s => s.textContent)"), ["2 of 2", "2 of 2"])
        self.press("Earlier version")  # of the answer
        self.assertEqual(page.value(TEXT), "You said: Other.")
        self.assertEqual(page.value("document.activeElement.ariaLabel"),
                         "Later version", "the focus stays with the versions")
        page.value("document.querySelector('.message.user [aria-label=\""
                   "Earlier version\"]').focus()")
        page.key("Enter")
        self.assertEqual(self.messages()[::2], ["First.", "Second."])
        self.wait_until_kept()
        page.reload()
        page.wait("document.querySelectorAll('.message').length === 4")
        self.press("Later version")
        self.assertEqual(self.messages(), ["Other.", "You said: Other."])

    def test_an_answer_goes_on_where_it_was_cut(self):
        self.gateway.answers += [(["One, two"], "length"), [", three."]]
        self.ask("Count.")
        self.assertIn("cut at the most tokens", self.text(".assistant .meta"))
        self.press("Continue this answer")
        self.page.wait(f"{TEXT} === 'One, two, three.' && {ENDED}")
        asked = self.gateway.asked[-1]
        self.assertTrue(asked["continue_final_message"])
        self.assertEqual(asked["messages"][-1],
                         {"role": "assistant", "content": "One, two"})
        self.assertEqual(self.count(".message"), 2)

    # Streams

    def test_an_answer_goes_on_beside_another_chat(self):
        page, gate = self.page, threading.Event()
        self.gateway.answers.append(["Slow", gate, " but sure."])
        self.send("Slowly.")
        page.wait(f"{TEXT} === 'Slow'")
        page.click("#new-chat")
        self.ask("Quickly.")
        self.assertEqual(self.count("#conversations .busy"), 1)
        gate.set()
        page.wait("document.querySelectorAll('.busy').length === 0")
        page.value("document.querySelectorAll('.conversation')[0].click()")
        page.wait(f"{TEXT} === 'Slow but sure.'")

    def test_a_stopped_answer_keeps_its_text(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.gateway.answers.append(["So far", gate, "no further"])
        self.send("Talk.")
        self.page.wait(f"{TEXT} === 'So far'")
        self.page.key("Escape")
        self.page.wait(ENDED, 2)
        self.assertIn("stopped", self.text(".assistant .meta"))
        self.wait_until_kept()
        self.page.reload()
        self.page.wait(f"{TEXT} === 'So far'")

    def test_a_broken_connection_is_taken_up_again(self):
        self.gateway.answers.append(["One ", "two ", scripted_gateway.CUT,
                                     "three"])
        self.ask("Count.")
        self.assertEqual(self.page.value(TEXT), "One two three")
        self.assertEqual([event for _, event in self.gateway.resumed], ["2"])
        self.assertEqual(self.count(".error"), 0)

    def test_a_reload_takes_up_the_answer_again(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.gateway.answers.append(
            ["One ", gate, {"content": "two"}, " three"])
        self.send("Count.")
        self.page.wait(f"{TEXT} === 'One '")
        self.wait_until_kept()
        self.page.wait("import('/page/chats.js').then(c => c.loadAll())"
                       ".then(([one]) => one.messages[1].pending?.event"
                       " === '1')")
        self.page.reload()
        self.page.wait(f"{TEXT} === 'One two three' && {ENDED}")
        self.assertEqual([event for _, event in self.gateway.resumed], ["1"])
        self.assertIn("3 tokens", self.text(".assistant .meta"))

    def test_an_answer_that_had_not_begun_is_taken_up_too(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.gateway.answers.append([gate, "One"])
        self.send("Count.")
        self.wait_until_kept()
        harness.wait_for(lambda: self.gateway.asked, 10, "the request")
        self.page.reload()
        self.page.wait(f"{TEXT} === 'One' && {ENDED}")
        self.assertEqual([event for _, event in self.gateway.resumed], [None])

    def test_a_silent_answer_says_which_stage_it_waits_for(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.gateway.answers.append(["One ", gate, "two"])
        self.send("Count.")
        self.page.wait(f"{TEXT} === 'One '")
        self.gateway.cluster["ready"] = False
        self.gateway.cluster["stages"][1]["state"] = "lost"
        self.page.wait(f"{ANSWER}.querySelector('.meta').textContent"
                       " === 'waiting: stage 1 lost'")
        self.gateway.cluster = scripted_gateway.reading()
        self.page.wait("document.getElementById('pill-text').textContent"
                       " === 'ready'")
        gate.set()
        self.page.wait(f"{TEXT} === 'One two' && {ENDED}")
        self.assertRegex(self.text(".assistant .meta"),
                         r"longest pause \d+\.\d s")


if __name__ == "__main__":
    harness.main()
