#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_KV_MOVES_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_KV_MOVES_H_

#include <vector>

#include "common/core/ids.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/gateway/stage_process.h"

namespace sluice {

// Where the keys and values of the latest pipeline are, for the stages that
// take over layers when that pipeline ends by plan: the processes that held
// the layers live. After a loss nothing is copied: what the lost process had is
// gone. One thread.
class KvMoves {
 public:
  // A pipeline of `epoch` is up: place i of `places` is that of holder i.
  void OnUp(Epoch epoch, const StageProcesses& holders,
            const std::vector<StagePlace>& places);
  // That pipeline ends, by plan or not.
  void OnEnd(bool is_planned) { is_planned_ = is_planned; }
  // The next pipeline could not be built: what was copied is with those that
  // say so, and the others compute again.
  void OnFailed() { is_planned_ = false; }

  // Whether keys and values may move to the next pipeline.
  bool is_planned() const { return is_planned_; }
  Epoch epoch() const { return epoch_; }  // of the latest pipeline
  // Whether the process has keys and values that others may need, or itself
  // once it has other layers.
  bool IsDonor(const StageProcess& process) const;
  // Returns who has the layers of `place` for `receiver`, in their order,
  // itself included. None: the receiver has the place already, or a donor is
  // gone.
  std::vector<act::KvDonor> DonorsOf(const StageProcess& receiver,
                                     const StagePlace& place) const;

 private:
  struct Home {
    std::shared_ptr<StageProcess> process;
    StagePlace place;
  };
  std::vector<Home> homes_;  // by layer
  Epoch epoch_;
  bool is_planned_ = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_KV_MOVES_H_
