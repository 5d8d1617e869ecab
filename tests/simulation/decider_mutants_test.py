"""Bugs put into the decider by hand: its histories find each one of them.

    SLUICE_LONG=1 python3 decider_mutants_test.py
    SLUICE_LONG=1 SLUICE_MUTANTS='term|place' python3 decider_mutants_test.py

Builds pipeline_decider_test from a copy of the tree, with one bug at a time.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from testing import mutants  # noqa: E402

ROOM = "pipeline/gateway/"

# See mutants.Mutants.
MUTANTS = [
    ("a stage in silence is not lost", ROOM + "cluster_decider.cc",
     "silence >= most) {", "silence >= 4 * most) {"),
    ("a standby takes stages that are another gateway's",
     ROOM + "cluster_decider.cc", "if (!leadership_.MayHold(i)) {",
     "if (false) {"),
    ("a gateway leads on when another one has all stages",
     ROOM + "leadership.h", "return signs_.all_held ||", "return false ||"),
    ("a pipeline goes on without a stage", ROOM + "cluster_decider.cc",
     "if (places_.has(index)) Lose(index, why, now);", ""),
    ("the pipeline's first answer counts in the next epoch",
     ROOM + "cluster_decider.cc",
     "index != assigning_ ||\n      epoch != places_.epoch()",
     "index != assigning_"),
    ("plans of an earlier epoch open the next one",
     ROOM + "cluster_decider.cc",
     "if (phase_ != Phase::kOpening || epoch != places_.epoch()) return;",
     "if (phase_ != Phase::kOpening) return;"),
    ("a failed try is repeated at once", ROOM + "cluster_decider.cc",
     "  assign_at_ = now + assign_backoff_;", "  assign_at_ = now;"),
    ("a stage that was told to end goes while it is needed",
     ROOM + "cluster_decider.cc", "!owner.is_idle", "false"),
    ("a hello follows the end of the stream at once",
     ROOM + "stage_process.cc", "  connect_at_ = now + backoff_;",
     "  connect_at_ = now;"),
    ("layers are asked for again and again", ROOM + "stage_process.cc",
     "if (!Apply(life_, LifeEvent::kAskToLoad)) return;",
     "Apply(life_, LifeEvent::kAskToLoad);"),
    ("a process that loads loses its place", ROOM + "stage_process.cc",
     "    case Absence::kLoading:\n      return false;",
     "      return false;\n    case Absence::kLoading:\n      return true;"),
    ("a term is raised without a pause", ROOM + "stage_holds.cc",
     "const bool may = !raise_at_.has_value();", "const bool may = true;"),
    ("an epoch comes twice", ROOM + "stage_places.cc",
     "  return ++highest;", "  return highest;"),
    ("a spare takes the place of a process that is there",
     ROOM + "stage_places.cc", "|| Succeeded(i)) {",
     "|| !stages_[i]->holds(places_[i])) {"),
    ("a refusal has no end", ROOM + "stage_places.cc",
     "  for (const auto& any : stages_) any->SetConflict(\"\");\n", ""),
    ("any term is followed", ROOM + "term_check.cc",
     "if (IsAboveBy(stage.term, most, kMostTermsAbove)) {", "if (false) {"),
]


class DeciderMutantsTest(mutants.Mutants, unittest.TestCase):
    TARGET = "pipeline_decider_test"
    BINARY = "tests/simulation/pipeline_decider_test"
    SECONDS = 300
    MUTANTS = MUTANTS


if __name__ == "__main__":
    mutants.main()
