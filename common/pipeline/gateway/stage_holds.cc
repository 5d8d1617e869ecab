#include "common/pipeline/gateway/stage_holds.h"

#include <chrono>

namespace sluice {
namespace {

// Between two hellos that raise a stage's term: it rises no faster.
constexpr Duration kRaisePause = std::chrono::milliseconds(10);
// Where the one before has raised nothing.
constexpr Duration kNoRisePause = std::chrono::seconds(1);

}  // namespace

const StageProcess* StageHolds::Raise(const StageProcesses& holders,
                                      uint64_t term, TimePoint now,
                                      act::Outbox& out) {
  const StageProcess* lowest = nullptr;
  const bool may = !raise_at_.has_value();
  for (const auto& stage : holders) {
    const uint64_t own = stage->facts().term;
    if (own >= term) continue;
    if (lowest == nullptr || own < lowest->facts().term) lowest = stage.get();
    if (may) Take(*stage, term, now, out);
  }
  if (lowest != nullptr && may) {
    const uint64_t from = lowest->facts().term;
    raise_at_ = now + (from != raised_from_ ? kRaisePause : kNoRisePause);
    raised_from_ = from;
  }
  return lowest;
}

}  // namespace sluice
