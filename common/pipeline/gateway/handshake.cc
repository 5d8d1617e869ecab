#include "common/pipeline/gateway/handshake.h"

#include <algorithm>

namespace sluice {
namespace {

std::string Describe(const std::vector<StageWelcome>& stages, size_t index) {
  return Cat("stage ", index, " (", stages[index].address, ")");
}

template <typename Value>
Status CheckEqual(const char* what, const Value& first, const Value& other,
                  const std::string& first_stage) {
  if (first == other) return OkStatus();
  return FailedPrecondition("its ", what, " is ", other, ", that of ",
                            first_stage, " is ", first);
}

Status CheckAgainst(const StageWelcome& a, const StageWelcome& b,
                    const std::string& first) {
  SLUICE_RETURN_IF_ERROR(CheckEqual("model digest", a.identity.model_digest,
                                    b.identity.model_digest, first));
  SLUICE_RETURN_IF_ERROR(
      CheckEqual("numerics", a.identity.numerics, b.identity.numerics, first));
  SLUICE_RETURN_IF_ERROR(CheckEqual("weights dtype", a.identity.weights_dtype,
                                    b.identity.weights_dtype, first));
  SLUICE_RETURN_IF_ERROR(CheckEqual("number of layers", a.identity.num_layers,
                                    b.identity.num_layers, first));
  SLUICE_RETURN_IF_ERROR(CheckEqual("hidden size", a.identity.hidden_size,
                                    b.identity.hidden_size, first));
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

void TakeLeast(const wire::PipelineLimits& other,
               wire::PipelineLimits* limits) {
  const auto least = [](int32_t& value, int32_t v) {
    value = std::min(value, v);
  };
  least(limits->plan.max_step_tokens, other.plan.max_step_tokens);
  least(limits->plan.max_sequences, other.plan.max_sequences);
  least(limits->plan.max_context, other.plan.max_context);
  least(limits->plan.num_blocks, other.plan.num_blocks);
  least(limits->max_steps_in_flight, other.max_steps_in_flight);
}

JoinResult Conflict(const std::vector<StageWelcome>& stages, size_t index,
                    const Status& why) {
  return JoinResult(StageConflict{static_cast<int>(index),
                                  Annotate(why, Describe(stages, index))});
}

}  // namespace

StatusOr<StageWelcome> CheckWelcome(const std::string& address,
                                    const v1::Welcome& welcome) {
  if (welcome.protocol_version() != wire::kProtocolVersion) {
    return FailedPrecondition("protocol version differs: the stage speaks ",
                              welcome.protocol_version(),
                              ", this gateway speaks ", wire::kProtocolVersion);
  }
  StageWelcome checked;
  checked.address = address;
  SLUICE_ASSIGN_OR_RETURN(checked.identity,
                          wire::FromProto(welcome.identity()));
  SLUICE_ASSIGN_OR_RETURN(checked.limits, wire::FromProto(welcome.limits()));
  if (checked.limits.block_tokens != kBlockTokens) {
    return FailedPrecondition("block size differs: the stage has ",
                              checked.limits.block_tokens,
                              ", this gateway has ", kBlockTokens);
  }
  return checked;
}

JoinResult JoinStages(const std::vector<StageWelcome>& stages) {
  JoinedPipeline joined;
  joined.limits = stages.front().limits;
  const std::string first = Describe(stages, 0);
  for (size_t i = 0; i < stages.size(); ++i) {
    const Status same = CheckAgainst(stages.front(), stages[i], first);
    if (!same.ok()) return Conflict(stages, i, same);
    const int32_t expected = i == 0 ? 0 : stages[i - 1].identity.last_layer;
    if (stages[i].identity.first_layer != expected) {
      return Conflict(stages, i,
                      FailedPrecondition(
                          "it begins at layer ", stages[i].identity.first_layer,
                          ", layer ", expected,
                          i == 0 ? std::string(" is the model's first")
                                 : Cat(" follows ", Describe(stages, i - 1)),
                          "; stages are listed in the order of layers"));
    }
    TakeLeast(stages[i].limits, &joined.limits);
  }
  const wire::StageIdentity& last = stages.back().identity;
  if (last.last_layer != last.num_layers) {
    return Conflict(stages, stages.size() - 1,
                    FailedPrecondition("it ends at layer ", last.last_layer,
                                       ", the model has ", last.num_layers,
                                       " layers and no stage follows"));
  }
  joined.model.name = last.model_name;
  joined.model.digest = last.model_digest;
  joined.model.numerics = last.numerics;
  joined.model.weights_dtype = last.weights_dtype;
  joined.model.num_layers = last.num_layers;
  joined.model.hidden_size = last.hidden_size;
  joined.model.limits = joined.limits.plan;
  return JoinResult(std::move(joined));
}

}  // namespace sluice
