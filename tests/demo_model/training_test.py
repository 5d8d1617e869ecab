"""The demo model's training: the first steps as the committed log has them,
stopped and resumed alike, and the released layout.

Needs PyTorch (deploy/demo_model/requirements.txt); about a minute.
"""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest

import recipe

STEPS = 20
CHATS = 6000  # what the tokenizer is trained on; more than the steps take
LOG = recipe.FOLDER / "log.jsonl"


def quietly(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*arguments)


def trainer(run, *arguments):
    import train
    return train.Trainer(train.parse_args(
        ["--run", str(run), "--device", "cpu", *arguments]))


def logged(run):
    """The entries of a run's log; its first line is the plan."""
    with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file][1:]


class TrainingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import make_data
        import make_tokenizer
        cls._folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._folder.cleanup)
        cls.data = pathlib.Path(cls._folder.name) / "data"
        quietly(make_data.main, ["--out", str(cls.data), "--train",
                                 str(CHATS), "--heldout", "4"])
        quietly(make_tokenizer.main, ["--data", str(cls.data)])

    def run_folder(self, name):
        folder = pathlib.Path(self._folder.name) / name
        folder.mkdir()
        (folder / "data").symlink_to(self.data)
        return folder

    def test_the_first_steps_are_those_of_the_committed_log(self):
        if not LOG.exists():
            self.skipTest("no log is committed")
        with open(LOG, encoding="utf-8") as file:
            plan = json.loads(next(file))["plan"]
            wanted = [json.loads(next(file)) for _ in range(STEPS)]
        run = self.run_folder("first")
        quietly(trainer(run, "--stop-at", str(STEPS), *[
            f"--{name.replace('_', '-')}={value}"
            for name, value in plan.items()]).train)
        for entry, old in zip(logged(run), wanted, strict=True):
            self.assertEqual(entry["step"], old["step"])
            self.assertAlmostEqual(entry["loss"], old["loss"],
                                   delta=0.01 * old["loss"])
            self.assertAlmostEqual(entry["mtp_loss"], old["mtp_loss"],
                                   delta=0.01 * old["mtp_loss"])

    def test_a_stopped_run_goes_on_as_if_it_had_not_been(self):
        small = ["--batch", "2", "--row", "320", "--steps", "9"]
        whole, cut = self.run_folder("whole"), self.run_folder("cut")
        quietly(trainer(whole, *small, "--stop-at", "4").train)
        quietly(trainer(cut, *small, "--stop-at", "2").train)
        quietly(trainer(cut, *small, "--stop-at", "4").train)
        self.assertEqual(logged(cut), logged(whole))

    def test_a_checkpoint_of_another_plan_is_refused(self):
        run = self.run_folder("other")
        quietly(trainer(run, "--batch", "2", "--stop-at", "1").train)
        with self.assertRaises(SystemExit) as raised:
            quietly(trainer(run, "--batch", "3", "--stop-at", "2").train)
        self.assertIn("another plan", str(raised.exception))

    def test_the_log_tells_where_the_number_of_steps_changed(self):
        run = self.run_folder("longer")
        small = ["--batch", "2", "--warmup", "1"]
        quietly(trainer(run, *small, "--steps", "2").train)
        quietly(trainer(run, *small, "--steps", "3").train)
        quietly(trainer(run, *small, "--steps", "3").train)  # nothing to do
        self.assertEqual([(entry["step"], entry.get("steps"))
                          for entry in logged(run)],
                         [(0, None), (1, None), (2, 3), (2, None)])


class RowsTest(unittest.TestCase):
    def test_every_chat_is_packed_once_and_rows_hold_what_they_can(self):
        import rows
        lengths = [3 + i * 7919 % 90 for i in range(500)]
        packed = rows.pack(lengths, 100, range(500))
        self.assertEqual(sorted(chat for row in packed for chat in row),
                         list(range(500)))
        for row in packed:
            self.assertLessEqual(sum(lengths[chat] for chat in row), 100)
        self.assertLess(len(packed), 1.1 * sum(lengths) / 100)

    def test_targets_are_the_answers_and_their_stops(self):
        import chats
        import numpy
        texts = [f"{name}a" for name in chats.SPECIAL]
        tokenizer = chats.train_tokenizer(texts, 256 + len(
            chats.SPECIAL + chats.PLAIN))
        ids = tokenizer.encode("[gMASK]<sop><|user|>a<|assistant|>bc<|user|>d"
                               "<|assistant|>e<|observation|>").ids
        names = [tokenizer.id_to_token(i) for i in ids]
        for last, wanted in ((False, ["b", "c", "<|user|>", "e",
                                      "<|observation|>"]),
                             (True, ["e", "<|observation|>"])):
            mask = chats.targets(ids, tokenizer, last)
            self.assertEqual(list(numpy.array(names)[mask]), wanted)


class ModelTest(unittest.TestCase):
    def setUp(self):
        import model
        import torch
        torch.manual_seed(3)
        self.config = json.loads(
            (recipe.FOLDER / "config.json").read_text())
        self.net = model.Model(self.config)
        self.torch, self.model = torch, model

    def states(self, net, ids, documents=None):
        torch = self.torch
        count = len(ids)
        if documents is None:
            documents = [0] * count
        return net(torch.tensor([ids]), torch.arange(count)[None],
                   torch.tensor([documents]))

    def test_what_is_released_is_taken_back(self):
        other = self.model.Model(self.config)
        other.take_released(dict(self.net.released()))
        for (name, one), (_, two) in zip(self.net.released(),
                                         other.released(), strict=True):
            self.assertTrue(self.torch.equal(one, two), name)

    def test_a_checkpoint_with_a_tensor_too_few_or_many_is_refused(self):
        tensors = dict(self.net.released())
        with self.assertRaisesRegex(ValueError, "odd tensors"):
            self.net.take_released({**tensors, "x": tensors[
                "model.norm.weight"]})
        del tensors["model.layers.5.eh_proj.weight"]
        with self.assertRaisesRegex(ValueError, "has no model.layers.5.eh"):
            self.net.take_released(tensors)

    def test_a_token_sees_its_own_chat_and_no_later_one(self):
        with self.torch.no_grad():
            one, _ = self.states(self.net, [5, 6, 7, 8, 9, 10],
                                 [0, 0, 0, 1, 1, 1])
            two, _ = self.states(self.net, [5, 6, 7, 80, 90, 100],
                                 [0, 0, 0, 1, 1, 1])
            three, _ = self.states(self.net, [50, 60, 70, 8, 9, 10],
                                   [0, 0, 0, 1, 1, 1])
        close = dict(rtol=0, atol=1e-5)
        self.torch.testing.assert_close(one[:, :3], two[:, :3], **close)
        self.torch.testing.assert_close(one[:, 3:], three[:, 3:], **close)
        self.assertFalse(self.torch.allclose(one[:, 3:], two[:, 3:]))

    def test_the_norms_gradients_are_those_of_the_definition(self):
        torch = self.torch
        x, weight, grad = (torch.randn(shape, dtype=torch.float64)
                           for shape in ((5, 7, 24), (24,), (5, 7, 24)))
        results = []
        for norm in (self.model.RootMeanSquare.apply,
                     lambda x, weight, eps: weight * x * torch.rsqrt(
                         x.square().mean(-1, keepdim=True) + eps)):
            x.requires_grad_(), weight.requires_grad_()
            y = norm(x, weight, 1e-5)
            results.append([y, *torch.autograd.grad(y, (x, weight), grad)])
        for one, two in zip(*results):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)

    def test_balancing_lifts_idle_experts_and_lowers_busy_ones(self):
        router = self.net.routers()[0]
        router.load.copy_(self.torch.tensor([0., 1, 2, 3, 4, 5, 6, 7]))
        router.balance(0.5)
        self.assertEqual(router.e_score_correction_bias.sign().tolist(),
                         [1] * 4 + [-1] * 4)
        self.assertEqual(router.load.sum().item(), 0)

    def test_orthogonalised_matrices_have_singular_values_near_one(self):
        import muon
        whole = muon.orthogonalise(self.torch.randn(3, 40, 24))
        values = self.torch.linalg.svdvals(whole)
        self.assertGreater(values.min().item(), 0.5)
        self.assertLess(values.max().item(), 1.4)

    def test_transformers_loads_it_and_computes_the_same(self):
        import importlib.util
        if importlib.util.find_spec("transformers") is None:
            self.skipTest("no transformers")
        import chats
        import evaluate
        import export
        import make_data
        corpus = make_data.Corpus(1, held=False)
        texts = [chats.render(corpus.mixed()) for _ in range(3000)]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bpe.json")
            chats.train_tokenizer(texts, 1536).save(path)
            quietly(export.export, self.net, path, folder)
            theirs, _, ours = evaluate.load(folder)
            ids = [5, 6, 700, 8, 1500, 3]
            with self.torch.no_grad():
                state, _ = self.states(ours, ids)
                wanted = theirs(self.torch.tensor([ids])).logits
            self.torch.testing.assert_close(ours.head(state), wanted,
                                            rtol=0, atol=1e-4)


if __name__ == "__main__":
    recipe.main("torch", "tokenizers", "jinja2", "safetensors", "numpy")
