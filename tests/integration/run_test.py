"""`sluice run`, `chat MODEL`, `ps`, `stop` and `logs`: clusters that a command
starts for itself and that end with it, however it ends."""

import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import tempfile
import unittest

import api
import harness

COMMAND = pathlib.Path(os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice")
MODEL = harness.ROOT / "deploy/demo_model/weights"
QUESTION = "What is a stage in Sluice?"
GREEDY = ("--temperature", "0", "--max-tokens", "12")
# Nothing is written beside the model.
UP = ("--", "--packed", "off", "--stages", "1")
SECONDS = 60


class RunTest(unittest.TestCase):
    """A state folder of the test's own: its clusters are all that there are."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.state = pathlib.Path(folder.name, "sluice")
        # The weights are packed into the folder that goes with the test.
        self.environment = {**os.environ, "XDG_STATE_HOME": folder.name,
                            "XDG_CACHE_HOME": folder.name + "/cache"}
        self.addCleanup(self.stop_all)

    def stop_all(self):
        self.sluice("stop", "--all")
        self.assertEqual(self.left(), [])

    def start(self, *words, **more):
        child = subprocess.Popen(
            [str(word) for word in (COMMAND, *words)], text=True,
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE,
               "stderr": subprocess.PIPE, "env": self.environment, **more})
        self.addCleanup(self.end, child)
        return child

    @staticmethod
    def end(child):
        if child.poll() is None:
            child.kill()
        child.wait(SECONDS)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def sluice(self, *words, text="", code=0):
        """(stdout, stderr) of a command that ends with `code`."""
        child = self.start(*words)
        out, error = child.communicate(text, timeout=SECONDS)
        self.assertEqual(child.returncode, code, f"{words}\n{out}{error}")
        return out, error

    def left(self):
        """Pids of all whose command line names the state folder."""
        pids = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.fsencode(self.state) in (
                        entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
        return pids

    def clusters(self):
        return json.loads(self.sluice("ps", "--json")[0])

    def wait_left(self):
        harness.wait_for(lambda: not self.left(), SECONDS, "nothing is left")

    def test_a_prompt_is_answered_and_nothing_is_left(self):
        out, error = self.sluice("run", MODEL, QUESTION, *GREEDY, *UP)
        self.assertGreater(len(out.strip()), 10, error)
        self.assertNotIn("error", error)
        self.assertEqual(self.left(), [])
        self.assertEqual(self.clusters(), [])
        # The logs of the cluster that has ended are still there.
        logs, _ = self.sluice("logs", "weights", "--lines", "100000")
        self.assertRegex(logs, r"(?m)^stage-0 \| ")
        self.assertRegex(logs, r"(?m)^gateway \| .*stopped")
        times = [line.split(" | ")[1][:24] for line in logs.splitlines()]
        self.assertEqual(times, sorted(times))

    def test_a_kept_cluster_answers_the_next_prompts(self):
        first, error = self.sluice("run", MODEL, QUESTION, *GREEDY, "--keep")
        self.assertIn("sluice stop weights", error)
        [cluster] = self.clusters()
        self.assertEqual((cluster["name"], cluster["state"]),
                         ("weights", "ready"))
        self.assertEqual(cluster["model"], str(MODEL))
        self.assertEqual((cluster["running"], cluster["processes"]), (2, 2))
        self.assertGreater(cluster["resident_bytes"], 10e6)
        self.assertGreaterEqual(cluster["uptime_seconds"], 0)
        self.assertEqual(api.try_get(cluster["url"], "/readyz")[0], 200)
        self.assertIn("ready", self.sluice("ps")[0])
        pids = self.left()
        with self.subTest("by another path of the same model"):
            second, _ = self.sluice("run", f"{MODEL}/../weights", *GREEDY,
                                    text=QUESTION)
            self.assertEqual(second, first)
        with self.subTest("words, and standard input behind them"):
            both, _ = self.sluice("run", MODEL, "What is", "this?", *GREEDY,
                                  text="A gateway.")
            given, _ = self.sluice(
                "run", MODEL, "What is this?\n\nA gateway.", *GREEDY)
            self.assertEqual(both, given)
            self.assertNotEqual(both, first)
        with self.subTest("chat"):
            chat, _ = self.sluice("chat", MODEL, *GREEDY,
                                  text=QUESTION + "\n")
            self.assertEqual(chat, first)
        self.assertEqual(self.left(), pids, "no other cluster was started")
        self.sluice("stop", "weights")
        self.assertEqual(self.clusters(), [])
        self.wait_left()

    def test_however_the_command_ends_its_cluster_does(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143),
                             (signal.SIGHUP, 129),
                             (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number=number):
                chat = self.start("chat", MODEL, "--temperature", "0", *UP)
                chat.stdin.write(QUESTION + "\n")
                chat.stdin.flush()
                self.assertTrue(chat.stdout.read(1))
                self.assertEqual(len(self.left()), 3)  # with the launcher
                chat.send_signal(number)
                self.assertEqual(chat.wait(SECONDS), code)
                if number != signal.SIGKILL:
                    self.assertEqual(self.left(), [])
                self.wait_left()
                self.assertEqual(self.clusters(), [])

    def test_a_signal_while_the_model_loads_leaves_nothing(self):
        for number, code in ((signal.SIGINT, 130),
                             (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number=number):
                run = self.start("run", MODEL, stdin=subprocess.PIPE)
                run.stdin.write(QUESTION)
                run.stdin.close()
                harness.wait_for(self.left, SECONDS, "the launcher runs")
                run.send_signal(number)
                self.assertEqual(run.wait(SECONDS), code)
                self.wait_left()
                self.assertEqual(self.clusters(), [])

    def test_a_launcher_that_is_killed_leaves_nothing_behind_the_command(self):
        chat = self.start("chat", MODEL, *GREEDY, *UP)
        chat.stdin.write(QUESTION + "\n")
        chat.stdin.flush()
        self.assertTrue(chat.stdout.read(1))
        file = json.loads((self.state / "weights/cluster.json").read_text())
        os.kill(file["supervisor"]["pid"], signal.SIGKILL)
        chat.stdin.close()
        self.assertEqual(chat.wait(SECONDS), 0)
        self.assertEqual(self.left(), [])

    def test_two_at_the_same_time_have_a_cluster_each(self):
        chats = [self.start("chat", MODEL, "--temperature", "0", *UP)
                 for _ in range(2)]
        for chat in chats:
            chat.stdin.write(QUESTION + "\n")
            chat.stdin.flush()
        for chat in chats:
            self.assertTrue(chat.stdout.read(1))
        self.assertEqual([cluster["name"] for cluster in self.clusters()],
                         ["weights", "weights-2"])
        self.assertIn("2 clusters run", self.sluice("stop", code=1)[1])
        for chat in chats:
            chat.stdin.close()
            self.assertEqual(chat.wait(SECONDS), 0)
        self.assertEqual(self.left(), [])

    def test_on_a_terminal_ctrl_c_ends_the_answer_and_not_the_chat(self):
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        chat = self.start("chat", MODEL, "--temperature", "0", "--min-tokens",
                          "400", "--max-tokens", "400", *UP, stdin=terminal)
        os.close(terminal)
        os.write(main, QUESTION.encode() + b"\n")
        self.assertTrue(chat.stdout.read(1))
        chat.send_signal(signal.SIGINT)
        os.write(main, b"/reset\nAnd what is a gateway?\n")
        # The first answer's line ends, and the second answer comes.
        chat.stdout.readline()
        self.assertTrue(chat.stdout.read(1))
        self.assertIsNone(chat.poll())
        chat.send_signal(signal.SIGINT)
        os.write(main, b"\x04")  # Ctrl-D
        self.assertEqual(chat.wait(SECONDS), 0)
        self.assertEqual(self.left(), [])

    def test_what_cannot_be_ends_with_the_launchers_code_and_words(self):
        _, error = self.sluice("run", "/no/such/model", "x", code=5)
        self.assertIn("/no/such/model: there is no such file", error)
        self.assertIn("exit code 5", error)
        with self.subTest("a port that is taken"):
            import socket
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
                _, error = self.sluice("run", MODEL, "x", "--", "--port", port,
                                       code=7)
            self.assertIn(str(port), error)
        with self.subTest("a stage without enough memory"):
            _, error = self.sluice("run", MODEL, "x", *UP, "--kv-blocks",
                                   "16777216", code=6)
            self.assertIn("stage 0 ended while starting", error)
            self.assertRegex(error, "KV cache of .* takes .* available")
        with self.subTest("a stage that is never ready"):
            self.assertIn("/readyz was not 200 within 1 s",
                          self.error_of_a_stopped_stage())
        with self.subTest("an option that up does not have"):
            self.sluice("run", MODEL, "x", "--", "--nope", code=2)
        with self.subTest("no prompt"):
            self.assertIn("no prompt", self.sluice("run", MODEL, code=2)[1])
        self.assertEqual(self.left(), [])

    def error_of_a_stopped_stage(self):
        """What run says where the stage does not go on from its start."""
        def pid_of(service):
            return next((pid for pid in self.left() if service.encode() in
                         pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()), 0)
        run = self.start("run", MODEL, "x", *UP, "--ready-timeout", "1",
                         stdin=subprocess.DEVNULL)
        stage = harness.wait_for(lambda: pid_of("sluice-stage"), SECONDS,
                                 "the stage is started")
        os.kill(stage, signal.SIGSTOP)
        harness.wait_for(lambda: pid_of("sluice-gateway"), SECONDS,
                         "the gateway is started")
        harness.wait_for(lambda: not pid_of("sluice-gateway"), SECONDS,
                         "the gateway is stopped")
        os.kill(stage, signal.SIGCONT)
        self.assertEqual(run.wait(SECONDS), 6)
        return run.stderr.read()

    def test_ps_finds_a_cluster_of_up_and_tells_of_its_deaths(self):
        with tempfile.TemporaryDirectory(prefix="sluice-test-") as run_dir:
            cluster = harness.Cluster(MODEL, "--stages", "1",
                                      environment=self.environment)
            with cluster:
                run_dir = cluster.run_dir
                [found] = self.clusters()
                self.assertEqual((found["name"], found["state"]),
                                 (run_dir, "ready"))
                follow = self.start("logs", "--follow", "--lines", "0",
                                    "--process", "stage-0")
                cluster.kill("stage")
                harness.wait_for(
                    lambda: self.clusters()[0]["state"] == "not ready",
                    SECONDS, "a stage is missing")
                [found] = self.clusters()
                self.assertEqual((found["running"], found["processes"]),
                                 (1, 2))
                self.assertTrue(found["why"])
                stage = cluster.restart("stage")
                self.assertTrue(follow.stdout.readline().startswith(
                    "stage-0 | 20"))
                follow.send_signal(signal.SIGINT)
                self.assertEqual(follow.wait(SECONDS), 130)
                stage.kill()
                stage.wait(SECONDS)
                cluster.kill("gateway")
                harness.wait_for(lambda: self.clusters()[0]["state"] == "dead",
                                 SECONDS, "all processes are gone")
                self.sluice("stop", run_dir)
                self.assertEqual(self.clusters(), [])


class PagesTest(unittest.TestCase):
    """What is made of the options' own definitions."""

    def output(self, *words, program=COMMAND):
        return subprocess.run([str(program), *words], check=True, text=True,
                              capture_output=True, timeout=SECONDS).stdout

    def test_the_completions_know_what_up_takes(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.output("completion", shell)
            for part in ("stage-memory", "q8_0", "until-eof"):
                self.assertIn(part, script, shell)
        self.assertIn("default", self.output("words", "models"))

    def test_every_command_and_service_has_a_page_that_man_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            self.output("man", "--out", folder)
            pages = {path.name: path.read_text()
                     for path in pathlib.Path(folder).iterdir()}
        build = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
        for service in ("gateway", "stage"):
            program = build / f"services/{service}/sluice-{service}"
            pages[f"sluice-{service}.8"] = self.output("--print", "man",
                                                       program=program)
            self.assertIn("sluice-" + service, self.output(
                "--print=bash", program=program))
        self.assertIn("\\-\\-stage\\-memory", pages["sluice-up.1"])
        self.assertIn("\\-\\-top\\-k", pages["sluice-chat.1"])
        self.assertIn("\\-\\-kv\\-blocks", pages["sluice-stage.8"])
        for command in ("run", "ps", "stop", "logs", "down", "bench-kernels"):
            self.assertIn(f"sluice-{command}.1", pages)
        home = os.path.expanduser("~")
        for name, page in pages.items():
            with self.subTest(name):
                self.assertNotIn(home + "/", page)
                self.assertNotIn(str(harness.ROOT), page)
                self.assert_good(page)

    def assert_good(self, page):
        for line in page.splitlines():
            self.assertRegex(line, r"^(\.(TH|SH|TP|PP|BR) ?|[^.'])")
        with contextlib.suppress(FileNotFoundError):
            done = subprocess.run(
                ["groff", "-man", "-ww", "-Tutf8", "-Kutf8", "-z"], input=page,
                text=True, capture_output=True, timeout=SECONDS, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        with contextlib.suppress(FileNotFoundError):
            done = subprocess.run(
                ["mandoc", "-T", "lint", "-W", "error"], input=page, text=True,
                capture_output=True, timeout=SECONDS, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    harness.main()
