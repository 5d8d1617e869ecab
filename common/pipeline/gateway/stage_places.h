#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PLACES_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/gateway/kv_moves.h"
#include "common/pipeline/gateway/stage_process.h"
#include "common/pipeline/gateway/stream_breaks.h"

namespace sluice {

// Which process has which place of the pipeline, and which processes are
// spares. One thread, which tells the time.
class StagePlaces {
 public:
  // The first `count` of `stages` begin with a place each, the others are
  // spares. `layers`: of every place; empty: those that the stages hold.
  // `check_model`: whether a stage serves the gateway's model; empty: any does.
  // `out` outlives the object, and gets what the processes shall be told.
  StagePlaces(StageProcesses stages, size_t count,
              std::vector<StagePlace> layers, act::Outbox& out,
              std::function<Status(const StageFacts&)> check_model = nullptr);

  size_t count() const { return places_.size(); }
  bool has(size_t index) const { return index < places_.size(); }
  // The holders of the places, in order, and then the spares.
  const StageProcesses& stages() const { return stages_; }
  StageProcesses holders() const;
  // Returns the stage with Control stream `link_id`; nothing: there is none.
  std::optional<size_t> IndexOf(uint64_t link_id) const;

  // Notes the layers in the Welcome of stage `index`. A process that did not
  // fit may fit now; with a pipeline that `is_up`, spares of other models do
  // not.
  void OnWelcome(size_t index, bool is_up);
  // Gives vacant places to spares (see StageProcess::vacant for `patience`),
  // and makes processes load the layers of their places. Returns whether a
  // place has another holder now. `message` names a place with unknown layers.
  bool Fill(TimePoint now, Duration patience, std::string& message);
  // Whether a spare holds the layers of place `index`. If none does, one that
  // can is made to load them.
  bool Prepare(size_t index);
  // Whether a spare holds the layers of place `index`, can load them, or loads.
  bool has_spare(size_t index) const;
  // Gives place `index` to a spare that holds its layers, or else to the first
  // one that can load them. False without one. `message`: as for Fill.
  bool Give(size_t index, std::string& message);
  // A stream of stage `index` broke in a pipeline that was up. `peer`: as for
  // StreamBreaks::Add. Gives the process up if that happened
  // before and a spare holds its layers; where one can load them, it is made
  // to.
  void OnStreamBroken(size_t index, const std::string& peer, TimePoint now);
  // Joins the processes in the places to one pipeline, as JoinStages does.
  // Refuses those that do not fit, or serve another model than the gateway's.
  StatusOr<StageFacts> Join(const std::optional<StageFacts>& before);
  // Returns the place whose process has done the fewest steps of the epoch.
  size_t Slowest() const;
  // FAILED_PRECONDITION unless the spare serves the gateway's model and that of
  // the stages, of those that are not refused themselves, and its term is near
  // the others'.
  Status CheckSpare(const StageFacts& spare) const;
  // The places become `layers`, one per element of `holders`, which are indices
  // of stages(), in order. All others are spares.
  void Set(const std::vector<size_t>& holders, std::vector<StagePlace> layers);
  const std::vector<StagePlace>& layers() const { return places_; }
  // Whether the layers are the caller's own, not what the stages hold.
  bool are_given() const { return are_given_; }
  // Plans of `epoch` follow. Returns the first layers of the stages that must
  // compute again what the last pipeline had cached: those that lost their KV
  // cache, and those without a log whose successor needs what they hand on.
  LostStages OnUp(Epoch epoch, TimePoint now);
  // Assigns epoch() to place `index`: see StageProcess::Assign. Returns whether
  // the stage copies keys and values first.
  bool Assign(size_t index, const PipelineLimits& limits,
              const StageProcess* last);
  // Where keys and values are.
  KvMoves& moves() { return moves_; }
  // The latest epoch that was assigned.
  Epoch epoch() const { return epoch_; }
  void SetEpoch(Epoch epoch) { epoch_ = epoch; }
  // Returns the epoch after epoch() and all that the places' stages know. A
  // term that is far above theirs counts no more: its stages are gone.
  Epoch NextEpoch() const;
  // Returns the first place whose process another gateway holds, if any.
  std::optional<size_t> first_held() const;
  // Whether another gateway holds the process of every place.
  bool all_held() const;
  // Whether every place has a process that holds its layers.
  bool filled() const;
  // Asks the processes in the places to finish their steps.
  void Drain() const;
  // Whether all of them that serve have finished their steps.
  bool drained() const;
  // Returns what people see of the processes at `now`: their states, and
  // whether `up`, the pipeline's state, and the states make it ready; if not,
  // the message says why. `passed`: as for StageProcess::Silence. The caller
  // fills in clocks and the pipeline's own figures.
  PipelineStatus Report(TimePoint now, TimePoint passed, Duration suspect_after,
                        bool up) const;

 private:
  // With a pipeline that is up: refuses the spares of other models.
  void CheckSpares();
  // Whether the process of place `index` is gone, and a spare holds its layers
  // already: so it is after a gateway's restart.
  bool Succeeded(size_t index) const;
  // Returns the spare that holds the layers of `place`, or else the first one
  // that can load them; 0: none. Refuses spares of other models.
  size_t SpareFor(const StagePlace& place);
  // Refuses the spare, and says so in the log once per Control stream.
  void Refuse(StageProcess& spare, const std::string& why);
  // Returns the layers of place `index` if its neighbours tell them, else none.
  StagePlace Between(size_t index) const;

  StageProcesses stages_;
  std::vector<StagePlace> places_;
  const bool are_given_;  // places_ come from the caller
  act::Outbox& out_;
  const std::function<Status(const StageFacts&)> check_model_;
  Epoch epoch_;
  TimePoint up_since_{};   // of the latest pipeline
  uint64_t own_term_ = 0;  // of the latest pipeline; 0: there was none
  StreamBreaks breaks_;
  KvMoves moves_;
  std::map<std::string, uint64_t> refused_;  // by address: see Refuse
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PLACES_H_
