// What an expert host answers to clients, good ones and bad ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "common/base/json.h"
#include "tests/experts/expert_client.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Of glm4_moe-air: 8 experts, 2 per token.
constexpr int32_t kLayer = 1;

class ExpertProtocolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = GoldenModel("glm4_moe-air");
    model_ = path;
    Start("1:0-5,3:4-7");
  }
  void Start(const std::string& experts, int32_t in_flight = 64,
             int32_t delay_ms = 0) {
    client_.reset();
    expert::ExpertServerOptions options;
    options.experts.model_path = model_;
    options.experts.threads = 1;
    options.choice.experts = experts;
    options.max_rows = 16;
    options.max_batches_in_flight = in_flight;
    options.debug_batch_delay = std::chrono::milliseconds(delay_ms);
    server_ = StartExperts(std::move(options));
    ASSERT_NE(server_, nullptr);
    client_ = std::make_unique<ExpertClient>(server_->address());
  }
  void Greet() {
    const auto welcome = client_->Hello(*server_->info());
    ASSERT_TRUE(welcome.ok()) << welcome.status();
  }
  // Two rows: the first asks experts 1 and 4, the second 5.
  static wire::ExpertBatch Batch(uint64_t id) {
    wire::ExpertBatch batch;
    batch.epoch = Epoch(7);
    batch.step = StepId(3);
    batch.batch_id = id;
    batch.layer = kLayer;
    batch.nodes = {{0, 4}, {4, 6}};
    batch.counts = {2, 1};
    batch.expert_ids = {1, 4, 5};
    batch.weights = {0.5f, 0.25f, 1};
    batch.x = HiddenStates(2, kHidden);
    for (int i = 0; i < 2 * kHidden; ++i) {
      batch.x.values()[i] = static_cast<float>(i % 7) - 3;
    }
    return batch;
  }
  // The batch's refusal.
  template <typename Change>
  Status Refusal(uint64_t id, const Change& change) {
    wire::ExpertBatch batch = Batch(id);
    change(batch);
    const auto result = client_->Ask(batch);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->status : result.status();
  }
  // That the stream and the host still work.
  void ExpectAnswers(uint64_t id) {
    const auto result = client_->Ask(Batch(id));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->status.ok()) << result->status;
    EXPECT_THAT(result->failures, SizeIs(0));
  }

  std::string model_;
  std::unique_ptr<expert::ExpertServer> server_;
  std::unique_ptr<ExpertClient> client_;
};

TEST_F(ExpertProtocolTest, TheWelcomeSaysWhatIsServed) {
  const auto welcome = client_->Hello(*server_->info());
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->model.num_experts, 8);
  EXPECT_EQ(welcome->model.model_digest, server_->info()->model_digest);
  const std::vector<wire::LayerExperts> held = {{1, {{0, 6}}}, {3, {{4, 8}}}};
  EXPECT_EQ(welcome->held, held);
  EXPECT_EQ(welcome->limits.max_rows, 16);
  EXPECT_EQ(welcome->weights_bytes, server_->info()->weights_bytes);
}

TEST_F(ExpertProtocolTest, AHelloThatDisagreesIsRefusedWithBothValues) {
  const auto refusal = [&](auto change) {
    wire::ExpertHello hello = HelloFor(*server_->info());
    change(hello);
    ExpertClient client(server_->address());
    const Status status = client.Hello(wire::ToProto(hello)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    return Message(status);
  };
  EXPECT_THAT(refusal([](auto& h) { h.protocol_version = 99; }),
              HasSubstr("protocol version differs: this host has 3, test has "
                        "99"));
  EXPECT_THAT(refusal([](auto& h) { h.model.model_digest = "beef"; }),
              HasSubstr("the peer has beef"));
  EXPECT_THAT(refusal([](auto& h) { h.model.numerics = "other"; }),
              HasSubstr("numerics differs: this side has f32-canonical-"));
  EXPECT_THAT(refusal([](auto& h) { h.model.weights = "f32"; }),
              HasSubstr("--weights differs: this side has auto"));
  EXPECT_THAT(refusal([](auto& h) { h.model.hidden_size = 65; }),
              HasSubstr("hidden size differs: this side has 64, the peer has "
                        "65"));
  EXPECT_THAT(refusal([](auto& h) {
                h.wanted = {{1, {{0, 8}}}};
              }),
              HasSubstr("experts 0-7 of layer 1"));
  EXPECT_THAT(refusal([](auto& h) {
                h.wanted = {{2, {{0, 1}}}};
              }),
              HasSubstr("experts 0-0 of layer 2"));
  Greet();  // others are not concerned
  ExpectAnswers(1);
}

TEST_F(ExpertProtocolTest, ABadBatchIsRefusedByNameAndTheStreamGoesOn) {
  Greet();
  EXPECT_THAT(Message(Refusal(1, [](auto& b) { b.layer = 4; })),
              HasSubstr("batch 1 of step 3: layer must be between 0 and 3"));
  const Status other = Refusal(2, [](auto& b) { b.layer = 2; });
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(other), HasSubstr("experts 0-3 of layer 2"));
  EXPECT_THAT(Message(Refusal(3,
                              [](auto& b) {
                                b.nodes[1] = {4, 8};
                              })),
              HasSubstr("experts 4-7 of layer 1"));
  EXPECT_THAT(Message(Refusal(4,
                              [](auto& b) {
                                b.nodes[1] = {4, 7};
                              })),
              HasSubstr("not aligned"));
  EXPECT_THAT(Message(Refusal(5, [](auto& b) { b.weights.pop_back(); })),
              HasSubstr("add up to 3, there are 2 weights"));
  EXPECT_THAT(Message(Refusal(6, [](auto& b) { b.counts[1] = 0; })),
              HasSubstr("experts of a row"));
  EXPECT_THAT(
      Message(Refusal(7, [](auto& b) { b.x = HiddenStates(3, kHidden); })),
      HasSubstr("hidden states have 768 bytes, 2 rows have 512"));
  EXPECT_THAT(Message(Refusal(8,
                              [](auto& b) {
                                b.counts.assign(17, 1);
                                b.expert_ids.assign(17, 1);
                                b.weights.assign(17, 1);
                                b.x = HiddenStates(17, kHidden);
                              })),
              HasSubstr("number of rows must be between 1 and 16, got 17"));
  ExpectAnswers(9);
}

TEST_F(ExpertProtocolTest, ABadRowFailsAndTheOthersHaveTheirBits) {
  Greet();
  const auto good = client_->Ask(Batch(1));
  ASSERT_TRUE(good.ok() && good->status.ok()) << good.status();
  const auto check = [&](uint64_t id, const char* why, auto change) {
    wire::ExpertBatch batch = Batch(id);
    change(batch);
    const auto result = client_->Ask(batch);
    ASSERT_TRUE(result.ok() && result->status.ok()) << result.status();
    ASSERT_THAT(result->failures, SizeIs(1));
    EXPECT_EQ(result->failures[0].row, 0);
    EXPECT_THAT(Message(result->failures[0].status), HasSubstr(why));
    for (int32_t node = 0; node < 2; ++node) {
      EXPECT_TRUE(std::isnan(*result->sum(node, 0, kHidden)));
      EXPECT_EQ(
          std::memcmp(result->sum(node, 1, kHidden),
                      good->sum(node, 1, kHidden), sizeof(float) * kHidden),
          0);
    }
  };
  check(2, "hidden states are not finite", [](auto& b) {
    b.x.values()[3] = std::numeric_limits<float>::quiet_NaN();
  });
  check(3, "expert id must be between 0 and 7, got 8",
        [](auto& b) { b.expert_ids[1] = 8; });
  check(4, "got -1", [](auto& b) { b.expert_ids[0] = -1; });
  check(5, "must rise within a row", [](auto& b) { b.expert_ids[0] = 4; });
  check(6, "expert 7 is in no node", [](auto& b) { b.expert_ids[1] = 7; });
  check(7, "weight of expert 1 is not finite",
        [](auto& b) { b.weights[0] = std::numeric_limits<float>::infinity(); });
}

TEST_F(ExpertProtocolTest, ABatchOfAnOlderEpochIsRefused) {
  Greet();
  ExpectAnswers(1);
  const Status stale = Refusal(2, [](auto& b) { b.epoch = Epoch(6); });
  EXPECT_EQ(stale.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(stale), HasSubstr("epoch 0.6 is below 0.7"));
  ExpectAnswers(3);
}

TEST_F(ExpertProtocolTest, MoreBatchesThanAgreedAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Start("1:0-5", /*in_flight=*/2, /*delay_ms=*/200));
  Greet();
  for (uint64_t id = 1; id <= 3; ++id) client_->Send(Batch(id));
  const auto third = client_->Wait(Batch(3));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(third->status), HasSubstr("2 unanswered, limit 2"));
  for (uint64_t id = 1; id <= 2; ++id) {
    const auto result = client_->Wait(Batch(id));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->status.ok()) << result->status;
  }
}

TEST_F(ExpertProtocolTest, FramesOutOfOrderEndTheStreamAndNotTheHost) {
  const auto end_of = [&](bool greeted, auto send) {
    ExpertClient client(server_->address());
    if (greeted) {
      EXPECT_TRUE(client.Hello(*server_->info()).ok());
    }
    send(client);
    const Status end = client.WaitEnd();
    EXPECT_EQ(end.code(), StatusCode::kInvalidArgument) << end;
    return Message(end);
  };
  EXPECT_THAT(end_of(false, [](auto& c) { c.Send(Batch(1)); }),
              HasSubstr("begins with a hello"));
  EXPECT_THAT(end_of(false, [](auto& c) { c.SendBytes("\xff\xff\xff"); }),
              HasSubstr("begins with a hello"));
  EXPECT_THAT(end_of(true, [](auto& c) { c.SendBytes("\x0b"); }),
              HasSubstr("wire type"));
  EXPECT_THAT(end_of(true, [](auto& c) { c.SendFrame({}, Buffer()); }),
              HasSubstr("unknown kind"));
  Greet();
  ExpectAnswers(1);
}

TEST_F(ExpertProtocolTest, APongShowsProgress) {
  Greet();
  const auto before = client_->Ping(5);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->batches_done(), 0u);
  EXPECT_GT(before->clock_ns(), 0);
  EXPECT_FALSE(before->draining());
  ExpectAnswers(1);
  // The count rises just after the answer has left.
  uint64_t done = 0;
  for (uint64_t i = 6; done == 0 && i < 10000; ++i) {
    const auto pong = client_->Ping(i);
    ASSERT_TRUE(pong.ok()) << pong.status();
    done = pong->batches_done();
  }
  EXPECT_EQ(done, 1u);
}

TEST_F(ExpertProtocolTest, AHalfClosedStreamIsAnsweredToItsEnd) {
  ASSERT_NO_FATAL_FAILURE(Start("1:0-5", 64, /*delay_ms=*/20));
  Greet();
  client_->Send(Batch(1));
  client_->Send(Batch(2));
  client_->HalfClose();
  for (uint64_t id = 1; id <= 2; ++id) {
    const auto result = client_->Wait(Batch(id));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->status.ok()) << result->status;
  }
  EXPECT_TRUE(client_->WaitEnd().ok());
}

TEST_F(ExpertProtocolTest, ADrainingHostSaysSoAnswersWhatItHasAndEnds) {
  ASSERT_NO_FATAL_FAILURE(Start("1:0-5", 64, /*delay_ms=*/100));
  Greet();
  client_->Send(Batch(1));
  ASSERT_TRUE(client_->Ping(9).ok());  // the batch is in
  server_->Drain(Clock::now() + std::chrono::seconds(20));
  const auto pong = client_->WaitUnaskedPong();
  ASSERT_TRUE(pong.ok()) << pong.status();
  EXPECT_TRUE(pong->draining());
  const auto result = client_->Wait(Batch(1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->status.ok()) << result->status;
  EXPECT_EQ(Refusal(2, [](auto&) {}).code(), StatusCode::kUnavailable);
  ExpertClient late(server_->address());
  EXPECT_EQ(late.Hello(*server_->info()).status().code(),
            StatusCode::kUnavailable);
  server_->Stop();
  EXPECT_EQ(client_->WaitEnd().code(), StatusCode::kUnavailable);
}

TEST_F(ExpertProtocolTest, TheHeatCountsEveryAsk) {
  Greet();
  ExpectAnswers(1);
  ExpectAnswers(2);
  const std::string heat = server_->HeatJson();
  EXPECT_THAT(heat, HasSubstr("{\"layer\": 1, \"experts\": [0, 1, 2, 3, 4, 5], "
                              "\"asks\": [0, 2, 0, 0, 2, 2]"));
  EXPECT_THAT(heat, HasSubstr("{\"layer\": 3, \"experts\": [4, 5, 6, 7], "
                              "\"asks\": [0, 0, 0, 0]"));
}

TEST_F(ExpertProtocolTest, WhatCannotBeServedIsRefusedAtTheStart) {
  const auto refusal = [&](auto change) {
    expert::ExpertServerOptions options;
    options.experts.model_path = model_;
    change(options);
    const auto server = expert::ExpertServer::Start(std::move(options));
    EXPECT_FALSE(server.ok());
    return Message(server.status());
  };
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("--experts and --placement"));
  EXPECT_THAT(refusal([](auto& o) { o.choice.experts = "0:0-3"; }),
              HasSubstr("layers 0: the model has 1 to 3"));
  EXPECT_THAT(refusal([](auto& o) { o.choice.experts = "1:0-8"; }),
              HasSubstr("experts 0-8: the model has 0 to 7"));
  EXPECT_THAT(refusal([](auto& o) { o.choice.experts = "1:3-2"; }),
              HasSubstr("got '3-2'"));
  EXPECT_THAT(refusal([](auto& o) { o.choice.experts = "1:0,"; }),
              HasSubstr("''"));
  EXPECT_THAT(refusal([](auto& o) { o.choice.experts = "1-2:0-3,2:3"; }),
              HasSubstr("expert 3 of layer 2 is named twice"));
  EXPECT_THAT(refusal([](auto& o) {
                o.choice.placement = "/nowhere.json";
                o.choice.host = "a";
              }),
              HasSubstr("/nowhere.json"));
  EXPECT_THAT(refusal([](auto& o) { o.choice.placement = "x"; }),
              HasSubstr("--host"));
  EXPECT_THAT(refusal([](auto& o) {
                o.choice.experts = "all";
                o.max_rows = 0;
              }),
              HasSubstr("max_rows"));
  EXPECT_THAT(refusal([](auto& o) {
                o.choice.experts = "all";
                o.join_window = std::chrono::microseconds(51);
              }),
              HasSubstr("between 0 and 50, got 51"));
  EXPECT_THAT(refusal([](auto& o) {
                o.choice.experts = "all";
                o.listen = "0.0.0.0:0";
              }),
              HasSubstr("--insecure"));
}

TEST_F(ExpertProtocolTest, APlacementSaysWhatItsHostServes) {
  const std::string path = ::testing::TempDir() + "/sluice-placement.json";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(
      R"({"hosts": [{"name": "a", "address": "127.0.0.1:1"},
                    {"name": "b", "address": "127.0.0.1:2"}],
          "experts": [{"layers": "1-3", "experts": "0-2", "hosts": ["a"]},
                      {"layers": "1-3", "experts": "3-3", "hosts": ["local"]},
                      {"layers": "1-3", "experts": "4-7",
                       "hosts": ["a", "b"]}]})",
      file);
  std::fclose(file);
  expert::ExpertServerOptions options;
  options.experts.model_path = model_;
  options.experts.threads = 1;
  options.choice.placement = path;
  options.choice.host = "a";
  const auto server = StartExperts(options);
  ASSERT_NE(server, nullptr);
  ASSERT_THAT(server->info()->held, SizeIs(3));
  const LayerRanges want = {2, {{0, 3}, {4, 8}}};
  EXPECT_EQ(server->info()->held[1], want);
  options.choice.host = "c";
  EXPECT_EQ(expert::ExpertServer::Start(options).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::testing
