#include "common/pipeline/gateway/handshake.h"

#include <algorithm>
#include <utility>

#include "common/base/json_difference.h"
#include "common/core/epochs.h"

namespace sluice {
namespace {

std::string Describe(const std::vector<StageFacts>& stages, size_t index) {
  return Cat("stage ", index, " (", stages[index].address, ")");
}

template <typename Value>
Status CheckEqual(const char* what, const Value& first, const Value& other,
                  const std::string& first_stage) {
  if (first == other) return OkStatus();
  return FailedPrecondition("its ", what, " is ", other, ", that of ",
                            first_stage, " is ", first);
}

Status CheckAgainst(const StageFacts& a, const StageFacts& b,
                    const std::string& first) {
  const Status digests =
      CheckEqual("model digest", a.model_digest, b.model_digest, first);
  const std::string keys = DifferenceOfObjects(b.model_config, a.model_config);
  if (!digests.ok() && !keys.empty()) {
    return FailedPrecondition(Message(digests), ": ", keys);
  }
  SLUICE_RETURN_IF_ERROR(digests);
  SLUICE_RETURN_IF_ERROR(CheckEqual(NumericsKey(a.numerics, b.numerics),
                                    a.numerics, b.numerics, first));
  SLUICE_RETURN_IF_ERROR(
      CheckEqual("weights dtype", a.weights_dtype, b.weights_dtype, first));
  SLUICE_RETURN_IF_ERROR(
      CheckEqual("number of layers", a.num_layers, b.num_layers, first));
  SLUICE_RETURN_IF_ERROR(
      CheckEqual("hidden size", a.hidden_size, b.hidden_size, first));
  SLUICE_RETURN_IF_ERROR(CheckEqual("vocabulary size", a.limits.plan.vocab_size,
                                    b.limits.plan.vocab_size, first));
  SLUICE_RETURN_IF_ERROR(CheckEqual("number of KV groups",
                                    a.limits.plan.num_kv_groups,
                                    b.limits.plan.num_kv_groups, first));
  for (int32_t g = 0; g < a.limits.plan.num_kv_groups; ++g) {
    SLUICE_RETURN_IF_ERROR(CheckEqual("KV group's window",
                                      a.limits.plan.kv_window(g),
                                      b.limits.plan.kv_window(g), first));
  }
  return CheckEqual("block size", a.limits.block_tokens, b.limits.block_tokens,
                    first);
}

void TakeLeast(const PipelineLimits& other, PipelineLimits* limits) {
  const auto least = [](int32_t& value, int32_t v) {
    value = std::min(value, v);
  };
  least(limits->plan.max_step_tokens, other.plan.max_step_tokens);
  least(limits->plan.max_sequences, other.plan.max_sequences);
  least(limits->plan.max_context, other.plan.max_context);
  least(limits->plan.num_blocks, other.plan.num_blocks);
  least(limits->plan.num_state_blocks, other.plan.num_state_blocks);
  least(limits->max_steps_in_flight, other.max_steps_in_flight);
}

// FAILED_PRECONDITION unless `stage` begins where the one before it ends.
Status CheckPlace(const std::vector<StageFacts>& stages, size_t index) {
  const StageFacts& stage = stages[index];
  const int32_t expected = index == 0 ? 0 : stages[index - 1].last_layer;
  if (stage.first_layer != expected) {
    return FailedPrecondition(
        "it begins at layer ", stage.first_layer, ", layer ", expected,
        index == 0 ? std::string(" is the model's first")
                   : Cat(" follows ", Describe(stages, index - 1)),
        "; stages are listed in the order of layers");
  }
  if (index + 1 < stages.size() || stage.is_last()) return OkStatus();
  return FailedPrecondition("it ends at layer ", stage.last_layer,
                            ", the model has ", stage.num_layers,
                            " layers and no stage follows");
}

}  // namespace

Epoch HighestOf(const v1::Welcome& welcome) {
  return {welcome.highest_term(), welcome.highest_epoch()};
}

std::string ResetTermHint(const std::string& address) {
  return Cat("`sluice reset-term ", address, "` resets it");
}

StatusOr<StageFacts> CheckWelcome(const std::string& address,
                                  const v1::Welcome& welcome) {
  if (welcome.protocol_version() != wire::kProtocolVersion) {
    return FailedPrecondition("protocol version differs: the stage speaks ",
                              welcome.protocol_version(),
                              ", this gateway speaks ", wire::kProtocolVersion);
  }
  const Epoch highest = HighestOf(welcome);
  if (highest.term() >= kMaxTerm) {
    return FailedPrecondition("it has seen epoch ", highest,
                              " and no term is left, limit ", kMaxTerm, ": ",
                              ResetTermHint(address));
  }
  const size_t run = welcome.run().size();
  if (run != 0 && run != wire::kRunBytes) {
    return FailedPrecondition("the name of the stage's run has ", run,
                              " bytes, not ", wire::kRunBytes);
  }
  SLUICE_ASSIGN_OR_RETURN(StageIdentity identity,
                          wire::FromProto(welcome.identity()));
  StageFacts checked{std::move(identity), address, {}};
  checked.term = highest.term();
  SLUICE_ASSIGN_OR_RETURN(checked.limits, wire::FromProto(welcome.limits()));
  if (checked.limits.block_tokens != kBlockTokens) {
    return FailedPrecondition("block size differs: the stage has ",
                              checked.limits.block_tokens,
                              ", this gateway has ", kBlockTokens);
  }
  return checked;
}

StatusOr<StageFacts> JoinStages(const std::vector<StageFacts>& stages,
                                const std::optional<StageFacts>& before,
                                size_t& conflict) {
  StageFacts joined = stages.back();
  joined.address.clear();
  joined.first_layer = 0;
  joined.limits = stages.front().limits;
  const auto known = std::ranges::find_if(stages, [&](const StageFacts& stage) {
    return before.has_value() && CheckAgainst(*before, stage, "").ok();
  });
  const size_t right =
      known == stages.end() ? 0 : static_cast<size_t>(known - stages.begin());
  const std::string first = Describe(stages, right);
  for (conflict = 0; conflict < stages.size(); ++conflict) {
    Status fits = CheckAgainst(stages[right], stages[conflict], first);
    if (fits.ok()) fits = CheckPlace(stages, conflict);
    if (!fits.ok()) return Annotate(fits, Describe(stages, conflict));
    TakeLeast(stages[conflict].limits, &joined.limits);
  }
  return joined;
}

}  // namespace sluice
