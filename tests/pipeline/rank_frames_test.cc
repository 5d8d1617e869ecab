// ranks.proto as values: what goes round, and every check by its message.
#include "common/pipeline/ranks/rank_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "common/rpc/payload_frame.h"
#include "tests/pipeline/rank_values.h"

namespace sluice {
namespace {

using testing::BoundsOf;
using testing::ExpectSame;
using testing::FactsOf;
using ::testing::HasSubstr;
using testing::HelloOf;
using testing::OrderOf;
using testing::StepOf;

// Steps -----------------------------------------------------------------------

constexpr int32_t kHidden = 6;

struct WireStep {
  v1::RankStep proto;
  Buffer hidden;
};

WireStep Sent(const RankStep& step) {
  const grpc::ByteBuffer frame = StepFrame(step.inputs, step.hidden);
  auto split = rpc::SplitPayload(frame, kRankHiddenField, frame.Length());
  EXPECT_TRUE(split.ok()) << split.status();
  auto head = rpc::ParseHead<v1::LeadFrame>(split->head);
  EXPECT_TRUE(head.ok()) << head.status();
  return {head->step(), std::move(split->payload)};
}

TEST(RankFramesTest, StepsGoRound) {
  for (const int32_t groups : {1, 3}) {
    for (const int32_t hidden : {0, kHidden}) {
      const RankStepBounds bounds = BoundsOf(hidden, groups);
      RankStep read(bounds.limits);
      // Into one place: a second, smaller step leaves nothing of the first but
      // what is behind its ends.
      for (uint64_t id : {1, 2}) {
        auto step = StepOf(bounds, id);
        WireStep wire = Sent(*step);
        ASSERT_TRUE(
            ReadStep(wire.proto, std::move(wire.hidden), bounds, read).ok());
        ExpectSame(read, *step);
      }
    }
  }
}

TEST(RankFramesTest, OnlyWhatTokensReachOfTheTablesIsSent) {
  const RankStepBounds bounds = BoundsOf(0);
  const auto step = StepOf(bounds, 1);
  EXPECT_EQ(step->inputs.kv_groups[0].block_tables.size(), 64u);
  const WireStep wire = Sent(*step);
  EXPECT_EQ(wire.proto.kv_groups(0).block_tables().size(), 4 * sizeof(int32_t));
  EXPECT_EQ(wire.proto.logits_rows().size(), 2 * sizeof(int32_t));
}

TEST(RankFramesTest, TheLargestStepIsWithinTheBound) {
  constexpr int32_t kTokens = 4096;
  RankStepBounds bounds = BoundsOf(kHidden);
  bounds.limits.max_step_tokens = kTokens;
  bounds.limits.max_sequences = 1000;
  RankStep step(bounds.limits);
  StepInputs& inputs = step.inputs;
  inputs.header = {ReplicaId(~0u), Epoch(~uint64_t{0}), StepId(~uint64_t{0})};
  inputs.num_tokens = inputs.num_logits_rows = kTokens;
  for (KvGroupInputs& group : inputs.kv_groups) {
    group.table_offsets.assign(kTokens, 999 * 8);
  }
  inputs.positions.assign(kTokens, 127);
  for (int32_t t = 0; t < kTokens; ++t) inputs.logits_rows[t] = t;
  step.hidden = HiddenStates(kTokens, kHidden);
  const auto bytes =
      static_cast<int64_t>(StepFrame(inputs, step.hidden).Length());
  EXPECT_LE(bytes, MaxStepFrameBytes(bounds));
  EXPECT_GT(bytes, MaxStepFrameBytes(bounds) - 4096);
  RankStepBounds huge = bounds;
  huge.limits.max_sequences = 1 << 30;
  EXPECT_EQ(MaxStepFrameBytes(huge), (int64_t{1} << 31) - 1);
}

// Sets integer `i` of a field of raw bytes.
template <typename T>
void Set(std::string* bytes, size_t i, T value) {
  ASSERT_LE((i + 1) * sizeof(T), bytes->size());
  std::memcpy(bytes->data() + i * sizeof(T), &value, sizeof(T));
}

struct BadStep {
  const char* message;
  std::function<void(WireStep&)> spoil;
};

v1::RankKvGroup& Group(WireStep& step, int g) {
  return *step.proto.mutable_kv_groups(g);
}

const BadStep kBadSteps[] = {
    {"there is no header", [](WireStep& s) { s.proto.clear_header(); }},
    {"num_tokens must be between 1 and 32, got 0",
     [](WireStep& s) { s.proto.set_num_tokens(0); }},
    {"num_tokens must be between 1 and 32, got -5",
     [](WireStep& s) { s.proto.set_num_tokens(-5); }},
    {"num_tokens must be between 1 and 32, got 33",
     [](WireStep& s) { s.proto.set_num_tokens(33); }},
    {"token_ids has 20 bytes, which must be between 4 and 4 times 4",
     [](WireStep& s) { s.proto.set_num_tokens(4); }},
    {"token_ids has 21 bytes, which must be between 5 and 5 times 4",
     [](WireStep& s) { s.proto.mutable_token_ids()->push_back(0); }},
    {"token_ids[4] must be between -32 and 999, got 1000",
     [](WireStep& s) { Set(s.proto.mutable_token_ids(), 4, 1000); }},
    {"token_ids[0] must be between -32 and 999, got -33",
     [](WireStep& s) { Set(s.proto.mutable_token_ids(), 0, -33); }},
    {"positions has 0 bytes, which must be between 5 and 5 times 4",
     [](WireStep& s) { s.proto.clear_positions(); }},
    {"positions[2] must be between 0 and 127, got 128",
     [](WireStep& s) { Set(s.proto.mutable_positions(), 2, 128); }},
    {"positions[2] must be between 0 and 127, got -1",
     [](WireStep& s) { Set(s.proto.mutable_positions(), 2, -1); }},
    {"logits_rows has 24 bytes, which must be between 0 and 5 times 4",
     [](WireStep& s) { s.proto.mutable_logits_rows()->append(16, '\0'); }},
    {"logits_rows[1] must be between 0 and 4, got 5",
     [](WireStep& s) { Set(s.proto.mutable_logits_rows(), 1, 5); }},
    {"logits_rows[0] must be between 0 and 4, got -1",
     [](WireStep& s) { Set(s.proto.mutable_logits_rows(), 0, -1); }},
    {"logits_rows[1] must be above 2, got 2",
     [](WireStep& s) { Set(s.proto.mutable_logits_rows(), 1, 2); }},
    {"number of KV groups must be between 3 and 3, got 2",
     [](WireStep& s) { s.proto.mutable_kv_groups()->RemoveLast(); }},
    {"number of KV groups must be between 3 and 3, got 4",
     [](WireStep& s) { *s.proto.add_kv_groups() = s.proto.kv_groups(0); }},
    {"slots of KV group 1 has 32 bytes, which must be between 5 and 5 times 8",
     [](WireStep& s) { Group(s, 1).mutable_slots()->resize(32); }},
    {"slots of KV group 2[3] must be between 0 and 1023, got 1024",
     [](WireStep& s) { Set(Group(s, 2).mutable_slots(), 3, int64_t{1024}); }},
    {"slots of KV group 0[3] must be between 0 and 1023, got -1",
     [](WireStep& s) { Set(Group(s, 0).mutable_slots(), 3, int64_t{-1}); }},
    {"table_offsets of KV group 1 has 48 bytes",
     [](WireStep& s) { Group(s, 1).mutable_table_offsets()->append(8, '\0'); }},
    {"table_offsets of KV group 1[4] must be between 0 and 63, got 64",
     [](WireStep& s) {
       Set(Group(s, 1).mutable_table_offsets(), 4, int64_t{64});
     }},
    {"table_offsets of KV group 1[4] must be between 0 and 63, got -1",
     [](WireStep& s) {
       Set(Group(s, 1).mutable_table_offsets(), 4, int64_t{-1});
     }},
    {"table_offsets[4] of KV group 1 reads entry 4 for position 6, "
     "block_tables has 4",
     [](WireStep& s) {
       Set(Group(s, 1).mutable_table_offsets(), 4, int64_t{4});
     }},
    {"table_offsets[0] of KV group 2 reads entry 1 for position 30, "
     "block_tables has 1",
     [](WireStep& s) { Group(s, 2).mutable_block_tables()->resize(4); }},
    {"block_tables of KV group 2 has 0 bytes, which must be between 1 and 64 "
     "times 4",
     [](WireStep& s) { Group(s, 2).clear_block_tables(); }},
    {"block_tables of KV group 2 has 260 bytes",
     [](WireStep& s) { Group(s, 2).mutable_block_tables()->resize(260); }},
    {"block_tables of KV group 0[3] must be between 0 and 63, got 64",
     [](WireStep& s) { Set(Group(s, 0).mutable_block_tables(), 3, 64); }},
    {"block_tables of KV group 0[0] must be between 0 and 63, got -1",
     [](WireStep& s) { Set(Group(s, 0).mutable_block_tables(), 0, -1); }},
    {"hidden states have 116 bytes, a step of 5 tokens has 120 (hidden size 6)",
     [](WireStep& s) { s.hidden = Buffer(116); }},
    {"hidden states have 0 bytes", [](WireStep& s) { s.hidden = Buffer(); }},
};

TEST(RankFramesTest, EveryFieldOfAStepIsChecked) {
  const RankStepBounds bounds = BoundsOf(kHidden);
  const auto before = StepOf(bounds, 9);
  for (const BadStep& bad : kBadSteps) {
    SCOPED_TRACE(bad.message);
    WireStep wire = Sent(*StepOf(bounds, 3));
    bad.spoil(wire);
    auto into = StepOf(bounds, 9);
    const Status status =
        ReadStep(wire.proto, std::move(wire.hidden), bounds, *into);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(bad.message));
    ExpectSame(*into, *before);
  }
}

TEST(RankFramesTest, AFirstStagesStepHasNoRows) {
  const RankStepBounds bounds = BoundsOf(0);
  const WireStep wire = Sent(*StepOf(bounds, 3));
  RankStep into(bounds.limits);
  const Status status = ReadStep(wire.proto, Buffer(4), bounds, into);
  EXPECT_EQ(Message(status),
            "step 3: hidden states have 4 bytes, a step of 5 tokens has 0 "
            "(hidden size 0)");
}

// Orders, facts, hellos
// ---------------------------------------------------------

v1::RankOrder OrderProto() { return ToProto(SentOrder{OrderOf(8), "id", 3}); }

TEST(RankFramesTest, OrdersGoRound) {
  SentOrder sent{OrderOf(8), std::string("\0\xff\x80", 3), 3};
  for (const WeightsMode weights : {WeightsMode::kAuto, WeightsMode::kQ5_1}) {
    for (const auto kv : {kernels::WeightType::kF32, kernels::WeightType::kBf16,
                          kernels::WeightType::kQ8_0}) {
      sent.order.weights = weights;
      sent.order.kv_type = kv;
      const auto got = FromProto(ToProto(sent));
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->order, sent.order);
      EXPECT_EQ(got->connect_id, sent.connect_id);
      EXPECT_EQ(got->load, 3u);
    }
  }
}

template <typename Proto>
struct Bad {
  const char* message;
  std::function<void(Proto&)> spoil;
};

template <typename Proto>
void ExpectRefused(const Proto& good, const std::vector<Bad<Proto>>& cases,
                   StatusCode code = StatusCode::kInvalidArgument) {
  ASSERT_TRUE(FromProto(good).ok()) << FromProto(good).status();
  for (const Bad<Proto>& bad : cases) {
    SCOPED_TRACE(bad.message);
    Proto proto = good;
    bad.spoil(proto);
    const Status status = FromProto(proto).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(Message(status), HasSubstr(bad.message));
  }
}

TEST(RankFramesTest, EveryFieldOfAnOrderIsChecked) {
  using Order = v1::RankOrder;
  const std::string long_name(257, 'x');
  ExpectRefused<Order>(
      OrderProto(),
      {{"load must be above 0, got 0", [](Order& o) { o.set_load(0); }},
       {"connect_id has 4097 bytes, limit 4096",
        [](Order& o) { o.set_connect_id(std::string(4097, 'x')); }},
       {"model_digest has 0 bytes", [](Order& o) { o.clear_model_digest(); }},
       {"model_digest has 257 bytes",
        [&](Order& o) { o.set_model_digest(long_name); }},
       {"first_layer must be between 0 and 65535, got -1",
        [](Order& o) { o.set_first_layer(-1); }},
       {"last_layer must be between 5 and 65536, got 4",
        [](Order& o) { o.set_last_layer(4); }},
       {"last_layer must be between 5 and 65536, got 65537",
        [](Order& o) { o.set_last_layer(65537); }},
       {"all_ranks must be between 2 and 65536, got 1",
        [](Order& o) { o.set_all_ranks(1); }},
       {"weights must be one of auto", [](Order& o) { o.set_weights("q9"); }},
       {"weights has 257 bytes, limit 256",
        [&](Order& o) { o.set_weights(long_name); }},
       {"kv type must be one of auto", [](Order& o) { o.set_kv_type("q4_0"); }},
       {"kv_type of an order must be the type that the lead keeps, got 'auto'",
        [](Order& o) { o.set_kv_type("auto"); }},
       {"kv_type has 257 bytes, limit 256",
        [&](Order& o) { o.set_kv_type(long_name); }},
       {"numerics has 0 bytes", [](Order& o) { o.clear_numerics(); }},
       {"memory must be at most 1152921504606846976, got 1152921504606846977",
        [](Order& o) { o.set_memory((uint64_t{1} << 60) + 1); }},
       {"kv_blocks must be between 0 and 16777216, got -1",
        [](Order& o) { o.set_kv_blocks(-1); }},
       {"max_context must be between 0 and 16777216, got -1",
        [](Order& o) { o.set_max_context(-1); }},
       {"max_step_tokens must be between 0 and 1048576, got 1048577",
        [](Order& o) { o.set_max_step_tokens(1048577); }},
       {"max_sequences must be between 0 and 65536, got -7",
        [](Order& o) { o.set_max_sequences(-7); }}});
}

TEST(RankFramesTest, AnOrderThatDiffersIsNamed) {
  const RankOrder lead = OrderOf(8);
  EXPECT_TRUE(CheckSameOrder(lead, lead).ok());
  const std::pair<const char*, std::function<void(RankOrder&)>> cases[] = {
      {"model_digest of the order is aa11, this process has cc",
       [](RankOrder& o) { o.model_digest = "cc"; }},
      {"first_layer of the order is 4, this process has 5",
       [](RankOrder& o) { o.first_layer = 5; }},
      {"last_layer of the order is 9, this process has 8",
       [](RankOrder& o) { o.last_layer = 8; }},
      {"all_ranks of the order is 8, this process has 4",
       [](RankOrder& o) { o.all_ranks = 4; }},
      {"weights of the order is q8_0, this process has auto",
       [](RankOrder& o) { o.weights = WeightsMode::kAuto; }},
      {"kv_type of the order is bf16, this process has f32",
       [](RankOrder& o) { o.kv_type = kernels::WeightType::kF32; }},
      {"numerics of the order is fast, this process has auto",
       [](RankOrder& o) { o.numerics = "auto"; }},
      {"memory of the order is 9663676416, this process has 0",
       [](RankOrder& o) { o.memory = 0; }},
      {"kv_blocks of the order is 64, this process has 1",
       [](RankOrder& o) { o.kv_blocks = 1; }},
      {"max_context of the order is 128, this process has 1",
       [](RankOrder& o) { o.max_context = 1; }},
      {"max_step_tokens of the order is 32, this process has 1",
       [](RankOrder& o) { o.max_step_tokens = 1; }},
      {"max_sequences of the order is 8, this process has 1",
       [](RankOrder& o) { o.max_sequences = 1; }},
  };
  for (const auto& [message, change] : cases) {
    RankOrder own = lead;
    change(own);
    const Status status = CheckSameOrder(own, lead);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Message(status), message);
  }
}

TEST(RankFramesTest, FactsGoRoundAndEveryFieldIsChecked) {
  using Facts = v1::RankFacts;
  const Facts good = ToProto(FactsOf(128, 64, 5000), 7);
  EXPECT_EQ(good.load(), 7u);
  const auto got = FromProto(good);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, FactsOf(128, 64, 5000));
  const auto ready = FromProto(ToProto(ReadyFacts(), 1));
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(*ready, ReadyFacts());
  ExpectRefused<Facts>(
      good, {{"numerics has 0 bytes", [](Facts& f) { f.clear_numerics(); }},
             {"max_context must be between 1 and 16777216, got 0",
              [](Facts& f) { f.set_max_context(0); }},
             {"max_context must be between 1 and 16777216, got 16777217",
              [](Facts& f) { f.set_max_context(16777217); }},
             {"kv_blocks must be between 1 and 16777216, got 0",
              [](Facts& f) { f.set_kv_blocks(0); }},
             {"kv_blocks must be between 1 and 16777216, got 16777217",
              [](Facts& f) { f.set_kv_blocks(16777217); }},
             {"weights_bytes must be at most 1152921504606846976",
              [](Facts& f) { f.set_weights_bytes(~uint64_t{0}); }},
             {"kv_bytes must be at most 1152921504606846976",
              [](Facts& f) { f.set_kv_bytes(~uint64_t{0}); }}});
}

TEST(RankFramesTest, HellosGoRoundAndEveryFieldIsChecked) {
  using Hello = v1::FollowerHello;
  const Hello good = ToProto(HelloOf(4, 2));
  const auto got = FromProto(good);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->build, "test");
  EXPECT_EQ(got->model_digest, "aa11");
  EXPECT_EQ(got->first_rank, 4);
  EXPECT_EQ(got->num_ranks, 2);
  EXPECT_EQ(got->process, "pid 7");
  const std::string long_name(257, 'x');
  ExpectRefused<Hello>(good, {{"build has 257 bytes, limit 256",
                               [&](Hello& h) { h.set_build(long_name); }},
                              {"model_digest has 0 bytes",
                               [](Hello& h) { h.clear_model_digest(); }},
                              {"first_rank must be between 0 and 65536, got -1",
                               [](Hello& h) { h.set_first_rank(-1); }},
                              {"num_ranks must be between 1 and 65536, got 0",
                               [](Hello& h) { h.set_num_ranks(0); }},
                              {"process has 257 bytes, limit 256",
                               [&](Hello& h) { h.set_process(long_name); }}});
  ExpectRefused<Hello>(
      good,
      {{"the lead has protocol version 3 of Ranks, the follower 4",
        [](Hello& h) { h.set_protocol_version(4); }}},
      StatusCode::kFailedPrecondition);
}

TEST(RankFramesTest, RanksAreNamed) {
  EXPECT_EQ(RanksText(3, 1), "rank 3");
  EXPECT_EQ(RanksText(4, 4), "ranks 4 to 7");
}

}  // namespace
}  // namespace sluice
