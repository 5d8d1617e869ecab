"""`sluice pull` and a hub that says too much: sizes that no file has, a hundred
thousand files; and where the token goes.

usage: limits_test.py SLUICE [unittest's options]
"""

import hashlib
import pathlib
import resource
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from pull_case import NAME, PullCase  # noqa: E402


class SizesTest(PullCase):
    """What a hub says of sizes and numbers of files."""

    def test_sizes_that_no_file_has_are_refused_by_name(self):
        for listed in (True, False):
            self.repository.listed = listed
            for size in (2**50 + 1, 2**63 - 1, 2**63, 2**64 - 2**24, 2**64 - 1,
                         2**64, 10**30):
                self.repository.sizes["model.safetensors"] = size
                said = self.pull(code=2)
                self.assertIn("model.safetensors", said)
                self.assertIn("is above the limit of 1125899906842624", said)
                self.assertNotIn(hashlib.sha256(self.data).hexdigest(),
                                 self.blobs())
                self.run_sluice("rm", NAME)

    def test_sizes_that_are_too_large_together_are_refused(self):
        names = [f"m-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
        self.repository = self.add(NAME, {name: b"GGUF" for name in names})
        for name in names:
            self.repository.sizes[name] = 2**49
        self.assertIn("take more than the limit of 1125899906842624 bytes",
                      self.pull(code=2))

    def test_a_size_without_room_is_refused_before_a_byte(self):
        self.repository.sizes["model.safetensors"] = 2**49
        self.assertIn("not begun", self.pull(code=1))

    def test_a_file_that_is_listed_twice_is_refused(self):
        listing = self.repository.listing()
        listing["siblings"] += listing["siblings"][:1]
        self.repository.listing = lambda: listing
        self.assertIn("'config.json' is listed twice", self.pull(code=2))

    def test_a_hundred_thousand_files_take_linear_time(self):
        seconds = []
        for count in (25_000, 100_000):
            # Without digests, so that each file is looked up before it is
            # asked for; the first is refused, and nothing is fetched.
            files = {f"{i}.tiktoken": b"" for i in range(count)}
            repository = self.add(NAME, {
                **self.repository.files, **files})
            listing = repository.listing()
            for entry in listing["siblings"]:
                entry["size"] = 2**30
            repository.listing = lambda listing=listing: listing
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.assertIn("not begun", self.pull(code=1))
            seconds.append(resource.getrusage(
                resource.RUSAGE_CHILDREN).ru_utime - before)
        print(f"25,000 files: {seconds[0]:.2f} s, 100,000: {seconds[1]:.2f} s")
        self.assertLess(seconds[1], 8 * seconds[0] + 0.5)


class TokenTest(PullCase):
    def test_a_token_is_not_sent_unencrypted(self):
        # All addresses of this machine answer, and no proxy is asked.
        port = self.hub.url.rpartition(":")[2]
        said = self.run_sluice("pull", NAME, HF_TOKEN="good",
                               HF_ENDPOINT=f"http://0.0.0.0:{port}").stderr
        self.assertIn("is not encrypted: HF_TOKEN is not sent", said)
        self.assertNotIn("good", said)
        self.repository.gated = 401
        self.run_sluice("rm", NAME)
        said = self.run_sluice("pull", NAME, code=1, HF_TOKEN="good",
                               HF_ENDPOINT=f"http://0.0.0.0:{port}").stderr
        self.assertIn("HF_TOKEN was not sent", said)
        for _, headers in self.hub.asked():
            self.assertNotIn("Authorization", headers)

    def test_a_token_stays_on_this_machine(self):
        self.repository.gated = 401
        self.pull(HF_TOKEN="good")


if __name__ == "__main__":
    PullCase.sluice = sys.argv.pop(1)
    unittest.main()
