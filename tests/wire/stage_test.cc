#include "common/wire/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/kv_groups.h"
#include "common/wire/types.h"

namespace sluice::wire {
namespace {

using ::testing::HasSubstr;

StageIdentity Identity() {
  StageIdentity identity;
  identity.model_name = "tiny";
  identity.model_digest = "0123abcd";
  identity.numerics = "f32-canonical-1";
  identity.weights_dtype = "bf16";
  identity.first_layer = 2;
  identity.last_layer = 4;
  identity.num_layers = 5;
  identity.hidden_size = 64;
  identity.ranks = 3;
  identity.threads = 2;
  identity.isa = "avx2";
  identity.weights_bytes = uint64_t{1} << 40;
  identity.kv_bytes = 7;
  return identity;
}

PipelineLimits Limits() {
  PipelineLimits limits;
  limits.plan = {512, 256, 8192, 1000, 1, 512};
  limits.max_steps_in_flight = 16;
  return limits;
}

TEST(WireStageTest, AnIdentityComesBackAsItWas) {
  const auto back = FromProto(ToProto(Identity()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, Identity());
  StageIdentity with_log = Identity();
  with_log.replay_log = true;
  EXPECT_EQ(*FromProto(ToProto(with_log)), with_log);
}

StageRoom Room() {
  StageRoom room;
  room.memory = uint64_t{1} << 40;
  room.is_set = true;
  room.layers = {1, 2, 3, 4, 5};
  room.kv = {6, 7, 8, 9, 10};
  room.kv_groups = {0, 1, 0, 1, 0};
  room.embedding = 11;
  room.head = 12;
  room.tied = 13;
  room.tied_again = 14;
  return room;
}

TEST(WireStageTest, ARoomComesBackAsItWas) {
  StageIdentity identity = Identity();
  identity.assignable = true;
  identity.room = Room();
  ASSERT_EQ(identity.num_layers, 5);
  const auto back = FromProto(ToProto(identity));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, identity);
  identity.room.kv.clear();
  identity.room.kv_groups.clear();
  EXPECT_EQ(*FromProto(ToProto(identity)), identity);
}

TEST(WireStageTest, ARoomOutOfRangeIsRefused) {
  const auto check = [](auto change) {
    StageIdentity identity = Identity();
    identity.room = Room();
    v1::StageIdentity proto = ToProto(identity);
    change(proto.mutable_room());
    return Message(FromProto(proto).status());
  };
  EXPECT_THAT(check([](auto* room) { room->add_layers(1); }),
              HasSubstr("room: layers must be between 5 and 5, got 6"));
  EXPECT_THAT(check([](auto* room) { room->clear_layers(); }),
              HasSubstr("layers must be between 5 and 5, got 0"));
  EXPECT_THAT(check([](auto* room) { room->add_kv(1); }),
              HasSubstr("kv must be between 5 and 5, got 6"));
  EXPECT_THAT(check([](auto* room) { room->add_kv_groups(1); }),
              HasSubstr("kv_groups must be"));
  EXPECT_THAT(check([](auto* room) { room->set_kv_groups(0, -1); }),
              HasSubstr("kv_groups must be between 0 and 15, got -1"));
  EXPECT_THAT(check([](auto* room) { room->set_layers(0, UINT64_MAX); }),
              HasSubstr("layers must be between 0 and"));
  EXPECT_THAT(check([](auto* room) { room->set_memory(UINT64_MAX); }),
              HasSubstr("memory must be between 0 and"));
  EXPECT_THAT(check([](auto* room) { room->set_tied(UINT64_MAX); }),
              HasSubstr("tied must be between 0 and"));
}

TEST(WireStageTest, AnAssignableStageMayHaveNoLayersYet) {
  StageIdentity identity = Identity();
  identity.first_layer = identity.last_layer = 0;
  identity.numerics = identity.weights_dtype = "";
  EXPECT_FALSE(FromProto(ToProto(identity)).ok());
  identity.assignable = true;
  const auto back = FromProto(ToProto(identity));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, identity);
  identity.first_layer = -1;
  EXPECT_THAT(Message(FromProto(ToProto(identity)).status()),
              HasSubstr("first_layer"));
}

TEST(WireStageTest, AnIdentityOutOfRangeIsRefused) {
  const auto check = [](auto change) {
    v1::StageIdentity proto = ToProto(Identity());
    change(&proto);
    return Message(FromProto(proto).status());
  };
  EXPECT_THAT(check([](auto* p) { p->set_model_digest(""); }),
              HasSubstr("model_digest"));
  EXPECT_THAT(check([](auto* p) { p->set_model_name(std::string(257, 'x')); }),
              HasSubstr("model_name has 257 bytes"));
  EXPECT_THAT(check([](auto* p) { p->set_first_layer(-1); }),
              HasSubstr("first_layer"));
  EXPECT_THAT(check([](auto* p) { p->set_last_layer(2); }),
              HasSubstr("last_layer must be between 3 and 5, got 2"));
  EXPECT_THAT(check([](auto* p) { p->set_last_layer(6); }), HasSubstr("got 6"));
  EXPECT_THAT(check([](auto* p) { p->set_num_layers(0); }),
              HasSubstr("num_layers"));
  EXPECT_THAT(check([](auto* p) { p->set_hidden_size(1 << 30); }),
              HasSubstr("hidden_size"));
}

TEST(WireStageTest, LimitsComeBackAsTheyWere) {
  const auto back = FromProto(ToProto(Limits()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->plan.max_step_tokens, 512);
  EXPECT_EQ(back->plan.max_sequences, 256);
  EXPECT_EQ(back->plan.max_context, 8192);
  EXPECT_EQ(back->plan.num_blocks, 1000);
  EXPECT_EQ(back->plan.num_kv_groups, 1);
  EXPECT_EQ(back->plan.vocab_size, 512);
  EXPECT_EQ(back->block_tokens, kBlockTokens);
  EXPECT_EQ(back->max_steps_in_flight, 16);
  EXPECT_TRUE(back->plan.kv_windows.empty());
}

TEST(WireStageTest, WindowsOfKvGroupsComeBackAndTheFirstIsNone) {
  PipelineLimits limits = Limits();
  limits.plan.num_kv_groups = 2;
  limits.plan.kv_windows = {0, 128};
  const auto back = FromProto(ToProto(limits));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->plan, limits.plan);
  limits.plan.kv_windows = {16, 0};
  EXPECT_THAT(Message(FromProto(ToProto(limits)).status()),
              HasSubstr("kv_windows must be between 0 and 0, got 16"));
  limits.plan.kv_windows = {0, -2};
  EXPECT_THAT(Message(FromProto(ToProto(limits)).status()),
              HasSubstr("kv_windows"));
  limits.plan.kv_windows = {0, 1, 2};
  EXPECT_THAT(Message(FromProto(ToProto(limits)).status()),
              HasSubstr("number of kv_windows must be between 0 and 2, got 3"));
}

TEST(WireStageTest, TheLastKvGroupMayBeOfStates) {
  PipelineLimits limits = Limits();
  limits.plan.num_kv_groups = 3;
  limits.plan.kv_windows = {0, 128, kStateWindow};
  limits.plan.num_state_blocks = 40;
  const auto back = FromProto(ToProto(limits));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->plan, limits.plan);
  limits.plan.kv_windows = {0, kStateWindow, 128};
  EXPECT_THAT(Message(FromProto(ToProto(limits)).status()),
              HasSubstr("kv_windows must be between 0 and 16777216, got -1"));
}

TEST(WireStageTest, EveryLimitMustBePositiveAndBounded) {
  const auto* descriptor = v1::PipelineLimits::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (field->is_repeated()) continue;  // windows: see above
    for (const int32_t bad : {0, -1, INT32_MAX}) {
      // A model may have no states.
      if (bad == 0 && field->name() == "num_state_blocks") continue;
      v1::PipelineLimits proto = ToProto(Limits());
      proto.GetReflection()->SetInt32(&proto, field, bad);
      const Status status = FromProto(proto).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(Message(status), HasSubstr(field->name()));
    }
  }
}

TEST(WireStageTest, HiddenStatesMustHaveThePlansShape) {
  auto hidden = HiddenFromPayload(Buffer(3 * 8 * sizeof(float)), 3, 8);
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  EXPECT_EQ(hidden->rows, 3);
  EXPECT_EQ(hidden->cols, 8);
  EXPECT_THAT(Message(HiddenFromPayload(Buffer(95), 3, 8).status()),
              HasSubstr("have 95 bytes, a step of 3 tokens has 96"));
  EXPECT_FALSE(HiddenFromPayload(Buffer(), 3, 8).ok());
  // The first stage embeds: nothing comes with its plans.
  EXPECT_TRUE(HiddenFromPayload(Buffer(), 3, 0).ok());
  EXPECT_FALSE(HiddenFromPayload(Buffer(4), 3, 0).ok());
}

TEST(WireStageTest, AResultWithTooManySequencesIsRefused) {
  StepResult result;
  result.epoch = Epoch(4);
  result.step_id = StepId(2);
  result.replica = ReplicaId(1);
  result.sequences.resize(257);
  EXPECT_FALSE(FromProto(ToProto(result), Limits().plan).ok());
  result.sequences.resize(256);
  const auto back = FromProto(ToProto(result), Limits().plan);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->epoch, result.epoch);
  EXPECT_EQ(back->step_id, result.step_id);
  EXPECT_EQ(back->replica, result.replica);
  EXPECT_EQ(back->sequences.size(), 256u);
}

TEST(WireStageTest, ATraceComesBackAsItWasAndBehindAFrame) {
  StepTrace trace;
  trace.stages = {{{1, 2}, {3, 4}, {5, 6}, {0, 0}, {7, 8}},
                  {{1, 2}, {}, {}, {9, 10}, {11, 12}}};
  const auto back = FromProto(ToProto(trace));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, trace);

  StepPlan plan;
  plan.step_id = StepId(4);
  const std::string whole = StepFrameHead(plan, 5).SerializeAsString() +
                            StepFrameTrace(trace).SerializeAsString();
  v1::StepFrame frame;
  ASSERT_TRUE(frame.ParseFromString(whole));
  EXPECT_EQ(frame.step().header().step_id(), 4u);
  EXPECT_EQ(frame.step().sent_ns(), 5);
  EXPECT_EQ(frame.step().trace().stages_size(), 2);
  EXPECT_FALSE(StepFrameHead(plan, 5).step().has_trace());

  trace.stages.resize(1025);
  EXPECT_THAT(Message(FromProto(ToProto(trace)).status()),
              HasSubstr("traced stages must be between 0 and 1024, got 1025"));
}

TEST(WireStageTest, FailedSequencesTravelWithTheirStatusAlone) {
  StepPlan plan;
  for (const uint64_t id : {4, 5}) {
    plan.chunks.emplace_back().sequence = SequenceId(id);
  }
  SequenceResult failed;
  failed.sequence = SequenceId(5);
  failed.status = Unavailable("layers 1-3 have no host");
  const auto back = FailedFromProto(StepFrameHead(plan, 1, {&failed, 1}).step(),
                                    plan, Limits().plan);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), 1u);
  EXPECT_EQ(back->front().sequence, failed.sequence);
  EXPECT_EQ(back->front().status, failed.status);

  const auto refusal = [&](const std::vector<SequenceResult>& sent) {
    return Message(FailedFromProto(StepFrameHead(plan, 1, sent).step(), plan,
                                   Limits().plan)
                       .status());
  };
  EXPECT_THAT(refusal({failed, failed, failed}),
              HasSubstr("failed sequences must be between 0 and 2, got 3"));
  EXPECT_THAT(refusal({failed, failed}),
              HasSubstr("failed sequence 5 is named twice"));
  SequenceResult stranger = failed;
  stranger.sequence = SequenceId(6);
  EXPECT_THAT(refusal({stranger}), HasSubstr("failed sequence 6"));
  SequenceResult sampled = failed;
  sampled.sampled.emplace_back().token = 3;
  EXPECT_THAT(refusal({sampled}), HasSubstr("a status and nothing beside"));
  failed.status = OkStatus();
  EXPECT_THAT(refusal({failed}), HasSubstr("its status code is 0"));
}

TEST(WireStageTest, TheFirstStageIsToldOfTokensAndFailuresAlone) {
  StepResult result;
  result.replica = ReplicaId(2);
  result.epoch = Epoch(3);
  result.step_id = StepId(4);
  result.sequences.resize(3);
  for (uint64_t i = 0; i < 3; ++i) {
    result.sequences[i].sequence = SequenceId(i);
  }
  result.sequences[0].sampled.resize(2);
  result.sequences[0].sampled[1].token = 9;
  result.sequences[0].sampled[1].logprob = TokenLogprob{9, -1, 0};
  result.sequences[0].logits = {1, 2};
  result.sequences[1].status = Internal("no logits");
  result.sequences[2].prompt.resize(1);
  PlanLimits limits;
  limits.max_sequences = 4;
  limits.vocab_size = 10;
  limits.max_step_tokens = 16;
  const auto told = FromProto(SampledToProto(result), limits);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->epoch, Epoch(3));
  EXPECT_EQ(told->step_id, StepId(4));
  ASSERT_EQ(told->sequences.size(), 2u);
  ASSERT_EQ(told->sequences[0].sampled.size(), 1u);
  EXPECT_EQ(told->sequences[0].sampled[0].token, 9);
  EXPECT_FALSE(told->sequences[0].sampled[0].logprob.has_value());
  EXPECT_TRUE(told->sequences[0].logits.empty());
  EXPECT_EQ(told->sequences[1].status, Internal("no logits"));
}

TEST(WireStageTest, TimesThatNoHostsClockShowsAreRefused) {
  const auto refusal = [](const StageTrace& stage) {
    StepTrace trace;
    trace.stages = {StageTrace{}, stage};
    return Message(FromProto(ToProto(trace)).status());
  };
  constexpr int64_t kHour = 3'600'000'000'000;
  constexpr int64_t kEnd = int64_t{1} << 60;
  EXPECT_EQ(refusal({{kEnd - kHour - 1, kEnd - 1}, {}, {}, {}, {}}), "");
  EXPECT_THAT(refusal({{-1, 2}, {}, {}, {}, {}}),
              HasSubstr("trace of stage 1: receive: start_ns must be between"));
  EXPECT_THAT(refusal({{}, {INT64_MIN, INT64_MAX}, {}, {}, {}}),
              HasSubstr("wait: start_ns"));
  EXPECT_THAT(refusal({{}, {}, {1, kEnd}, {}, {}}),
              HasSubstr("compute: stop_ns must be between"));
  EXPECT_THAT(refusal({{}, {}, {}, {}, {7, -8}}),
              HasSubstr("serialise: stop_ns must be between"));
  EXPECT_THAT(refusal({{}, {}, {}, {8, 7}, {}}),
              HasSubstr("stop_ns less start_ns must be between"));
  EXPECT_THAT(refusal({{1, kHour + 2}, {}, {}, {}, {}}),
              HasSubstr("got 3600000000001"));
  EXPECT_THAT(refusal({{1, 2}, {}, {}, {}, {kHour, kHour + 2}}),
              HasSubstr("nanoseconds on the stage must be between"));
}

TEST(WireStageTest, AResultHasATraceOnlyIfItWasAdded) {
  v1::StepResult proto = ToProto(StepResult());
  EXPECT_FALSE(FromProto(proto, Limits().plan)->trace.has_value());
  StepTrace trace;
  trace.stages.resize(3);
  *proto.mutable_trace() = ToProto(trace);
  EXPECT_EQ(FromProto(proto, Limits().plan)->trace->stages.size(), 3u);
}

TEST(WireStageTest, TheLargestPlanFitsTheFrameLimit) {
  const PlanLimits limits = Limits().plan;
  StepPlan plan;
  plan.epoch = Epoch(UINT64_MAX);
  for (int i = 0; i < limits.max_sequences; ++i) {
    StartedSequence started;
    started.sequence = SequenceId(UINT64_MAX - static_cast<uint64_t>(i));
    started.tokens.assign(static_cast<size_t>(limits.max_context), 511);
    started.num_prompt_tokens = 1;
    started.sampling.seed = UINT64_MAX;
    started.sampling.stop_token_ids.assign(kMaxStopTokenIds, 511);
    started.blocks.assign(
        1, std::vector<BlockId>(
               static_cast<size_t>(limits.max_context / kBlockTokens),
               BlockId(999)));
    plan.started.push_back(started);
    plan.ended.push_back(started.sequence);
  }
  EXPECT_LE(StepFrameHead(plan, INT64_MAX).ByteSizeLong(),
            static_cast<size_t>(MaxFrameBytes(limits, 0)));
}

TEST(WireStageTest, ThePlanWithTheMostBiasesFitsTheFrameLimit) {
  PlanLimits limits = Limits().plan;
  limits.max_context = 512;
  limits.vocab_size = 1 << 24;
  const TokenId last = limits.vocab_size - 1;
  StepPlan plan;
  plan.epoch = Epoch(UINT64_MAX);
  for (int i = 0; i < limits.max_sequences; ++i) {
    const SequenceId id(UINT64_MAX - static_cast<uint64_t>(i));
    StartedSequence started;
    started.sequence = id;
    started.tokens = {last};
    started.num_prompt_tokens = 1;
    started.sampling.seed = UINT64_MAX;
    started.sampling.stop_token_ids.assign(kMaxStopTokenIds, last);
    started.sampling.logprobs = 0;
    for (int t = 0; t < kMaxLogprobTokenIds; ++t) {
      started.sampling.logprob_token_ids.push_back(last - t);
    }
    for (int b = kMaxLogitBiases; b > 0; --b) {
      started.sampling.logit_bias.push_back({last - b, -kMaxLogitBias});
    }
    started.blocks = {{BlockId(999)}};
    plan.started.push_back(started);
    Chunk chunk;
    chunk.sequence = id;
    chunk.tokens = {last};
    chunk.samples = true;
    chunk.logits = LogitsWanted::kLast;
    plan.chunks.push_back(chunk);
    plan.ended.push_back(id);
  }
  const auto head = StepFrameHead(plan, INT64_MAX);
  const auto back = FromProto(head.step().header(), head.step().plan(), limits);
  EXPECT_TRUE(back.ok()) << back.status();
  const int64_t bytes = static_cast<int64_t>(head.ByteSizeLong());
  EXPECT_GT(bytes, int64_t{limits.max_sequences} * kMaxLogitBiases * 10);
  EXPECT_LE(bytes, MaxFrameBytes(limits, 0));
}

TEST(WireStageTest, MessageLimitsStayBelowGrpcsOwn) {
  const PlanLimits huge = {1 << 20, 1 << 16, 1 << 24, 1 << 20, 1, 1 << 24};
  EXPECT_LT(MaxFrameBytes(huge, 1 << 20), int64_t{1} << 31);
  EXPECT_LT(MaxResultBytes(huge), int64_t{1} << 31);
}

TEST(WireStageTest, AnEntryOfKeysAndValuesComesBackAsItWas) {
  const auto back = FromProto(ToProto(KvEntry{
      {3, 1, BlockId(17)}, std::string("a\0b", 3), 0xfedcba9876543210}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->name, (KvName{3, 1, BlockId(17)}));
  EXPECT_EQ(back->data, std::string("a\0b", 3));
  EXPECT_EQ(back->checksum, 0xfedcba9876543210);
  for (const KvName& name :
       {KvName{-1, 0, BlockId(0)}, KvName{0, -1, BlockId(0)},
        KvName{0, 0, BlockId(-1)}}) {
    EXPECT_EQ(FromProto(ToProto(KvEntry{name})).status().code(),
              StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sluice::wire
