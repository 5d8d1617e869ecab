#include "common/model/remote_experts.h"

namespace sluice {

RemoteExperts::RemoteExperts(Backend* backend, ExpertTransport* transport,
                             DeviceMatrix x, const DeviceRouting& routing,
                             std::span<const DeviceMatrix> sums)
    : backend_(*backend),
      transport_(*transport),
      x_(backend, x),
      ids_(backend, routing.ids),
      weights_(backend, routing.weights) {
  for (const DeviceMatrix& sum : sums) sums_.emplace_back(backend, sum);
  routed_.routing = {ids_.as<int32_t>(), weights_.as<float>(),
                     static_cast<int32_t>(routing.ids.cols)};
}

void RemoteExperts::Dispatch(int32_t layer, int32_t rows,
                             const StepHeader& step) {
  for (HostMirror* mirror : {&x_, &ids_, &weights_}) mirror->Fetch(rows);
  backend_.Sync();
  routed_.layer = layer;
  routed_.x = x_.Rows(rows);
  routed_.step = step;
  transport_.Dispatch(routed_);
}

std::vector<RowFailure> RemoteExperts::Combine() {
  const size_t count = nodes(routed_.layer).size();
  parts_.clear();
  for (size_t i = 0; i < count; ++i) {
    parts_.push_back(sums_[i].Rows(routed_.x.rows));
  }
  std::vector<RowFailure> failures = transport_.Combine(routed_, parts_);
  for (size_t i = 0; i < count; ++i) sums_[i].Push(routed_.x.rows);
  return failures;
}

}  // namespace sluice
