"""Stages that pull the shards of their layers alone, and a gateway that pulls
none: processes of machines of their own, which give the model's answer.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tests/integration")]

import api  # noqa: E402
import fake_hub  # noqa: E402
import harness  # noqa: E402

DEMO = ROOT / "deploy/demo_model/weights"
NAME = "sluice-tests/demo-in-shards"
BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]).absolute() / "services"


def shards_of(path):
    """{file name: bytes} of a model's one file: embedding, each layer and the
    rest in shards of their own, and the index."""
    raw = path.read_bytes()
    size = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:8 + size])
    groups = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        parts = name.split(".")
        group = (f"layer-{parts[2]}" if parts[1] == "layers"
                 else "embedding" if "embed_tokens" in name else "head")
        groups.setdefault(group, {})[name] = entry
    files, index = {}, {}
    for group, entries in groups.items():
        made, data = {}, b""
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            made[name] = {**entry, "data_offsets":
                          [len(data), len(data) + end - begin]}
            data += raw[8 + size + begin:8 + size + end]
            index[name] = f"{group}.safetensors"
        text = json.dumps(made).encode()
        files[f"{group}.safetensors"] = struct.pack("<Q", len(text)) + text + data
    files["model.safetensors.index.json"] = json.dumps(
        {"weight_map": index}).encode()
    return files


class StagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.hub = fake_hub.FakeHub()
        self.addCleanup(self.hub.close)
        shards = shards_of(DEMO / "model.safetensors")
        self.num_shards = len(shards) - 1  # without the index
        files = {path.name: path.read_bytes() for path in DEMO.iterdir()
                 if path.suffix != ".safetensors"}
        self.hub.repositories[NAME] = fake_hub.Repository(
            {**files, **shards}, lfs=[name for name in shards
                                      if name.endswith(".safetensors")])

    def pull(self, machine, *options, code=0, **environment):
        """The folder that a machine of this name serves from."""
        done = subprocess.run(
            [BUILD / "cli/sluice", "pull", NAME, *options, "--link",
             self.folder / f"{machine}-model"], capture_output=True,
            text=True, timeout=100, check=False,
            env={**os.environ, "HF_HOME": str(self.folder / machine),
                 "HF_ENDPOINT": self.hub.url, **environment})
        self.assertEqual(done.returncode, code, done.stderr)
        return self.folder / f"{machine}-model" if code == 0 else done.stderr

    def test_a_link_gets_the_folders_above_it(self):
        link = self.folder / "by-revision" / f"{NAME}@main"
        subprocess.run(
            [BUILD / "cli/sluice", "pull", NAME, "--layers", "none", "--link",
             link], capture_output=True, check=True, timeout=100,
            env={**os.environ, "HF_HOME": str(self.folder / "home"),
                 "HF_ENDPOINT": self.hub.url})
        self.assertTrue((link / "config.json").exists())

    @staticmethod
    def shards(path):
        return sorted(one.name.partition(".")[0]
                      for one in path.glob("*.safetensors"))

    def start(self, service, *words):
        """A process, and its address once it listens."""
        port_file = self.folder / f"port-{len(list(self.folder.iterdir()))}"
        log = open(port_file.with_suffix(".log"), "w")  # noqa: SIM115
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [BUILD / service / f"sluice-{service}", "--listen", "127.0.0.1:0",
             "--port-file", port_file, *words], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def port():
            self.assertIsNone(process.poll(),
                              pathlib.Path(log.name).read_text())
            return port_file.exists() and port_file.read_text().strip()
        return harness.wait_for(port, 60, f"{service} listens")

    def answer(self, url):
        status, answer = api.post(url, "/v1/chat/completions", {
            "messages": [{"role": "user",
                          "content": "What is a stage in Sluice?"}],
            "temperature": 0, "max_tokens": 20})
        self.assertEqual(status, 200, answer)
        return api.choice_of(answer)["message"]["content"]

    def test_each_stage_has_its_shards_and_the_answer_is_the_models(self):
        first = self.pull("first", "--num-stages", "2", "--stage-index", "0")
        second = self.pull("second", "--num-stages", "2", "--stage-index",
                           "1")
        gateway = self.pull("gateway", "--layers", "none")
        self.assertEqual(self.shards(gateway), [])
        halves = self.shards(first), self.shards(second)
        self.assertIn("embedding", halves[0])
        self.assertIn("head", halves[1])
        self.assertEqual(sorted(halves[0] + halves[1]), sorted(
            ["embedding", "head"] + [f"layer-{i}" for i in range(5)]))
        stages = [self.start("stage", "--model", path, "--layers", "auto",
                             "--num-stages", "2", "--stage-index", str(index),
                             "--threads", "1", "--packed", "off")
                  for index, path in enumerate((first, second))]
        url = "http://" + self.start("gateway", "--model", gateway,
                                     "--stages", ",".join(stages))
        harness.wait_for(lambda: api.try_get(url, "/readyz")[0] == 200, 60,
                         "the gateway is ready")
        pulled = self.answer(url)
        with harness.Cluster(DEMO) as cluster:
            self.assertEqual(self.answer(cluster.url), pulled)

    def test_the_layers_by_hand_and_more_of_them_later(self):
        path = self.pull("one", "--layers", "1-2")
        self.assertEqual(self.shards(path), ["layer-1", "layer-2"])
        before = len(self.hub.asked("cdn"))
        self.pull("one", "--layers", "1-2")
        self.assertEqual(len(self.hub.asked("cdn")), before)
        self.pull("one", "--layers", "1-2", HF_HUB_OFFLINE="1")
        said = self.pull("one", "--layers", "1-3", code=1, HF_HUB_OFFLINE="1")
        self.assertIn("layer-3.safetensors", said)
        self.pull("one")
        self.assertEqual(len(self.shards(path)), self.num_shards)

    def test_a_list_of_layers_is_the_same_words_for_every_stage(self):
        words = ("--layers", "0-0,1-2,3-4", "--num-stages", "3")
        for index, layers in enumerate((["layer-0"], ["layer-1", "layer-2"],
                                        ["layer-3", "layer-4"])):
            path = self.pull(f"stage-{index}", *words, "--stage-index",
                             str(index))
            self.assertEqual([one for one in self.shards(path)
                              if one.startswith("layer")], layers)
        self.pull("wrong", "--layers", "0-0,1-2", "--num-stages", "3",
                  "--stage-index", "0", code=2)
        self.pull("wrong", "--layers", "none", "--num-stages", "3",
                  "--stage-index", "0", code=2)

    def test_a_stage_of_other_layers_says_what_is_missing(self):
        path = self.pull("one", "--layers", "0-1")
        done = subprocess.run(
            [BUILD / "stage/sluice-stage", "--listen", "127.0.0.1:0",
             "--model", path, "--layers", "2-4", "--packed", "off"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"(head|layer-\d)\.safetensors\.outline")
        self.assertIn("sluice pull --layers", done.stderr)

    def test_layers_that_the_model_does_not_have_are_refused(self):
        for options in (("--layers", "3-9"), ("--layers", "x"),
                        ("--layers", "0-1", "--num-stages", "2",
                         "--stage-index", "0"), ("--num-stages", "2"),
                        ("--num-stages", "2", "--stage-index", "2"),
                        ("--num-stages", "9", "--stage-index", "0"),
                        ("--stage-memory", "1G,1G")):
            with self.subTest(options=options):
                self.pull("one", *options, code=2)

    def test_a_cut_outline_is_gone_on_with(self):
        self.hub.faults["layer-4.safetensors"] = [("cut", 3), ("cut", 10),
                                                  ("cut", 1000)]
        path = self.pull("one", "--layers", "none")
        whole = self.pull("two", "--layers", "none")
        name = "layer-4.safetensors.outline"
        self.assertEqual((path / name).read_bytes(),
                         (whole / name).read_bytes())


if __name__ == "__main__":
    unittest.main()
