#include "common/wire/stage.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "common/core/kv_groups.h"
#include "common/wire/checks.h"
#include "common/wire/types.h"

namespace sluice::wire {
namespace {

constexpr size_t kMaxConfigText = 64 << 10;  // of StageIdentity.model_config

constexpr int kMaxTracedStages = 1024;
// Of a host's monotonic clock: 36 years. Differences of such times, and
// differences of those, stay within int64_t.
constexpr int64_t kMaxTraceNs = (int64_t{1} << 60) - 1;
constexpr int64_t kMaxSpanNs = 3'600'000'000'000;  // an hour on one stage

v1::TraceSpan ToProto(const TraceSpan& span) {
  v1::TraceSpan proto;
  proto.set_start_ns(span.start_ns);
  proto.set_stop_ns(span.stop_ns);
  return proto;
}

StatusOr<TraceSpan> FromProto(const v1::TraceSpan& proto) {
  SLUICE_RETURN_IF_ERROR(
      CheckRange("start_ns", proto.start_ns(), 0, kMaxTraceNs));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("stop_ns", proto.stop_ns(), 0, kMaxTraceNs));
  const TraceSpan span = {proto.start_ns(), proto.stop_ns()};
  SLUICE_RETURN_IF_ERROR(
      CheckRange("stop_ns less start_ns", span.duration_ns(), 0, kMaxSpanNs));
  return span;
}

// The spans of a step on one stage.
StatusOr<StageTrace> FromProto(const v1::StageTrace& proto) {
  StageTrace stage;
  int64_t first = kMaxTraceNs;
  int64_t last = 0;
  const std::tuple<const char*, const v1::TraceSpan*, TraceSpan*> spans[] = {
      {"receive", &proto.receive(), &stage.receive},
      {"wait", &proto.wait(), &stage.wait},
      {"compute", &proto.compute(), &stage.compute},
      {"sample", &proto.sample(), &stage.sample},
      {"serialise", &proto.serialise(), &stage.serialise}};
  for (const auto& [name, in, out] : spans) {
    const StatusOr<TraceSpan> span = FromProto(*in);
    if (!span.ok()) return Annotate(span.status(), name);
    *out = *span;
    if (!span->happened()) continue;
    first = std::min(first, span->start_ns);
    last = std::max(last, span->stop_ns);
  }
  if (last == 0) return stage;
  SLUICE_RETURN_IF_ERROR(
      CheckRange("nanoseconds on the stage", last - first, 0, kMaxSpanNs));
  return stage;
}

// Of one layer, and of the memory: sums over all layers stay within uint64_t.
constexpr int64_t kMaxRoomBytes = int64_t{1} << 46;

v1::StageRoom RoomToProto(const StageRoom& room) {
  v1::StageRoom proto;
  proto.set_memory(room.memory);
  proto.set_is_set(room.is_set);
  proto.mutable_layers()->Add(room.layers.begin(), room.layers.end());
  proto.mutable_kv()->Add(room.kv.begin(), room.kv.end());
  proto.mutable_kv_groups()->Add(room.kv_groups.begin(), room.kv_groups.end());
  proto.set_embedding(room.embedding);
  proto.set_head(room.head);
  proto.set_tied(room.tied);
  proto.set_tied_again(room.tied_again);
  return proto;
}

// Takes the values of every layer, or none where they may be left out.
template <typename Value, typename Values>
Status TakeLayers(const char* name, const Values& proto, int32_t num_layers,
                  int64_t high, std::vector<Value>& out) {
  if (proto.empty()) return OkStatus();
  SLUICE_RETURN_IF_ERROR(
      CheckRange(name, proto.size(), num_layers, num_layers));
  for (const auto value : proto) {
    SLUICE_RETURN_IF_ERROR(
        CheckRange(name, static_cast<int64_t>(value), 0, high));
    out.push_back(static_cast<Value>(value));
  }
  return OkStatus();
}

StatusOr<StageRoom> RoomFromProto(const v1::StageRoom& proto,
                                  int32_t num_layers) {
  StageRoom room;
  SLUICE_RETURN_IF_ERROR(
      CheckRange("layers", proto.layers_size(), num_layers, num_layers));
  SLUICE_RETURN_IF_ERROR(TakeLayers("layers", proto.layers(), num_layers,
                                    kMaxRoomBytes, room.layers));
  SLUICE_RETURN_IF_ERROR(
      TakeLayers("kv", proto.kv(), num_layers, kMaxRoomBytes, room.kv));
  SLUICE_RETURN_IF_ERROR(TakeLayers("kv_groups", proto.kv_groups(), num_layers,
                                    kMaxKvGroups - 1, room.kv_groups));
  const std::tuple<const char*, uint64_t, uint64_t*> values[] = {
      {"memory", proto.memory(), &room.memory},
      {"embedding", proto.embedding(), &room.embedding},
      {"head", proto.head(), &room.head},
      {"tied", proto.tied(), &room.tied},
      {"tied_again", proto.tied_again(), &room.tied_again}};
  for (const auto& [name, in, out] : values) {
    SLUICE_RETURN_IF_ERROR(
        CheckRange(name, static_cast<int64_t>(in), 0, kMaxRoomBytes));
    *out = in;
  }
  room.is_set = proto.is_set();
  return room;
}

}  // namespace

std::string StepsHello(const PipelineName& pipeline,
                       const StageIdentity& identity, int32_t layer) {
  v1::StepsHello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_replica(pipeline.replica.value());
  SetEpoch(pipeline.epoch, &hello);
  hello.set_model_digest(identity.model_digest);
  hello.set_numerics(identity.numerics);
  hello.set_layer(layer);
  hello.set_hidden_size(identity.hidden_size);
  hello.set_secret(pipeline.secret);
  return hello.SerializeAsString();
}

v1::StageIdentity ToProto(const StageIdentity& identity) {
  v1::StageIdentity proto;
  proto.set_model_name(identity.model_name);
  proto.set_model_digest(identity.model_digest);
  proto.set_numerics(identity.numerics);
  proto.set_weights_dtype(identity.weights_dtype);
  proto.set_first_layer(identity.first_layer);
  proto.set_last_layer(identity.last_layer);
  proto.set_num_layers(identity.num_layers);
  proto.set_hidden_size(identity.hidden_size);
  proto.set_ranks(identity.ranks);
  proto.set_threads(identity.threads);
  proto.set_isa(identity.isa);
  proto.set_weights_bytes(identity.weights_bytes);
  proto.set_kv_bytes(identity.kv_bytes);
  proto.set_assignable(identity.assignable);
  proto.set_replay_log(identity.replay_log);
  if (identity.model_config.size() <= kMaxConfigText) {
    proto.set_model_config(identity.model_config);
  }
  if (!identity.room.empty()) {
    *proto.mutable_room() = RoomToProto(identity.room);
  }
  return proto;
}

StatusOr<StageIdentity> FromProto(const v1::StageIdentity& proto) {
  SLUICE_RETURN_IF_ERROR(CheckName("model_name", proto.model_name()));
  SLUICE_RETURN_IF_ERROR(CheckName("model_digest", proto.model_digest()));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_layers", proto.num_layers(), 1, kMaxLayers));
  // An assignable stage may have no layers yet.
  if (!proto.assignable() || proto.last_layer() != 0) {
    SLUICE_RETURN_IF_ERROR(CheckName("numerics", proto.numerics()));
    SLUICE_RETURN_IF_ERROR(CheckName("weights_dtype", proto.weights_dtype()));
    SLUICE_RETURN_IF_ERROR(CheckRange("first_layer", proto.first_layer(), 0,
                                      proto.num_layers() - 1));
    SLUICE_RETURN_IF_ERROR(CheckRange("last_layer", proto.last_layer(),
                                      proto.first_layer() + 1,
                                      proto.num_layers()));
  } else {
    SLUICE_RETURN_IF_ERROR(
        CheckRange("first_layer", proto.first_layer(), 0, 0));
  }
  SLUICE_RETURN_IF_ERROR(
      CheckRange("hidden_size", proto.hidden_size(), 1, kMaxHiddenSize));
  StageIdentity identity;
  identity.model_name = proto.model_name();
  identity.model_digest = proto.model_digest();
  identity.numerics = proto.numerics();
  identity.weights_dtype = proto.weights_dtype();
  identity.first_layer = proto.first_layer();
  identity.last_layer = proto.last_layer();
  identity.num_layers = proto.num_layers();
  identity.hidden_size = proto.hidden_size();
  identity.ranks = proto.ranks();
  identity.threads = proto.threads();
  identity.isa = proto.isa().substr(0, kMaxNameBytes);
  identity.weights_bytes = proto.weights_bytes();
  identity.kv_bytes = proto.kv_bytes();
  identity.assignable = proto.assignable();
  identity.replay_log = proto.replay_log();
  if (proto.model_config().size() <= kMaxConfigText) {
    identity.model_config = proto.model_config();
  }
  if (proto.has_room()) {
    auto room = RoomFromProto(proto.room(), proto.num_layers());
    if (!room.ok()) return Annotate(room.status(), "room");
    identity.room = *std::move(room);
  }
  return identity;
}

v1::PipelineLimits ToProto(const PipelineLimits& limits) {
  v1::PipelineLimits proto;
  proto.set_max_step_tokens(limits.plan.max_step_tokens);
  proto.set_max_sequences(limits.plan.max_sequences);
  proto.set_max_context(limits.plan.max_context);
  proto.set_num_blocks(limits.plan.num_blocks);
  proto.set_num_kv_groups(limits.plan.num_kv_groups);
  proto.set_vocab_size(limits.plan.vocab_size);
  proto.set_block_tokens(limits.block_tokens);
  proto.set_max_steps_in_flight(limits.max_steps_in_flight);
  for (int32_t window : limits.plan.kv_windows) proto.add_kv_windows(window);
  proto.set_num_state_blocks(limits.plan.num_state_blocks);
  return proto;
}

StatusOr<PipelineLimits> FromProto(const v1::PipelineLimits& proto) {
  SLUICE_RETURN_IF_ERROR(CheckRange("max_step_tokens", proto.max_step_tokens(),
                                    1, kMaxStepTokens));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("max_sequences", proto.max_sequences(), 1, kMaxSequences));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("max_context", proto.max_context(), 1, kMaxContextTokens));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_blocks", proto.num_blocks(), 1, kMaxBlocks));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_kv_groups", proto.num_kv_groups(), 1, kMaxKvGroups));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("vocab_size", proto.vocab_size(), 1, kMaxVocabSize));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("block_tokens", proto.block_tokens(), 1, kMaxBlockTokens));
  SLUICE_RETURN_IF_ERROR(CheckRange(
      "max_steps_in_flight", proto.max_steps_in_flight(), 1, kMaxInFlight));
  PipelineLimits limits;
  limits.plan.max_step_tokens = proto.max_step_tokens();
  limits.plan.max_sequences = proto.max_sequences();
  limits.plan.max_context = proto.max_context();
  limits.plan.num_blocks = proto.num_blocks();
  limits.plan.num_kv_groups = proto.num_kv_groups();
  limits.plan.vocab_size = proto.vocab_size();
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_state_blocks", proto.num_state_blocks(), 0, kMaxBlocks));
  limits.plan.num_state_blocks = proto.num_state_blocks();
  limits.block_tokens = proto.block_tokens();
  limits.max_steps_in_flight = proto.max_steps_in_flight();
  SLUICE_RETURN_IF_ERROR(CheckRange("number of kv_windows",
                                    proto.kv_windows_size(), 0,
                                    proto.num_kv_groups()));
  for (int i = 0; i < proto.kv_windows_size(); ++i) {
    const bool is_last = i > 0 && i + 1 == proto.num_kv_groups();
    SLUICE_RETURN_IF_ERROR(CheckRange("kv_windows", proto.kv_windows(i),
                                      is_last ? kStateWindow : 0,
                                      i == 0 ? 0 : kMaxKvWindow));
    limits.plan.kv_windows.push_back(proto.kv_windows(i));
  }
  return limits;
}

v1::StepFrame StepFrameHead(const StepPlan& plan, int64_t sent_ns,
                            std::span<const SequenceResult> failed) {
  return StepFrameHead(plan, ToProto(plan), sent_ns, failed);
}

v1::StepFrame StepFrameHead(const StepPlan& plan, v1::StepPlan proto,
                            int64_t sent_ns,
                            std::span<const SequenceResult> failed) {
  v1::StepFrame frame;
  v1::Step* step = frame.mutable_step();
  *step->mutable_header() = ToProto(plan.replica, plan.epoch, plan.step_id);
  step->mutable_plan()->Swap(&proto);
  step->set_sent_ns(sent_ns);
  for (const SequenceResult& sequence : failed) {
    *step->add_failed() = ToProto(sequence);
  }
  return frame;
}

StatusOr<std::vector<SequenceResult>> FailedFromProto(
    const v1::Step& proto, const StepPlan& plan, const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(CheckRange("number of failed sequences",
                                    proto.failed_size(), 0,
                                    static_cast<int64_t>(plan.chunks.size())));
  std::vector<SequenceResult> failed;
  std::unordered_set<SequenceId> planned;
  if (proto.failed_size() > 0) {
    for (const Chunk& chunk : plan.chunks) planned.insert(chunk.sequence);
  }
  for (const v1::SequenceResult& entry : proto.failed()) {
    SLUICE_ASSIGN_OR_RETURN(SequenceResult sequence, FromProto(entry, limits));
    if (planned.erase(sequence.sequence) == 0) {
      return InvalidArgument("failed sequence ", entry.sequence(),
                             " is named twice, or the plan has no such");
    }
    if (sequence.status.ok() || !sequence.sampled.empty() ||
        !sequence.prompt.empty() || !sequence.logits.empty()) {
      return InvalidArgument("failed sequence ", entry.sequence(),
                             " must have a status and nothing beside, its "
                             "status code is ",
                             entry.status_code());
    }
    failed.push_back(std::move(sequence));
  }
  return failed;
}

v1::StepFrame StepFrameTrace(const StepTrace& trace) {
  v1::StepFrame frame;
  *frame.mutable_step()->mutable_trace() = ToProto(trace);
  return frame;
}

v1::StepTrace ToProto(const StepTrace& trace) {
  v1::StepTrace proto;
  for (const StageTrace& stage : trace.stages) {
    v1::StageTrace* out = proto.add_stages();
    *out->mutable_receive() = ToProto(stage.receive);
    *out->mutable_wait() = ToProto(stage.wait);
    *out->mutable_compute() = ToProto(stage.compute);
    *out->mutable_sample() = ToProto(stage.sample);
    *out->mutable_serialise() = ToProto(stage.serialise);
  }
  return proto;
}

StatusOr<StepTrace> FromProto(const v1::StepTrace& proto) {
  SLUICE_RETURN_IF_ERROR(CheckRange("number of traced stages",
                                    proto.stages_size(), 0, kMaxTracedStages));
  StepTrace trace;
  trace.stages.reserve(static_cast<size_t>(proto.stages_size()) + 1);
  for (const v1::StageTrace& stage : proto.stages()) {
    auto value = FromProto(stage);
    if (!value.ok()) {
      return Annotate(value.status(), "trace of stage ", trace.stages.size());
    }
    trace.stages.push_back(*std::move(value));
  }
  return trace;
}

StatusOr<HiddenStates> HiddenFromPayload(Buffer payload, int32_t rows,
                                         int32_t hidden_size) {
  const size_t want = sizeof(float) * static_cast<size_t>(rows) *
                      static_cast<size_t>(hidden_size);
  if (payload.size() != want) {
    return InvalidArgument("hidden states have ", payload.size(),
                           " bytes, a step of ", rows, " tokens has ", want,
                           " (hidden size ", hidden_size, ")");
  }
  HiddenStates hidden;
  if (want == 0) return hidden;
  hidden.rows = rows;
  hidden.cols = hidden_size;
  hidden.data = std::move(payload);
  return hidden;
}

v1::StepResult ToProto(const StepResult& result) {
  v1::StepResult proto;
  *proto.mutable_header() =
      ToProto(result.replica, result.epoch, result.step_id);
  for (const SequenceResult& sequence : result.sequences) {
    *proto.add_sequences() = ToProto(sequence);
  }
  return proto;
}

v1::StepResult SampledToProto(const StepResult& result) {
  StepResult sampled{result.replica, result.epoch, result.step_id};
  for (const SequenceResult& sequence : result.sequences) {
    if (sequence.status.ok() && sequence.sampled.empty()) continue;
    SequenceResult& out = sampled.sequences.emplace_back();
    out.sequence = sequence.sequence;
    out.status = sequence.status;
    if (!sequence.status.ok()) continue;
    out.sampled.emplace_back().token = sequence.sampled.back().token;
  }
  return ToProto(sampled);
}

StatusOr<StepResult> FromProto(const v1::StepResult& proto,
                               const PlanLimits& limits) {
  SLUICE_RETURN_IF_ERROR(CheckRange("number of results", proto.sequences_size(),
                                    0, limits.max_sequences));
  StepResult result;
  result.replica = ReplicaId(proto.header().replica());
  result.epoch = EpochOf(proto.header());
  result.step_id = StepId(proto.header().step_id());
  result.sequences.reserve(static_cast<size_t>(proto.sequences_size()));
  for (const v1::SequenceResult& sequence : proto.sequences()) {
    auto value = FromProto(sequence, limits);
    if (!value.ok()) {
      return Annotate(value.status(), "result of sequence ",
                      sequence.sequence());
    }
    result.sequences.push_back(*std::move(value));
  }
  if (proto.has_trace()) {
    SLUICE_ASSIGN_OR_RETURN(result.trace, FromProto(proto.trace()));
  }
  return result;
}

v1::KvEntry ToProto(KvEntry entry) {
  v1::KvEntry proto;
  proto.set_layer(entry.name.layer);
  proto.set_kv_group(entry.name.group);
  proto.set_block(entry.name.block.value());
  proto.set_data(std::move(entry.data));
  proto.set_checksum(entry.checksum);
  return proto;
}

StatusOr<KvEntry> FromProto(v1::KvEntry proto) {
  if (proto.layer() < 0 || proto.kv_group() < 0 || proto.block() < 0) {
    return InvalidArgument("an entry of layer ", proto.layer(), ", KV group ",
                           proto.kv_group(), ", block ", proto.block());
  }
  return KvEntry{{proto.layer(), proto.kv_group(), BlockId(proto.block())},
                 std::move(*proto.mutable_data()),
                 proto.checksum()};
}

int64_t MaxFrameBytes(const PlanLimits& limits, int32_t hidden_size) {
  // A token id is at most 5 bytes of varint here, a block id likewise.
  constexpr int64_t kSampling = 2048 + 16 * kMaxLogitBiases +
                                6 * (kMaxStopTokenIds + kMaxLogprobTokenIds);
  constexpr int64_t kFailure = 4160;  // a status with its message
  const int64_t history =
      int64_t{limits.max_sequences} *
      (6 * int64_t{limits.max_context} + kSampling + kFailure);
  constexpr int64_t kMasks = 8 * int64_t{kMaxMaskRuns};
  return std::min(kMaxMessageBytes, kMiB + history + kMasks +
                                        int64_t{limits.max_step_tokens} *
                                            (8 + int64_t{hidden_size} * 4));
}

int64_t MaxResultBytes(const PlanLimits& limits) {
  // A logprob is at most 20 bytes; per token its own and the top ones. Raw rows
  // are floats.
  const int64_t per_token =
      20 * (std::max(kMaxTopLogprobs, kMaxLogprobTokenIds) + 2) +
      MaxRawRowValues(limits) * 4;
  return std::min(kMaxMessageBytes, kMiB +
                                        int64_t{limits.max_sequences} * 8192 +
                                        limits.max_step_tokens * per_token);
}

}  // namespace sluice::wire
