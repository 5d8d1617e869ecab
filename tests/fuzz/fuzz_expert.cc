// What clients may send to an expert host, and what hosts may answer. The first
// byte says which message the rest is.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "common/rpc/payload_frame.h"
#include "common/wire/expert.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

constexpr int32_t kHidden = 2;

wire::ExpertWelcome Host() {
  wire::ExpertWelcome host;
  host.model_name = "tiny";
  host.model = {"00", "f32", "auto", 4, kHidden, 12, 3};
  host.weights_dtype = "f32";
  host.held = {{1, {{0, 4}, {6, 8}}}, {3, {{8, 12}}}};
  host.limits = {8, 2};
  return host;
}

StatusOr<rpc::SplitFrame> Split(const std::string& bytes) {
  const size_t third = bytes.size() / 3;
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, third)),
                                grpc::Slice(bytes.substr(third))};
  return rpc::SplitPayload(grpc::ByteBuffer(slices, 2),
                           wire::kExpertPayloadField, 1 << 16);
}

// What the loop relies on holds for every row that did not fail.
void CheckAccepted(const wire::ExpertBatch& batch) {
  SLUICE_CHECK(batch.rows() >= 1 && batch.rows() <= Host().limits.max_rows);
  SLUICE_CHECK(batch.counts.size() == static_cast<size_t>(batch.rows()));
  SLUICE_CHECK(batch.weights.size() == batch.expert_ids.size());
  for (const kernels::TreeNode& node : batch.nodes) {
    SLUICE_CHECK(wire::IsAlignedNode(node, Host().model.num_experts));
    SLUICE_CHECK(wire::Holds(Host().held, batch.layer, node));
  }
  size_t at = 0;
  auto failure = batch.failures.begin();
  for (int32_t row = 0; row < batch.rows(); ++row) {
    const auto count = static_cast<size_t>(batch.counts[row]);
    SLUICE_CHECK(count >= 1 && at + count <= batch.expert_ids.size());
    const bool failed = failure != batch.failures.end() && failure->row == row;
    if (failed) ++failure;
    for (size_t j = at; !failed && j < at + count; ++j) {
      SLUICE_CHECK(j == at || batch.expert_ids[j - 1] < batch.expert_ids[j]);
      SLUICE_CHECK(batch.expert_ids[j] >= batch.nodes.front().begin);
      SLUICE_CHECK(batch.expert_ids[j] < batch.nodes.back().end);
      SLUICE_CHECK(std::isfinite(batch.weights[j]));
    }
    for (int32_t i = 0; !failed && i < kHidden; ++i) {
      SLUICE_CHECK(std::isfinite(batch.x.values()[row * kHidden + i]));
    }
    at += count;
  }
  SLUICE_CHECK(failure == batch.failures.end());
}

void Frame(const std::string& bytes) {
  const auto hello = rpc::ParseHead<v1::ExpertHello>(bytes);
  if (hello.ok()) (void)wire::FromProto(*hello);
  auto split = Split(bytes);
  if (!split.ok()) return;
  auto frame = rpc::ParseHead<v1::ExpertFrame>(split->head);
  if (!frame.ok()) return;
  if (!frame->has_batch()) return;
  auto batch =
      wire::FromProto(frame->batch(), std::move(split->payload), Host());
  if (!batch.ok()) return;
  CheckAccepted(*batch);
  // What was accepted goes round unchanged.
  Buffer copy(batch->x.data.size());
  std::memcpy(copy.data(), batch->x.data.data(), copy.size());
  auto again = wire::FromProto(wire::ExpertFrameHead(*batch).batch(),
                               std::move(copy), Host());
  SLUICE_CHECK(again.ok() && again->expert_ids == batch->expert_ids);
  SLUICE_CHECK(again->failures.size() == batch->failures.size());
}

void Answer(const std::string& bytes) {
  auto split = Split(bytes);
  if (!split.ok()) return;
  auto answer = rpc::ParseHead<v1::ExpertAnswer>(split->head);
  if (!answer.ok()) return;
  if (answer->has_welcome()) {
    auto welcome = wire::FromProto(answer->welcome());
    if (welcome.ok()) {
      SLUICE_CHECK(wire::FromProto(wire::ToProto(*welcome)).ok());
      SLUICE_CHECK(wire::MaxExpertFrameBytes(welcome->model, welcome->limits) >
                   0);
    }
  }
  if (!answer->has_result()) return;
  // As if the ids were right: sizes and failures are what is left to lie.
  const v1::ExpertResult& proto = answer->result();
  const wire::SentBatch asked = {ReplicaId(proto.header().replica()),
                                 wire::EpochOf(proto.header()),
                                 StepId(proto.header().step_id()),
                                 proto.batch_id(),
                                 proto.layer(),
                                 2,
                                 3,
                                 kHidden};
  auto result = wire::FromProto(proto, std::move(split->payload), asked);
  if (!result.ok() || !result->status.ok()) return;
  SLUICE_CHECK(result->sums.size() == sizeof(float) * 2 * 3 * kHidden);
  for (const wire::ExpertRowFailure& failure : result->failures) {
    SLUICE_CHECK(failure.row >= 0 && failure.row < 3);
    SLUICE_CHECK(!failure.status.ok());
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    sluice::Frame(bytes);
  } else {
    sluice::Answer(bytes);
  }
  return 0;
}
