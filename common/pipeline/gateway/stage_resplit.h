#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_RESPLIT_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_RESPLIT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/pipeline/gateway/resplit_options.h"
#include "common/pipeline/gateway/stage_places.h"
#include "common/placement/layer_resplit.h"

namespace sluice {

// Changes the number of places: fewer where a process is gone for good, and as
// many as at first when processes are there again. The stages that stay keep
// their layers where that is good enough (ResplitLayers). One thread,
// which tells the time.
class StageResplit {
 public:
  // Before the first pipeline, processes get so many times as long to come.
  static constexpr int kStartFactor = 6;
  // A process that is ready to join waits for a cheap moment, at most so many
  // times grow_after. During the first of these it learns what is cheap.
  static constexpr int kCheapFactor = 3;
  // The wait for the next growth is at most so long. A pipeline that has stood
  // so long since it grew has grown for good.
  static constexpr Duration kMostGrowAfter = std::chrono::minutes(10);

  // `places` and `out`, which gets what the processes shall be told, outlive
  // it. It begins with all places.
  StageResplit(StagePlaces& places, const ResplitOptions& options,
               act::Outbox& out)
      : options_(options),
        out_(out),
        places_(places),
        full_(places.count()),
        grow_after_(options.grow_after) {
    if (places.are_given()) home_ = places.layers();
  }

  // While no pipeline is up. Gives up the places whose processes are gone, if
  // the others can have all layers; without such places as Align. Returns
  // whether the places have changed. `patience`: as for
  // StageProcess::vacant. `message` says what stands against it.
  bool Shrink(TimePoint now, Duration patience, std::string& message);
  // While no pipeline is up. Gives all places layers that join up, if those
  // that the stages began with do not, and every process is there.
  bool Align(TimePoint now, std::string& message);
  // While a pipeline is up that lacks places. A process that may join is made
  // to load its layers first. Returns true when it has joined `places`: the
  // pipeline has to be built anew, and Fill makes the others load. `cost`: see
  // PipelineObserver::PauseCost.
  bool Grow(TimePoint now, int64_t cost);
  // While a pipeline is up. Whether the others can have the layers of place
  // `index`, which is to go; and gives the layers to them. Leave returns false
  // where that cannot be, or not yet.
  bool CanLeave(size_t index) const { return Without(index).has_value(); }
  bool Leave(size_t index);
  void OnUp(TimePoint now);

  // Fills in the figures of the split.
  void Report(PipelineStatus& status) const {
    status.full_count = full_count();
    status.shrinks = shrinks();
    status.growths = growths();
  }
  size_t full_count() const { return full_; }  // of places, with none missing
  uint64_t shrinks() const { return shrinks_; }
  uint64_t growths() const { return growths_; }

 private:
  // A process that is to join, and the places with it.
  struct Growth {
    std::shared_ptr<StageProcess> joiner;
    std::vector<size_t> holders;  // for StagePlaces::Set
    std::vector<StagePlace> layers;
    size_t position = 0;  // the joiner's
    uint64_t loaded_bytes = 0;
    TimePoint since{};
    uint64_t link_id = 0;   // of the joiner when it came
    bool is_asked = false;  // to load its layers
    std::optional<TimePoint> ready_since;
    int64_t least_cost = 0;  // so far, while it learns
  };

  SplitPart PartOf(size_t index) const;
  // The places without one: the others' indices, and their layers.
  struct Smaller {
    std::vector<size_t> kept;
    std::vector<StagePlace> layers;
  };
  std::optional<Smaller> Without(size_t index) const;
  // The places become those of `smaller`, because of `why`.
  void Become(Smaller smaller, const std::string& why);
  // Whether a split may be computed at `now`.
  bool MayLook(TimePoint now);
  // Returns the places with the process `joiner` at the position where the
  // least has to be loaded, or nothing if it cannot join.
  std::optional<Growth> With(size_t joiner) const;
  void FindGrowth(TimePoint now);
  // Whether the joiner is still there, holds its layers and has waited enough.
  bool IsReady(TimePoint now);
  void Log(const std::string& why);

  const ResplitOptions options_;
  act::Outbox& out_;
  StagePlaces& places_;
  const size_t full_;
  std::vector<StagePlace> home_;  // of the full pipeline; empty: not known
  std::optional<Growth> growth_;
  TimePoint look_at_{};
  Duration grow_after_{};
  std::optional<TimePoint> grown_at_;
  bool was_up_ = false;
  // The latest joiner, until a pipeline is up with it.
  std::shared_ptr<StageProcess> newcomer_;
  uint64_t shrinks_ = 0;
  uint64_t growths_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_RESPLIT_H_
