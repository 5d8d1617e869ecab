#include "common/wire/expert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "common/wire/types.h"

namespace sluice::wire {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int32_t kHidden = 4;

ExpertWelcome Host() {
  ExpertWelcome host;
  host.build = "0.1.0";
  host.model_name = "tiny";
  host.model = {"0123abcd", "f32-canonical-1", "auto", 6, kHidden, 12, 3};
  host.weights_dtype = "bf16";
  host.held = {{2, {{0, 4}, {6, 8}}}, {5, {{8, 12}}}};
  host.weights_bytes = uint64_t{1} << 40;
  host.threads = 2;
  host.isa = "avx2";
  host.limits = {8, 2};
  host.clock_ns = 77;
  return host;
}

ExpertBatch Batch() {
  ExpertBatch batch;
  batch.replica = ReplicaId(1);
  batch.epoch = Epoch(2);
  batch.step = StepId(3);
  batch.batch_id = 4;
  batch.layer = 2;
  batch.nodes = {{0, 4}, {6, 8}};
  batch.counts = {2, 1, 3};
  batch.expert_ids = {0, 7, 3, 1, 2, 6};
  batch.weights = {0.5f, 0.25f, 1, 2, 3, -4};
  batch.sent_ns = 55;
  batch.x = HiddenStates(3, kHidden);
  for (int i = 0; i < 3 * kHidden; ++i) {
    batch.x.values()[i] = static_cast<float>(i) - 5;
  }
  return batch;
}

Buffer CopyOf(const Buffer& from) {
  Buffer to(from.size());
  std::memcpy(to.data(), from.data(), from.size());
  return to;
}

v1::ExpertBatch Head(const ExpertBatch& batch) {
  return ExpertFrameHead(batch).batch();
}

StatusOr<ExpertBatch> Back(const ExpertBatch& batch) {
  return FromProto(Head(batch), CopyOf(batch.x.data), Host());
}

TEST(WireExpertTest, AnExpertsWelcomeComesBackAsItWas) {
  const auto back = FromProto(ToProto(Host()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->model, Host().model);
  EXPECT_EQ(back->held, Host().held);
  EXPECT_EQ(back->limits, Host().limits);
  EXPECT_EQ(back->weights_dtype, "bf16");
  EXPECT_EQ(back->weights_bytes, uint64_t{1} << 40);
  EXPECT_EQ(back->clock_ns, 77);
}

TEST(WireExpertTest, AnExpertsHelloComesBackAsItWas) {
  ExpertHello hello;
  hello.client = "stage 0-5";
  hello.model = Host().model;
  hello.wanted = Host().held;
  const auto back = FromProto(ToProto(hello));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->protocol_version, kExpertProtocolVersion);
  EXPECT_EQ(back->client, "stage 0-5");
  EXPECT_EQ(back->model, hello.model);
  EXPECT_EQ(back->wanted, hello.wanted);
}

TEST(WireExpertTest, WhatAHostServesIsRefusedByTheFieldThatIsWrong) {
  const auto check = [](auto change) {
    v1::ExpertWelcome proto = ToProto(Host());
    change(&proto);
    return Message(FromProto(proto).status());
  };
  EXPECT_THAT(
      check([](auto* p) { p->mutable_identity()->set_model_digest(""); }),
      HasSubstr("model_digest has 0 bytes"));
  EXPECT_THAT(check([](auto* p) { p->mutable_identity()->set_num_experts(0); }),
              HasSubstr("num_experts must be between 1"));
  EXPECT_THAT(
      check([](auto* p) { p->mutable_identity()->set_experts_per_token(13); }),
      HasSubstr("experts_per_token must be between 1 and 12, got 13"));
  EXPECT_THAT(check([](auto* p) {
                p->mutable_identity()->mutable_held(1)->set_layer(2);
              }),
              HasSubstr("held: layer must be between 3 and 5, got 2"));
  EXPECT_THAT(
      check([](auto* p) {
        auto* layer = p->mutable_identity()->mutable_held(0);
        layer->mutable_ranges(1)->set_begin(4);  // touches the one before
      }),
      HasSubstr("layer 2: begin of a range must be between 5 and 11, got 4"));
  EXPECT_THAT(check([](auto* p) {
                auto* layer = p->mutable_identity()->mutable_held(1);
                layer->mutable_ranges(0)->set_end(13);
              }),
              HasSubstr("end of a range must be between 9 and 12, got 13"));
  EXPECT_THAT(check([](auto* p) {
                p->mutable_identity()->mutable_held(1)->clear_ranges();
              }),
              HasSubstr("number of ranges"));
  EXPECT_THAT(check([](auto* p) { p->mutable_limits()->set_max_rows(0); }),
              HasSubstr("max_rows"));
}

TEST(WireExpertTest, TwoSidesThatDifferAreNamedWithBothValues) {
  const auto check = [](auto change) {
    ExpertModel peer = Host().model;
    change(peer);
    const Status status = CheckSameModel(Host().model, peer);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return Message(status);
  };
  EXPECT_TRUE(CheckSameModel(Host().model, Host().model).ok());
  EXPECT_THAT(check([](auto& m) { m.model_digest = "ffff"; }),
              HasSubstr("model digest differs: this side has 0123abcd, the "
                        "peer has ffff"));
  EXPECT_THAT(check([](auto& m) { m.numerics = "gpu"; }),
              HasSubstr("numerics differs"));
  EXPECT_THAT(check([](auto& m) { m.weights = "f32"; }),
              HasSubstr("--weights differs: this side has auto"));
  EXPECT_THAT(check([](auto& m) { m.num_layers = 7; }), HasSubstr("layers"));
  EXPECT_THAT(check([](auto& m) { m.hidden_size = 8; }), HasSubstr("hidden"));
  EXPECT_THAT(check([](auto& m) { m.num_experts = 13; }),
              HasSubstr("has 12, the peer has 13"));
  EXPECT_THAT(check([](auto& m) { m.experts_per_token = 2; }),
              HasSubstr("experts per token"));
}

TEST(WireExpertTest, ExpertsThatAreNotHeldAreNamed) {
  const auto held = Host().held;
  EXPECT_TRUE(CheckHolds(held, {{2, {{1, 3}, {6, 7}}}, {5, {{8, 12}}}}).ok());
  EXPECT_THAT(Message(CheckHolds(held, {{2, {{0, 8}}}})),
              HasSubstr("experts 0-7 of layer 2"));
  EXPECT_THAT(Message(CheckHolds(held, {{3, {{0, 1}}}})),
              HasSubstr("experts 0-0 of layer 3"));
}

TEST(WireExpertTest, AlignedNodesAreThoseOfTheTree) {
  for (const int32_t experts : {1, 5, 8, 12}) {
    for (int32_t begin = -1; begin <= experts + 1; ++begin) {
      for (int32_t end = -1; end <= experts + 1; ++end) {
        const bool inside = begin >= 0 && begin < end && end <= experts;
        const bool aligned =
            inside && kernels::AlignedNodes(begin, end, experts).size() == 1;
        EXPECT_EQ(IsAlignedNode({begin, end}, experts), aligned)
            << "[" << begin << ", " << end << ") of " << experts;
      }
    }
  }
}

TEST(WireExpertTest, ABatchComesBackAsItWas) {
  const ExpertBatch batch = Batch();
  const auto back = Back(batch);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->replica, batch.replica);
  EXPECT_EQ(back->epoch, batch.epoch);
  EXPECT_EQ(back->step, batch.step);
  EXPECT_EQ(back->batch_id, 4u);
  EXPECT_EQ(back->layer, 2);
  EXPECT_EQ(back->nodes, batch.nodes);
  EXPECT_EQ(back->counts, batch.counts);
  EXPECT_EQ(back->expert_ids, batch.expert_ids);
  EXPECT_EQ(back->weights, batch.weights);
  EXPECT_EQ(back->sent_ns, 55);
  EXPECT_EQ(back->x.rows, 3);
  EXPECT_EQ(
      std::memcmp(back->x.values(), batch.x.values(), batch.x.data.size()), 0);
  EXPECT_THAT(back->failures, SizeIs(0));
}

TEST(WireExpertTest, ABatchThatContradictsItselfOrTheModelIsRefusedByName) {
  const auto check = [](auto change) {
    v1::ExpertBatch proto = Head(Batch());
    change(&proto);
    return FromProto(proto, CopyOf(Batch().x.data), Host()).status();
  };
  const auto text = [&](auto change) { return Message(check(change)); };
  EXPECT_THAT(text([](auto* p) { p->set_layer(6); }),
              HasSubstr("layer must be between 0 and 5, got 6"));
  EXPECT_EQ(check([](auto* p) { p->set_layer(3); }).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_THAT(text([](auto* p) { p->set_layer(5); }),
              HasSubstr("experts 0-3 of layer 5 are asked and not all"));
  EXPECT_THAT(text([](auto* p) { p->clear_nodes(); }),
              HasSubstr("number of nodes"));
  EXPECT_THAT(text([](auto* p) { p->mutable_nodes(0)->set_end(3); }),
              HasSubstr("node [0, 3) is not aligned"));
  EXPECT_THAT(text([](auto* p) { p->mutable_nodes(1)->set_begin(-2); }),
              HasSubstr("is not aligned"));
  EXPECT_THAT(text([](auto* p) {
                p->mutable_nodes(1)->set_begin(2);  // within the one before
                p->mutable_nodes(1)->set_end(4);
              }),
              HasSubstr("begin of a node must be between 4 and 11, got 2"));
  EXPECT_THAT(text([](auto* p) {
                p->mutable_nodes(1)->set_begin(4);
                p->mutable_nodes(1)->set_end(6);
              }),
              HasSubstr("experts 4-5 of layer 2"));
  EXPECT_THAT(text([](auto* p) { p->clear_counts(); }),
              HasSubstr("number of rows must be between 1 and 8, got 0"));
  EXPECT_THAT(text([](auto* p) {
                for (int i = 0; i < 8; ++i) p->add_counts(1);
              }),
              HasSubstr("number of rows must be between 1 and 8, got 11"));
  EXPECT_THAT(text([](auto* p) { p->add_counts(1); }),
              HasSubstr("hidden states have 48 bytes, 4 rows have 64"));
  EXPECT_THAT(text([](auto* p) { p->set_counts(1, 0); }),
              HasSubstr("experts of a row must be between 1 and 3, got 0"));
  EXPECT_THAT(text([](auto* p) { p->set_counts(1, 4); }), HasSubstr("got 4"));
  EXPECT_THAT(text([](auto* p) { p->set_counts(1, 2); }),
              HasSubstr("add up to 7, there are 6 expert ids"));
  EXPECT_THAT(text([](auto* p) { p->add_weights(1); }),
              HasSubstr("add up to 6, there are 7 weights"));
}

TEST(WireExpertTest, HiddenStatesOfAnotherSizeAreRefused) {
  for (const size_t bytes : {size_t{0}, size_t{47}, size_t{49}, size_t{96}}) {
    const auto back = FromProto(Head(Batch()), Buffer(bytes), Host());
    EXPECT_THAT(Message(back.status()), HasSubstr("hidden states have"));
  }
}

TEST(WireExpertTest, ARowThatBreaksTheRulesFailsAlone) {
  const auto failures = [](auto change) {
    ExpertBatch batch = Batch();
    change(batch);
    auto back = Back(batch);
    EXPECT_TRUE(back.ok()) << back.status();
    return back.ok() ? std::move(back->failures)
                     : std::vector<ExpertRowFailure>();
  };
  const auto only = [&](int32_t row, const char* why, auto change) {
    const auto found = failures(change);
    ASSERT_THAT(found, SizeIs(1)) << why;
    EXPECT_EQ(found[0].row, row);
    EXPECT_EQ(found[0].status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(found[0].status), HasSubstr(why));
    EXPECT_THAT(Message(found[0].status), HasSubstr(Cat("row ", row)));
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  only(0, "hidden states are not finite",
       [&](auto& b) { b.x.values()[0] = nan; });
  only(1, "hidden states are not finite",
       [&](auto& b) { b.x.values()[2 * kHidden - 1] = -inf; });
  only(2, "weight of expert 6 is not finite",
       [&](auto& b) { b.weights[5] = nan; });
  only(0, "expert id must be between 0 and 11, got 12",
       [&](auto& b) { b.expert_ids[1] = 12; });
  only(0, "got -1", [&](auto& b) { b.expert_ids[0] = -1; });
  only(2, "must rise within a row, got 2 after 2",
       [&](auto& b) { b.expert_ids[3] = 2; });
  only(1, "expert 4 is in no node that is wanted",
       [&](auto& b) { b.expert_ids[2] = 4; });
  EXPECT_THAT(failures([&](auto& b) {
                b.expert_ids[2] = 4;
                b.x.values()[0] = inf;
              }),
              SizeIs(2));
}

TEST(WireExpertTest, NodesWithoutNeedAreRefusedByTheirNumber) {
  ExpertWelcome host = Host();
  host.model.num_experts = 64;
  host.held = {{2, {{0, 64}}}};
  ExpertBatch batch = Batch();
  batch.nodes.clear();
  const auto refusal = [&] {
    const auto back = FromProto(Head(batch), CopyOf(batch.x.data), host);
    return Message(back.status());
  };
  // Finer than the one node that would do, as a placement may cut it.
  for (int32_t i = 0; i < 18; ++i) batch.nodes.push_back({i, i + 1});
  EXPECT_EQ(refusal(), "");
  batch.nodes.push_back({18, 19});
  EXPECT_THAT(refusal(),
              HasSubstr("number of nodes must be between 1 and 18, got 19"));
}

TEST(WireExpertTest, SumsThatNoMessageHoldsAreRefused) {
  ExpertWelcome host = Host();
  host.limits.max_rows = 512;
  host.model.hidden_size = 1 << 16;
  host.model.num_experts = 64;
  host.held = {{2, {{0, 64}}}};
  ExpertBatch batch = Batch();
  batch.nodes.clear();
  for (int32_t i = 0; i < 17; ++i) batch.nodes.push_back({i, i + 1});
  batch.counts.assign(512, 1);
  const size_t rows = size_t{512} * 4 << 16;  // bytes, never touched
  EXPECT_THAT(Message(FromProto(Head(batch), Buffer(rows), host).status()),
              HasSubstr("bytes of sums must be between 1 and 2147483647, got "
                        "2281701376"));
}

ExpertResult Result() {
  ExpertResult result;
  result.replica = ReplicaId(1);
  result.epoch = Epoch(2);
  result.step = StepId(3);
  result.batch_id = 4;
  result.layer = 2;
  result.nodes = 2;
  result.rows = 3;
  result.failures = {{1, InvalidArgument("row 1 is odd")}};
  result.times = {10, 20, 40, 2, 5};
  result.sent_ns = 55;
  result.sums = Buffer(sizeof(float) * 2 * 3 * kHidden);
  for (int i = 0; i < 2 * 3 * kHidden; ++i) {
    result.sums.as<float>()[i] = static_cast<float>(i);
  }
  return result;
}

TEST(WireExpertTest, AResultComesBackAsItWas) {
  const ExpertResult result = Result();
  const auto back = FromProto(ExpertAnswerHead(result).result(),
                              CopyOf(result.sums), SentOf(Batch()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->status.ok());
  ASSERT_THAT(back->failures, SizeIs(1));
  EXPECT_EQ(back->failures[0].row, 1);
  EXPECT_EQ(Message(back->failures[0].status), "row 1 is odd");
  EXPECT_EQ(back->times.compute_ns, 20);
  EXPECT_EQ(back->times.joined_rows, 5);
  EXPECT_EQ(back->sent_ns, 55);
  EXPECT_EQ(*back->sum(1, 2, kHidden), static_cast<float>(5 * kHidden));
}

TEST(WireExpertTest, ARefusedBatchHasItsReasonAndNoSums) {
  ExpertResult result = Result();
  result.status = FailedPrecondition("epoch 1 is below 2");
  const auto back =
      FromProto(ExpertAnswerHead(result).result(), Buffer(), SentOf(Batch()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(back->status), "epoch 1 is below 2");
  EXPECT_TRUE(back->sums.empty());
}

TEST(WireExpertTest, AResultThatDoesNotAnswerItsBatchIsRefused) {
  const auto check = [](auto change, size_t bytes = 96) {
    v1::ExpertAnswer proto = ExpertAnswerHead(Result());
    change(proto.mutable_result());
    return Message(
        FromProto(proto.result(), Buffer(bytes), SentOf(Batch())).status());
  };
  EXPECT_THAT(check([](auto* p) { p->set_batch_id(5); }),
              HasSubstr("batch_id is 5, asked was 4"));
  EXPECT_THAT(check([](auto* p) { p->mutable_header()->set_epoch(1); }),
              HasSubstr("epoch is 0.1, asked was 0.2"));
  EXPECT_THAT(check([](auto* p) { p->mutable_header()->set_step_id(1); }),
              HasSubstr("step_id"));
  EXPECT_THAT(check([](auto* p) { p->mutable_header()->set_replica(0); }),
              HasSubstr("replica"));
  EXPECT_THAT(check([](auto* p) { p->set_layer(5); }), HasSubstr("layer"));
  EXPECT_THAT(check([](auto* p) { p->set_rows(4); }),
              HasSubstr("2 nodes of 4 rows, asked were 2 of 3"));
  EXPECT_THAT(check([](auto* p) { p->set_nodes(-1); }), HasSubstr("-1 nodes"));
  EXPECT_THAT(check([](auto*) {}, 95), HasSubstr("sums have 95 bytes"));
  EXPECT_THAT(check([](auto* p) { p->mutable_failures(0)->set_row(3); }),
              HasSubstr("row of a failure must be between 0 and 2, got 3"));
  EXPECT_THAT(check([](auto* p) {
                *p->add_failures() = p->failures(0);  // not rising
              }),
              HasSubstr("between 2 and 2, got 1"));
  EXPECT_THAT(
      check([](auto* p) { p->mutable_failures(0)->set_status_code(0); }),
      HasSubstr("status_code"));
  EXPECT_THAT(check([](auto* p) { p->set_status_code(99); }),
              HasSubstr("status_code must be between 1 and 16, got 99"));
  EXPECT_THAT(check([](auto* p) { p->mutable_times()->set_queue_ns(-1); }),
              HasSubstr("queue_ns"));
}

TEST(WireExpertTest, TheLimitsHoldWhateverFitsThem) {
  const ExpertBatch batch = Batch();
  const auto frame = static_cast<int64_t>(
      ExpertFrameHead(batch).ByteSizeLong() + batch.x.data.size());
  EXPECT_LT(frame, MaxExpertFrameBytes(Host().model, Host().limits));
  const ExpertResult result = Result();
  const auto answer = static_cast<int64_t>(
      ExpertAnswerHead(result).ByteSizeLong() + result.sums.size());
  EXPECT_LT(answer, MaxExpertAnswerBytes(Host().model, Host().limits, 2));
  ExpertModel large = Host().model;
  large.hidden_size = 1 << 20;
  EXPECT_LT(MaxExpertFrameBytes(large, {1 << 20, 1}), int64_t{1} << 31);
  EXPECT_LT(MaxExpertAnswerBytes(large, {1 << 20, 1}, 1 << 16),
            int64_t{1} << 31);
}

}  // namespace
}  // namespace sluice::wire
