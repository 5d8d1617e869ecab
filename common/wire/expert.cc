// The handshake of expert.proto; batches and results are in expert_batch.cc.
#include "common/wire/expert.h"

#include <algorithm>
#include <utility>

#include "common/wire/checks.h"

namespace sluice::wire {
namespace {

constexpr int32_t kMaxExperts = 1 << 16;

Status CheckModel(const ExpertModel& model) {
  SLUICE_RETURN_IF_ERROR(CheckName("model_digest", model.model_digest));
  SLUICE_RETURN_IF_ERROR(CheckName("numerics", model.numerics));
  SLUICE_RETURN_IF_ERROR(CheckName("weights", model.weights));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_layers", model.num_layers, 1, kMaxLayers));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("hidden_size", model.hidden_size, 1, kMaxHiddenSize));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_experts", model.num_experts, 1, kMaxExperts));
  return CheckRange("experts_per_token", model.experts_per_token, 1,
                    std::min(model.num_experts, 1024));
}

// Fields of both hello and identity.
template <typename Proto>
StatusOr<ExpertModel> ModelFromProto(const Proto& proto) {
  ExpertModel model;
  model.model_digest = proto.model_digest();
  model.numerics = proto.numerics();
  model.weights = proto.weights();
  model.num_layers = proto.num_layers();
  model.hidden_size = proto.hidden_size();
  model.num_experts = proto.num_experts();
  model.experts_per_token = proto.experts_per_token();
  SLUICE_RETURN_IF_ERROR(CheckModel(model));
  return model;
}

template <typename Proto>
void ModelToProto(const ExpertModel& model, Proto* proto) {
  proto->set_model_digest(model.model_digest);
  proto->set_numerics(model.numerics);
  proto->set_weights(model.weights);
  proto->set_num_layers(model.num_layers);
  proto->set_hidden_size(model.hidden_size);
  proto->set_num_experts(model.num_experts);
  proto->set_experts_per_token(model.experts_per_token);
}

template <typename Repeated>
void LayersToProto(const std::vector<LayerExperts>& layers, Repeated* out) {
  for (const LayerExperts& layer : layers) {
    v1::LayerExperts* proto = out->Add();
    proto->set_layer(layer.layer);
    for (const kernels::TreeNode& range : layer.ranges) {
      v1::ExpertIds* ids = proto->add_ranges();
      ids->set_begin(range.begin);
      ids->set_end(range.end);
    }
  }
}

StatusOr<LayerExperts> LayerFromProto(const v1::LayerExperts& proto,
                                      int32_t num_experts) {
  LayerExperts layer;
  layer.layer = proto.layer();
  // Ranges that do not touch leave an id between them.
  SLUICE_RETURN_IF_ERROR(CheckRange("number of ranges", proto.ranges_size(), 1,
                                    (num_experts + 1) / 2));
  int32_t lowest = 0;
  for (const v1::ExpertIds& ids : proto.ranges()) {
    SLUICE_RETURN_IF_ERROR(
        CheckRange("begin of a range", ids.begin(), lowest, num_experts - 1));
    SLUICE_RETURN_IF_ERROR(
        CheckRange("end of a range", ids.end(), ids.begin() + 1, num_experts));
    layer.ranges.push_back({ids.begin(), ids.end()});
    lowest = ids.end() + 1;
  }
  return layer;
}

template <typename Repeated>
StatusOr<std::vector<LayerExperts>> LayersFromProto(const char* what,
                                                    const Repeated& protos,
                                                    const ExpertModel& model) {
  std::vector<LayerExperts> layers;
  int32_t lowest = 0;
  for (const v1::LayerExperts& proto : protos) {
    const Status rises = CheckRange("layer", proto.layer(), lowest,
                                    int64_t{model.num_layers} - 1);
    if (!rises.ok()) return Annotate(rises, what);
    auto layer = LayerFromProto(proto, model.num_experts);
    if (!layer.ok()) {
      return Annotate(layer.status(), what, ", layer ", proto.layer());
    }
    layers.push_back(*std::move(layer));
    lowest = proto.layer() + 1;
  }
  return layers;
}

template <typename Value>
Status CheckSame(const char* what, const Value& own, const Value& peer) {
  if (own == peer) return OkStatus();
  return FailedPrecondition(what, " differs: this side has ", own,
                            ", the peer has ", peer);
}

}  // namespace

bool IsAlignedNode(kernels::TreeNode node, int32_t num_experts) {
  if (node.begin < 0 || node.begin >= node.end || node.end > num_experts) {
    return false;
  }
  for (int64_t size = 1; node.begin % size == 0; size *= 2) {
    const int64_t end = node.begin + size;
    if (std::min<int64_t>(end, num_experts) == node.end) return true;
    if (end >= node.end) return false;
  }
  return false;
}

bool Holds(const std::vector<LayerExperts>& held, int32_t layer,
           kernels::TreeNode node) {
  const auto at = std::lower_bound(
      held.begin(), held.end(), layer,
      [](const LayerExperts& a, int32_t b) { return a.layer < b; });
  if (at == held.end() || at->layer != layer) return false;
  return std::any_of(at->ranges.begin(), at->ranges.end(),
                     [&](const kernels::TreeNode& range) {
                       return range.begin <= node.begin &&
                              node.end <= range.end;
                     });
}

Status CheckSameModel(const ExpertModel& own, const ExpertModel& peer) {
  SLUICE_RETURN_IF_ERROR(
      CheckSame("model digest", own.model_digest, peer.model_digest));
  SLUICE_RETURN_IF_ERROR(CheckSame("numerics", own.numerics, peer.numerics));
  SLUICE_RETURN_IF_ERROR(CheckSame("--weights", own.weights, peer.weights));
  SLUICE_RETURN_IF_ERROR(
      CheckSame("number of layers", own.num_layers, peer.num_layers));
  SLUICE_RETURN_IF_ERROR(
      CheckSame("hidden size", own.hidden_size, peer.hidden_size));
  SLUICE_RETURN_IF_ERROR(
      CheckSame("number of experts", own.num_experts, peer.num_experts));
  return CheckSame("experts per token", own.experts_per_token,
                   peer.experts_per_token);
}

Status CheckHolds(const std::vector<LayerExperts>& held,
                  const std::vector<LayerExperts>& wanted) {
  for (const LayerExperts& layer : wanted) {
    for (const kernels::TreeNode& range : layer.ranges) {
      if (Holds(held, layer.layer, range)) continue;
      return FailedPrecondition("experts ", range.begin, "-", range.end - 1,
                                " of layer ", layer.layer,
                                " are wanted and not all of them are here");
    }
  }
  return OkStatus();
}

v1::ExpertHello ToProto(const ExpertHello& hello) {
  v1::ExpertHello proto;
  proto.set_protocol_version(hello.protocol_version);
  proto.set_client(hello.client);
  proto.set_build(hello.build);
  ModelToProto(hello.model, &proto);
  LayersToProto(hello.wanted, proto.mutable_wanted());
  return proto;
}

StatusOr<ExpertHello> FromProto(const v1::ExpertHello& proto) {
  ExpertHello hello;
  hello.protocol_version = proto.protocol_version();
  hello.client = proto.client().substr(0, kMaxNameBytes);
  hello.build = proto.build().substr(0, kMaxNameBytes);
  SLUICE_ASSIGN_OR_RETURN(hello.model, ModelFromProto(proto));
  SLUICE_ASSIGN_OR_RETURN(
      hello.wanted, LayersFromProto("wanted", proto.wanted(), hello.model));
  return hello;
}

v1::ExpertWelcome ToProto(const ExpertWelcome& welcome) {
  v1::ExpertWelcome proto;
  proto.set_protocol_version(welcome.protocol_version);
  proto.set_build(welcome.build);
  v1::ExpertIdentity* identity = proto.mutable_identity();
  identity->set_model_name(welcome.model_name);
  ModelToProto(welcome.model, identity);
  identity->set_weights_dtype(welcome.weights_dtype);
  LayersToProto(welcome.held, identity->mutable_held());
  identity->set_weights_bytes(welcome.weights_bytes);
  identity->set_threads(welcome.threads);
  identity->set_isa(welcome.isa);
  proto.mutable_limits()->set_max_rows(welcome.limits.max_rows);
  proto.mutable_limits()->set_max_batches_in_flight(
      welcome.limits.max_batches_in_flight);
  proto.set_clock_ns(welcome.clock_ns);
  return proto;
}

StatusOr<ExpertWelcome> FromProto(const v1::ExpertWelcome& proto) {
  const v1::ExpertIdentity& identity = proto.identity();
  ExpertWelcome welcome;
  welcome.protocol_version = proto.protocol_version();
  welcome.build = proto.build().substr(0, kMaxNameBytes);
  SLUICE_RETURN_IF_ERROR(CheckName("model_name", identity.model_name()));
  welcome.model_name = identity.model_name();
  SLUICE_ASSIGN_OR_RETURN(welcome.model, ModelFromProto(identity));
  SLUICE_RETURN_IF_ERROR(CheckName("weights_dtype", identity.weights_dtype()));
  welcome.weights_dtype = identity.weights_dtype();
  SLUICE_ASSIGN_OR_RETURN(
      welcome.held, LayersFromProto("held", identity.held(), welcome.model));
  welcome.weights_bytes = identity.weights_bytes();
  welcome.threads = identity.threads();
  welcome.isa = identity.isa().substr(0, kMaxNameBytes);
  const v1::ExpertLimits& limits = proto.limits();
  SLUICE_RETURN_IF_ERROR(
      CheckRange("max_rows", limits.max_rows(), 1, kMaxStepTokens));
  SLUICE_RETURN_IF_ERROR(CheckRange("max_batches_in_flight",
                                    limits.max_batches_in_flight(), 1,
                                    kMaxInFlight));
  welcome.limits = {limits.max_rows(), limits.max_batches_in_flight()};
  welcome.clock_ns = proto.clock_ns();
  return welcome;
}

int64_t MaxExpertFrameBytes(const ExpertModel& model,
                            const ExpertLimits& limits) {
  // An id is at most 5 bytes of varint here, a weight 4, a node 16.
  const int64_t per_row =
      5 + 9 * int64_t{model.experts_per_token} + 4 * int64_t{model.hidden_size};
  return std::min(kMaxMessageBytes, kMiB + 16 * int64_t{model.num_experts} +
                                        limits.max_rows * per_row);
}

int64_t MaxExpertAnswerBytes(const ExpertModel& model,
                             const ExpertLimits& limits, int32_t nodes) {
  // A row's failure has a short message instead of sums.
  constexpr int64_t kFailure = 320;
  const int64_t per_row =
      kFailure + 4 * std::min<int64_t>(int64_t{nodes} * model.hidden_size,
                                       kMaxMessageBytes / 4);
  return std::min(kMaxMessageBytes, kMiB + limits.max_rows * per_row);
}

}  // namespace sluice::wire
