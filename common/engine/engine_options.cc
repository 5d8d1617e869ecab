#include "common/engine/engine_options.h"

#include "common/engine/request_check.h"

namespace sluice {
namespace {

Status CheckNotNegative(const char* name, Duration value) {
  if (value >= Duration::zero()) return OkStatus();
  return InvalidArgument(name, " must not be negative, got ", Seconds(value),
                         " s");
}

Status CheckAtLeast(const char* name, int value, int low) {
  if (value >= low) return OkStatus();
  return InvalidArgument(name, " must be at least ", low, ", got ", value);
}

}  // namespace

Status Validate(const EngineOptions& options) {
  SLUICE_RETURN_IF_ERROR(CheckAtLeast("max_running", options.max_running, 1));
  SLUICE_RETURN_IF_ERROR(CheckAtLeast("max_queue", options.max_queue, 0));
  SLUICE_RETURN_IF_ERROR(CheckAtLeast("max_running_per_client",
                                      options.max_running_per_client, 0));
  SLUICE_RETURN_IF_ERROR(
      CheckAtLeast("max_queue_per_client", options.max_queue_per_client, 0));
  SLUICE_RETURN_IF_ERROR(CheckNotNegative("place_turn", options.place_turn));
  SLUICE_RETURN_IF_ERROR(
      CheckNotNegative("max_queue_wait", options.max_queue_wait));
  SLUICE_RETURN_IF_ERROR(CheckNotNegative("target_itl", options.target_itl));
  SLUICE_RETURN_IF_ERROR(
      CheckAtLeast("max_step_tokens", options.max_step_tokens, 1));
  SLUICE_RETURN_IF_ERROR(
      CheckAtLeast("prefill_chunk", options.prefill_chunk, 0));
  SLUICE_RETURN_IF_ERROR(
      CheckAtLeast("max_plans_in_flight", options.max_plans_in_flight, 0));
  return CheckAtLeast("min_decode_batch", options.min_decode_batch, 1);
}

Status Validate(const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(
      CheckAtLeast("max_step_tokens", limits.max_step_tokens, 1));
  SLUICE_RETURN_IF_ERROR(
      CheckAtLeast("max_sequences", limits.max_sequences, 1));
  SLUICE_RETURN_IF_ERROR(CheckAtLeast("max_context", limits.max_context, 1));
  SLUICE_RETURN_IF_ERROR(CheckAtLeast("num_blocks", limits.num_blocks, 1));
  SLUICE_RETURN_IF_ERROR(
      CheckAtLeast("num_kv_groups", limits.num_kv_groups, 1));
  if (limits.kv_window(0) != 0) {
    return InvalidArgument("KV group 0 must see all positions, its window is ",
                           limits.kv_window(0));
  }
  if (MaxPositions(limits) == 0) {
    return InvalidArgument("num_blocks must be at least one for each of ",
                           limits.num_kv_groups, " KV groups, got ",
                           limits.num_blocks);
  }
  return CheckAtLeast("vocab_size", limits.vocab_size, 1);
}

}  // namespace sluice
