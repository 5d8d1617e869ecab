"""Bugs put into the engine by hand: the simulation finds each one of them.

    SLUICE_LONG=1 python3 mutants_test.py
    SLUICE_LONG=1 SLUICE_MUTANTS='replay|kept' python3 mutants_test.py

Builds engine_simulation_test from a copy of the tree, with one bug at a time.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from testing import mutants  # noqa: E402

# See mutants.Mutants.
MUTANTS = [
    ("a lost pipeline's result is taken", "engine/scheduler_commit.cc",
     "if (!attached_ || result.epoch != epoch_) {", "if (!attached_) {"),
    ("a lost pipeline takes a told token back", "engine/sequence_store.cc",
     "sequence->is_replay = sequence->was_lost = true;",
     "sequence->is_replay = sequence->was_lost = true, "
     "sequence->tokens.pop_back();"),
    ("logits are told again after a replay", "engine/sequence_store.cc",
     "  sequence.num_told = 0;\n",
     "  sequence.num_told = 0;\n  sequence.logits_done = 0;\n"),
    ("results from before a retry count", "engine/retries.h",
     "sequence.num_void = sequence.plans_in_flight;",
     "sequence.num_void = 0;"),
    ("a pause for experts has no end", "engine/retries.h",
     "if (next_ <= now) next_ = TimePoint::max();", ""),
    ("a sequence starts beside its earlier run", "engine/batch_builder.cc",
     "blocked = next->plans_in_flight > 0;", "blocked = false;"),
    ("the stages are not told of a stop", "engine/sequence_store.cc",
     "  stopped_.push_back(sequence.id);\n", ""),
    ("a pipeline that became too small is not noticed", "engine/scheduler.cc",
     "if (fits.ok()) return fits;", "if (true) return OkStatus();"),
    ("a sequence that a smaller pipeline cuts short ends as it would alone",
     "engine/scheduler_commit.cc", "if (sequence.cut_by.ok()) return", "if (true) return"),
    ("a replaced stage is taken for a survivor", "engine/block_manager.cc",
     "  pool_.MakeStale();\n", ""),
    ("a stage that was lost earlier is forgotten", "engine/block_manager.cc",
     "if (num_stale() == 0) replay_at_.clear();", "replay_at_.clear();"),
    ("a block counts as replayed before it is", "engine/block_manager.cc",
     "i < std::min(full, first.num_cached);", "i < first.num_cached;"),
    ("two sequences replay one block", "engine/batch_builder.cc",
     "return blocks.num_stale() > 0 &&", "return blocks.num_stale() < 0 &&"),
    ("a chunk goes on behind its replay", "engine/batch_builder.cc",
     "if (sequence.replays()) {", "if (false) {"),
    ("what a donor of a copy lacks is not forgotten", "engine/sequence_store.cc",
     "if (is_planned || !await_replays())", "if (!await_replays())"),
    ("KV of a pipeline with other limits is kept", "engine/scheduler.cc",
     "lost.has_value() && limits == state_.limits;", "lost.has_value();"),
    ("what a lost plan was to compute is kept", "engine/sequence_store.cc",
     "  while (!running_.empty()) Preempt(*running_.back());\n",
     "  for (Sequence* s : running_) blocks_.CacheFullBlocks(s->tables, "
     "s->first(std::min(s->num_scheduled, s->num_tokens())));\n"
     "  while (!running_.empty()) Preempt(*running_.back());\n"),
]


class MutantsTest(mutants.Mutants, unittest.TestCase):
    TARGET = "engine_simulation_test"
    BINARY = "tests/engine/engine_simulation_test"
    OPTIONS = ["-DSLUICE_GRPC=OFF", "-DSLUICE_HTTP=OFF"]
    MUTANTS = MUTANTS


if __name__ == "__main__":
    mutants.main()
