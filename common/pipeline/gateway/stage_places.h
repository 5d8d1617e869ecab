#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PLACES_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/gateway/stage_connection.h"

namespace sluice {

// Which process has which place of the pipeline, and which processes are
// spares. One thread, "pipeline".
class StagePlaces {
 public:
  // The first `count` of `stages` begin with a place each, the others are
  // spares. `layers`: of every place; empty: what the stages hold.
  StagePlaces(StageConnections stages, size_t count,
              std::vector<StagePlace> layers);

  size_t count() const { return places_.size(); }
  bool has(size_t index) const { return index < places_.size(); }
  // Those with a place, in order of the places, and then the spares.
  const StageConnections& stages() const { return stages_; }
  StageConnections holders() const;
  // The stage with Control stream `link_id`; nothing: there is none.
  std::optional<size_t> IndexOf(uint64_t link_id) const;

  // Stage `index` has said which layers it holds.
  void OnWelcome(size_t index);
  // Gives places that are vacant to spares (StageConnection::vacant has
  // `patience`), and has layers loaded where a process does not hold its
  // place's. Returns whether a place has another holder now; `message` tells of
  // a place whose layers are not known.
  bool Fill(TimePoint now, Duration patience, const wire::PipelineName& name,
            std::string& message);
  // Whether every place has a process that holds its layers.
  bool filled() const;
  // What people see of the processes at `now`, while the pipeline is `up` or
  // not, and what keeps it from being ready. `passed`: as StageConnection's.
  // Without clocks and what is told of the pipeline as a whole.
  PipelineStatus Report(TimePoint now, TimePoint passed, Duration suspect_after,
                        bool up) const;

 private:
  // Whether place `index` went to a spare: one that holds its layers, or else
  // the first one that can load them. `message`: as Fill's.
  bool Give(size_t index, std::string& message);
  // The layers of place `index`, if the places beside it tell; or empty.
  StagePlace Between(size_t index) const;
  // FAILED_PRECONDITION unless the spare serves the model of the stages.
  Status CheckSpare(const StageIdentity& spare) const;

  StageConnections stages_;
  std::vector<StagePlace> places_;
  const bool are_given_;  // places_ by the caller
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PLACES_H_
