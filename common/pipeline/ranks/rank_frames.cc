#include "common/pipeline/ranks/rank_frames.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/rpc/payload_frame.h"
#include "common/wire/checks.h"
#include "common/wire/stage.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

using wire::CheckName;
using wire::CheckRange;

constexpr uint64_t kMaxMemory = uint64_t{1} << 60;
constexpr int32_t kMostRanks = 1 << 16;

Status CheckText(const char* what, const std::string& value) {
  if (value.size() <= wire::kMaxNameBytes) return OkStatus();
  return InvalidArgument(what, " has ", value.size(), " bytes, limit ",
                         wire::kMaxNameBytes);
}

Status CheckMemory(const char* what, uint64_t value) {
  if (value <= kMaxMemory) return OkStatus();
  return InvalidArgument(what, " must be at most ", kMaxMemory, ", got ",
                         value);
}

// Integers of a step, as a field of raw bytes, in which they are not aligned.
template <typename T>
class RawList {
 public:
  RawList(std::string what, const std::string& bytes)
      : what_(std::move(what)), bytes_(bytes) {}

  int64_t size() const { return std::ssize(bytes_) / int64_t{sizeof(T)}; }
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * int64_t{sizeof(T)}, sizeof(T));
    return value;
  }
  // Between `least` and `most` whole integers.
  Status CheckSize(int64_t least, int64_t most) const {
    if (bytes_.size() % sizeof(T) == 0 && size() >= least && size() <= most) {
      return OkStatus();
    }
    return InvalidArgument(what_, " has ", bytes_.size(),
                           " bytes, which must be between ", least, " and ",
                           most, " times ", sizeof(T));
  }
  Status CheckEach(int64_t low, int64_t high) const {
    for (int64_t i = 0; i < size(); ++i) {
      if (at(i) < low || at(i) > high) {
        return InvalidArgument(what_, "[", i, "] must be between ", low,
                               " and ", high, ", got ", at(i));
      }
    }
    return OkStatus();
  }
  void CopyTo(std::vector<T>& to) const {
    SLUICE_CHECK(bytes_.size() <= to.size() * sizeof(T));
    if (!bytes_.empty()) std::memcpy(to.data(), bytes_.data(), bytes_.size());
  }

 private:
  const std::string what_;
  const std::string& bytes_;
};

// The lists of one of a step's KV groups.
struct GroupLists {
  GroupLists(const v1::RankKvGroup& proto, int group)
      : name(Cat(" of KV group ", group)),
        slots(Cat("slots", name), proto.slots()),
        offsets(Cat("table_offsets", name), proto.table_offsets()),
        tables(Cat("block_tables", name), proto.block_tables()) {}

  const std::string name;
  const RawList<int64_t> slots;
  const RawList<int64_t> offsets;
  const RawList<int32_t> tables;
};

// `positions` has been checked.
Status CheckGroup(const GroupLists& group, const RawList<int32_t>& positions,
                  const RankStepBounds& bounds, int32_t num_blocks) {
  const int64_t tokens = positions.size();
  const int64_t most = int64_t{bounds.limits.max_sequences} *
                       bounds.limits.max_blocks_per_sequence();
  SLUICE_RETURN_IF_ERROR(group.slots.CheckSize(tokens, tokens));
  SLUICE_RETURN_IF_ERROR(
      group.slots.CheckEach(0, int64_t{num_blocks} * kBlockTokens - 1));
  SLUICE_RETURN_IF_ERROR(group.tables.CheckSize(1, most));
  SLUICE_RETURN_IF_ERROR(group.tables.CheckEach(0, num_blocks - 1));
  SLUICE_RETURN_IF_ERROR(group.offsets.CheckSize(tokens, tokens));
  SLUICE_RETURN_IF_ERROR(group.offsets.CheckEach(0, most - 1));
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t last = group.offsets.at(t) + positions.at(t) / kBlockTokens;
    if (last < group.tables.size()) continue;
    return InvalidArgument("table_offsets[", t, "]", group.name,
                           " reads entry ", last, " for position ",
                           positions.at(t), ", block_tables has ",
                           group.tables.size());
  }
  return OkStatus();
}

Status CheckLogitsRows(const RawList<int32_t>& rows, int32_t tokens) {
  SLUICE_RETURN_IF_ERROR(rows.CheckSize(0, tokens));
  SLUICE_RETURN_IF_ERROR(rows.CheckEach(0, tokens - 1));
  for (int64_t i = 1; i < rows.size(); ++i) {
    if (rows.at(i) > rows.at(i - 1)) continue;
    return InvalidArgument("logits_rows[", i, "] must be above ",
                           rows.at(i - 1), ", got ", rows.at(i));
  }
  return OkStatus();
}

template <typename T>
std::string Raw(const std::vector<T>& values, int64_t count) {
  static_assert(std::is_integral_v<T>);
  return std::string(reinterpret_cast<const char*>(values.data()),
                     static_cast<size_t>(count) * sizeof(T));
}

Status ReadChecked(const v1::RankStep& proto, Buffer hidden,
                   const RankStepBounds& bounds, RankStep& into) {
  StepInputs& step = into.inputs;
  SLUICE_CHECK(std::ssize(step.kv_groups) == bounds.limits.num_kv_groups);
  if (!proto.has_header()) return InvalidArgument("there is no header");
  const int32_t tokens = proto.num_tokens();
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_tokens", tokens, 1, bounds.limits.max_step_tokens));
  const RawList<int32_t> ids("token_ids", proto.token_ids());
  SLUICE_RETURN_IF_ERROR(ids.CheckSize(tokens, tokens));
  SLUICE_RETURN_IF_ERROR(ids.CheckEach(-int64_t{bounds.limits.max_step_tokens},
                                       int64_t{bounds.vocab_size} - 1));
  const RawList<int32_t> positions("positions", proto.positions());
  SLUICE_RETURN_IF_ERROR(positions.CheckSize(tokens, tokens));
  SLUICE_RETURN_IF_ERROR(
      positions.CheckEach(0, int64_t{bounds.limits.max_context} - 1));
  const RawList<int32_t> rows("logits_rows", proto.logits_rows());
  SLUICE_RETURN_IF_ERROR(CheckLogitsRows(rows, tokens));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("number of KV groups", proto.kv_groups_size(),
                 bounds.limits.num_kv_groups, bounds.limits.num_kv_groups));
  for (int g = 0; g < proto.kv_groups_size(); ++g) {
    const bool is_state = g > 0 && g == bounds.state_group;
    SLUICE_RETURN_IF_ERROR(
        CheckGroup(GroupLists(proto.kv_groups(g), g), positions, bounds,
                   is_state ? bounds.state_blocks : bounds.kv_blocks));
  }
  SLUICE_ASSIGN_OR_RETURN(
      into.hidden,
      wire::HiddenFromPayload(std::move(hidden), tokens, bounds.hidden_size));
  step.header = {ReplicaId(proto.header().replica()),
                 wire::EpochOf(proto.header()),
                 StepId(proto.header().step_id())};
  step.num_tokens = tokens;
  step.num_logits_rows = static_cast<int32_t>(rows.size());
  ids.CopyTo(step.token_ids);
  positions.CopyTo(step.positions);
  rows.CopyTo(step.logits_rows);
  for (int g = 0; g < proto.kv_groups_size(); ++g) {
    const GroupLists lists(proto.kv_groups(g), g);
    KvGroupInputs& group = step.kv_groups[static_cast<size_t>(g)];
    lists.slots.CopyTo(group.slots);
    lists.offsets.CopyTo(group.table_offsets);
    lists.tables.CopyTo(group.block_tables);
  }
  return OkStatus();
}

}  // namespace

// Hellos ---------------------------------------------------------------------

v1::FollowerHello ToProto(const FollowerHello& hello) {
  v1::FollowerHello proto;
  proto.set_protocol_version(hello.protocol_version);
  proto.set_build(hello.build);
  proto.set_model_digest(hello.model_digest);
  proto.set_first_rank(hello.first_rank);
  proto.set_num_ranks(hello.num_ranks);
  proto.set_process(hello.process);
  return proto;
}

StatusOr<FollowerHello> FromProto(const v1::FollowerHello& proto) {
  if (proto.protocol_version() != wire::kRanksProtocolVersion) {
    return FailedPrecondition(
        "the lead has protocol version ", wire::kRanksProtocolVersion,
        " of Ranks, the follower ", proto.protocol_version());
  }
  SLUICE_RETURN_IF_ERROR(CheckText("build", proto.build()));
  SLUICE_RETURN_IF_ERROR(CheckName("model_digest", proto.model_digest()));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("first_rank", proto.first_rank(), 0, kMostRanks));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("num_ranks", proto.num_ranks(), 1, kMostRanks));
  SLUICE_RETURN_IF_ERROR(CheckText("process", proto.process()));
  return FollowerHello{proto.protocol_version(), proto.build(),
                       proto.model_digest(),     proto.first_rank(),
                       proto.num_ranks(),        proto.process()};
}

// Orders ---------------------------------------------------------------------

v1::RankOrder ToProto(const SentOrder& sent) {
  const RankOrder& order = sent.order;
  v1::RankOrder proto;
  proto.set_load(sent.load);
  proto.set_connect_id(sent.connect_id);
  proto.set_model_digest(order.model_digest);
  proto.set_first_layer(order.first_layer);
  proto.set_last_layer(order.last_layer);
  proto.set_all_ranks(order.all_ranks);
  proto.set_weights(ToString(order.weights));
  proto.set_kv_type(ToString(order.kv_type));
  proto.set_numerics(order.numerics);
  proto.set_memory(order.memory);
  proto.set_kv_blocks(order.kv_blocks);
  proto.set_max_context(order.max_context);
  proto.set_max_step_tokens(order.max_step_tokens);
  proto.set_max_sequences(order.max_sequences);
  return proto;
}

StatusOr<SentOrder> FromProto(const v1::RankOrder& proto) {
  if (proto.load() == 0) return InvalidArgument("load must be above 0, got 0");
  if (proto.connect_id().size() > kMaxConnectIdBytes) {
    return InvalidArgument("connect_id has ", proto.connect_id().size(),
                           " bytes, limit ", kMaxConnectIdBytes);
  }
  SLUICE_RETURN_IF_ERROR(CheckName("model_digest", proto.model_digest()));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("first_layer", proto.first_layer(), 0, wire::kMaxLayers - 1));
  SLUICE_RETURN_IF_ERROR(CheckRange("last_layer", proto.last_layer(),
                                    int64_t{proto.first_layer()} + 1,
                                    wire::kMaxLayers));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("all_ranks", proto.all_ranks(), 2, kMostRanks));
  SLUICE_RETURN_IF_ERROR(CheckName("numerics", proto.numerics()));
  SLUICE_RETURN_IF_ERROR(CheckMemory("memory", proto.memory()));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("kv_blocks", proto.kv_blocks(), 0, wire::kMaxBlocks));
  SLUICE_RETURN_IF_ERROR(CheckRange("max_context", proto.max_context(), 0,
                                    wire::kMaxContextTokens));
  SLUICE_RETURN_IF_ERROR(CheckRange("max_step_tokens", proto.max_step_tokens(),
                                    0, wire::kMaxStepTokens));
  SLUICE_RETURN_IF_ERROR(CheckRange("max_sequences", proto.max_sequences(), 0,
                                    wire::kMaxSequences));
  SentOrder sent;
  SLUICE_RETURN_IF_ERROR(CheckText("weights", proto.weights()));
  SLUICE_ASSIGN_OR_RETURN(sent.order.weights,
                          ParseWeightsMode(proto.weights()));
  SLUICE_RETURN_IF_ERROR(CheckText("kv_type", proto.kv_type()));
  SLUICE_ASSIGN_OR_RETURN(const KvChoice kept, ParseKvChoice(proto.kv_type()));
  if (!kept.has_value()) {
    return InvalidArgument(
        "kv_type of an order must be the type that the lead ", "keeps, got '",
        proto.kv_type(), "'");
  }
  sent.order.kv_type = *kept;
  sent.load = proto.load();
  sent.connect_id = proto.connect_id();
  sent.order.model_digest = proto.model_digest();
  sent.order.first_layer = proto.first_layer();
  sent.order.last_layer = proto.last_layer();
  sent.order.all_ranks = proto.all_ranks();
  sent.order.numerics = proto.numerics();
  sent.order.memory = proto.memory();
  sent.order.kv_blocks = proto.kv_blocks();
  sent.order.max_context = proto.max_context();
  sent.order.max_step_tokens = proto.max_step_tokens();
  sent.order.max_sequences = proto.max_sequences();
  return sent;
}

Status CheckSameOrder(const RankOrder& own, const RankOrder& lead) {
  const auto same = [](const char* what, const auto& ours,
                       const auto& theirs) -> Status {
    if (ours == theirs) return OkStatus();
    return InvalidArgument(what, " of the order is ", theirs,
                           ", this process has ", ours);
  };
  SLUICE_RETURN_IF_ERROR(
      same("model_digest", own.model_digest, lead.model_digest));
  SLUICE_RETURN_IF_ERROR(
      same("first_layer", own.first_layer, lead.first_layer));
  SLUICE_RETURN_IF_ERROR(same("last_layer", own.last_layer, lead.last_layer));
  SLUICE_RETURN_IF_ERROR(same("all_ranks", own.all_ranks, lead.all_ranks));
  SLUICE_RETURN_IF_ERROR(same("weights", std::string(ToString(own.weights)),
                              std::string(ToString(lead.weights))));
  SLUICE_RETURN_IF_ERROR(same("kv_type", std::string(ToString(own.kv_type)),
                              std::string(ToString(lead.kv_type))));
  SLUICE_RETURN_IF_ERROR(same("numerics", own.numerics, lead.numerics));
  SLUICE_RETURN_IF_ERROR(same("memory", own.memory, lead.memory));
  SLUICE_RETURN_IF_ERROR(same("kv_blocks", own.kv_blocks, lead.kv_blocks));
  SLUICE_RETURN_IF_ERROR(
      same("max_context", own.max_context, lead.max_context));
  SLUICE_RETURN_IF_ERROR(
      same("max_step_tokens", own.max_step_tokens, lead.max_step_tokens));
  return same("max_sequences", own.max_sequences, lead.max_sequences);
}

// Facts ----------------------------------------------------------------------

RankFacts ReadyFacts() { return {"ready", 1, 1, 0, 0, 0}; }

v1::RankFacts ToProto(const RankFacts& facts, uint64_t load) {
  v1::RankFacts proto;
  proto.set_load(load);
  proto.set_numerics(facts.numerics);
  proto.set_max_context(facts.max_context);
  proto.set_kv_blocks(facts.kv_blocks);
  proto.set_weights_bytes(facts.weights_bytes);
  proto.set_kv_bytes(facts.kv_bytes);
  proto.set_state_blocks(facts.state_blocks);
  return proto;
}

StatusOr<RankFacts> FromProto(const v1::RankFacts& proto) {
  SLUICE_RETURN_IF_ERROR(CheckName("numerics", proto.numerics()));
  SLUICE_RETURN_IF_ERROR(CheckRange("max_context", proto.max_context(), 1,
                                    wire::kMaxContextTokens));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("kv_blocks", proto.kv_blocks(), 1, wire::kMaxBlocks));
  SLUICE_RETURN_IF_ERROR(
      CheckRange("state_blocks", proto.state_blocks(), 0, wire::kMaxBlocks));
  SLUICE_RETURN_IF_ERROR(CheckMemory("weights_bytes", proto.weights_bytes()));
  SLUICE_RETURN_IF_ERROR(CheckMemory("kv_bytes", proto.kv_bytes()));
  return RankFacts{proto.numerics(),  proto.max_context(),
                   proto.kv_blocks(), proto.weights_bytes(),
                   proto.kv_bytes(),  proto.state_blocks()};
}

// Steps ----------------------------------------------------------------------

grpc::ByteBuffer StepFrame(const StepInputs& step, const HiddenStates& hidden) {
  v1::LeadFrame frame;
  v1::RankStep& proto = *frame.mutable_step();
  *proto.mutable_header() = wire::ToProto(
      step.header.replica, step.header.epoch, step.header.step_id);
  proto.set_num_tokens(step.num_tokens);
  proto.set_token_ids(Raw(step.token_ids, step.num_tokens));
  proto.set_positions(Raw(step.positions, step.num_tokens));
  proto.set_logits_rows(Raw(step.logits_rows, step.num_logits_rows));
  for (const KvGroupInputs& group : step.kv_groups) {
    v1::RankKvGroup& to = *proto.add_kv_groups();
    to.set_slots(Raw(group.slots, step.num_tokens));
    to.set_table_offsets(Raw(group.table_offsets, step.num_tokens));
    to.set_block_tables(Raw(group.block_tables, TableEnd(step, group)));
  }
  Buffer rows;
  if (!hidden.empty()) {
    rows = MessageBuffer(hidden.data.size());
    std::memcpy(rows.data(), hidden.data.data(), rows.size());
  }
  return rpc::JoinPayload(frame, kRankHiddenField, std::move(rows));
}

Status ReadStep(const v1::RankStep& proto, Buffer hidden,
                const RankStepBounds& bounds, RankStep& into) {
  return Annotate(ReadChecked(proto, std::move(hidden), bounds, into), "step ",
                  proto.header().step_id());
}

int64_t MaxStepFrameBytes(const RankStepBounds& bounds) {
  constexpr int64_t kHead = 4096;  // the header and all fields' tags
  const StepLimits& limits = bounds.limits;
  const int64_t tables =
      4 * int64_t{limits.max_sequences} * limits.max_blocks_per_sequence();
  const int64_t tokens = int64_t{limits.max_step_tokens} *
                         (12 + 16 * int64_t{limits.num_kv_groups} +
                          4 * int64_t{bounds.hidden_size});
  return std::min(wire::kMaxMessageBytes,
                  kHead + tokens + limits.num_kv_groups * tables);
}

std::string RanksText(int32_t first, int32_t count) {
  if (count == 1) return Cat("rank ", first);
  return Cat("ranks ", first, " to ", first + count - 1);
}

}  // namespace sluice
