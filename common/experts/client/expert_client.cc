#include "common/experts/client/expert_client.h"

#include <utility>

#include "common/experts/client/client_core.h"
#include "common/model_config/model_config.h"

namespace sluice {

StatusOr<std::unique_ptr<ExpertClient>> ExpertClient::Make(
    const ModelConfig& config, ExpertClientOptions options) {
  auto core = std::make_shared<Core>(config, std::move(options));
  SLUICE_RETURN_IF_ERROR(core->MakeChannels());
  return std::unique_ptr<ExpertClient>(new ExpertClient(std::move(core)));
}

ExpertClient::ExpertClient(std::shared_ptr<Core> core)
    : core_(std::move(core)) {}
ExpertClient::~ExpertClient() { Stop(); }

void ExpertClient::Connect(const StageInfo& info) { core_->Connect(info); }
Status ExpertClient::Ready() const { return core_->Ready(); }
Status ExpertClient::WaitReady(TimePoint deadline) const {
  return core_->WaitReady(deadline);
}
void ExpertClient::Stop() { core_->Stop(); }

std::span<const kernels::TreeNode> ExpertClient::nodes(int32_t layer) const {
  return core_->map().nodes(layer);
}
void ExpertClient::Begin(const ExpertAsk& ask) { core_->Begin(ask); }
std::vector<RowFailure> ExpertClient::Finish(
    const ExpertAsk&, std::span<const kernels::Matrix> parts) {
  return core_->Finish(parts);
}

}  // namespace sluice
