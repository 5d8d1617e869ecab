#include "common/pipeline/gateway/stage_holds.h"

#include <chrono>

namespace sluice {
namespace {

// Between two hellos that raise a stage's term: it rises no faster.
constexpr Duration kRaisePause = std::chrono::milliseconds(10);
// Where the one before has raised nothing.
constexpr Duration kNoRisePause = std::chrono::seconds(1);

}  // namespace

void StageHolds::Take(StageConnection& stage, uint64_t term) {
  const uint64_t id = ++links_;
  stage.Connect(
      hello_, term, id, events_,
      [this, id](const v1::ControlResponse& response, int64_t received_ns) {
        handlers_.on_message(id, response, received_ns);
      },
      [this, id](const Status& why) { handlers_.on_end(id, why); });
}

const StageConnection* StageHolds::Raise(const StageConnections& holders,
                                         uint64_t term, TimePoint now) {
  const StageConnection* lowest = nullptr;
  const bool may = !raise_at_.has_value();
  for (const auto& stage : holders) {
    const uint64_t own = stage->facts().term;
    if (own >= term) continue;
    if (lowest == nullptr || own < lowest->facts().term) lowest = stage.get();
    if (may) Take(*stage, term);
  }
  if (lowest != nullptr && may) {
    const uint64_t from = lowest->facts().term;
    raise_at_ = now + (from != raised_from_ ? kRaisePause : kNoRisePause);
    raised_from_ = from;
  }
  return lowest;
}

}  // namespace sluice
