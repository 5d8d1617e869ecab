"""What deploy/local/up shows while stages load, without a terminal."""

import io
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local/cluster"))

import progress  # noqa: E402


def body(*whys, ready=False, why=""):
    """What /readyz says of stages that are not ready for these reasons; None:
    that one is ready. `why`: of the cluster."""
    return json.dumps({"ready": ready, "why": why, "epoch": 0, "not_ready": [
        {"name": f"stage {index} (127.0.0.1:{7000 + index})", "why": why}
        for index, why in enumerate(whys) if why]})


def loading(percent, megabytes=200):
    return f"loading: loading, {percent} % of {megabytes} MB"


class ProgressTest(unittest.TestCase):
    def start(self, count=2, terminal=True, size=(80, 24)):
        self.out = io.StringIO()
        return progress.Progress([f"stage {i}" for i in range(count)],
                                 self.out, terminal, lambda: size)

    def shown(self):
        text = self.out.getvalue()
        self.out.seek(0)
        self.out.truncate()
        return text

    def test_a_terminal_gets_a_bar_per_stage_drawn_in_place(self):
        view = self.start()
        view.show(body(loading(0), "connecting"))
        self.assertEqual(
            self.shown(),
            "\r  stage 0 [" + "." * 30 + "]   0 % of 200 MB\x1b[K\n"
            "  stage 1 [" + "." * 30 + "] connecting\x1b[K\n\x1b[J")
        view.show(body(loading(50), loading(10, 400)))
        self.assertEqual(
            self.shown(),
            "\x1b[2A\r  stage 0 [" + "#" * 15 + "." * 15
            + "]  50 % of 200 MB\x1b[K\n"
            "  stage 1 [###" + "." * 27 + "]  10 % of 400 MB\x1b[K\n\x1b[J")
        view.show(body(loading(50), loading(10, 400)))
        self.assertEqual(self.shown(), "")  # Nothing is new.
        view.show(body(None, loading(99, 400)))
        self.assertIn("stage 0 [" + "#" * 30 + "] 100 % of 200 MB, ready",
                      self.shown())
        view.finish()
        self.assertEqual(self.shown().count("ready"), 2)

    def test_what_a_stage_waits_for_stands_beside_its_bar(self):
        view = self.start(count=1)
        view.show(body(loading(100)))
        self.shown()
        view.show(body("loading: host a: loading, 7 % of 9 MB of experts"))
        self.assertIn("#] 100 % of 200 MB, host a: loading, 7 ",
                      self.shown())

    def test_a_stage_that_waits_for_others_is_loaded(self):
        view = self.start()
        view.show(body("handshaking", loading(50)))
        self.assertIn("stage 0 [" + "#" * 30 + "] 100 %, handshaking",
                      self.shown())

    def test_lines_are_cut_to_the_terminals_width(self):
        view = self.start(size=(30, 24))
        view.show(body(loading(50), "x" * 100))
        for line in self.shown().split("\x1b[K\n")[:-1]:
            self.assertLess(len(line.lstrip("\r")), 30)

    def test_stages_that_a_terminal_has_no_rows_for_share_a_bar(self):
        view = self.start(count=40, size=(80, 24))
        view.show(body(*[None] * 10, loading(50, 300),
                       *[loading(0, 100)] * 29))
        self.assertEqual(
            self.shown(), "\r  40 stages [" + "#" * 7 + "." * 23
            + "]  26 %, 10 ready\x1b[K\n\x1b[J")
        view.show(body(*[loading(100, 100)] * 10, loading(50, 300),
                       *[loading(0, 100)] * 29))
        self.assertIn("]  27 % of 4200 MB, 0 ready\x1b[K\n", self.shown())
        view.finish()
        self.assertIn("#] 100 % of 4200 MB, ready\x1b[K\n", self.shown())

    def test_elsewhere_a_line_tells_of_every_tenth_and_every_reason(self):
        view = self.start(terminal=False)
        view.show(body("connecting", loading(3)))
        view.show(body("connecting", loading(9)))
        view.show(body(loading(12), loading(35)))
        view.show(body(None, loading(100)))
        view.finish()
        self.assertEqual(self.shown(), "  stage 0: connecting\n"
                         "  stage 1: 3 % of 200 MB\n"
                         "  stage 0: 12 % of 200 MB\n"
                         "  stage 1: 35 % of 200 MB\n"
                         "  stage 1: 100 % of 200 MB\n")

    def test_a_reason_of_no_stage_stands_below_until_it_is_gone(self):
        view = self.start()
        view.show(body(why="the engine has no pipeline yet"))
        self.assertIn("stage 1 [" + "." * 30 + "] starting\x1b[K\n"
                      "  the engine has no pipeline yet\x1b[K\n\x1b[J",
                      self.shown())
        view.show(body(None, loading(5), why="stage 1 (127.0.0.1:7001): "
                       + loading(5)))
        self.assertTrue(self.shown().endswith(
            "]   5 % of 200 MB\x1b[K\n\x1b[J"))
        view.show(body(None, None, why="no step has ended for 3 s"))
        self.assertIn("  no step has ended for 3 s\x1b[K", self.shown())
        view.finish()
        self.assertNotIn("no step", self.shown())

    def test_elsewhere_a_reason_of_no_stage_is_a_line_told_once(self):
        view = self.start(terminal=False)
        for _ in range(2):
            view.show(body(why="no pipeline"))
        view.show(body(loading(5), why="stage 0 (a): " + loading(5)))
        view.finish()
        self.assertEqual(self.shown(), "  stage 0: starting\n"
                         "  stage 1: starting\n  no pipeline\n"
                         "  stage 0: 5 % of 200 MB\n")

    def test_what_says_nothing_of_stages_shows_nothing(self):
        for terminal in (True, False):
            view = self.start(terminal=terminal)
            for text in ("", "connection refused", "[]", "{}", '"x"',
                         '{"not_ready": 3}', '{"not_ready": [{}]}', body()):
                view.show(text)
            view.finish()
            self.assertEqual(self.shown(), "")


if __name__ == "__main__":
    unittest.main()
