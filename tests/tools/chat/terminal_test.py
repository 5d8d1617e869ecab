"""`sluice chat` as a person uses it: keys on a pseudo-terminal, and a server that
speaks each dialect."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from recorded_server import STREAMS, RecordedServer

COMMAND = pathlib.Path(os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice")
SECONDS = 30
UP, DOWN, LEFT, ALT_ENTER = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b\r"
CTRL_C, CTRL_D = "\x03", "\x04"
NAMES = {"/v1/chat/completions": "chat", "/v1/responses": "responses",
         "/v1/messages": "messages", "/api/chat": "ollama"}


def paste(text):
    return f"\x1b[200~{text}\x1b[201~"


class Terminal:
    """The command on a pseudo-terminal of 80 by 24. `seen` is all it wrote."""

    def __init__(self, words, environment):
        self.main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(terminal)
        self.terminal = terminal  # open, so that its modes can be read
        self.child = subprocess.Popen(
            [COMMAND, "chat", *words], stdin=terminal, stdout=terminal,
            stderr=terminal, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen, self.at = "", 0

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(SECONDS)
        os.close(self.main)
        os.close(self.terminal)

    def read(self):
        if select.select([self.main], [], [], 0.05)[0]:
            self.seen += os.read(self.main, 65536).decode(errors="replace")

    def wait(self, text):
        """Reads until `text` comes, behind what was waited for before; gives
        what stands between."""
        end = time.monotonic() + SECONDS
        while (found := self.seen.find(text, self.at)) < 0:
            if time.monotonic() > end:
                raise AssertionError(f"no {text!r} in {self.seen[self.at:]!r}")
            self.read()
        between = self.seen[self.at:found]
        self.at = found + len(text)
        return between

    def type(self, keys):
        os.write(self.main, keys.encode())

    def ended(self):
        end = time.monotonic() + SECONDS
        while self.child.poll() is None and time.monotonic() < end:
            self.read()
        return self.child.wait(1)


class TerminalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-chat-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.server = self.serve()

    def serve(self, *arguments, **named):
        server = RecordedServer(*arguments, **named)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def start(self, *words, server=None, **environment):
        terminal = Terminal(
            ["--url", (server or self.server).url, *words],
            {"XDG_STATE_HOME": str(self.folder), "HOME": str(self.folder),
             **environment})
        self.addCleanup(terminal.close)
        terminal.wait("> ")
        return terminal

    def ask(self, terminal, keys, count):
        """Types and waits for the answer's figures and the next prompt."""
        terminal.type(keys + "\r")
        shown = terminal.wait("in all")
        terminal.wait("> ")
        self.assertEqual(len(self.server.bodies), count)
        return shown

    def turns(self, index=-1):
        return [(m["role"], m["content"])
                for m in self.server.bodies[index][1]["messages"]]

    def test_every_dialect_is_found_spoken_and_shown(self):
        for path in STREAMS:
            with self.subTest(path):
                server = self.serve((path,), models=path != "/api/chat")
                server.thinking = ["Let me ", "see."]
                server.pieces = ["**Bo", "ld** and", " `code`.\n- one\n"]
                terminal = self.start("--system", "Be brief.", "--max-tokens",
                                      "9", server=server)
                self.assertIn(f"m, {NAMES[path]}.", terminal.seen)
                terminal.type("Hi\r")
                terminal.wait("\x1b[0;2mLet me \x1b[0m\x1b[0;2msee.\x1b[0m")
                terminal.wait("\x1b[0;1mBold\x1b[0m and")
                terminal.wait("\x1b[0;36mcode\x1b[0m.")
                terminal.wait("• one")
                figures = terminal.wait("> ")
                self.assertIn("7 tokens, ", figures)
                self.assertIn("prompt of 12", figures)
                terminal.type("/retry\r")
                terminal.wait("in all")
                terminal.type(CTRL_D)
                self.assertEqual(terminal.ended(), 0)
                self.check_bodies(path, server)

    def check_bodies(self, path, server):
        self.assertEqual([p for p, _ in server.bodies], [path] * 2)
        self.assertEqual(server.bodies[0], server.bodies[1])
        body = server.bodies[0][1]
        self.assertIs(body["stream"], True)
        self.assertEqual(body["model"], "m")
        user = {"role": "user", "content": "Hi"}
        system = {"role": "system", "content": "Be brief."}
        if path == "/v1/responses":
            self.assertEqual((body["instructions"], body["input"]),
                             ("Be brief.", [user]))
            self.assertEqual(body["max_output_tokens"], 9)
        elif path == "/v1/messages":
            self.assertEqual((body["system"], body["messages"]),
                             ("Be brief.", [user]))
            self.assertEqual(body["max_tokens"], 9)
            self.assertEqual(server.headers[0]["anthropic-version"],
                             "2023-06-01")
        else:
            self.assertEqual(body["messages"], [system, user])
            limits = body["options"]["num_predict"] \
                if path == "/api/chat" else body["max_tokens"]
            self.assertEqual(limits, 9)

    def test_a_refusal_is_shown_in_every_dialect_and_forgotten(self):
        for path in STREAMS:
            with self.subTest(path):
                server = self.serve()
                server.status = 400
                terminal = self.start("--dialect", NAMES[path], "--api-key",
                                      "k", server=server)
                terminal.type("Hi\r")
                terminal.wait("no such thing")
                self.assertEqual(server.headers[0]["Authorization"], "Bearer k")
                server.status = 200
                terminal.type("Again\r")
                terminal.wait("Hello.")
                field = "input" if path == "/v1/responses" else "messages"
                self.assertEqual(
                    server.bodies[1][1][field],
                    [{"role": "user", "content": "Again"}])

    def test_lines_come_by_alt_enter_backslash_block_and_paste(self):
        terminal = self.start()
        self.ask(terminal, "one" + ALT_ENTER + "two", 1)
        self.ask(terminal, "three\\\rfour", 2)
        self.ask(terminal, '"""\rfive\r\rsix\r"""', 3)
        self.ask(terminal, paste("if x:\r\ty\\\rz\x1b[2J\r"), 4)
        self.assertEqual([text for role, text in self.turns() if role == "user"],
                         ["one\ntwo", "three\nfour", "five\n\nsix",
                          "if x:\n\ty\\\nz[2J\n"])

    def test_keys_edit_and_the_history_is_kept_private(self):
        terminal = self.start()
        self.ask(terminal, "helo" + LEFT + "l", 1)
        self.ask(terminal, "two words\x17thoughts", 2)
        self.ask(terminal, UP + UP + "\x05!", 3)
        self.ask(terminal, "é漢" + LEFT + "\x7f", 4)
        terminal.type("left" + CTRL_C)
        self.ask(terminal, UP + DOWN + UP, 5)
        terminal.type(CTRL_D)
        self.assertEqual(terminal.ended(), 0)
        said = [text for role, text in self.turns() if role == "user"]
        self.assertEqual(said, ["hello", "two thoughts", "hello!", "漢", "漢"])
        history = self.folder / "sluice/chat_history"
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)
        self.assertEqual([json.loads(line) for line in
                          history.read_text().splitlines()], said[:4])
        terminal = self.start()
        self.ask(terminal, UP, 6)
        self.assertEqual(self.turns(), [("user", "漢")])
        terminal = self.start("--no-history")
        self.ask(terminal, UP + "new", 7)
        self.assertEqual(self.turns(), [("user", "new")])
        self.assertNotIn("new", history.read_text())

    def test_ctrl_c_stops_an_answer_and_leaves_at_the_second_empty_prompt(self):
        self.server.pieces = ["Once ", None, "upon"]
        terminal = self.start()
        terminal.type("Tell\r")
        terminal.wait("Once ")
        terminal.type(CTRL_C)
        terminal.wait("> ")
        self.assertIsNone(terminal.child.poll())
        self.server.pieces = ["Well."]
        self.ask(terminal, "And?", 2)
        self.assertEqual(self.turns(), [("user", "Tell"), ("assistant", "Once "),
                                        ("user", "And?")])
        terminal.type(CTRL_C)
        terminal.wait("again")
        self.ask(terminal, "No.", 3)  # another key between the two
        terminal.type(CTRL_C)
        terminal.wait("again")
        terminal.type(CTRL_C)
        self.assertEqual(terminal.ended(), 130)
        self.assertEqual(termios.tcgetattr(terminal.terminal), terminal.modes)
        self.server.go_on.set()

    def test_a_signal_gives_the_terminal_back(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            terminal = self.start()
            terminal.child.send_signal(number)
            self.assertEqual(terminal.ended(), code)
            self.assertEqual(termios.tcgetattr(terminal.terminal),
                             terminal.modes)

    def test_conversations_are_saved_loaded_and_taken_back(self):
        terminal = self.start()
        self.ask(terminal, "/system Be brief.\r/set temperature 0.5\rOne", 1)
        self.ask(terminal, "Two", 2)
        terminal.type("/undo\r")
        terminal.wait("> ")
        terminal.type("/save ~/said.json\r")
        terminal.wait("> ")
        terminal.type("/save ~/sluice/chat_history\r")
        terminal.wait("is no saved chat")
        terminal.type("/nope\r")
        terminal.wait("there is no command /nope")
        self.ask(terminal, "/clear\r/set temperature\r/system\r//Three", 3)
        self.assertEqual(self.turns(), [("user", "/Three")])
        self.assertNotIn("temperature", self.server.bodies[2][1])
        file = self.folder / "said.json"
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.assertEqual(json.loads(file.read_text()), {
            "temperature": 0.5, "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "One"},
                {"role": "assistant", "content": "Hello."}]})
        self.ask(terminal, "/load ~/said.json\rFour", 4)
        self.assertEqual(self.turns(), [
            ("system", "Be brief."), ("user", "One"), ("assistant", "Hello."),
            ("user", "Four")])
        self.assertEqual(self.server.bodies[3][1]["temperature"], 0.5)
        terminal.type("/set stream true\r")
        terminal.wait("itself fills 'stream'")
        terminal.type("/set\r")
        terminal.wait("/set temperature 0.5")
        terminal.type("/help\r")
        terminal.wait("/retry")
        terminal.type("/quit\r")
        self.assertEqual(terminal.ended(), 0)

    def test_nothing_a_server_says_steers_the_terminal(self):
        evil = "\x1b]0;t\x07\x1b[2J\x9b31m\r\x08\x7f\x1bPq\x1b\\"
        self.server.thinking = ["h" + evil, "m"]
        self.server.pieces = ["a" + evil, "`b" + evil, "`\n| " + evil + "|\n",
                              "\x1b", "[5m"]
        terminal = self.start()
        terminal.type("Hi\r")
        shown = terminal.wait("in all")
        shown = shown[shown.index("Hi") + 2:]
        # The editor's own, then those of styles.
        shown = shown.replace("\x1b[?2004l", "").replace("\r\n", "\n")
        rest = re.sub(r"\x1b\[0(;\d+)*m", "", shown[shown.index("\n"):])
        self.assertIsNone(re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", rest),
                          repr(rest))

    def test_an_error_ends_lines_of_a_file_in_harmless_words(self):
        self.server.status, self.server.words = 400, "no\x1b[2J\x07 such"
        done = subprocess.run(
            [COMMAND, "chat", "--url", self.server.url], input="One\nTwo\n",
            text=True, capture_output=True, timeout=SECONDS, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "error: 400: no[2J such\n"))
        self.assertEqual(len(self.server.bodies), 1)

    def test_without_color_the_text_is_raw(self):
        self.server.thinking, self.server.pieces = ["Hm."], ["**a** \x1b[2J`b`"]
        terminal = self.start(NO_COLOR="1")
        terminal.type("Hi\r")
        self.assertIn("Hm.\r\n\r\n**a** [2J`b`\r\n", terminal.wait("in all"))

    def test_an_answer_without_an_end_is_told(self):
        self.server.pieces = ["Half"]
        whole = STREAMS["/v1/chat/completions"]
        STREAMS["/v1/chat/completions"] = lambda *given: list(whole(*given))[:3]
        self.addCleanup(STREAMS.__setitem__, "/v1/chat/completions", whole)
        terminal = self.start()
        terminal.type("Hi\r")
        terminal.wait("Half")
        terminal.wait("the answer broke off")

    def test_lines_of_a_file_are_prompts_and_the_answers_alone_are_printed(self):
        self.server.thinking = ["Hm."]
        self.server.pieces = ["**a**"]
        for path in STREAMS:
            done = subprocess.run(
                [COMMAND, "chat", "--url", self.server.url, "--dialect",
                 NAMES[path]], input='One\\\ntwo\n/clear\n"""\n\nx\n"""\n',
                text=True, capture_output=True, timeout=SECONDS, check=True,
                env={**os.environ, "XDG_STATE_HOME": str(self.folder)})
            self.assertEqual(done.stdout, "**a**\n**a**\n")
            self.assertEqual(done.stderr, "")
        self.assertEqual(self.turns(), [("user", "\nx")])
        self.assertEqual(self.turns(-2), [("user", "One\ntwo")])
        self.assertFalse((self.folder / "sluice").exists())


if __name__ == "__main__":
    unittest.main()
