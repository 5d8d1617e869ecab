"""Watching a cluster, and the file that says whose folder it is."""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local/cluster"))

import exits  # noqa: E402
import process  # noqa: E402
import run_folder  # noqa: E402
import watch  # noqa: E402


class StopAfter:
    """Asked to stop once `done()`."""

    def __init__(self, done):
        self.asked = done


class WatchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name)
        self.file = run_folder.ClusterFile(self.run_dir)

    def document(self, created="today"):
        """Of one process, whose program is not there yet."""
        sleeper = process.Process(
            role="stage", index=0, argv=[str(self.run_dir / "sleep"), "1000"],
            environment={}, addresses=[], metrics_address="",
            log=str(self.run_dir / "log"))
        return {"url": "", "supervisor": None, "created": created,
                "processes": [sleeper]}

    def test_a_file_of_another_user_is_not_trusted(self):
        self.file.create(self.document())
        self.assertIsNotNone(self.file.read())
        owner = os.geteuid()
        if owner == 0:  # Root's files are trusted by all.
            owner = 12345
            os.chown(self.file.path, owner, -1)
        reader = owner + 1
        with unittest.mock.patch("os.geteuid", return_value=reader):
            with self.assertRaisesRegex(
                    exits.Failure,
                    f"cluster.json belongs to user {owner}; user {reader} "):
                self.file.read()
            secret = self.run_dir / "secret"
            secret.touch()
            self.file.remove({**self.document(), "key_file": str(secret)})
            self.assertTrue(secret.exists())
            self.assertTrue(self.file.path.exists())
        with unittest.mock.patch("os.geteuid", return_value=owner):
            self.assertIsNotNone(self.file.read())

    def test_a_file_of_root_is_trusted(self):
        if os.geteuid() != 0:
            self.skipTest("only root has files of root's")
        self.file.create(self.document())
        with unittest.mock.patch("os.geteuid", return_value=12345):
            self.assertIsNotNone(self.file.read())

    def install(self):
        (self.run_dir / "sleep").symlink_to(shutil.which("sleep"))

    def end(self, document):
        process.stop_all(document["processes"], lambda text: None)

    def test_a_restart_that_fails_is_told_and_tried_again(self):
        document, said = self.document(), []
        self.file.create(document)
        self.addCleanup(self.end, document)

        def say(text):
            said.append(text)
            if "cannot be started" in text and failures() == 2:
                self.install()

        def failures():
            return sum("cannot be started" in line for line in said)
        watch.watch(
            self.file, document,
            StopAfter(lambda: said and "started again as" in said[-1]), True,
            say)
        self.assertEqual(failures(), 2)
        self.assertTrue(document["processes"][0].find())

    def test_a_file_that_cannot_be_written_is_written_later(self):
        document, said = self.document(), []
        self.install()
        self.file.create(document)
        self.addCleanup(self.end, document)
        blocked = self.file.path.with_suffix(f".json.{os.getpid()}")
        blocked.mkdir()

        def done():
            if blocked.exists() and "cannot be written" in said[-1:]:
                blocked.rmdir()
            return self.file.read()["processes"][0].pid

        def say(text):
            said.append("cannot be written" if "cannot be written" in text
                        else text)
        watch.watch(self.file, document, StopAfter(done), True, say)
        self.assertEqual(said.count("cannot be written"), 1)

    def test_a_cluster_whose_file_is_anothers_is_watched_no_longer(self):
        document, said = self.document(), []
        self.install()
        self.addCleanup(self.end, document)
        for other in (None, self.document("tomorrow")):
            if other:
                self.file.create(other)
            watch.watch(self.file, document, StopAfter(lambda: False), True,
                        said.append)
            self.assertIn("is gone, or another cluster's", said[-1])
            self.end(document)
        self.assertEqual(self.file.read()["created"], "tomorrow")

    def test_the_file_of_the_next_cluster_is_left_alone(self):
        old, new = self.document("today"), self.document("tomorrow")
        self.file.create(new)
        self.assertFalse(self.file.update(old))
        self.file.remove(old)
        self.assertEqual(self.file.read()["created"], "tomorrow")
        self.assertTrue(self.file.update(new))
        self.file.remove(new)
        self.assertFalse(self.file.update(new))
        self.assertEqual(list(self.run_dir.iterdir()), [])


class StopRequestTest(unittest.TestCase):
    def setUp(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.stop = watch.StopRequest()

    def test_a_ctrl_c_after_the_first_signal_makes_haste_others_do_not(self):
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
            self.assertTrue(self.stop.asked())
            self.assertFalse(self.stop.hurry())
        signal.raise_signal(signal.SIGINT)
        self.assertTrue(self.stop.hurry())

    def test_a_request_interrupts_once_what_waits_for_it(self):
        with self.assertRaises(KeyboardInterrupt), self.stop.interrupts():
            signal.raise_signal(signal.SIGTERM)
            self.fail("not reached")
        signal.raise_signal(signal.SIGTERM)
        with self.assertRaises(KeyboardInterrupt), self.stop.interrupts():
            self.fail("asked before")


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # Children that outlive their objects.
