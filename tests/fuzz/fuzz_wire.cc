// What peers may send over gRPC: frames, plans, results, handshakes. The
// first byte says which message the rest is, and by its highest bit whether
// the model has two KV groups, one of them windowed.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "common/rpc/payload_frame.h"
#include "common/wire/stage.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

constexpr int32_t kHiddenSize = 4;

PlanLimits LimitsFor(bool windowed) {
  PlanLimits limits;
  limits.max_step_tokens = 32;
  limits.max_sequences = 8;
  limits.max_context = 256;
  limits.num_blocks = 64;
  limits.vocab_size = 512;
  if (windowed) {
    limits.num_kv_groups = 2;
    limits.kv_windows = {0, 32};
  }
  return limits;
}

void Frame(const std::string& bytes, const PlanLimits& limits) {
  // Two cuts: at a third, and after the first byte.
  const size_t third = bytes.size() / 3;
  const grpc::Slice slices[] = {
      grpc::Slice(bytes.substr(0, 1)), grpc::Slice(bytes.substr(1, third)),
      grpc::Slice(third + 1 < bytes.size() ? bytes.substr(third + 1)
                                           : std::string())};
  auto split = rpc::SplitPayload(grpc::ByteBuffer(slices, 3),
                                 wire::kHiddenStatesField, 1 << 16);
  if (!split.ok()) return;
  auto frame = rpc::ParseHead<v1::StepFrame>(split->head);
  if (!frame.ok() || !frame->has_step()) return;
  auto plan =
      wire::FromProto(frame->step().header(), frame->step().plan(), limits);
  if (!plan.ok()) return;
  SLUICE_CHECK(plan->num_tokens() <= limits.max_step_tokens);
  // What was accepted goes round unchanged.
  auto again =
      wire::FromProto(frame->step().header(), wire::ToProto(*plan), limits);
  SLUICE_CHECK(again.ok() && *again == *plan);
  (void)wire::FailedFromProto(frame->step(), *plan, limits);
  (void)wire::HiddenFromPayload(std::move(split->payload), plan->num_tokens(),
                                kHiddenSize);
}

void Result(const std::string& bytes, const PlanLimits& limits) {
  v1::StepResult proto;
  if (!proto.ParseFromString(bytes)) return;
  auto result = wire::FromProto(proto, limits);
  if (!result.ok()) return;
  SLUICE_CHECK(wire::FromProto(wire::ToProto(*result), limits).ok());
}

void Welcome(const std::string& bytes) {
  v1::Welcome proto;
  if (!proto.ParseFromString(bytes)) return;
  (void)wire::FromProto(proto.identity());
  auto limits = wire::FromProto(proto.limits());
  if (!limits.ok()) return;
  SLUICE_CHECK(wire::MaxFrameBytes(limits->plan, 1 << 20) > 0);
  SLUICE_CHECK(wire::MaxResultBytes(limits->plan) > 0);
  const auto again = wire::FromProto(wire::ToProto(*limits));
  SLUICE_CHECK(again.ok() && again->plan == limits->plan);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const sluice::PlanLimits limits = sluice::LimitsFor(data[0] >= 0x80);
  switch ((data[0] & 0x7f) % 3) {
    case 0:
      sluice::Frame(bytes, limits);
      break;
    case 1:
      sluice::Result(bytes, limits);
      break;
    default:
      sluice::Welcome(bytes);
  }
  return 0;
}
