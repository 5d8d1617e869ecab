#!/usr/bin/env python3
"""Trains the demo model; stopped at any moment, it goes on where it was.

  train.py --run /tmp/demo_run

wants the run's data/ (make_data.py, make_tokenizer.py) and keeps in the run's
folder: state.pt (replaced as a whole), log.jsonl, loss.svg. SIGTERM and
SIGINT write a checkpoint first. The seed decides the weights and the order of
the chats; with equal threads on one machine a run repeats itself.
"""

import argparse
import json
import math
import os
import signal
import sys
import time

import torch
from torch.nn import functional as F

import chats
import model as glm
import muon
import picture
import rows

MTP_WEIGHT = 0.3  # of the token after next, as GLM-4.5 began
# Of the tokens that are read: what is said twice there (names in a story, in
# a schema) teaches to copy.
PROMPT_WEIGHT = 0.3
LOG_EVERY = 10


def parse_args(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, help="folder of the run")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--stop-at", type=int, help="stop before this step")
    parser.add_argument("--batch", type=int, default=8, help="rows a step")
    parser.add_argument("--row", type=int, default=320, help="ids a row")
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.004)
    parser.add_argument("--balance", type=float, default=0.003)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-seconds", type=float, default=180)
    parser.add_argument("--measure-every", type=int, default=250)
    parser.add_argument("--device", default=(
        "cuda" if torch.cuda.is_available() else "cpu"))
    return parser.parse_args(argv)


def rate(step, args):
    """The schedule: a linear warm-up, then a cosine down to a fiftieth."""
    if step < args.warmup:
        return (step + 1) / args.warmup
    share = (step - args.warmup) / max(1, args.steps - args.warmup)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def losses(net, ids, positions, documents, wanted):
    """Mean loss of the next tokens of answers, of those of prompts, of those
    after the next of answers, and the share of drafts for the latter that
    equal what the model itself would choose."""
    state, mtp_state = net(ids, positions, documents)
    one = rows.chosen(documents, documents >= 0, 1)
    two = rows.chosen(documents, wanted, 2)
    logits = net.head(state[:, :-1][one]).float()
    drafts = net.head(mtp_state[:, :-2][two]).float()
    answers = wanted[:, 1:][one]
    with torch.no_grad():
        # What is drafted for p + 2 from p is chosen from p + 1.
        choice = torch.full(one.shape, -1, device=ids.device)
        choice[one] = logits.argmax(-1)
        own = choice[:, 1:][two]
        accepted = (drafts.argmax(-1) == own).float().mean()
    each = F.cross_entropy(logits, ids[:, 1:][one], reduction="none")
    return (each[answers].mean(), each[~answers].mean(),
            F.cross_entropy(drafts, ids[:, 2:][two]), accepted)


class HeldOut:
    """The held-out chats, a few of each task, as batches of one task."""

    def __init__(self, folder, row, each=24):
        tokenizer = chats.load_tokenizer(
            os.path.join(folder, "tokenizer.json"))
        by_task = {}
        for chat in chats.read_chats(os.path.join(folder, "heldout.jsonl")):
            by_task.setdefault(chat["task"], []).append(chat)
        self._batches = {task: self._batch(some[:each], tokenizer, row)
                         for task, some in by_task.items()}

    @staticmethod
    def _batch(some, tokenizer, row):
        encoded = []
        for chat in some:
            ids = tokenizer.encode(chats.render(chat),
                                   add_special_tokens=False).ids
            if len(ids) <= row:
                encoded.append((ids, chats.targets(ids, tokenizer, True)))
        size = max(len(ids) for ids, _ in encoded)
        shape = (len(encoded), size)
        ids, wanted = torch.zeros(shape, dtype=int), torch.zeros(
            shape, dtype=bool)
        documents = torch.full(shape, -1)
        for at, (one, aims) in enumerate(encoded):
            ids[at, :len(one)] = torch.tensor(one)
            wanted[at, :len(one)] = torch.from_numpy(aims)
            documents[at, :len(one)] = 0
        return ids, torch.arange(size).expand(shape), documents, wanted

    @torch.no_grad()
    def measure(self, net, device):
        """Loss by task, and of all tasks alike; their drafts accepted."""
        by_task, shares = {}, []
        for task, batch in self._batches.items():
            loss, _, _, share = losses(net, *(t.to(device) for t in batch))
            by_task[task] = round(loss.item(), 4)
            shares.append(share.item())
        for router in net.routers():
            router.load.zero_()
        return {"heldout": round(sum(by_task.values()) / len(by_task), 4),
                "heldout_by_task": by_task,
                "drafts_accepted": round(sum(shares) / len(shares), 4)}


class Run:
    """One run's folder: its checkpoint and its log."""

    def __init__(self, args, net, optimizers):
        self._folder, self._net, self._optimizers = args.run, net, optimizers
        self._device = args.device
        # What a checkpoint has to agree with, so that it can be gone on with;
        # but for the number of steps, whose change the log tells.
        self._plan = {name: getattr(args, name) for name in (
            "steps", "batch", "row", "muon_lr", "adam_lr", "balance",
            "warmup", "seed")}
        self._steps = args.steps
        self.log = []
        self.seconds = 0.0

    def _path(self, name):
        return os.path.join(self._folder, name)

    def save(self, step):
        partial = self._path("state.pt.partial")
        torch.save({"step": step, "plan": self._plan, "steps": self._steps,
                    "log": self.log, "seconds": self.seconds,
                    "net": self._net.state_dict(),
                    "optimizers": [one.state_dict()
                                   for one in self._optimizers]}, partial)
        os.replace(partial, self._path("state.pt"))
        with open(self._path("log.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n"
                            for entry in [{"plan": self._plan}, *self.log])
        picture.draw(self.log, self._path("loss.svg"))

    def load(self):
        """The next step to do: 0 where nothing was saved."""
        if not os.path.exists(self._path("state.pt")):
            return 0
        state = torch.load(self._path("state.pt"), map_location=self._device,
                           weights_only=True)
        first = state["plan"]["steps"]
        if state["plan"] != dict(self._plan, steps=first):
            raise SystemExit(f"{self._path('state.pt')} is of another plan: "
                             f"{state['plan']}, not {self._plan}")
        self._plan["steps"] = first
        self._net.load_state_dict(state["net"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.log, self.seconds = state["log"], state["seconds"]
        if state.get("steps", first) != self._steps:
            self.log.append({"step": state["step"], "steps": self._steps})
        return state["step"]


class Trainer:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        torch.set_num_threads(args.threads)
        with open(os.path.join(chats.FOLDER, "config.json"),
                  encoding="utf-8") as file:
            self.net = glm.Model(json.load(file)).to(args.device)
        self._args = args
        self._optimizers = muon.optimizers(self.net, args.muon_lr,
                                           args.adam_lr)
        self._rows = rows.Rows(os.path.join(args.run, "data", "train.npz"),
                               args.row, args.batch, args.seed)
        self._heldout = HeldOut(os.path.join(args.run, "data"), args.row)
        self._rates = [group["lr"] for one in self._optimizers
                       for group in one.param_groups]
        self.run = Run(args, self.net, self._optimizers)
        self._stop = False

    def stop(self, *_):
        self._stop = True

    def step(self, step):
        """One step; what it cost, and how even the experts' load was."""
        share = rate(step, self._args)
        groups = [group for one in self._optimizers
                  for group in one.param_groups]
        for group, top in zip(groups, self._rates):
            group["lr"] = top * share
        device = self._args.device
        batch = [t.to(device) for t in self._rows.batch(step)]
        with torch.autocast(device, dtype=torch.bfloat16):
            loss, prompt_loss, mtp_loss, accepted = losses(self.net, *batch)
        (loss + PROMPT_WEIGHT * prompt_loss
         + MTP_WEIGHT * mtp_loss).backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loads = torch.stack([router.load for router in self.net.routers()])
        loads = loads / loads.mean(dim=1, keepdim=True)
        for router in self.net.routers():
            router.balance(self._args.balance * min(1.0, 4 * share))
        return {"step": step, "loss": round(loss.item(), 4),
                "prompt_loss": round(prompt_loss.item(), 4),
                "mtp_loss": round(mtp_loss.item(), 4),
                "accepted": round(accepted.item(), 3),
                "least_load": round(loads.min().item(), 2),
                "most_load": round(loads.max().item(), 2)}

    def train(self):
        args, run = self._args, self.run
        begin = step = run.load()
        last = min(args.steps, args.stop_at or args.steps)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        started = saved = time.monotonic()
        earlier = run.seconds
        while step < last and not self._stop:
            entry = self.step(step)
            step += 1
            if step % LOG_EVERY == 0 or step <= 20:
                if step % args.measure_every == 0 or step == args.steps:
                    entry.update(self._heldout.measure(self.net, args.device))
                run.log.append(entry)
            now = time.monotonic()
            run.seconds = earlier + now - started
            self._show(entry, step, last, (now - started) / (step - begin))
            if now - saved > args.save_seconds:
                run.save(step)
                saved = time.monotonic()
        run.save(step)
        print(f"\n{step} of {args.steps} steps")

    def _show(self, entry, step, last, seconds):
        """The progress bar: one line that is written over on a terminal."""
        whole = 30 * step // max(1, last)
        tokens = self._args.batch * self._args.row / seconds
        line = (f"[{'=' * whole}{' ' * (30 - whole)}] {step}/{last} "
                f"loss {entry['loss']:.3f} mtp {entry['mtp_loss']:.3f} "
                f"accepted {entry['accepted']:.2f} "
                f"load {entry['least_load']:.1f}-{entry['most_load']:.1f} "
                f"{tokens:.0f} tokens/s, "
                f"{(last - step) * seconds / 60:.0f} min left")
        if sys.stdout.isatty():
            print("\r" + line, end="", flush=True)
        elif step % LOG_EVERY == 0:
            print(line, flush=True)


if __name__ == "__main__":
    Trainer(parse_args(sys.argv[1:])).train()
