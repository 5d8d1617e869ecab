"""The commands of `sluice` that no other test runs: up and down, status, chat,
generate, inspect."""

import http.server
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import threading
import unittest

import api
import harness

COMMAND = pathlib.Path(os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice")
STAGE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"],
                     "services/stage/sluice-stage")
MODEL = harness.ROOT / "deploy/demo_model/weights"


class CommandCluster(harness.Cluster):
    """A cluster that the command itself starts and stops."""

    UP = (COMMAND, "up")
    DOWN = (COMMAND, "down")


def sluice(*words, code=0, text=None):
    """What the command prints, given `text` as its input."""
    done = subprocess.run([COMMAND, *[str(word) for word in words]],
                          input=text, capture_output=True, text=True,
                          timeout=300, check=False)
    if done.returncode != code:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}"
                             f"{done.stderr}")
    return done.stdout if code == 0 else done.stderr


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = CommandCluster(MODEL, "--stages", "2", "--debug")
        cls.addClassCleanup(cls.cluster.close)

    def test_up_and_down_are_those_of_deploy_local(self):
        self.assertIn(self.cluster.url, self.cluster.up.stdout)
        self.assertEqual([p["role"] for p in self.cluster.file["processes"]],
                         ["stage", "stage", "gateway"])
        with harness.tempfile.TemporaryDirectory() as nowhere:
            self.assertIn("--stages", sluice("up", "--stages", "0",
                                             "--run-dir", nowhere, code=2))
            sluice("down", "--run-dir", nowhere)  # Nothing to do.
            with CommandCluster(MODEL, "--stages", "1") as other:
                url = other.url
                self.assertEqual(other.down(), 0)
                self.assertEqual(api.try_get(url, "/livez")[0], 0)

    def test_status_and_generate_show_the_cluster(self):
        status = sluice("status", "--run-dir", self.cluster.run_dir)
        self.assertIn("ready", status)
        self.assertEqual(status.count("running "), 4, status)
        dump = self.cluster.run_dir + "/logits.safetensors"
        text = sluice("generate", "What is a stage?", "--max-tokens", "20",
                      "--temperature", "0", "--dump-logits", dump,
                      "--run-dir", self.cluster.run_dir)
        answer = api.completion(self.cluster.url, "What is a stage?",
                                max_tokens=20, temperature=0)
        self.assertIn(api.choice_of(answer)["text"].strip(), text)
        tensors = harness.read_safetensors(dump)
        self.assertEqual(tensors["logits"][0][1], 1536)
        self.assertEqual(tensors["logits"][0][0], tensors["ids"][0][0])
        self.assert_logits(tensors, answer)

    def assert_logits(self, tensors, answer):
        """Their log-softmax is what the same ids' logprobs are; greedy ids
        are their maxima."""
        prompt = api.choice_of(api.completion(
            self.cluster.url, "What is a stage?", max_tokens=0, echo=True,
            logprobs=0, return_token_ids=True))
        given = prompt["logprobs"]["token_logprobs"]
        ids = tensors["ids"][1]
        self.assertEqual(prompt["prompt_token_ids"], list(ids[:len(given)]))
        width = tensors["logits"][0][1]
        rows = [tensors["logits"][1][at * width:(at + 1) * width]
                for at in range(len(ids))]
        for row, token, logprob in zip(rows, ids[1:], given[1:]):
            total = math.log(math.fsum(math.exp(x) for x in row))
            self.assertAlmostEqual(row[token] - total, logprob, delta=1e-4)
        self.assertEqual(answer["usage"]["completion_tokens"],
                         len(ids) - len(given))
        for at in range(len(given), len(ids)):
            self.assertEqual(rows[at - 1].index(max(rows[at - 1])), ids[at])

    def test_a_chat_keeps_its_history_until_it_is_reset(self):
        def answer(*messages):
            status, body = api.post(
                self.cluster.url, "/v1/chat/completions",
                {"messages": messages, "temperature": 0, "max_tokens": 60})
            self.assertEqual(status, 200, body)
            return api.choice_of(body)["message"]["content"] or ""

        first = {"role": "user", "content": "What is a stage?"}
        second = {"role": "user", "content": "And what is a gateway?"}
        one = answer(first)
        two = answer(first, {"role": "assistant", "content": one}, second)
        self.assertTrue(one)
        shown = sluice("chat", "--temperature", "0", "--max-tokens", "60",
                       "--run-dir", self.cluster.run_dir,
                       text=f"{first['content']}\n\n{second['content']}\n"
                            f"/reset\n{first['content']}\n")
        self.assertEqual(shown, f"{one}\n{two}\n{one}\n")

    def test_a_chat_that_is_refused_ends_with_what_the_gateway_said(self):
        self.assertIn("temperature", sluice(
            "chat", "--temperature", "-1", "--run-dir", self.cluster.run_dir,
            code=1, text="What is a stage?\n"))


class SlowGateway(http.server.BaseHTTPRequestHandler):
    """Answers a chat in two events; the second waits for `go_on`."""

    go_on = None

    def do_GET(self):
        self.answer("application/json", b'{"data": [{"id": "slow"}]}')

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer("text/event-stream", self.event("At "))
        if not self.go_on.wait(60):
            return  # nothing was shown, and "once." never comes
        self.wfile.write(self.event("once.") + b"data: [DONE]\n\n")

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def event(self, text):
        return b"data: " + json.dumps(
            {"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"

    def log_message(self, *arguments):
        pass


class StreamTest(unittest.TestCase):
    def test_a_chat_shows_text_before_the_answer_has_ended(self):
        SlowGateway.go_on = threading.Event()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowGateway)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        chat = subprocess.Popen(
            [COMMAND, "chat", "--url",
             f"http://127.0.0.1:{server.server_port}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with chat:
            chat.stdin.write(b"Hello?\n")
            chat.stdin.flush()
            self.assertEqual(chat.stdout.read(3), b"At ")
            SlowGateway.go_on.set()
            chat.stdin.close()
            self.assertEqual(chat.stdout.read(), b"once.\n")
            self.assertEqual(chat.wait(60), 0)


def write_gguf(path, formats):
    """A llama of so many layers, its matrices all zeros in the format (GGUF's
    number) that each layer has. Gives the bytes of each layer."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def key(name, kind, value):
        return text(name) + struct.pack("<I", kind) + value

    numbers = {"embedding_length": 256, "block_count": len(formats),
               "attention.head_count": 4, "attention.head_count_kv": 2,
               "feed_forward_length": 512, "context_length": 64}
    keys = [key("general.architecture", 8, text("llama"))]
    keys += [key("llama." + name, 4, struct.pack("<I", value))
             for name, value in numbers.items()]
    keys += [key("llama.attention.layer_norm_rms_epsilon", 6,
                 struct.pack("<f", 1e-5)),
             key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2)
                 + text("a") + text("b")),
             key("tokenizer.ggml.scores", 9, struct.pack("<IQff", 6, 2, 0, 1)),
             key("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 1))]
    tensors = [("token_embd.weight", (256, 2), 0),
               ("output_norm.weight", (256,), 0)]
    matrices = {"attn_q": (256, 256), "attn_k": (256, 128),
                "attn_v": (256, 128), "attn_output": (256, 256),
                "ffn_gate": (256, 512), "ffn_up": (256, 512),
                "ffn_down": (512, 256)}
    for layer, kind in enumerate(formats):
        tensors += [(f"blk.{layer}.{name}.weight", (256,), 0)
                    for name in ("attn_norm", "ffn_norm")]
        tensors += [(f"blk.{layer}.{name}.weight", shape, kind)
                    for name, shape in matrices.items()]
    head, at, layers = b"", 0, [0] * len(formats)
    for name, shape, kind in tensors:
        head += text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", kind, at)
        elements = shape[0] * (shape[1] if len(shape) > 1 else 1)
        size = {0: 4 * elements, 1: 2 * elements, 8: elements // 32 * 34}[kind]
        if name.startswith("blk."):
            layers[int(name.split(".")[1])] += size
        at += size  # A multiple of the alignment, 32.
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors),
                       len(keys)) + b"".join(keys) + head
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(-(-len(head) // 32) * 32 + at)
    return layers


class HelpTest(unittest.TestCase):
    COMMANDS = ("up", "down", "run", "chat", "ps", "stop", "logs", "status",
                "generate", "bench", "eval", "trace", "inspect", "convert", "pull", "list", "show", "rm",
                "packed", "plan", "doctor", "completion")

    def test_every_command_answers_help_with_0_on_stdout(self):
        for words in (("--help",), ("-h",), ("help",), ("help", "--help"),
                      ("--help", "-h")):
            text = sluice(*words)
            for command in self.COMMANDS:
                self.assertRegex(text, rf"(?m)^  {command}\b")
        for command in self.COMMANDS:
            for words in ((command, "--help"), (command, "-h"),
                          ("help", command), ("--help", command),
                          ("-h", command)):
                with self.subTest(words=words):
                    self.assertIn("usage:", sluice(*words))
        for command in self.COMMANDS[2:]:
            self.assertIn("usage:", sluice(command, "word", "--help"))

    def test_the_version_is_that_of_the_project(self):
        text = (harness.ROOT / "CMakeLists.txt").read_text()
        version = re.search(r"VERSION (\d+\.\d+\.\d+)", text).group(1)
        header = (harness.ROOT
                  / "common/wire/protocol_versions.h").read_text()
        protocols = ", ".join(
            f"{name} " + re.search(rf" {constant} = (\d+);", header)[1]
            for name, constant in (("stages", "kProtocolVersion"),
                                   ("experts", "kExpertProtocolVersion"),
                                   ("ranks", "kRanksProtocolVersion")))
        self.assertEqual(sluice("--version").splitlines()[::2],
                         [f"sluice {version}", f"protocols: {protocols}"])
        build = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
        for service in ("gateway", "stage", "expert"):
            done = subprocess.run(
                [build / f"services/{service}/sluice-{service}", "--version"],
                capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.partition(" ")[2],
                             sluice("--version").partition(" ")[2])
            self.assertTrue(done.stdout.startswith(f"sluice-{service} "))

    def test_what_is_not_known_ends_with_2_and_a_hint(self):
        self.assertIn("usage: sluice [OPTIONS] COMMAND", sluice(code=2))
        self.assertIn("unknown command 'nope'", sluice("nope", code=2))
        for command in self.COMMANDS[2:]:
            error = sluice(command, "--nope", code=2)
            self.assertIn("unknown option --nope", error)
            self.assertIn(f"sluice {command} --help", error)

    def test_options_may_stand_before_the_words_and_the_command(self):
        after = sluice("inspect", MODEL, "--stages", "3")
        self.assertEqual(sluice("inspect", "--stages=3", MODEL), after)
        self.assertEqual(sluice("--stages", "3", "inspect", MODEL), after)


class SumsTest(unittest.TestCase):
    def test_sums_are_written_and_a_damaged_model_is_not_loaded(self):
        with harness.tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "model")
            shutil.copytree(MODEL, copy)
            self.assertIn("sluice.sums", sluice("inspect", copy, "--sums"))
            sums = json.loads((copy / "sluice.sums").read_text())
            file = copy / "model.safetensors"
            raw = bytearray(file.read_bytes())
            size = struct.unpack_from("<Q", raw)[0]
            header = json.loads(raw[8:8 + size])
            header.pop("__metadata__", None)
            self.assertEqual([t["name"] for t in sums["tensors"]],
                             sorted(header))
            for tensor in sums["tensors"]:
                begin, end = header[tensor["name"]]["data_offsets"]
                self.assertEqual(tensor["bytes"], end - begin)
                self.assertEqual(tensor["file"], "model.safetensors")
                self.assertEqual(len(tensor["pieces"]),
                                 16 * -(-(end - begin) // 2**20))
            name = "model.layers.2.mlp.experts.3.down_proj.weight"
            begin, end = header[name]["data_offsets"]
            raw[8 + size + (begin + end) // 2] ^= 1
            file.write_bytes(raw)
            stage = subprocess.run(
                [STAGE, "--model", copy], capture_output=True, text=True,
                timeout=60, check=False)
            self.assertEqual(stage.returncode, 1, stage.stderr)
            tensor = next(t for t in sums["tensors"] if t["name"] == name)
            for part in (name, str(file), tensor["pieces"]):
                self.assertIn(part, stage.stderr)


class InspectTest(unittest.TestCase):
    def lines(self, *words):
        """{what: the rest of its line} of what inspect prints."""
        rows = (re.split(r"  +", line.strip(), maxsplit=1)
                for line in sluice("inspect", *words).splitlines())
        return {row[0]: row[-1] for row in rows}

    def test_a_folder_is_told_with_its_layers_experts_and_stages(self):
        found = self.lines(MODEL, "--stages", "5")
        self.assertEqual(found["model_type"], "glm4_moe")
        self.assertEqual(found["num_layers"], "5")
        self.assertEqual(found["experts"], "8, 2 per token")
        raw = (MODEL / "model.safetensors").read_bytes()
        size = struct.unpack_from("<Q", raw)[0]
        served = experts = 0
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name == "__metadata__" or ".layers.5." in name:
                continue  # The layer behind the last is left aside.
            begin, end = entry["data_offsets"]
            served += end - begin
            experts += end - begin if ".experts." in name else 0
        self.assertEqual(found["in all"], f"{served * 1e-6:.2f} MB")
        self.assertEqual(found["all experts"], f"{experts * 1e-6:.2f} MB")
        self.assertEqual(found["its experts"], f"{experts / 4e6:.2f} MB")
        self.assertEqual(found["one of them"], f"{experts / 32e6:.2f} MB")
        self.assertIn("layer 0", found)
        self.assertIn("layers 1-4, each", found)
        self.assertIn("stage 4: --layers 4-4", found)

    def test_a_gguf_is_told_with_every_run_of_equal_layers(self):
        with harness.tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mixed.gguf")
            layers = write_gguf(path, [1, 8, 8, 0])
            found = self.lines(path)
        self.assertEqual(found["model_type"], "llama")
        for what, layer in (("layer 0", 0), ("layers 1-2, each", 1),
                            ("layer 3", 3)):
            self.assertEqual(found[what], f"{layers[layer] * 1e-6:.2f} MB")
        self.assertNotIn("its experts", found)
        self.assertIn("stage 1: --layers 2-3", found)

    def test_what_is_no_model_is_refused(self):
        self.assertIn("usage", sluice("inspect", code=2))
        sluice("inspect", "/no/such/model", code=1)


if __name__ == "__main__":
    harness.main()
