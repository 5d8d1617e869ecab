"""Bugs put into the pipeline by hand: the simulation finds each one of them.

    SLUICE_LONG=1 python3 mutants_test.py
    SLUICE_LONG=1 SLUICE_MUTANTS='log|ack' python3 mutants_test.py

Builds pipeline_simulation_test from a copy of the tree, with one bug at a time.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from testing import mutants  # noqa: E402

# See mutants.Mutants.
MUTANTS = [
    ("a stage that lost its KV cache counts as one that kept it",
     "pipeline/gateway/stage_process.cc",
     "kv_epoch_ = kept || copied ? epoch : Epoch(0);",
     "kv_epoch_ = epoch;"),
    ("a predecessor without a log is not asked to compute again",
     "pipeline/gateway/stage_places.cc",
     "feeds = !kept || (feeds && !stage.has_log());",
     "feeds = !kept;"),
    ("a copy of keys and values counts as one with a log",
     "pipeline/gateway/stage_process.cc", "    log_is_whole_ = false;\n", ""),
    ("a copy that broke counts as whole", "pipeline/stage/kv_copy.cc",
     "  KvCopied copied{status};", "  KvCopied copied{OkStatus()};"),
    ("a copy leaves a layer out", "pipeline/gateway/kv_moves.cc",
     "  if (next < place.last_layer) donors.clear();\n", ""),
    ("a copy leaves blocks out",
     "stage/stage_kv.cc", "if (group == kNone ||",
     "if (group == kNone || block % 3 == 1 ||"),
    ("a boundary log has no rows of plans with replays",
     "stage/boundary_log.cc",
     "if (!rows_.empty()) {\n          std::copy_n",
     "if (!rows_.empty() && is_all) {\n          std::copy_n"),
    ("a boundary log's row is that of another block",
     "stage/boundary_log.cc",
     "state.blocks[0][position / kBlockTokens];",
     "state.blocks[0][position / kBlockTokens / 2];"),
    ("a step is logged where its sequences are when it is done",
     "stage/stage_loop.cc", "log_.HandOn(plan, running.slots,",
     "log_.HandOn(plan, log_.SlotsOf(sequences_.Inputs(plan)),"),
    ("an ack counts twice", "rpc/credited_sender.cc",
     "      ++credits_;\n", "      credits_ += 2;\n"),
    ("an ack is not sent", "pipeline/stage/epoch_streams.cc",
     "if (input != nullptr) input->QueueAck(step.step, step.timing);",
     "if (input != nullptr && step.step.value() % 5 != 0) {\n"
     "      input->QueueAck(step.step, step.timing);\n    }"),
    ("the end of the successor's stream is ignored",
     "pipeline/stage/epoch_links.cc",
     "if (assigned) {\n    Fail(epoch, side, why);",
     "if (assigned) {", 5000),
    ("results from before there is a reader are lost",
     "pipeline/stage/epoch_streams.cc",
     "    place->Enqueue(std::move(early));\n", "    (void)early;\n"),
    ("an epoch begins with the last one's sequences",
     "stage/stage_loop.cc", "    forget_ = true;\n", ""),
    ("tokens that a lost epoch sampled are used in the next",
     "stage/stage_loop.cc", "    sampled_.Clear();\n", ""),
    ("a broken stream of a server is not ended", "rpc/server_stream.h",
     "SetEnd(Cancelled(options_.method, \": the peer is gone\"));\n"
     "    queue_.Abort();\n    Pump();\n",
     "SetEnd(Cancelled(options_.method, \": the peer is gone\"));\n", 8000),
    ("a stage is anybody's at any time", "pipeline/stage/stage_holder.h",
     "if (now - heard >= lease) return OkStatus();",
     "if (true) return OkStatus();"),
    ("a hello raises a stage's term as far as it says",
     "pipeline/stage/stage_terms.cc",
     "std::min(wanted, RaisedTerm(term, budget_.Left(now)));", "wanted;"),
    ("a step is not sent to the successor",
     "pipeline/stage/epoch_links.cc",
     "      status = Annotate(next->EnqueueFrame(std::move(frame)), \"step \",",
     "      if (done.step.value() % 7 == 3) return;\n"
     "      status = Annotate(next->EnqueueFrame(std::move(frame)), \"step \","),
]


class MutantsTest(mutants.Mutants, unittest.TestCase):
    TARGET = "pipeline_simulation_test"
    BINARY = "tests/simulation/pipeline_simulation_test"
    SECONDS = 300
    MUTANTS = MUTANTS


if __name__ == "__main__":
    mutants.main()
