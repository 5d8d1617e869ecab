"""up, down and supervise, their processes fake: what is left, whatever goes
wrong and whoever interferes."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "deploy/local/cluster"
sys.path.insert(0, str(PACKAGE))

import commands  # noqa: E402
import exits  # noqa: E402
import run_folder  # noqa: E402

SECONDS = 60  # No wait takes nearly so long.


def wait_for(condition, what):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {SECONDS} s: {what}")
        time.sleep(0.01)


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name)
        self.addCleanup(self.end_all)

    def end_all(self):
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.left(), "killed processes are gone")

    def left(self):
        """Pids of all whose command line names the run folder."""
        pids = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.fsencode(self.run_dir) in (
                        entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
        return pids

    def start(self, command, *options, script=HERE / "fake_cluster.py",
              **more):
        """A command of the cluster, in a process group of its own."""
        child = subprocess.Popen(
            [sys.executable, "-B", script, command, "--run-dir", self.run_dir,
             *options], text=True,
            start_new_session=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
               "stdin": subprocess.DEVNULL, **more})
        if child.stdout:
            self.addCleanup(child.stdout.close)
        return child

    def up(self, *options, **more):
        return self.start("up", "--model", "/", "--no-supervise", *options,
                          **more)

    def down(self):
        return self.start("down", script=PACKAGE)

    def ended(self, child, code):
        """Its output, once it has ended with `code`."""
        output, _ = child.communicate(timeout=SECONDS)
        self.assertEqual(child.returncode, code, output)
        return output

    def hold(self, name):
        (self.run_dir / name).touch()

    def release(self, name):
        (self.run_dir / name).unlink()

    def wait_told(self, name):
        wait_for((self.run_dir / name).exists, name)

    def file(self):
        return json.loads((self.run_dir / "cluster.json").read_text())

    def assert_nothing_left(self):
        wait_for(lambda: not self.left(), f"gone: {self.left()}")
        self.assertFalse((self.run_dir / "cluster.json").exists())


class ProposalsTest(FolderTest):
    def test_what_stages_propose_where_memory_is_short_is_told_once(self):
        loaded = ("loaded m layers 0 to 3 of 4 in 0.1 s: 9 MB of weights as "
                  "Q4_0, 64 KV blocks (5 MB), context 1024 (what the KV cache "
                  "holds; the model has 8192")
        short = ("; memory is short: --kv-type bf16 halves the 5 MB of keys "
                 "and values")
        rest = "), 1 ranks, 2 threads, avx2\n"
        (self.run_dir / "stage-0.log").write_text(
            loaded + short.replace("5 MB", "7 MB") + rest
            + loaded + short + rest)
        (self.run_dir / "stage-1.log").write_text(loaded + rest)
        (self.run_dir / "gateway-0.log").write_text(loaded + short + rest)
        told = []
        commands.tell_proposals(self.run_dir, told.append)
        self.assertEqual(told, ["stage-0: memory is short: --kv-type bf16 "
                                "halves the 5 MB of keys and values"])


class UpTest(FolderTest):
    def test_up_is_refused_where_an_old_one_watches_its_dead(self):
        old = self.up()
        while not old.stdout.readline().startswith("Ctrl-C"):
            self.assertIsNone(old.poll())
        for entry in self.file()["processes"]:
            os.kill(entry["pid"], signal.SIGKILL)
        wait_for(lambda: self.left() == [old.pid], "all processes died")
        self.assertIn(f"its supervisor, pid {old.pid}",
                      self.ended(self.up("--detach"), exits.IN_USE))
        old.send_signal(signal.SIGINT)
        self.ended(old, exits.OK)
        self.ended(self.up("--detach"), exits.OK)
        self.ended(self.down(), exits.OK)
        self.assert_nothing_left()

    def test_down_stops_a_cluster_that_asks_for_its_first_answer(self):
        for options in ((), ("--supervise",), ("--detach",),
                        ("--detach", "--supervise")):
            with self.subTest(options=options):
                self.hold("hold-answer")
                up = self.up(*options)
                self.wait_told("answering")
                self.assertEqual(self.file()["supervisor"]["pid"], up.pid)
                self.ended(self.down(), exits.OK)
                self.ended(up, exits.INTERRUPTED)
                self.assert_nothing_left()
                self.release("answering")

    def test_a_signal_before_the_first_answer_stops_the_cluster(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                self.hold("hold-answer")
                up = self.up("--detach")
                self.wait_told("answering")
                up.send_signal(number)
                self.ended(up, exits.INTERRUPTED)
                self.assert_nothing_left()
                self.release("answering")

    def test_a_signal_while_stages_load_stops_the_cluster(self):
        self.hold("hold-ready")
        for options in ((), ("--detach",)):
            with self.subTest(options=options):
                up = self.up(*options)
                while not up.stdout.readline().startswith("started gateway"):
                    self.assertIsNone(up.poll())
                up.send_signal(signal.SIGTERM)
                self.ended(up, exits.INTERRUPTED)
                self.assert_nothing_left()

    def test_a_signal_while_experts_are_planned_starts_nothing(self):
        self.hold("hold-layout")
        up = self.up()
        self.wait_told("planning")
        down = self.down()
        while not down.stdout.readline().startswith("waiting for another"):
            self.assertIsNone(down.poll())
        up.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(up, exits.INTERRUPTED), "")
        self.assertIn("nothing runs in", self.ended(down, exits.OK))
        self.assert_nothing_left()

    def test_a_greeting_that_nobody_reads_stops_the_cluster(self):
        for options in ((), ("--detach",)):
            with self.subTest(options=options):
                reader, writer = os.pipe()
                os.close(reader)
                up = self.up(*options, stdout=writer, stderr=writer)
                os.close(writer)
                self.assertEqual(up.wait(SECONDS), exits.UNEXPECTED)
                self.assert_nothing_left()

    def test_a_process_that_cannot_be_started_ends_those_before_it(self):
        self.hold("absent-gateway")
        self.assertIn("error: [Errno 2]",
                      self.ended(self.up(), exits.UNEXPECTED))
        self.assert_nothing_left()

    def test_files_are_their_users_and_the_keys_go_with_the_cluster(self):
        keys = self.run_dir / "new/api-keys"
        environment = {**os.environ, "SLUICE_API_KEYS": "sk-one"}
        self.run_dir = keys.parent
        with self.subTest("down"):
            self.ended(self.up("--detach", env=environment), exits.OK)
            self.assertTrue(keys.exists())
            for path, mode in ((self.run_dir, 0o700), (keys, 0o600),
                               (self.run_dir / "cluster.json", 0o600)):
                self.assertEqual(path.stat().st_mode & 0o777, mode, path)
            self.ended(self.down(), exits.OK)
            self.assertFalse(keys.exists())
        with self.subTest("a process that cannot be started"):
            self.hold("absent-gateway")
            self.ended(self.up(env=environment), exits.UNEXPECTED)
            self.assertFalse(keys.exists())
        with self.subTest("no model"):
            up = self.start("up", "--model", str(self.run_dir / "none"),
                            env=environment)
            up.communicate(timeout=SECONDS)
            self.assertNotIn(up.returncode, (exits.OK, exits.UNEXPECTED))
            self.assertFalse(keys.exists())

    def test_the_gateways_secret_goes_with_the_cluster(self):
        secret = self.run_dir / "peer-secret"
        self.ended(self.up("--detach"), exits.OK)
        self.assertFalse(secret.exists())
        self.ended(self.down(), exits.OK)
        self.ended(self.up("--detach", "--gateways", "2"), exits.OK)
        self.assertEqual(secret.stat().st_mode & 0o777, 0o600)
        self.assertEqual(len(secret.read_text()), 65)
        self.ended(self.down(), exits.OK)
        self.assertFalse(secret.exists())

    def test_a_key_file_of_the_users_own_stays(self):
        keys = self.run_dir / "api-keys"
        keys.write_text("sk-one\n")
        self.ended(self.up("--detach", "--api-key-file", str(keys)), exits.OK)
        self.ended(self.down(), exits.OK)
        self.assertTrue(keys.exists())

    def test_a_log_that_cannot_be_written_ends_those_before_it(self):
        (self.run_dir / "gateway.log").mkdir()
        self.assertIn("gateway.log", self.ended(self.up(), exits.UNEXPECTED))
        self.assert_nothing_left()

    def test_a_cluster_whose_file_was_removed_is_not_served(self):
        for options in ((), ("--detach", "--supervise")):
            with self.subTest(options=options):
                self.hold("hold-answer")
                up = self.up(*options)
                self.wait_told("answering")
                self.release("cluster.json")
                self.release("hold-answer")
                self.assertIn("cluster.json was removed",
                              self.ended(up, exits.UNEXPECTED))
                self.assert_nothing_left()
                self.release("answering")

    @unittest.skipUnless(importlib.util.find_spec("pip"), "needs pip")
    def test_a_signal_while_the_model_is_fetched_says_nothing_of_it(self):
        for number, send in ((signal.SIGINT, os.killpg),
                             (signal.SIGTERM, os.kill)):
            with self.subTest(number=number), socket.create_server(
                    ("127.0.0.1", 0)) as registry:
                registry.settimeout(SECONDS)
                up = self.start("up", env={
                    "PATH": os.environ["PATH"], "HOME": str(self.run_dir),
                    "PIP_CONFIG_FILE": os.devnull,
                    "PIP_INDEX_URL": f"http://127.0.0.1:"
                    f"{registry.getsockname()[1]}"})
                connection, _ = registry.accept()  # and no answer
                with connection:
                    send(up.pid, number)
                    output = self.ended(up, exits.INTERRUPTED)
                self.assertNotIn("registry did not give", output)
                self.assert_nothing_left()


class OwnerTest(FolderTest):
    """up --until-eof: the cluster of a program that starts one for itself."""

    def owned(self, *options):
        """up, and the end of the pipe that it reads."""
        reader, writer = os.pipe()
        up = self.up("--until-eof", "--quiet", *options, stdin=reader)
        os.close(reader)
        return up, writer

    def test_the_cluster_ends_with_the_pipe(self):
        up, writer = self.owned()
        line = up.stdout.readline()
        self.assertEqual(line, self.file()["url"] + "\n")
        self.assertFalse((self.run_dir / "answering").exists(),
                         "no first prompt is asked")
        os.write(writer, b"what is written has no meaning")
        self.assertIsNone(up.poll())
        os.close(writer)
        self.assertEqual(self.ended(up, exits.OK), "")
        self.assertTrue((self.run_dir / "drained").exists())
        self.assert_nothing_left()

    def test_a_pipe_that_ends_before_it_is_ready_leaves_nothing(self):
        self.hold("hold-ready")
        up, writer = self.owned()
        wait_for(lambda: len(self.left()) == 3, "all are started")
        os.close(writer)
        self.ended(up, exits.INTERRUPTED)
        self.assert_nothing_left()

    def test_no_process_of_the_cluster_has_the_pipe(self):
        up, writer = self.owned("--supervise")
        up.stdout.readline()
        owned = os.stat(f"/proc/self/fd/{writer}").st_ino
        for entry in self.file()["processes"]:
            folder = pathlib.Path(f"/proc/{entry['pid']}/fd")
            self.assertNotIn(owned, [path.stat().st_ino
                                     for path in folder.iterdir()])
        os.close(writer)
        self.ended(up, exits.OK)

    def test_a_cluster_in_the_background_has_no_owner(self):
        self.assertIn("--until-eof and --detach", self.ended(
            self.up("--until-eof", "--detach"), exits.USAGE))


class LinkTest(FolderTest):
    """Run folders outside the state folder, for `sluice ps`."""

    def test_a_link_is_there_as_long_as_the_cluster(self):
        state = self.run_dir / "state"
        environment = {**os.environ, "XDG_STATE_HOME": str(state)}
        links = state / "sluice/.elsewhere"
        self.ended(self.up("--detach", env=environment), exits.OK)
        self.assertEqual([os.readlink(link) for link in links.iterdir()],
                         [str(self.run_dir)])
        down = self.start("down", script=PACKAGE, env=environment)
        self.ended(down, exits.OK)
        self.assertEqual(list(links.iterdir()), [])

    def test_a_cluster_in_the_state_folder_needs_none(self):
        state = self.run_dir / "state"
        self.run_dir = state / "sluice/default"
        environment = {**os.environ, "XDG_STATE_HOME": str(state)}
        self.ended(self.up("--detach", env=environment), exits.OK)
        self.assertFalse((state / "sluice/.elsewhere").exists())
        self.ended(self.down(), exits.OK)

    def test_without_a_place_for_links_it_is_told_and_the_cluster_runs(self):
        (self.run_dir / "file").touch()
        environment = {**os.environ,
                       "XDG_STATE_HOME": str(self.run_dir / "file")}
        self.assertIn("sluice ps will not list", self.ended(
            self.up("--detach", env=environment), exits.OK))
        self.ended(self.down(), exits.OK)


class DownTest(FolderTest):
    def test_down_and_the_supervisor_do_not_wait_for_each_other(self):
        self.ended(self.up("--detach", "--supervise"), exits.OK)
        self.assertIn("asking the supervisor",
                      self.ended(self.down(), exits.OK))
        self.assertTrue((self.run_dir / "drained").exists())
        self.assert_nothing_left()

    def test_whoever_stops_a_cluster_has_the_lock(self):
        for options in (("--detach",), ("--detach", "--supervise")):
            with self.subTest(options=options):
                self.hold("hold-end")
                self.ended(self.up(*options), exits.OK)
                down = self.down()
                self.wait_told("draining")
                self.assertIsNone(run_folder.take_lock(self.run_dir))
                self.assertIn("started or stopped there",
                              self.ended(self.up(), exits.IN_USE))
                second = self.down()
                self.release("hold-end")
                self.ended(down, exits.OK)
                self.ended(second, exits.OK)
                self.assertTrue((self.run_dir / "drained").exists())
                self.assert_nothing_left()
                self.release("draining")
                self.release("drained")

    def test_down_says_who_has_the_lock_for_too_long(self):
        lock = run_folder.take_lock(self.run_dir)
        self.addCleanup(setattr, commands, "LOCK_SECONDS",
                        commands.LOCK_SECONDS)
        commands.LOCK_SECONDS = 0
        options = types.SimpleNamespace(run_dir=str(self.run_dir))
        with lock, self.assertRaises(exits.Failure) as raised:
            commands.down(options)
        self.assertEqual(raised.exception.code, exits.IN_USE)
        self.assertIn("another `up` or `down`", str(raised.exception))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(commands.down(options), exits.OK)
        self.assertIn("nothing runs in", said.getvalue())

    def test_down_leaves_a_folder_without_a_cluster_as_it_is(self):
        for folder in (self.run_dir, self.run_dir / "none"):
            options = types.SimpleNamespace(run_dir=str(folder))
            with contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(commands.down(options), exits.OK)
        self.assertEqual(list(self.run_dir.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
