#include "common/model/remote_experts.h"

namespace sluice {

RemoteExperts::RemoteExperts(Backend* backend, ExpertOwner* owner,
                             DeviceMatrix x, const DeviceRouting& routing,
                             std::span<const DeviceMatrix> sums)
    : backend_(*backend),
      owner_(*owner),
      x_(backend, x),
      ids_(backend, routing.ids),
      weights_(backend, routing.weights) {
  for (const DeviceMatrix& sum : sums) sums_.emplace_back(backend, sum);
  ask_.routing = {ids_.as<int32_t>(), weights_.as<float>(),
                  static_cast<int32_t>(routing.ids.cols)};
}

void RemoteExperts::Begin(int32_t layer, int32_t rows, const StepName& step) {
  for (HostMirror* mirror : {&x_, &ids_, &weights_}) mirror->Fetch(rows);
  backend_.Sync();
  ask_.layer = layer;
  ask_.x = x_.Rows(rows);
  ask_.step = step;
  owner_.Begin(ask_);
}

std::vector<RowFailure> RemoteExperts::Finish() {
  const size_t count = nodes(ask_.layer).size();
  parts_.clear();
  for (size_t i = 0; i < count; ++i) {
    parts_.push_back(sums_[i].Rows(ask_.x.rows));
  }
  std::vector<RowFailure> failures = owner_.Finish(ask_, parts_);
  for (size_t i = 0; i < count; ++i) sums_[i].Push(ask_.x.rows);
  return failures;
}

}  // namespace sluice
