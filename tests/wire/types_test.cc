#include "common/wire/types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace sluice::wire {
namespace {

using ::testing::HasSubstr;

PlanLimits Limits() {
  PlanLimits limits;
  limits.max_step_tokens = 16;
  limits.max_sequences = 4;
  limits.max_context = 64;
  limits.num_blocks = 8;
  limits.num_kv_groups = 1;
  limits.vocab_size = 100;
  return limits;
}

StepPlan FullPlan() {
  StepPlan plan;
  plan.replica = ReplicaId(3);
  plan.epoch = Epoch(uint64_t{1} << 40);
  plan.step_id = StepId(17);
  plan.ended = {SequenceId(1), SequenceId(2)};
  StartedSequence started;
  started.sequence = SequenceId(5);
  started.sampling.temperature = 0.5f;
  started.sampling.top_p = 0.9f;
  started.sampling.top_k = 40;
  started.sampling.min_p = 0.05f;
  started.sampling.seed = std::numeric_limits<uint64_t>::max();
  started.sampling.choice = 2;
  started.sampling.logprobs = 5;
  started.sampling.hidden = HiddenWanted::kLast;
  started.sampling.min_tokens = 7;
  started.sampling.stop_token_ids = {0, 99};
  started.sampling.logprobs = 0;
  started.sampling.logprob_token_ids = {7, 3};
  started.sampling.frequency_penalty = -0.5f;
  started.sampling.presence_penalty = 1.5f;
  started.sampling.repetition_penalty = 1.1f;
  started.sampling.logit_bias = {{0, -100.0f}, {99, 2.5f}};
  started.num_prompt_tokens = 3;
  started.tokens = {1, 2, 3, 4};
  started.blocks = {{BlockId(0), BlockId(7)}};
  plan.started = {started};
  Chunk chunk;
  chunk.sequence = SequenceId(5);
  chunk.start = 32;
  chunk.tokens = {9, 0, 99};
  chunk.logits = LogitsWanted::kAll;
  chunk.samples = true;
  chunk.new_blocks = {{BlockId(3)}};
  Chunk drafts;
  drafts.sequence = SequenceId(4);
  drafts.start = 3;
  drafts.tokens = {7, 8, 9};
  drafts.num_draft_tokens = 2;
  drafts.logits = LogitsWanted::kLast;
  drafts.samples = true;
  drafts.masks = {{{{0, 3}, {5, 100}}, false}, {{{8, 9}}, true}, {{}, true}};
  Chunk ahead;
  ahead.sequence = SequenceId(3);
  ahead.start = 9;
  ahead.tokens = {0};
  ahead.sampled_by = StepId(0);
  ahead.logits = LogitsWanted::kLast;
  ahead.samples = true;
  plan.chunks = {chunk, drafts, ahead};
  return plan;
}

Status Check(const std::function<void(v1::StepPlan*)>& change) {
  const StepPlan plan = FullPlan();
  v1::StepPlan proto = ToProto(plan);
  change(&proto);
  return FromProto(ToProto(plan.replica, plan.epoch, plan.step_id), proto,
                   Limits())
      .status();
}

MATCHER_P(RefusedWith, text, "") {
  return arg.code() == StatusCode::kInvalidArgument &&
         Message(arg).find(text) != std::string::npos;
}

TEST(WireTypesTest, APlanComesBackAsItWas) {
  const StepPlan plan = FullPlan();
  const auto back = FromProto(ToProto(plan.replica, plan.epoch, plan.step_id),
                              ToProto(plan), Limits());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, plan);
}

TEST(WireTypesTest, AReplayComesBackAsItWas) {
  StepPlan plan = FullPlan();
  plan.started[0].replay_from = 0;
  Chunk& replay = plan.chunks[0];
  replay.start = 0;
  replay.tokens = {1, 2};
  replay.logits = LogitsWanted::kNone;
  replay.samples = false;
  replay.replay = true;
  plan.replay_at = {0, 4};
  const v1::StepPlan proto = ToProto(plan);
  const auto back = FromProto(ToProto(plan.replica, plan.epoch, plan.step_id),
                              proto, Limits());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, plan);
  EXPECT_THAT(Check([](auto* p) { p->mutable_replay_at()->Resize(2000, 1); }),
              RefusedWith("replay_at has 2000 entries, limit 1024"));
}

TEST(WireTypesTest, VacantBlocksComeBackAsTheyWere) {
  StepPlan plan;
  plan.vacant = {{0, 1}, {3, Limits().num_blocks}};
  const auto back = FromProto(v1::StepHeader(), ToProto(plan), Limits());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, plan);
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 1025; ++i) p->add_vacant();
              }),
              RefusedWith("vacant has 1025 entries, limit 1024"));
}

TEST(WireTypesTest, AnEmptyPlanComesBackAsItWas) {
  const StepPlan plan;
  const auto back = FromProto(v1::StepHeader(), ToProto(plan), Limits());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, plan);
}

TEST(WireTypesTest, TooManyEntriesAreRefusedBeforeTheyAreCopied) {
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 5; ++i) p->add_ended(i);
              }),
              RefusedWith("ended has 7 entries, limit 4"));
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 5; ++i) p->add_started();
              }),
              RefusedWith("started has 6 entries, limit 4"));
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 5; ++i) p->add_chunks();
              }),
              RefusedWith("chunks has 8 entries, limit 4"));
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 64; ++i) {
                  p->mutable_started(0)->add_tokens(1);
                }
              }),
              RefusedWith("68 entries, limit 64"));
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 16; ++i) {
                  p->mutable_chunks(0)->add_tokens(1);
                }
              }),
              RefusedWith("chunk has 19 entries, limit 16"));
  EXPECT_THAT(Check([](auto* p) { p->mutable_chunks(0)->add_new_blocks(); }),
              RefusedWith("KV groups has 2 entries, limit 1"));
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 4; ++i) {
                  p->mutable_started(0)->mutable_blocks(0)->add_blocks(1);
                }
              }),
              RefusedWith("block list has 6 entries, limit 4"));
  EXPECT_THAT(Check([](auto* p) {
                auto* sampling = p->mutable_started(0)->mutable_sampling();
                for (int i = 0; i < 300; ++i) sampling->add_stop_token_ids(1);
              }),
              RefusedWith("stop_token_ids has 302 entries, limit 256"));
}

TEST(WireTypesTest, FieldsOutOfRangeAreRefusedByName) {
  const auto started = [](auto change) {
    return Check([&](auto* p) { change(p->mutable_started(0)); });
  };
  const auto chunk = [](auto change) {
    return Check([&](auto* p) { change(p->mutable_chunks(0)); });
  };
  EXPECT_THAT(started([](auto* s) {
                s->mutable_sampling()->set_temperature(std::nanf(""));
              }),
              RefusedWith("temperature"));
  EXPECT_THAT(started([](auto* s) { s->mutable_sampling()->set_top_p(0); }),
              RefusedWith("top_p"));
  EXPECT_THAT(
      started([](auto* s) { s->mutable_sampling()->set_min_p(INFINITY); }),
      RefusedWith("min_p"));
  EXPECT_THAT(started([](auto* s) { s->mutable_sampling()->set_top_k(-1); }),
              RefusedWith("top_k"));
  EXPECT_THAT(started([](auto* s) { s->mutable_sampling()->set_hidden(3); }),
              RefusedWith("hidden"));
  EXPECT_THAT(
      started([](auto* s) { s->mutable_sampling()->set_return_logits(true); }),
      RefusedWith("both"));
  EXPECT_THAT(started([](auto* s) { s->mutable_sampling()->set_logprobs(21); }),
              RefusedWith("logprobs"));
  EXPECT_THAT(started([](auto* s) { s->set_num_prompt_tokens(5); }),
              RefusedWith("5 prompt tokens of 4"));
  EXPECT_THAT(started([](auto* s) { s->set_tokens(0, 100); }),
              RefusedWith("token 0 is 100, vocabulary size is 100"));
  EXPECT_THAT(started([](auto* s) { s->mutable_blocks(0)->set_blocks(0, 8); }),
              RefusedWith("block 8"));
  EXPECT_THAT(chunk([](auto* c) { c->set_tokens(1, -1); }),
              RefusedWith("token 1 is -1"));
  EXPECT_THAT(chunk([](auto* c) { c->set_start(62); }),
              RefusedWith("context limit 64"));
  EXPECT_THAT(chunk([](auto* c) { c->set_start(-1); }),
              RefusedWith("positions -1"));
  EXPECT_THAT(chunk([](auto* c) { c->clear_tokens(); }),
              RefusedWith("no tokens"));
  EXPECT_THAT(chunk([](auto* c) { c->set_num_draft_tokens(1); }),
              RefusedWith("draft"));
  EXPECT_THAT(
      chunk([](auto* c) { c->set_logits(v1::LOGITS_WANTED_UNSPECIFIED); }),
      RefusedWith("logits wanted"));
  EXPECT_THAT(
      chunk([](auto* c) { c->set_logits(static_cast<v1::LogitsWanted>(9)); }),
      RefusedWith("got 9"));
  EXPECT_THAT(Check([](auto* p) { p->mutable_chunks(1)->add_masks(); }),
              RefusedWith("4 masks for 3 sampled tokens"));
  EXPECT_THAT(Check([](auto* p) {
                for (int i = 0; i < 15; ++i) p->mutable_chunks(1)->add_masks();
              }),
              RefusedWith("masks has 18 entries, limit 17"));
  const auto mask = [](auto change) {
    return Check(
        [&](auto* p) { change(p->mutable_chunks(1)->mutable_masks(0)); });
  };
  EXPECT_THAT(mask([](auto* m) { m->add_runs(1); }),
              RefusedWith("5 lengths, which is odd"));
  EXPECT_THAT(mask([](auto* m) { m->set_runs(3, 101); }),
              RefusedWith("mask's runs end at"));
  EXPECT_THAT(mask([](auto* m) {
                for (int i = 0; i < 98; ++i) m->add_runs(i);
              }),
              RefusedWith("runs has 102 entries, limit 101"));
  EXPECT_THAT(Check([](auto* p) { p->mutable_chunks(2)->set_sampled_by(99); }),
              RefusedWith("a token that step 99 samples"));
  EXPECT_THAT(Check([](auto* p) { *p->add_chunks() = p->chunks(0); }),
              RefusedWith("two chunks"));
}

SequenceResult FullResult() {
  SequenceResult result;
  result.sequence = SequenceId(8);
  result.sampled = {
      {7, TokenLogprob{7, -0.5f, 1}, {{3, -0.25f, 0}, {7, -0.5f, 1}}}};
  result.prompt = {{4, std::nullopt, {}}, {5, TokenLogprob{5, -1.0f, 2}, {}}};
  result.logits.assign(200, 0.125f);
  return result;
}

TEST(WireTypesTest, AResultComesBackAsItWas) {
  const SequenceResult result = FullResult();
  const auto back = FromProto(ToProto(result), Limits());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->sequence, result.sequence);
  EXPECT_TRUE(back->status.ok());
  EXPECT_EQ(back->sampled, result.sampled);
  EXPECT_EQ(back->prompt, result.prompt);
  EXPECT_EQ(back->logits, result.logits);
}

TEST(WireTypesTest, AFailedSequenceKeepsItsStatus) {
  SequenceResult result;
  result.status = ResourceExhausted("no room");
  const auto back = FromProto(ToProto(result), Limits());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->status, result.status);
}

TEST(WireTypesTest, AResultOutOfRangeIsRefused) {
  const auto check = [](auto change) {
    v1::SequenceResult proto = ToProto(FullResult());
    change(&proto);
    return FromProto(proto, Limits()).status();
  };
  EXPECT_THAT(check([](auto* r) { r->mutable_sampled(0)->set_token(100); }),
              RefusedWith("token of a result is 100"));
  EXPECT_THAT(
      check([](auto* r) {
        r->mutable_sampled(0)->mutable_logprob()->set_logprob(std::nanf(""));
      }),
      RefusedWith("logprob of token 7"));
  EXPECT_THAT(check([](auto* r) {
                r->mutable_sampled(0)->mutable_logprob()->set_rank(100);
              }),
              RefusedWith("rank of token 7 is 100"));
  EXPECT_THAT(check([](auto* r) {
                for (int i = 0; i < 128; ++i) {
                  r->mutable_sampled(0)->add_top_logprobs();
                }
              }),
              RefusedWith("top logprobs has 130 entries, limit 128"));
  EXPECT_THAT(check([](auto* r) {
                for (int i = 0; i < 16; ++i) r->add_prompt();
              }),
              RefusedWith("prompt has 18 entries, limit 16"));
  EXPECT_THAT(check([](auto* r) { r->set_logits("12345"); }),
              RefusedWith("raw rows have 5 bytes"));
  EXPECT_THAT(check([](auto* r) {
                r->set_logits(std::string(4 * 16 * kMaxResultHidden + 4, '\0'));
              }),
              RefusedWith("raw rows have 2097156 bytes"));
}

TEST(WireTypesTest, AnUnknownStatusCodeBecomesUnknownAndIsCut) {
  const Status status = StatusFromProto(99, std::string(10000, 'x'));
  EXPECT_EQ(status.code(), StatusCode::kUnknown);
  EXPECT_EQ(status.message().size(), 4096u);
  EXPECT_EQ(StatusFromProto(-1, "").code(), StatusCode::kUnknown);
  EXPECT_TRUE(StatusFromProto(0, "ignored").ok());
}

}  // namespace
}  // namespace sluice::wire
