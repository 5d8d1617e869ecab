#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_CLUSTER_ACTIONS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_CLUSTER_ACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/stage_identity.h"
#include "common/core/step_plan.h"

// What the decider has the thread "pipeline" do, in order. `process` is
// StageProcess::id.
namespace sluice::act {

// Opens Control, in the place of an open stream, which the stage ends.
struct OpenControl {
  size_t process = 0;
  uint64_t link_id = 0;
  uint64_t term = 0;  // Hello.term
};
enum class Ending { kHalfClose, kCancel };
struct EndControl {
  size_t process = 0;
  Status why;
  Ending how = Ending::kCancel;
  bool is_leaving = false;  // the process was told to end, and is let go
};
struct SendHeartbeat {
  size_t process = 0;
  uint64_t sequence = 0;
};
// Makes an assignable stage load layers.
struct SendLoad {
  size_t process = 0;
  Epoch epoch;  // the latest one
  StagePlace place;
  bool shelves = false;  // Assign.shelve
};
// A process with the keys and values of layers.
struct KvDonor {
  size_t process = 0;
  StagePlace layers;
  bool is_self = false;  // the receiver: its shelf
};
struct SendAssign {
  size_t process = 0;
  Epoch epoch;
  PipelineLimits limits;
  Epoch keep;                  // Assign.keep_epoch
  std::optional<size_t> next;  // the successor
  // The process whose sampled tokens this one reads.
  std::optional<size_t> last;
  // Whose keys and values it copies, those of the plans of `donors_epoch`.
  std::vector<KvDonor> donors = {};
  Epoch donors_epoch = {};
};
struct SendDrain {
  size_t process = 0;
};
// The processes of the places, while the channel of plans is closed.
struct SetHolders {
  std::vector<size_t> processes;
};
struct OpenPlans {
  Epoch epoch;
  StageFacts joined;
};
struct LetPlansPass {};
struct ClosePlans {
  Status why;
};
struct TellUp {
  Epoch epoch;
  PlanLimits limits;
  int num_stages = 0;
  LostStages lost;
};
struct TellLost {
  Status why;
  bool is_planned = false;  // PipelineObserver::OnResplit
};
struct TellLeaving {
  Status why;
};
struct WriteLog {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

using Action =
    std::variant<OpenControl, EndControl, SendHeartbeat, SendLoad, SendAssign,
                 SendDrain, SetHolders, OpenPlans, LetPlansPass, ClosePlans,
                 TellUp, TellLost, TellLeaving, WriteLog>;

// The actions that are decided and not yet done. One thread.
class Outbox {
 public:
  void Add(Action action) { actions_.push_back(std::move(action)); }
  template <typename... Parts>
  void Info(const Parts&... parts) {
    Add(WriteLog{LogLevel::kInfo, Cat(parts...)});
  }
  template <typename... Parts>
  void Warn(const Parts&... parts) {
    Add(WriteLog{LogLevel::kWarning, Cat(parts...)});
  }
  // Returns the next action; nothing: all are done.
  std::optional<Action> Pop() {
    if (actions_.empty()) return std::nullopt;
    Action next = std::move(actions_.front());
    actions_.pop_front();
    return next;
  }

 private:
  std::deque<Action> actions_;
};

}  // namespace sluice::act

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_CLUSTER_ACTIONS_H_
