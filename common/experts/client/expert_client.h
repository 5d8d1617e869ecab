#ifndef SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_CLIENT_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/expert_owner.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/layer_split.h"
#include "common/model_config/weights_mode.h"
#include "common/rpc/transport_options.h"
#include "common/stage/stage_info.h"

namespace sluice {

class ExpertClientMetrics;
struct ModelConfig;

struct ExpertClientOptions {
  ExpertPlacement placement;  // of the model; its hosts have addresses
  LayerRange layers;          // of the stage
  int32_t max_step_tokens = 512;
  WeightsMode weights = WeightsMode::kAuto;
  rpc::TransportOptions transport;
  // Nothing heard of a host for so long: it gets no new work while another
  // one of the same experts is heard of.
  Duration silent_after = std::chrono::milliseconds(500);
  Duration ping_every = std::chrono::milliseconds(100);
  // Between two attempts to reach a host; doubles from the first to the last.
  Duration first_backoff = std::chrono::milliseconds(50);
  Duration last_backoff = std::chrono::seconds(1);
  // Batches that may be asked twice because they are late, saved up; one of ten
  // adds to them.
  double most_hedges = 10;
  ExpertClientMetrics* metrics = nullptr;  // outlives the client; may be null
  // Told when what Ready says has changed, by the client's watch alone; may be
  // null.
  std::function<void(bool ready)> on_ready = {};
};

// What a stage has elsewhere: one stream to every host that the placement
// names for its layers. A batch goes to the replica with the least work
// outstanding; one that is late (beyond the 99th percentile of its size) is
// asked of another replica too, one that is lost or refused at once; whoever
// answers first is right, as all give the same bits. Rows that no host is left
// for fail with UNAVAILABLE, naming experts and layers.
//
// Begin and Finish: the stage's thread. The others: any. Threads of its own:
// "expert-watch", which pings and reconnects.
class ExpertClient final : public ExpertOwner {
 public:
  // INVALID_ARGUMENT for a host without an address or with one that may not
  // be used. Connects to nothing yet.
  static StatusOr<std::unique_ptr<ExpertClient>> Make(
      const ModelConfig& config, ExpertClientOptions options);
  ~ExpertClient() override;  // stops

  // Begins to connect, as the stage that `info` tells of. Once.
  void Connect(const StageInfo& info);
  // OK if every expert elsewhere can be asked of someone. UNAVAILABLE names
  // the first that cannot, its hosts and why.
  Status Ready() const;
  // Waits for that, at most until `deadline`; what Ready says then.
  Status WaitReady(TimePoint deadline) const;
  // Ends all streams; what is asked fails. Idempotent.
  void Stop();

  std::span<const kernels::TreeNode> nodes(int32_t layer) const override;
  void Begin(const ExpertAsk& ask) override;
  std::vector<RowFailure> Finish(
      const ExpertAsk& ask, std::span<const kernels::Matrix> parts) override;

 private:
  class Core;
  explicit ExpertClient(std::shared_ptr<Core> core);
  const std::shared_ptr<Core> core_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_CLIENT_H_
