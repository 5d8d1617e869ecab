"""`sluice pull` against a hub with faults: resumes, refuses, explains.

usage: pull_test.py SLUICE [unittest's options]
"""

import hashlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import fake_hub  # noqa: E402
from pull_case import NAME, PullCase, weights  # noqa: E402

class LayoutTest(PullCase):
    def test_the_cache_is_laid_out_as_hugging_faces_tools_do(self):
        path = self.pull()
        self.assertEqual(path, self.model / "snapshots" / fake_hub.COMMIT)
        self.assertEqual((self.model / "refs/main").read_text(),
                         fake_hub.COMMIT)
        digest = hashlib.sha256(self.data).hexdigest()
        link = path / "model.safetensors"
        self.assertEqual(os.readlink(link), f"../../blobs/{digest}")
        self.assertEqual(link.read_bytes(), self.data)
        config = self.repository.files["config.json"]
        self.assertEqual(os.readlink(path / "config.json"),
                         f"../../blobs/{fake_hub.git_digest(config)}")

    def test_only_the_files_that_are_needed_come(self):
        self.assertEqual(sorted(os.listdir(self.pull())),
                         ["config.json", "model.safetensors",
                          "tokenizer.json"])

    def test_a_second_pull_fetches_no_file(self):
        self.pull()
        before = len(self.hub.asked())
        self.pull()
        self.assertEqual(len(self.hub.asked()), before + 1)

    def test_a_terminal_gets_a_bar_and_others_lines(self):
        master, slave = os.openpty()
        self.addCleanup(os.close, master)
        subprocess.run([self.sluice, "pull", NAME], env=self.environment(),
                       stdout=subprocess.DEVNULL, stderr=slave, timeout=60,
                       check=True)
        os.close(slave)
        shown = os.read(master, 1 << 16).decode()
        self.assertIn("\r[" + "#" * 30 + "] 100 % of 0.3 MB  "
                      "model.safetensors", shown)
        self.run_sluice("rm", NAME)
        said = self.run_sluice("pull", NAME).stderr
        self.assertIn("100 % of 0.3 MB\n", said)
        self.assertNotIn("#", said)

    def test_without_home_of_its_own_the_cache_is_where_hugging_face_has_it(
            self):
        path = self.pull(HF_HOME="")
        self.assertEqual(path.parents[2],
                         self.home / ".cache/huggingface/hub")
        other = self.home / "elsewhere"
        path = self.pull(HF_HUB_CACHE=str(other))
        self.assertEqual(path.parents[2], other)

    def test_a_revision_is_fetched_by_its_commit_and_kept_apart(self):
        self.pull()
        newer = fake_hub.Repository(
            {**self.repository.files, "config.json": b"{}"},
            lfs=["model.safetensors"], commit="a" * 40,
            revisions=["refs/pr/1"])
        self.hub.repositories[NAME] = newer
        path = self.pull(NAME + "@refs/pr/1")
        self.assertEqual(path.name, "a" * 40)
        self.assertEqual((self.model / "refs/refs/pr/1").read_text(), "a" * 40)
        self.assertEqual(len(self.hub.asked("cdn")), 1)  # One blob for both.
        self.assertIn("refs%2Fpr%2F1", self.hub.asked(
            ends="refs%2Fpr%2F1?blobs=true")[0][0])

    def test_a_hub_that_lists_no_digests_is_asked_for_each_file(self):
        self.repository.listed = False
        path = self.pull()
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)
        digest = hashlib.sha256(self.data).hexdigest()
        self.assertIn(digest, self.blobs())
        self.assertEqual(len(self.hub.asked("hub", "HEAD")), 3)


class ShardsTest(PullCase):
    def setUp(self):
        super().setUp()
        shards = ["model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors"]
        index = {"weight_map": {"a": shards[0], "b": shards[1]}}
        self.repository = self.add(NAME, {
            "config.json": b"{}",
            "model.safetensors.index.json": json.dumps(index).encode(),
            shards[0]: weights(1000, 2), shards[1]: weights(1000, 3),
            "consolidated.safetensors": b"twice"}, lfs=shards)

    def test_the_index_says_which_files_are_the_weights(self):
        self.assertEqual(sorted(os.listdir(self.pull())), [
            "config.json", "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"])

    def test_an_index_that_names_a_file_elsewhere_is_refused(self):
        self.repository.files["model.safetensors.index.json"] = json.dumps(
            {"weight_map": {"a": "../../../../etc/passwd"}}).encode()
        self.assertIn("which the repository does not have",
                      self.pull(code=2))


class GgufTest(PullCase):
    def setUp(self):
        super().setUp()
        names = ["model-Q4_K_M.gguf", "model-Q8_0.gguf", "mmproj-F16.gguf",
                 "BF16/model-BF16-00001-of-00002.gguf",
                 "BF16/model-BF16-00002-of-00002.gguf"]
        self.add(NAME, {name: weights(500, index)
                        for index, name in enumerate(names)}, lfs=names)

    def files(self, name):
        path = self.pull(name)
        folder = self.model / "snapshots" / fake_hub.COMMIT
        return path.relative_to(folder), sorted(
            str(one.relative_to(folder)) for one in folder.rglob("*.gguf"))

    def test_the_quants_one_file_comes(self):
        path, files = self.files(NAME + ":q8_0")
        self.assertEqual(str(path), "model-Q8_0.gguf")
        self.assertEqual(files, ["model-Q8_0.gguf"])

    def test_without_a_quant_it_is_the_usual_one(self):
        path, _ = self.files(NAME)
        self.assertEqual(str(path), "model-Q4_K_M.gguf")

    def test_a_split_set_comes_whole_and_its_first_file_is_named(self):
        path, files = self.files(NAME + ":BF16")
        self.assertEqual(str(path), "BF16/model-BF16-00001-of-00002.gguf")
        self.assertEqual(files, ["BF16/model-BF16-00001-of-00002.gguf",
                                 "BF16/model-BF16-00002-of-00002.gguf"])
        self.assertTrue((self.model / "snapshots" / fake_hub.COMMIT
                         / files[0]).is_file())

    def test_an_unknown_quant_is_told_with_those_that_there_are(self):
        said = self.pull(NAME + ":Q2_K", code=1)
        self.assertIn("'Q2_K'", said)
        self.assertIn("model-Q4_K_M, model-Q8_0", said)
        self.assertNotIn("mmproj", said)


class FaultTest(PullCase):
    def ranges(self):
        return [headers.get("Range") for _, headers in self.hub.asked("cdn")]

    def test_a_cut_connection_goes_on_where_it_was(self):
        self.hub.faults["model.safetensors"] = [("cut", 100_000),
                                                ("cut", 50_000)]
        path = self.pull()
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)
        self.assertEqual(self.ranges(),
                         [None, "bytes=100000-", "bytes=150000-"])

    def test_a_pull_that_failed_is_gone_on_with_by_the_next(self):
        refused = ("status", 503, {})
        self.hub.faults["model.safetensors"] = [("cut", 100_000)] + [
            refused] * 5
        said = self.pull(code=1)
        self.assertIn("HTTP 503", said)
        self.assertIn("given up after 5 attempts", said)
        digest = hashlib.sha256(self.data).hexdigest()
        self.assertEqual(len(self.blobs()[digest + ".incomplete"]), 100_000)
        self.assertFalse((self.model / "refs/main").exists())
        path = self.pull()
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)
        self.assertEqual(self.ranges()[-1], "bytes=100000-")

    def test_a_server_without_ranges_is_read_from_the_start(self):
        self.hub.faults["model.safetensors"] = [("cut", 100_000), ("whole",)]
        path = self.pull()
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)

    def test_429_is_waited_out_as_long_as_the_hub_says(self):
        self.hub.faults["listing"] = [("status", 429, {"Retry-After": "1"})]
        done = self.run_sluice("pull", NAME)
        self.assertIn("HTTP 429", done.stderr)
        self.assertIn("again in 1 s", done.stderr)

    def test_a_wait_of_hours_is_not_waited_for(self):
        self.hub.faults["listing"] = [("status", 429,
                                       {"Retry-After": "7200"})]
        self.assertIn("asks to wait for 7200 s", self.pull(code=1))

    def test_a_hub_that_falls_silent_is_asked_again(self):
        self.hub.faults["model.safetensors"] = [("hang",)]
        path = self.pull(HF_HUB_DOWNLOAD_TIMEOUT="1")
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)
        self.assertEqual(self.ranges(), [None, "bytes=10-"])

    def test_a_slow_hub_is_waited_for(self):
        self.hub.faults["model.safetensors"] = [("slow",)]
        path = self.pull()
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)
        self.assertEqual(self.ranges(), [None])

    def test_a_wrong_sha256_is_refused_and_nothing_is_left(self):
        self.repository.digests["model.safetensors"] = "0" * 64
        said = self.pull(code=1)
        self.assertIn("has the SHA-256 "
                      + hashlib.sha256(self.data).hexdigest(), said)
        self.assertIn("the hub lists " + "0" * 64, said)
        self.assertEqual([name for name in self.blobs() if "0" * 64 in name],
                         [])
        self.assertFalse((self.model / "snapshots" / fake_hub.COMMIT
                          / "model.safetensors").is_symlink())

    def test_a_wrong_config_is_refused_by_gits_digest(self):
        before = self.repository.listing
        altered = before()
        for entry in altered["siblings"]:
            if entry["rfilename"] == "config.json":
                entry["blobId"] = "1" * 40
        self.repository.listing = lambda: altered
        self.assertIn("has the SHA-1 ", self.pull(code=1))

    def test_what_another_run_left_in_pieces_is_fetched_anew(self):
        digest = hashlib.sha256(self.data).hexdigest()
        (self.model / "blobs").mkdir(parents=True)
        (self.model / "blobs" / (digest + ".incomplete")).write_bytes(
            b"other bytes")
        path = self.pull()
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)
        self.assertEqual(self.ranges(), ["bytes=11-", None])

    def test_more_bytes_than_listed_are_not_taken(self):
        self.repository.sizes["model.safetensors"] = 1000
        self.assertIn("more than the 1000 bytes", self.pull(code=1))

    def test_a_full_disk_is_noticed_before_the_first_byte(self):
        self.repository.sizes["model.safetensors"] = 10**15
        said = self.pull(code=1)
        self.assertIn("1000000.0 GB are to be fetched", said)
        self.assertIn("not begun", said)
        self.assertEqual(self.hub.asked("cdn"), [])

    def test_a_disk_that_fills_up_is_told_and_the_rest_comes_later(self):
        limit = 200_000
        done = self.run_sluice(
            "pull", NAME, code=1, before=lambda: (
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        self.assertIn(".incomplete: File too large", done.stderr)
        path = self.pull()
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)
        self.assertEqual(self.ranges()[-1], f"bytes={limit}-")


class AccessTest(PullCase):
    def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(self):
        self.repository.gated = 401
        self.pull(HF_TOKEN="good")
        for server, known in (("hub", True), ("cdn", False)):
            asked = self.hub.asked(server)
            self.assertTrue(asked)
            for path, headers in asked:
                self.assertEqual("Authorization" in headers, known, path)

    def test_the_token_of_a_login_counts(self):
        self.repository.gated = 401
        (self.home / "hf").mkdir()
        (self.home / "hf/token").write_text("good\n")
        self.pull()

    def test_a_gated_model_without_a_token_says_what_to_do(self):
        self.repository.gated = 401
        said = self.pull(code=1)
        self.assertIn(f"accept its licence at {self.hub.url}/{NAME}", said)
        self.assertIn("HF_TOKEN is not set", said)

    def test_a_licence_that_is_not_accepted_says_what_to_do(self):
        self.repository.gated = 403
        said = self.pull(code=1, HF_TOKEN="other")
        self.assertIn(f"accept its licence at {self.hub.url}/{NAME}", said)
        self.assertNotIn("is not set", said)
        self.assertNotIn("other", said)

    def test_a_name_or_revision_that_is_not_there(self):
        self.assertIn("there is no such model", self.pull("a/b", code=1))
        self.assertIn("no such model, revision or file",
                      self.pull(NAME + "@v9", code=1))

    def test_a_hub_that_cannot_be_reached(self):
        self.hub.close()
        said = self.pull(code=1, HF_ENDPOINT="http://127.0.0.1:9")
        self.assertIn("127.0.0.1:9", said)
        self.assertIn("given up after 5 attempts", said)


class TlsTest(PullCase):
    def setUp(self):
        super().setUp()
        self.certificate = self.home / "hub.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
             "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1",
             "-days", "2", "-keyout", self.certificate, "-out",
             self.certificate], capture_output=True, check=True)
        plain = self.hub
        self.hub = fake_hub.FakeHub(self.certificate)
        self.addCleanup(self.hub.close)
        self.hub.repositories = plain.repositories

    def test_only_a_known_authoritys_hub_is_asked(self):
        self.repository.lfs.clear()
        said = self.pull(code=1)
        self.assertIn("certificate", said)
        self.assertEqual(self.hub.asked(), [])
        path = self.pull(SSL_CERT_FILE=str(self.certificate))
        self.assertEqual((path / "model.safetensors").read_bytes(), self.data)

    def test_what_begins_encrypted_is_not_redirected_to_what_is_not(self):
        said = self.pull(code=1, SSL_CERT_FILE=str(self.certificate))
        self.assertIn("Unsupported protocol", said)
        self.assertEqual(self.hub.asked("cdn"), [])


class NamesTest(PullCase):
    def test_names_that_could_leave_the_cache_are_refused(self):
        for name in ("../x", "a/..", "a/b/c", "a", "/etc/passwd", "a/b@../x",
                     "a/b@", "a--b/c", "a/.b", "a/b:../q", "a/b c", "a/"):
            said = self.pull(name, code=2)
            self.assertIn("error:", said)
        self.assertEqual(self.hub.asked(), [])

    def test_files_that_could_leave_the_snapshot_are_refused(self):
        for path in ("../../x.json", "/etc/x", "a//b", "a/../../b", "a\\b",
                     "a\nb"):
            self.add(NAME, {**self.repository.files, path: b"evil"})
            said = self.pull(code=2)
            self.assertIn("could leave the model's folder", said)
            self.assertEqual(self.blobs(), {})

    def test_digests_and_commits_are_no_paths(self):
        self.repository.digests["model.safetensors"] = "../../../x"
        self.assertIn("is no file's name", self.pull(code=2))
        self.repository.digests.clear()
        self.repository.commit = "../../../x"
        self.assertIn("is no commit", self.pull(code=2))


class OfflineTest(PullCase):
    def test_what_was_pulled_is_found_without_a_request(self):
        path = self.pull()
        asked = len(self.hub.asked())
        self.assertEqual(self.pull(HF_HUB_OFFLINE="1"), path)
        self.assertEqual(len(self.hub.asked()), asked)

    def test_what_is_not_there_is_told(self):
        said = self.pull(code=1, HF_HUB_OFFLINE="1")
        self.assertIn("HF_HUB_OFFLINE is set", said)
        self.assertEqual(self.hub.asked(), [])

    def test_a_model_that_came_in_part_does_not_do(self):
        path = self.pull()
        (path / "model.safetensors").resolve().unlink()
        said = self.pull(code=1, HF_HUB_OFFLINE="1")
        self.assertIn("has neither", said)


class CommandsTest(PullCase):
    def test_list_and_show_tell_what_is_there(self):
        self.assertNotIn(NAME, self.run_sluice("list").stdout)
        path = self.pull()
        self.assertRegex(self.run_sluice("list").stdout,
                         NAME + r" +0\.3 +0\.0 +0\.0  main\n")
        shown = self.run_sluice("show", NAME).stdout
        for part in (fake_hub.COMMIT + "  main", str(path),
                     "0.300 MB  model.safetensors"):
            self.assertIn(part, shown)
        said = self.run_sluice("show", "a/b", code=1).stderr
        self.assertIn("a/b is not in", said)

    def test_rm_of_a_revision_keeps_what_another_has(self):
        self.pull()
        self.hub.repositories[NAME] = fake_hub.Repository(
            {**self.repository.files, "config.json": b"[]"},
            lfs=["model.safetensors"], commit="a" * 40, revisions=["v2"])
        second = self.pull(NAME + "@v2")
        self.run_sluice("rm", NAME + "@main")
        self.assertFalse((self.model / "refs/main").exists())
        self.assertEqual((second / "model.safetensors").read_bytes(),
                         self.data)
        self.assertEqual(len(self.blobs()), 3)

    def test_rm_removes_a_model_and_says_how_much(self):
        self.pull()
        self.assertIn("0.3 MB", self.run_sluice("rm", NAME).stdout)
        self.assertFalse(self.model.exists())
        self.assertIn("is not in", self.run_sluice("rm", NAME, code=1).stderr)

    def start_pull(self):
        """A pull that waits until the hub's gate is open."""
        running = subprocess.Popen(
            [self.sluice, "pull", NAME], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(HF_HUB_DOWNLOAD_TIMEOUT="30"))
        self.addCleanup(running.communicate)
        self.addCleanup(running.kill)
        return running

    def test_two_pulls_at_once_fetch_each_file_once(self):
        self.hub.faults["model.safetensors"] = [("gate",)]
        first = self.start_pull()
        self.wait_for(lambda: self.hub.asked("cdn"))
        second = self.start_pull()
        self.assertIn("is being pulled by another process",
                      second.stderr.readline())
        self.hub.gate.set()
        said = [one.communicate(timeout=60)[0] for one in (first, second)]
        self.assertEqual((first.returncode, second.returncode), (0, 0))
        self.assertEqual(said[0], said[1])
        self.assertEqual(len(self.hub.asked("cdn")), 1)

    def test_rm_leaves_a_model_that_is_being_pulled(self):
        self.hub.faults["model.safetensors"] = [("gate",)]
        self.start_pull()
        self.wait_for(lambda: self.hub.asked("cdn"))
        said = self.run_sluice("rm", NAME, code=1).stderr
        self.assertIn("is being pulled", said)
        self.hub.gate.set()


if __name__ == "__main__":
    PullCase.sluice = sys.argv.pop(1)
    unittest.main()
