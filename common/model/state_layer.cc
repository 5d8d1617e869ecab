#include "common/model/state_layer.h"

#include <span>

namespace sluice {

void AddStateMixer(Backend& device, const StageLayer& layer,
                   const LayerActivations& a, DeviceMatrix n,
                   const NormSpec& before, DeviceMatrix x) {
  const StateWeights& weights = layer.weights.state;
  const kernels::StateMixer& mixer = layer.share.mixer;
  const RowShards& shards = layer.share.state;
  const DeviceMatrix out = a.state_out.Packed(mixer.out_columns());
  // A mixer of few heads is whole on one rank.
  if (shards.cols() > 0) {
    const DeviceMatrix in = a.state_in.Packed(mixer.in_columns());
    device.Linear(n, before, *weights.in, /*bias=*/nullptr, in);
    const StateVectors vectors = {weights.taps.data(), weights.conv_bias.data(),
                                  weights.rate.data(), weights.time_bias.data(),
                                  weights.skip.data(), weights.norm.data()};
    device.MixState(mixer, vectors, layer.state, in,
                    a.state_scratch.Packed(mixer.scratch_columns()), out);
  }
  const auto sums = std::span(a.sums).first(shards.nodes.size());
  device.AddRowParallel(out, *weights.out, shards, sums,
                        {nullptr, NormSpec(), x, layer.spec.state_scale});
}

}  // namespace sluice
