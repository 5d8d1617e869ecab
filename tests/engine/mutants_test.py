"""Bugs put into the engine by hand: the simulation finds each one of them.

    SLUICE_LONG=1 python3 mutants_test.py
    SLUICE_LONG=1 SLUICE_MUTANTS='replay|kept' python3 mutants_test.py

Builds engine_simulation_test from a copy of the tree, with one bug at a time.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
SEEDS = 1000
CHOSEN = os.environ.get("SLUICE_MUTANTS", "")  # a pattern of their names

# (name, file of common/engine, what stands there, what is put in its place)
MUTANTS = [
    ("a lost pipeline's result is taken", "scheduler_commit.cc",
     "if (!attached_ || result.epoch != epoch_) {", "if (!attached_) {"),
    ("a lost pipeline takes a told token back", "sequence_store.cc",
     "sequence->is_replay = true;",
     "sequence->is_replay = true, sequence->tokens.pop_back();"),
    ("logits are told again after a replay", "sequence_store.cc",
     "  sequence.num_told = 0;\n",
     "  sequence.num_told = 0;\n  sequence.logits_done = 0;\n"),
    ("results from before a retry count", "retries.h",
     "sequence.num_void = sequence.plans_in_flight;",
     "sequence.num_void = 0;"),
    ("a pause for experts has no end", "retries.h",
     "if (next_ <= now) next_ = TimePoint::max();", ""),
    ("a sequence starts beside its earlier run", "batch_builder.cc",
     "blocked = next->plans_in_flight > 0;", "blocked = false;"),
    ("the stages are not told of a stop", "sequence_store.cc",
     "  stopped_.push_back(sequence.id);\n", ""),
    ("a pipeline that became too small is not noticed", "scheduler.cc",
     "if (fits.ok()) return fits;", "if (true) return OkStatus();"),
    ("a sequence that a smaller pipeline cuts short ends as it would alone",
     "scheduler_commit.cc", "if (sequence.cut_by.ok()) return", "if (true) return"),
    ("a replaced stage is taken for a survivor", "block_manager.cc",
     "  pool_.MakeStale();\n", ""),
    ("a stage that was lost earlier is forgotten", "block_manager.cc",
     "if (num_stale() == 0) replay_at_.clear();", "replay_at_.clear();"),
    ("a block counts as replayed before it is", "block_manager.cc",
     "i < std::min(full, first.num_cached);", "i < first.num_cached;"),
    ("two sequences replay one block", "batch_builder.cc",
     "return blocks.num_stale() > 0 &&", "return blocks.num_stale() < 0 &&"),
    ("a chunk goes on behind its replay", "batch_builder.cc",
     "if (sequence.replays()) {", "if (false) {"),
    ("KV of a pipeline with other limits is kept", "scheduler.cc",
     "lost.has_value() && limits == state_.limits;", "lost.has_value();"),
    ("what a lost plan was to compute is kept", "sequence_store.cc",
     "  while (!running_.empty()) Preempt(*running_.back());\n",
     "  for (Sequence* s : running_) blocks_.CacheFullBlocks(s->tables, "
     "s->first(std::min(s->num_scheduled, s->num_tokens())));\n"
     "  while (!running_.empty()) Preempt(*running_.back());\n"),
]


class MutantsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.environ.get("SLUICE_LONG"):
            raise unittest.SkipTest("builds 16 times (SLUICE_LONG=1)")
        base = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR",
                                           ROOT / "build/release"))
        cls.folder = base / "mutants"
        shutil.rmtree(cls.folder, ignore_errors=True)
        cls.source = cls.folder / "source"
        cls.source.mkdir(parents=True)
        names = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
            capture_output=True, text=True, check=True).stdout.split("\n")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (cls.source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, cls.source / name)
        subprocess.run(
            ["cmake", "-S", cls.source, "-B", cls.folder / "build", "-GNinja",
             "-DCMAKE_BUILD_TYPE=Release", "-DSLUICE_GRPC=OFF",
             "-DSLUICE_HTTP=OFF", "-DCMAKE_CXX_COMPILER_LAUNCHER=" + (
                 shutil.which("ccache") or "")],
            stdout=subprocess.DEVNULL, check=True)

    def simulate(self):
        """The finished process of a build and a run; None: no end."""
        subprocess.run(["ninja", "-C", self.folder / "build",
                        "engine_simulation_test"],
                       stdout=subprocess.DEVNULL, check=True)
        environment = {**os.environ, "SLUICE_SIMULATION_SEEDS": str(SEEDS)}
        try:
            return subprocess.run(
                [self.folder / "build/tests/engine/engine_simulation_test"],
                env=environment, capture_output=True, text=True, timeout=120,
                check=False)
        except subprocess.TimeoutExpired:
            return None

    def test_each_bug_is_found(self):
        self.assertEqual(self.simulate().returncode, 0)
        self.assertTrue(any(re.search(CHOSEN, one[0]) for one in MUTANTS),
                        f"no mutant is called {CHOSEN}")
        for name, file, there, instead in MUTANTS:
            if not re.search(CHOSEN, name):
                continue
            with self.subTest(name):
                path = self.source / "common/engine" / file
                whole = path.read_text()
                self.assertEqual(whole.count(there), 1, there)
                path.write_text(whole.replace(there, instead))
                try:
                    done = self.simulate()
                finally:
                    path.write_text(whole)
                if done is None:
                    print(f"{name}: a run without an end", flush=True)
                    continue
                self.assertNotEqual(done.returncode, 0, name)
                seed = re.search(r"SLUICE_SIMULATION_FIRST=(\d+)",
                                 done.stdout)
                print(f"{name}: " + (f"seed {seed.group(1)}" if seed else
                      f"exit status {done.returncode}"), flush=True)


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    if program.result.skipped and not program.result.testsRun:
        sys.exit(SKIPPED)
    sys.exit(not program.result.wasSuccessful())
