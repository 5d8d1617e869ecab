#include "common/wire/types.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice::wire {
namespace {

constexpr size_t kMaxStatusMessage = 4096;

template <typename Size>
Status CheckCount(const char* what, Size count, int64_t limit) {
  if (static_cast<int64_t>(count) <= limit) return OkStatus();
  return InvalidArgument(what, " has ", count, " entries, limit ", limit);
}

int64_t MaxBlocks(const PlanLimits& limits) {
  return (int64_t{limits.max_context} + kBlockTokens - 1) / kBlockTokens;
}

template <typename Repeated>
void BlocksToProto(const std::vector<std::vector<BlockId>>& groups,
                   Repeated* out) {
  for (const std::vector<BlockId>& group : groups) {
    auto* blocks = out->Add()->mutable_blocks();
    blocks->Reserve(static_cast<int>(group.size()));
    for (BlockId block : group) blocks->AddAlreadyReserved(block.value());
  }
}

template <typename Repeated>
StatusOr<std::vector<std::vector<BlockId>>> BlocksFromProto(
    const Repeated& groups, const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(
      CheckCount("list of KV groups", groups.size(), limits.num_kv_groups));
  std::vector<std::vector<BlockId>> out;
  out.reserve(static_cast<size_t>(groups.size()));
  for (const v1::BlockList& group : groups) {
    SLUICE_RETURN_IF_ERROR(
        CheckCount("block list", group.blocks_size(), MaxBlocks(limits)));
    std::vector<BlockId>& blocks = out.emplace_back();
    blocks.reserve(static_cast<size_t>(group.blocks_size()));
    for (int32_t block : group.blocks()) blocks.emplace_back(block);
  }
  return out;
}

v1::LogitsWanted LogitsToProto(LogitsWanted logits) {
  switch (logits) {
    case LogitsWanted::kNone:
      return v1::LOGITS_WANTED_NONE;
    case LogitsWanted::kLast:
      return v1::LOGITS_WANTED_LAST;
    case LogitsWanted::kAll:
      return v1::LOGITS_WANTED_ALL;
  }
  return v1::LOGITS_WANTED_UNSPECIFIED;
}

StatusOr<LogitsWanted> LogitsFromProto(int logits) {
  switch (logits) {
    case v1::LOGITS_WANTED_NONE:
      return LogitsWanted::kNone;
    case v1::LOGITS_WANTED_LAST:
      return LogitsWanted::kLast;
    case v1::LOGITS_WANTED_ALL:
      return LogitsWanted::kAll;
    default:
      return InvalidArgument("logits wanted must be 1, 2 or 3, got ", logits);
  }
}

v1::TokenMask MaskToProto(const TokenMask& mask) {
  v1::TokenMask proto;
  proto.mutable_runs()->Reserve(static_cast<int>(2 * mask.runs.size()));
  TokenId behind = 0;
  for (const TokenRun& run : mask.runs) {
    proto.add_runs(static_cast<uint32_t>(run.begin - behind));
    proto.add_runs(static_cast<uint32_t>(run.end - run.begin));
    behind = run.end;
  }
  proto.set_excludes(mask.excludes);
  return proto;
}

StatusOr<TokenMask> MaskFromProto(const v1::TokenMask& proto,
                                  int32_t vocab_size) {
  SLUICE_RETURN_IF_ERROR(
      CheckCount("mask's runs", proto.runs_size(), vocab_size + int64_t{1}));
  if (proto.runs_size() % 2 != 0) {
    return InvalidArgument("mask's runs have ", proto.runs_size(),
                           " lengths, which is odd");
  }
  TokenMask mask;
  mask.excludes = proto.excludes();
  mask.runs.reserve(static_cast<size_t>(proto.runs_size() / 2));
  int64_t at = 0;
  for (int i = 0; i < proto.runs_size(); i += 2) {
    const int64_t begin = at + proto.runs(i);
    at = begin + proto.runs(i + 1);
    if (at > vocab_size) {
      return InvalidArgument("mask's runs end at ", at, ", vocabulary size is ",
                             vocab_size);
    }
    mask.runs.push_back(
        {static_cast<TokenId>(begin), static_cast<TokenId>(at)});
  }
  return mask;
}

StatusOr<Chunk> ChunkFromProto(const v1::Chunk& proto,
                               const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(
      CheckCount("chunk", proto.tokens_size(), limits.max_step_tokens));
  Chunk chunk;
  chunk.sequence = SequenceId(proto.sequence());
  chunk.start = proto.start();
  chunk.tokens.assign(proto.tokens().begin(), proto.tokens().end());
  chunk.num_draft_tokens = proto.num_draft_tokens();
  SLUICE_ASSIGN_OR_RETURN(chunk.logits, LogitsFromProto(proto.logits()));
  chunk.samples = proto.samples();
  SLUICE_RETURN_IF_ERROR(
      CheckCount("masks", proto.masks_size(), kMaxDraftTokens + 1));
  for (const v1::TokenMask& mask : proto.masks()) {
    SLUICE_ASSIGN_OR_RETURN(TokenMask value,
                            MaskFromProto(mask, limits.vocab_size));
    chunk.masks.push_back(std::move(value));
  }
  SLUICE_ASSIGN_OR_RETURN(chunk.new_blocks,
                          BlocksFromProto(proto.new_blocks(), limits));
  if (proto.has_sampled_by()) chunk.sampled_by = StepId(proto.sampled_by());
  chunk.replay = proto.replay();
  return chunk;
}

StatusOr<StartedSequence> StartedFromProto(const v1::StartedSequence& proto,
                                           const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(CheckCount("started sequence's token list",
                                    proto.tokens_size(), limits.max_context));
  StartedSequence started;
  started.sequence = SequenceId(proto.sequence());
  SLUICE_ASSIGN_OR_RETURN(started.sampling,
                          FromProto(proto.sampling(), limits.vocab_size));
  started.num_prompt_tokens = proto.num_prompt_tokens();
  started.tokens.assign(proto.tokens().begin(), proto.tokens().end());
  SLUICE_ASSIGN_OR_RETURN(started.blocks,
                          BlocksFromProto(proto.blocks(), limits));
  if (proto.has_replay_from()) started.replay_from = proto.replay_from();
  return started;
}

v1::TokenLogprob LogprobToProto(const TokenLogprob& logprob) {
  v1::TokenLogprob proto;
  proto.set_token(logprob.token);
  proto.set_logprob(logprob.logprob);
  proto.set_rank(logprob.rank);
  return proto;
}

Status CheckToken(const char* what, int32_t token, int vocab_size) {
  if (token >= 0 && token < vocab_size) return OkStatus();
  return InvalidArgument(what, " is ", token, ", vocabulary size is ",
                         vocab_size);
}

StatusOr<TokenLogprob> LogprobFromProto(const v1::TokenLogprob& proto,
                                        int vocab_size) {
  SLUICE_RETURN_IF_ERROR(
      CheckToken("token of a logprob", proto.token(), vocab_size));
  // Minus infinity is allowed: a logit may have it.
  if (std::isnan(proto.logprob()) || proto.logprob() > 0) {
    return InvalidArgument("logprob of token ", proto.token(),
                           " must be at most 0, got ", proto.logprob());
  }
  if (proto.rank() < 0 || proto.rank() >= vocab_size) {
    return InvalidArgument("rank of token ", proto.token(), " is ",
                           proto.rank(), ", vocabulary size is ", vocab_size);
  }
  return TokenLogprob{proto.token(), proto.logprob(), proto.rank()};
}

v1::TokenResult TokenToProto(const TokenResult& result) {
  v1::TokenResult proto;
  proto.set_token(result.token);
  if (result.logprob.has_value()) {
    *proto.mutable_logprob() = LogprobToProto(*result.logprob);
  }
  for (const TokenLogprob& top : result.top_logprobs) {
    *proto.add_top_logprobs() = LogprobToProto(top);
  }
  return proto;
}

StatusOr<TokenResult> TokenFromProto(const v1::TokenResult& proto,
                                     int vocab_size) {
  TokenResult result;
  SLUICE_RETURN_IF_ERROR(
      CheckToken("token of a result", proto.token(), vocab_size));
  result.token = proto.token();
  if (proto.has_logprob()) {
    SLUICE_ASSIGN_OR_RETURN(result.logprob,
                            LogprobFromProto(proto.logprob(), vocab_size));
  }
  SLUICE_RETURN_IF_ERROR(
      CheckCount("list of top logprobs", proto.top_logprobs_size(),
                 std::max(kMaxTopLogprobs, kMaxLogprobTokenIds)));
  for (const v1::TokenLogprob& top : proto.top_logprobs()) {
    SLUICE_ASSIGN_OR_RETURN(TokenLogprob logprob,
                            LogprobFromProto(top, vocab_size));
    result.top_logprobs.push_back(logprob);
  }
  return result;
}

template <typename Repeated>
StatusOr<std::vector<TokenResult>> TokensFromProto(const char* what,
                                                   const Repeated& list,
                                                   const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(CheckCount(what, list.size(), limits.max_step_tokens));
  std::vector<TokenResult> out;
  out.reserve(static_cast<size_t>(list.size()));
  for (const v1::TokenResult& proto : list) {
    SLUICE_ASSIGN_OR_RETURN(TokenResult result,
                            TokenFromProto(proto, limits.vocab_size));
    out.push_back(std::move(result));
  }
  return out;
}

StatusOr<std::vector<float>> RawRowsFromProto(const std::string& bytes,
                                              const PlanLimits& limits) {
  if (bytes.empty()) return std::vector<float>();
  // The engine knows what was asked for, and so the exact size.
  const size_t most = sizeof(float) *
                      static_cast<size_t>(MaxRawRowValues(limits)) *
                      static_cast<size_t>(limits.max_step_tokens);
  if (bytes.size() % sizeof(float) != 0 || bytes.size() > most) {
    return InvalidArgument("raw rows have ", bytes.size(),
                           " bytes, they must be floats, limit ", most);
  }
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

v1::StepHeader ToProto(ReplicaId replica, Epoch epoch, StepId step) {
  v1::StepHeader proto;
  proto.set_replica(replica.value());
  SetEpoch(epoch, &proto);
  proto.set_step_id(step.value());
  return proto;
}

v1::SamplingParams ToProto(const SamplingParams& params) {
  v1::SamplingParams proto;
  proto.set_temperature(params.temperature);
  proto.set_top_p(params.top_p);
  proto.set_top_k(params.top_k);
  proto.set_min_p(params.min_p);
  proto.set_seed(params.seed);
  proto.set_choice(params.choice);
  proto.set_logprobs(params.logprobs);
  proto.mutable_logprob_token_ids()->Add(params.logprob_token_ids.begin(),
                                         params.logprob_token_ids.end());
  proto.set_prompt_logprobs(params.prompt_logprobs);
  proto.set_return_logits(params.return_logits);
  proto.set_hidden(static_cast<uint32_t>(params.hidden));
  proto.set_min_tokens(params.min_tokens);
  proto.mutable_stop_token_ids()->Add(params.stop_token_ids.begin(),
                                      params.stop_token_ids.end());
  proto.set_frequency_penalty(params.frequency_penalty);
  proto.set_presence_penalty(params.presence_penalty);
  proto.set_repetition_penalty(params.repetition_penalty);
  for (const LogitBias& entry : params.logit_bias) {
    v1::LogitBias* out = proto.add_logit_bias();
    out->set_token(entry.token);
    out->set_bias(entry.bias);
  }
  return proto;
}

StatusOr<SamplingParams> FromProto(const v1::SamplingParams& proto,
                                   int vocab_size) {
  SLUICE_RETURN_IF_ERROR(CheckCount(
      "stop_token_ids", proto.stop_token_ids_size(), kMaxStopTokenIds));
  SLUICE_RETURN_IF_ERROR(
      CheckCount("logit_bias", proto.logit_bias_size(), kMaxLogitBiases));
  SLUICE_RETURN_IF_ERROR(CheckCount("logprob_token_ids",
                                    proto.logprob_token_ids_size(),
                                    kMaxLogprobTokenIds));
  SamplingParams params;
  params.temperature = proto.temperature();
  params.top_p = proto.top_p();
  params.top_k = proto.top_k();
  params.min_p = proto.min_p();
  params.seed = proto.seed();
  params.choice = proto.choice();
  params.logprobs = proto.logprobs();
  params.logprob_token_ids.assign(proto.logprob_token_ids().begin(),
                                  proto.logprob_token_ids().end());
  params.prompt_logprobs = proto.prompt_logprobs();
  params.return_logits = proto.return_logits();
  constexpr auto kMostHidden = static_cast<uint32_t>(HiddenWanted::kAll);
  if (proto.hidden() > kMostHidden) {
    return InvalidArgument("hidden must be at most ", kMostHidden, ", got ",
                           proto.hidden());
  }
  params.hidden = static_cast<HiddenWanted>(proto.hidden());
  params.min_tokens = proto.min_tokens();
  params.stop_token_ids.assign(proto.stop_token_ids().begin(),
                               proto.stop_token_ids().end());
  params.frequency_penalty = proto.frequency_penalty();
  params.presence_penalty = proto.presence_penalty();
  params.repetition_penalty = proto.repetition_penalty();
  for (const v1::LogitBias& entry : proto.logit_bias()) {
    params.logit_bias.push_back({entry.token(), entry.bias()});
  }
  SLUICE_RETURN_IF_ERROR(Validate(params, vocab_size));
  return params;
}

v1::StepPlan ToProto(const StepPlan& plan) {
  v1::StepPlan proto;
  for (SequenceId id : plan.ended) proto.add_ended(id.value());
  for (const StartedSequence& started : plan.started) {
    v1::StartedSequence* out = proto.add_started();
    out->set_sequence(started.sequence.value());
    *out->mutable_sampling() = ToProto(started.sampling);
    out->set_num_prompt_tokens(started.num_prompt_tokens);
    out->mutable_tokens()->Add(started.tokens.begin(), started.tokens.end());
    BlocksToProto(started.blocks, out->mutable_blocks());
    if (started.replay_from) out->set_replay_from(*started.replay_from);
  }
  for (const Chunk& chunk : plan.chunks) {
    v1::Chunk* out = proto.add_chunks();
    out->set_sequence(chunk.sequence.value());
    out->set_start(chunk.start);
    out->mutable_tokens()->Add(chunk.tokens.begin(), chunk.tokens.end());
    out->set_num_draft_tokens(chunk.num_draft_tokens);
    out->set_logits(LogitsToProto(chunk.logits));
    out->set_samples(chunk.samples);
    for (const TokenMask& mask : chunk.masks) {
      *out->add_masks() = MaskToProto(mask);
    }
    BlocksToProto(chunk.new_blocks, out->mutable_new_blocks());
    if (chunk.sampled_by) out->set_sampled_by(chunk.sampled_by->value());
    out->set_replay(chunk.replay);
  }
  proto.mutable_replay_at()->Add(plan.replay_at.begin(), plan.replay_at.end());
  for (const BlockRange& range : plan.vacant) {
    v1::BlockRange* out = proto.add_vacant();
    out->set_begin(range.begin);
    out->set_end(range.end);
  }
  return proto;
}

StatusOr<StepPlan> FromProto(const v1::StepHeader& header,
                             const v1::StepPlan& proto,
                             const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(
      CheckCount("ended", proto.ended_size(), limits.max_sequences));
  SLUICE_RETURN_IF_ERROR(
      CheckCount("started", proto.started_size(), limits.max_sequences));
  SLUICE_RETURN_IF_ERROR(
      CheckCount("chunks", proto.chunks_size(), limits.max_sequences));
  StepPlan plan;
  plan.replica = ReplicaId(header.replica());
  plan.epoch = EpochOf(header);
  plan.step_id = StepId(header.step_id());
  plan.ended.reserve(static_cast<size_t>(proto.ended_size()));
  for (uint64_t id : proto.ended()) plan.ended.emplace_back(id);
  for (const v1::StartedSequence& started : proto.started()) {
    auto value = StartedFromProto(started, limits);
    if (!value.ok()) {
      return Annotate(value.status(), "started sequence ", started.sequence());
    }
    plan.started.push_back(*std::move(value));
  }
  for (const v1::Chunk& chunk : proto.chunks()) {
    auto value = ChunkFromProto(chunk, limits);
    if (!value.ok()) {
      return Annotate(value.status(), "chunk of sequence ", chunk.sequence());
    }
    plan.chunks.push_back(*std::move(value));
  }
  SLUICE_RETURN_IF_ERROR(
      CheckCount("replay_at", proto.replay_at_size(), kMaxReplayStages));
  plan.replay_at.assign(proto.replay_at().begin(), proto.replay_at().end());
  SLUICE_RETURN_IF_ERROR(
      CheckCount("vacant", proto.vacant_size(), kMaxVacantRanges));
  for (const v1::BlockRange& range : proto.vacant()) {
    plan.vacant.push_back({range.begin(), range.end()});
  }
  SLUICE_RETURN_IF_ERROR(Validate(plan, limits));
  return plan;
}

v1::SequenceResult ToProto(const SequenceResult& result) {
  v1::SequenceResult proto;
  proto.set_sequence(result.sequence.value());
  proto.set_status_code(static_cast<int>(result.status.code()));
  proto.set_status_message(Message(result.status));
  for (const TokenResult& token : result.sampled) {
    *proto.add_sampled() = TokenToProto(token);
  }
  for (const TokenResult& token : result.prompt) {
    *proto.add_prompt() = TokenToProto(token);
  }
  proto.set_logits(result.logits.data(), result.logits.size() * sizeof(float));
  return proto;
}

StatusOr<SequenceResult> FromProto(const v1::SequenceResult& proto,
                                   const PlanLimits& limits) {
  SequenceResult result;
  result.sequence = SequenceId(proto.sequence());
  result.status = StatusFromProto(proto.status_code(), proto.status_message());
  SLUICE_ASSIGN_OR_RETURN(result.sampled,
                          TokensFromProto("sampled", proto.sampled(), limits));
  SLUICE_ASSIGN_OR_RETURN(result.prompt,
                          TokensFromProto("prompt", proto.prompt(), limits));
  SLUICE_ASSIGN_OR_RETURN(result.logits,
                          RawRowsFromProto(proto.logits(), limits));
  return result;
}

Status StatusFromProto(int code, const std::string& message) {
  if (code == 0) return OkStatus();
  const bool known =
      code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return MakeStatus(
      known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
      message.substr(0, kMaxStatusMessage));
}

}  // namespace sluice::wire
