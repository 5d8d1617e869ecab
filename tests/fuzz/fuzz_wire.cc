// What peers may send over gRPC: frames, plans, results, handshakes. The
// first byte says which message the rest is.
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

PlanLimits Limits() {
  PlanLimits limits;
  limits.max_step_tokens = 32;
  limits.max_sequences = 8;
  limits.max_context = 256;
  limits.num_blocks = 64;
  limits.vocab_size = 512;
  return limits;
}

void Frame(const std::string& bytes) {
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
      wire::FromProto(frame->step().header(), frame->step().plan(), Limits());
  if (!plan.ok()) return;
  SLUICE_CHECK(plan->num_tokens() <= Limits().max_step_tokens);
  // What was accepted goes round unchanged.
  auto again =
      wire::FromProto(frame->step().header(), wire::ToProto(*plan), Limits());
  SLUICE_CHECK(again.ok() && *again == *plan);
  (void)wire::FailedFromProto(frame->step(), *plan, Limits());
  (void)wire::HiddenFromPayload(std::move(split->payload), plan->num_tokens(),
                                kHiddenSize);
}

void Result(const std::string& bytes) {
  v1::StepResult proto;
  if (!proto.ParseFromString(bytes)) return;
  auto result = wire::FromProto(proto, Limits());
  if (!result.ok()) return;
  SLUICE_CHECK(wire::FromProto(wire::ToProto(*result), Limits()).ok());
}

void Welcome(const std::string& bytes) {
  v1::Welcome proto;
  if (!proto.ParseFromString(bytes)) return;
  (void)wire::FromProto(proto.identity());
  auto limits = wire::FromProto(proto.limits());
  if (!limits.ok()) return;
  SLUICE_CHECK(wire::MaxFrameBytes(limits->plan, 1 << 20) > 0);
  SLUICE_CHECK(wire::MaxResultBytes(limits->plan) > 0);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      sluice::Frame(bytes);
      break;
    case 1:
      sluice::Result(bytes);
      break;
    default:
      sluice::Welcome(bytes);
  }
  return 0;
}
