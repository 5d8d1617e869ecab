// What the processes of one stage's ranks may send each other. The first byte
// says who reads the rest, and by its highest bit whether the stage is the
// first: its steps have no rows.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "common/rpc/payload_frame.h"

namespace sluice {
namespace {

RankStepBounds BoundsOf(bool is_first) {
  RankStepBounds bounds;
  bounds.limits = {8, 4, 64, is_first ? 1 : 2};
  bounds.kv_blocks = 16;
  bounds.vocab_size = 100;
  bounds.hidden_size = is_first ? 0 : 2;
  return bounds;
}

StatusOr<rpc::SplitFrame> Split(const std::string& bytes, int field) {
  const size_t third = bytes.size() / 3;
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, third)),
                                grpc::Slice(bytes.substr(third))};
  return rpc::SplitPayload(grpc::ByteBuffer(slices, 2), field, 1 << 16);
}

// What a rank relies on.
void CheckAccepted(const RankStep& step, const RankStepBounds& bounds) {
  const StepInputs& in = step.inputs;
  SLUICE_CHECK(in.num_tokens >= 1);
  SLUICE_CHECK(in.num_tokens <= bounds.limits.max_step_tokens);
  SLUICE_CHECK(in.num_logits_rows <= in.num_tokens);
  for (int32_t i = 0; i < in.num_logits_rows; ++i) {
    SLUICE_CHECK(in.logits_rows[i] > (i == 0 ? -1 : in.logits_rows[i - 1]));
    SLUICE_CHECK(in.logits_rows[i] < in.num_tokens);
  }
  for (int32_t t = 0; t < in.num_tokens; ++t) {
    SLUICE_CHECK(in.token_ids[t] < bounds.vocab_size);
    SLUICE_CHECK(in.token_ids[t] >= -bounds.limits.max_step_tokens);
    SLUICE_CHECK(in.positions[t] >= 0);
    SLUICE_CHECK(in.positions[t] < bounds.limits.max_context);
    for (const KvGroupInputs& group : in.kv_groups) {
      SLUICE_CHECK(group.slots[t] >= 0);
      SLUICE_CHECK(group.slots[t] < int64_t{bounds.kv_blocks} * kBlockTokens);
      const int64_t first = group.table_offsets[t];
      const int64_t last = first + in.positions[t] / kBlockTokens;
      SLUICE_CHECK(first >= 0 && last < std::ssize(group.block_tables));
      for (int64_t i = first; i <= last; ++i) {
        SLUICE_CHECK(group.block_tables[i] >= 0);
        SLUICE_CHECK(group.block_tables[i] < bounds.kv_blocks);
      }
    }
  }
  const auto floats = int64_t{in.num_tokens} * bounds.hidden_size;
  SLUICE_CHECK(step.hidden.data.size() == floats * sizeof(float));
}

void Step(const v1::RankStep& proto, Buffer hidden,
          const RankStepBounds& bounds) {
  RankStep step(bounds.limits);
  if (!ReadStep(proto, std::move(hidden), bounds, step).ok()) return;
  CheckAccepted(step, bounds);
  // What was accepted goes round.
  const grpc::ByteBuffer frame = StepFrame(step.inputs, step.hidden);
  SLUICE_CHECK(static_cast<int64_t>(frame.Length()) <=
               MaxStepFrameBytes(bounds));
  auto split = rpc::SplitPayload(frame, kRankHiddenField, frame.Length());
  SLUICE_CHECK(split.ok());
  const auto head = rpc::ParseHead<v1::LeadFrame>(split->head);
  SLUICE_CHECK(head.ok());
  RankStep again(bounds.limits);
  SLUICE_CHECK(
      ReadStep(head->step(), std::move(split->payload), bounds, again).ok());
  SLUICE_CHECK(again.inputs.token_ids == step.inputs.token_ids);
  SLUICE_CHECK(again.inputs.positions == step.inputs.positions);
  SLUICE_CHECK(again.inputs.logits_rows == step.inputs.logits_rows);
}

void FromLead(const std::string& bytes, const RankStepBounds& bounds) {
  auto split = Split(bytes, kRankHiddenField);
  if (!split.ok()) return;
  const auto frame = rpc::ParseHead<v1::LeadFrame>(split->head);
  if (!frame.ok()) return;
  if (frame->has_step()) {
    return Step(frame->step(), std::move(split->payload), bounds);
  }
  if (!frame->has_order()) return;
  const auto order = FromProto(frame->order());
  if (!order.ok()) return;
  const auto again = FromProto(ToProto(*order));
  SLUICE_CHECK(again.ok() && again->order == order->order);
  SLUICE_CHECK(CheckSameOrder(again->order, order->order).ok());
}

void FromFollower(const std::string& bytes) {
  const auto split = Split(bytes, 0);
  if (!split.ok()) return;
  const auto frame = rpc::ParseHead<v1::FollowerFrame>(split->head);
  if (!frame.ok() || !frame->has_facts()) return;
  const auto facts = FromProto(frame->facts());
  if (!facts.ok()) return;
  SLUICE_CHECK(facts->max_context >= 1 && facts->kv_blocks >= 1);
  const auto again = FromProto(ToProto(*facts, frame->facts().load()));
  SLUICE_CHECK(again.ok() && *again == *facts);
}

void Hello(const std::string& bytes) {
  v1::FollowerHello proto;
  if (!proto.ParseFromString(bytes)) return;
  const auto hello = FromProto(proto);
  if (!hello.ok()) return;
  SLUICE_CHECK(hello->first_rank >= 0 && hello->num_ranks >= 1);
  SLUICE_CHECK(FromProto(ToProto(*hello)).ok());
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch ((data[0] & 0x7f) % 3) {
    case 0:
      sluice::FromLead(bytes, sluice::BoundsOf(data[0] >= 0x80));
      break;
    case 1:
      sluice::FromFollower(bytes);
      break;
    default:
      sluice::Hello(bytes);
  }
  return 0;
}
