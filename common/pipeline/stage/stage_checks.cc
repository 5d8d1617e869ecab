#include "common/pipeline/stage/stage_checks.h"

#include <algorithm>

#include "common/base/random_bytes.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

template <typename Value>
Status CheckSame(const char* what, const Value& stage, const Value& peer) {
  if (stage == peer) return OkStatus();
  return FailedPrecondition(what, " differs: this stage has ", stage,
                            ", the peer has ", peer);
}

Status CheckFits(const char* what, int32_t stage, int32_t pipeline) {
  if (pipeline <= stage) return OkStatus();
  return FailedPrecondition(what, " of the pipeline is ", pipeline,
                            ", this stage takes ", stage);
}

Status CheckEpochSecret(const wire::PipelineName& pipeline,
                        const std::string& secret) {
  if (EqualSecrets(pipeline.secret, secret)) return OkStatus();
  return FailedPrecondition("the secret is not that of epoch ", pipeline.epoch);
}

}  // namespace

PipelineLimits LimitsOf(const StageInfo& info, int32_t max_steps_in_flight) {
  return {info.limits, kBlockTokens, max_steps_in_flight};
}

Status CheckVersion(uint32_t version) {
  return CheckSame("protocol version", wire::kProtocolVersion, version);
}

Status CheckHello(const v1::Hello& hello) {
  constexpr size_t kMaxGatewayId = 256;
  SLUICE_RETURN_IF_ERROR(CheckVersion(hello.protocol_version()));
  if (hello.gateway_id().empty() || hello.gateway_id().size() > kMaxGatewayId) {
    return InvalidArgument("gateway_id has ", hello.gateway_id().size(),
                           " bytes, limit [1, ", kMaxGatewayId, "]");
  }
  if (hello.secret().size() != wire::kSecretBytes) {
    return InvalidArgument("the secret has ", hello.secret().size(),
                           " bytes, it must have ", wire::kSecretBytes);
  }
  return OkStatus();
}

bool CountOn(const v1::Hello& hello, uint64_t& latest) {
  if (latest != 0 && hello.count() <= latest) return false;
  latest = hello.count();
  return true;
}

namespace {

// A model without states has none in either.
Status CheckStates(const PlanLimits& own, const PlanLimits& limits) {
  if (own.num_state_blocks == 0 && limits.num_state_blocks == 0) {
    return OkStatus();
  }
  return CheckFits("num_state_blocks", own.num_state_blocks,
                   limits.num_state_blocks);
}

// Each layer has its donor, in order.
Status CheckDonors(const v1::Assign& assign) {
  if (assign.donors().empty()) return OkStatus();
  if (assign.donors_secret().size() != wire::kSecretBytes) {
    return FailedPrecondition("the secret of the donors' epoch has ",
                              assign.donors_secret().size(),
                              " bytes, it must have ", wire::kSecretBytes);
  }
  int32_t next = assign.first_layer();
  for (const v1::KvDonor& donor : assign.donors()) {
    if (donor.first_layer() != next || donor.last_layer() <= next) {
      return FailedPrecondition("a donor has layers ", donor.first_layer(),
                                " to ", int64_t{donor.last_layer()} - 1,
                                ", the next ones begin at layer ", next);
    }
    next = donor.last_layer();
  }
  return CheckSame("layer behind the donors' last one", assign.last_layer(),
                   next);
}

}  // namespace

Status CheckAssignment(const v1::Assign& assign, const PipelineLimits& limits,
                       const StageInfo& info, const PipelineLimits& own) {
  SLUICE_RETURN_IF_ERROR(CheckSame("vocabulary size", own.plan.vocab_size,
                                   limits.plan.vocab_size));
  SLUICE_RETURN_IF_ERROR(CheckSame("number of KV groups",
                                   own.plan.num_kv_groups,
                                   limits.plan.num_kv_groups));
  for (int32_t g = 0; g < own.plan.num_kv_groups; ++g) {
    SLUICE_RETURN_IF_ERROR(CheckSame("KV group's window", own.plan.kv_window(g),
                                     limits.plan.kv_window(g)));
  }
  SLUICE_RETURN_IF_ERROR(
      CheckSame("block size", own.block_tokens, limits.block_tokens));
  SLUICE_RETURN_IF_ERROR(CheckFits("max_step_tokens", own.plan.max_step_tokens,
                                   limits.plan.max_step_tokens));
  SLUICE_RETURN_IF_ERROR(CheckFits("max_sequences", own.plan.max_sequences,
                                   limits.plan.max_sequences));
  SLUICE_RETURN_IF_ERROR(
      CheckFits("max_context", own.plan.max_context, limits.plan.max_context));
  SLUICE_RETURN_IF_ERROR(
      CheckFits("num_blocks", own.plan.num_blocks, limits.plan.num_blocks));
  SLUICE_RETURN_IF_ERROR(CheckStates(own.plan, limits.plan));
  SLUICE_RETURN_IF_ERROR(CheckFits("max_steps_in_flight",
                                   own.max_steps_in_flight,
                                   limits.max_steps_in_flight));
  if (assign.secret().size() != wire::kSecretBytes) {
    return FailedPrecondition("the epoch's secret has ", assign.secret().size(),
                              " bytes, it must have ", wire::kSecretBytes);
  }
  if (assign.first_layer() != info.first_layer ||
      assign.last_layer() != info.last_layer) {
    return FailedPrecondition("the place has layers ", assign.first_layer(),
                              " to ", assign.last_layer() - 1,
                              ", this stage holds layers ", info.first_layer,
                              " to ", info.last_layer - 1);
  }
  SLUICE_RETURN_IF_ERROR(CheckDonors(assign));
  if (!assign.last_address().empty() && (!info.is_first() || info.is_last())) {
    return FailedPrecondition(
        "the last stage's address is ", assign.last_address(),
        ", for the first stage of several; this stage holds layers ",
        info.first_layer, " to ", info.last_layer - 1, " of ", info.num_layers);
  }
  if (assign.next_address().empty()) {
    if (info.is_last()) return OkStatus();
    return FailedPrecondition("this stage ends at layer ", info.last_layer,
                              " of ", info.num_layers,
                              " and was assigned no successor");
  }
  if (info.is_last()) {
    return FailedPrecondition("this stage ends the model at layer ",
                              info.last_layer, " and was assigned successor ",
                              assign.next_address());
  }
  SLUICE_RETURN_IF_ERROR(CheckSame("layer that follows", info.last_layer,
                                   assign.next_first_layer()));
  return CheckSame("model digest", info.model_digest,
                   assign.next_model_digest());
}

Status CheckLoadable(const StagePlace& place, int32_t num_layers) {
  if (place.first_layer >= 0 && !place.empty() &&
      place.last_layer <= num_layers) {
    return OkStatus();
  }
  return FailedPrecondition("the place has layers ", place.first_layer, " to ",
                            int64_t{place.last_layer} - 1,
                            ", the model has layers 0 to ", num_layers - 1);
}

Status CheckStepsHello(const v1::StepsHello& hello,
                       const wire::PipelineName& pipeline,
                       const StageInfo& info) {
  if (wire::EpochOf(hello) != pipeline.epoch ||
      hello.replica() != pipeline.replica.value()) {
    return FailedPrecondition("this stage is in epoch ", pipeline.epoch,
                              " of replica ", pipeline.replica,
                              ", the hello names epoch ", wire::EpochOf(hello),
                              " of replica ", hello.replica());
  }
  SLUICE_RETURN_IF_ERROR(CheckEpochSecret(pipeline, hello.secret()));
  SLUICE_RETURN_IF_ERROR(CheckVersion(hello.protocol_version()));
  SLUICE_RETURN_IF_ERROR(
      CheckSame("model digest", info.model_digest, hello.model_digest()));
  SLUICE_RETURN_IF_ERROR(CheckSame(NumericsKey(info.numerics, hello.numerics()),
                                   info.numerics, hello.numerics()));
  SLUICE_RETURN_IF_ERROR(
      CheckSame("first layer", info.first_layer, hello.layer()));
  return CheckSame("hidden size", info.hidden_size, hello.hidden_size());
}

Status CheckResultsRequest(const v1::ResultsRequest& request,
                           const wire::PipelineName* pipeline,
                           const StageInfo& info) {
  if (pipeline == nullptr || wire::EpochOf(request) != pipeline->epoch ||
      request.replica() != pipeline->replica.value()) {
    return FailedPrecondition("this stage is in epoch ",
                              pipeline == nullptr ? Epoch(0) : pipeline->epoch,
                              ", results were asked for of epoch ",
                              wire::EpochOf(request), " of replica ",
                              request.replica());
  }
  SLUICE_RETURN_IF_ERROR(CheckEpochSecret(*pipeline, request.secret()));
  if (info.is_last()) return OkStatus();
  return FailedPrecondition("this stage ends at layer ", info.last_layer,
                            " of ", info.num_layers,
                            ": results come from the last stage");
}

Status CheckBlocksHello(const v1::BlocksHello& hello, const StageInfo& info) {
  SLUICE_RETURN_IF_ERROR(CheckVersion(hello.protocol_version()));
  if (hello.first_layer() < 0 || hello.first_layer() >= hello.last_layer()) {
    return InvalidArgument("layers ", hello.first_layer(), " to ",
                           int64_t{hello.last_layer()} - 1, " are none");
  }
  SLUICE_RETURN_IF_ERROR(
      CheckSame("model digest", info.model_digest, hello.model_digest()));
  SLUICE_RETURN_IF_ERROR(CheckSame(NumericsKey(info.numerics, hello.numerics()),
                                   info.numerics, hello.numerics()));
  SLUICE_RETURN_IF_ERROR(
      CheckSame("number of ranks", info.ranks, hello.ranks()));
  return CheckSame("block size", kBlockTokens, hello.block_tokens());
}

int64_t HopNanos(const v1::StepAck& ack, int64_t round_trip_ns) {
  const int64_t whole = std::max<int64_t>(0, round_trip_ns);
  const int64_t compute = std::clamp<int64_t>(ack.compute_ns(), 0, whole);
  const int64_t wait = std::clamp<int64_t>(ack.wait_ns(), 0, whole - compute);
  return whole - compute - wait;
}

}  // namespace sluice
