#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_HOLDS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_HOLDS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/pipeline/gateway/pipeline_events.h"
#include "common/pipeline/gateway/stage_connection.h"

namespace sluice {

// How a gateway takes hold of stages: opens Control, and raises terms that are
// below the others'. One thread, "pipeline".
class StageHolds {
 public:
  // By the link's id, on the thread "pipeline"; see StageConnection::Connect.
  struct Handlers {
    std::function<void(uint64_t, const v1::ControlResponse&, int64_t)>
        on_message;
    std::function<void(uint64_t, const Status&)> on_end;
  };
  // `hello`: of every stream, but for term and count. `handlers` live as long
  // as events run.
  StageHolds(v1::Hello hello, std::shared_ptr<PipelineEvents> events,
             Handlers handlers)
      : hello_(std::move(hello)),
        events_(std::move(events)),
        handlers_(std::move(handlers)) {}

  // Opens Control of `stage`, whose term shall become `term`.
  void Take(StageConnection& stage, uint64_t term);

  // Raises the terms of those `holders` that are below `term`, one step at a
  // time, so that an Assign raises none. Returns the stage that is the lowest,
  // or null: none is below.
  const StageConnection* Raise(const StageConnections& holders, uint64_t term,
                               TimePoint now);
  // When the next step may follow; nothing: no term is being raised.
  std::optional<TimePoint> next_raise() const { return raise_at_; }
  // Whether the next step is due at `now`.
  bool IsDue(TimePoint now) {
    const bool due = raise_at_.has_value() && now >= *raise_at_;
    if (due) raise_at_.reset();
    return due;
  }

 private:
  const v1::Hello hello_;  // with the run's secret, for the stages alone
  const std::shared_ptr<PipelineEvents> events_;
  const Handlers handlers_;
  uint64_t links_ = 0;
  std::optional<TimePoint> raise_at_;
  uint64_t raised_from_ = 0;  // the lowest term at the latest step
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_HOLDS_H_
