// What a stage answers to peers that do not keep to the protocol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/pipeline/gateway/stage_links.h"
#include "common/pipeline/stage/control_stream.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/rpc/credited_sender.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/status.h"
#include "common/wire/types.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::FakeInfo;
using testing::FakeRunner;
using testing::FakeStage;
using testing::FakeStageOptions;
using ::testing::HasSubstr;

// Of the first gateway's term.
constexpr Epoch kEpoch(1, 100);
constexpr Epoch kLaterEpoch(1, 101);
constexpr Epoch kNextTerm(2, 1);

// A stream's messages and end, as they came.
template <typename In>
struct Log {
  Mutex mutex;
  std::vector<In> messages;
  std::optional<Status> end;

  size_t count() {
    MutexLock lock(mutex);
    return messages.size();
  }
  In message(size_t i) {
    MutexLock lock(mutex);
    return messages[i];
  }
  bool ended() {
    MutexLock lock(mutex);
    return end.has_value();
  }
  Status WaitEnd() {
    EXPECT_TRUE(Eventually([this] { return ended(); }));
    MutexLock lock(mutex);
    return end.value_or(Status());
  }
};

class StageProtocolTest : public ::testing::Test {
 protected:
  void SetUp() override { StartStage(FakeInfo(0, 1)); }
  void TearDown() override { stage_.reset(); }
  void StartStage(const StageInfo& info) {
    FakeStageOptions options;
    options.info = info;
    options.max_steps_in_flight = 2;
    stage_ = std::make_unique<FakeStage>(options);
  }

  std::shared_ptr<grpc::Channel> Channel() {
    auto channel = rpc::Connect(stage_->address(), {});
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *channel;
  }
  template <typename Out, typename In>
  std::shared_ptr<Link<Out, In>> Open(const char* method,
                                      std::shared_ptr<Log<In>> log,
                                      const std::string& hello) {
    typename Link<Out, In>::Events events;
    events.on_message = [log](In& message) {
      MutexLock lock(log->mutex);
      log->messages.push_back(message);
    };
    events.on_end = [log](const Status& status) {
      MutexLock lock(log->mutex);
      log->end = status;
    };
    auto link =
        std::make_shared<Link<Out, In>>(Channel(), method, std::move(events));
    link->Open(hello);
    return link;
  }

  using ControlLog = Log<v1::ControlResponse>;
  std::shared_ptr<ControlLink> Control(const std::string& hello) {
    control_log_ = std::make_shared<ControlLog>();
    return Open<v1::ControlRequest, v1::ControlResponse>(kControlMethod,
                                                         control_log_, hello);
  }
  std::shared_ptr<ControlLink> Control(const v1::Hello& hello) {
    return Control(hello.SerializeAsString());
  }
  std::shared_ptr<ControlLink> Control() { return Control(Hello()); }
  // Of the gateway of that name; each has its secret.
  static v1::Hello Hello(const std::string& gateway = "test") {
    v1::Hello hello;
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_gateway_id(gateway);
    hello.set_secret(std::string(wire::kSecretBytes, gateway.front()));
    return hello;
  }
  static v1::ControlRequest Assign(const StageInfo& info,
                                   Epoch epoch = kEpoch) {
    v1::ControlRequest request;
    v1::Assign* assign = request.mutable_assign();
    wire::SetEpoch(epoch, assign);
    assign->set_secret(EpochSecret());
    assign->set_first_layer(info.first_layer);
    assign->set_last_layer(info.last_layer);
    *assign->mutable_limits() = wire::ToProto(LimitsOf(info, 2));
    return request;
  }
  static std::string EpochSecret() {
    return std::string(wire::kSecretBytes, 'e');
  }
  // A Control stream with epoch kEpoch assigned.
  std::shared_ptr<ControlLink> Hold() {
    auto control = Control();
    control->Send(Assign(FakeInfo(0, 1)));
    EXPECT_TRUE(Eventually([&] { return control_log_->count() == 2; }));
    EXPECT_EQ(control_log_->message(1).assigned().status_code(), 0);
    return control;
  }
  // Answer number `index` on Control, an Assigned.
  Status AssignedAt(size_t index) {
    EXPECT_TRUE(Eventually([&] { return control_log_->count() > index; }));
    const v1::Assigned assigned = control_log_->message(index).assigned();
    return wire::StatusFromProto(assigned.status_code(),
                                 assigned.status_message());
  }

  using StepsLog = Log<grpc::ByteBuffer>;
  using StepsLink = Link<grpc::ByteBuffer, grpc::ByteBuffer>;
  std::shared_ptr<StepsLink> Steps(const v1::StepsHello& hello) {
    steps_log_ = std::make_shared<StepsLog>();
    return Open<grpc::ByteBuffer, grpc::ByteBuffer>(kStepsMethod, steps_log_,
                                                    hello.SerializeAsString());
  }
  // One that the stage has taken: it may have the one before for a moment
  // longer than its client, and refuses another until then.
  std::shared_ptr<StepsLink> TakenSteps() {
    std::shared_ptr<StepsLink> steps;
    EXPECT_TRUE(Eventually([&] {
      steps = Steps(StepsHello());
      EXPECT_TRUE(Eventually(
          [&] { return steps_log_->count() == 1 || steps_log_->ended(); }));
      return steps_log_->count() == 1;
    }));
    return steps;
  }
  static v1::StepsHello StepsHello() {
    v1::StepsHello hello;
    hello.set_protocol_version(wire::kProtocolVersion);
    wire::SetEpoch(kEpoch, &hello);
    hello.set_model_digest("d1");
    hello.set_numerics("n1");
    hello.set_hidden_size(8);
    hello.set_secret(EpochSecret());
    return hello;
  }
  static StepPlan Plan(uint64_t step, Epoch epoch = kEpoch) {
    StepPlan plan;
    plan.epoch = epoch;
    plan.step_id = StepId(step);
    Chunk chunk;
    chunk.sequence = SequenceId(1);
    chunk.tokens = {5};
    plan.chunks = {chunk};
    return plan;
  }
  // A predecessor's stream with one step held under way, after the gateway
  // has asked for a drain; the heartbeat's answer says that it was read.
  std::shared_ptr<StepsLink> DrainDuringAStep(ControlLink& control) {
    auto steps = Steps(StepsHello());
    stage_->runner().HoldSteps();
    steps->Send(PlanFrame(Plan(0)));
    EXPECT_TRUE(Eventually([&] { return stage_->runner().held_steps() == 1; }));
    v1::ControlRequest request;
    request.mutable_drain();
    control.Send(request);
    request.mutable_heartbeat()->set_sequence(9);
    control.Send(request);
    EXPECT_TRUE(Eventually([&] { return control_log_->count() == 3; }));
    EXPECT_EQ(control_log_->message(2).heartbeat().sequence(), 9u);
    return steps;
  }

  std::unique_ptr<FakeStage> stage_;
  std::shared_ptr<ControlLog> control_log_;
  std::shared_ptr<StepsLog> steps_log_;
};

TEST_F(StageProtocolTest, AnotherProtocolVersionIsRefusedNamingBoth) {
  v1::Hello hello = Hello();
  hello.set_protocol_version(wire::kProtocolVersion + 1);
  const auto control = Control(hello);
  const Status status = control_log_->WaitEnd();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr(Cat("this stage has ", wire::kProtocolVersion,
                            ", the peer has ", wire::kProtocolVersion + 1)));
}

TEST_F(StageProtocolTest, BlocksAreOfAnEpochItsSecretAndItsLayers) {
  const auto control = Hold();
  v1::BlocksHello hello;
  hello.set_protocol_version(wire::kProtocolVersion);
  wire::SetEpoch(kEpoch, &hello);
  hello.set_secret(EpochSecret());
  hello.set_model_digest("d1");
  hello.set_numerics("n1");
  hello.set_ranks(1);
  hello.set_block_tokens(kBlockTokens);
  hello.set_last_layer(2);
  const auto end_of = [this](const v1::BlocksHello& with) {
    const auto log = std::make_shared<Log<v1::BlocksResponse>>();
    const auto link = Open<v1::BlocksRequest, v1::BlocksResponse>(
        "/sluice.v1.Stage/Blocks", log, with.SerializeAsString());
    link->Send({});
    return log->WaitEnd();
  };
  EXPECT_THAT(Message(end_of(hello)), HasSubstr("no layers now"))
      << "the runner gives no keys and values";
  v1::BlocksHello other = hello;
  other.set_secret(std::string(wire::kSecretBytes, 'x'));
  EXPECT_THAT(Message(end_of(other)), HasSubstr("secret"));
  other = hello;
  other.set_last_layer(3);
  EXPECT_THAT(Message(end_of(other)),
              HasSubstr("layers 0 to 2: this stage has layers 0 to 1"));
  other = hello;
  wire::SetEpoch(kLaterEpoch, &other);
  EXPECT_THAT(Message(end_of(other)), HasSubstr("no keys and values of epoch"));
}

TEST_F(StageProtocolTest, DonorsThatDoNotJoinUpAreRefused) {
  const auto control = Control();
  v1::ControlRequest request = Assign(FakeInfo(0, 1));
  v1::Assign* const assign = request.mutable_assign();
  const auto add = [&](int32_t first, int32_t last) {
    v1::KvDonor* const donor = assign->add_donors();
    donor->set_address("a:1");
    donor->set_first_layer(first);
    donor->set_last_layer(last);
  };
  add(0, 1);
  control->Send(request);
  EXPECT_THAT(Message(AssignedAt(1)), HasSubstr("donors' epoch has 0 bytes"));
  assign->set_donors_secret(EpochSecret());
  control->Send(request);
  EXPECT_THAT(Message(AssignedAt(2)), HasSubstr("this stage has 2, the peer"));
  add(0, 2);
  control->Send(request);
  EXPECT_THAT(Message(AssignedAt(3)),
              HasSubstr("layers 0 to 1, the next ones begin at layer 1"));
}

TEST_F(StageProtocolTest, ControlMustBeginWithAHello) {
  auto control = Control("");
  const Status none = control_log_->WaitEnd();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(none), HasSubstr("begins with a hello"));
  control = Control("\xff\xff\xff");
  EXPECT_THAT(Message(control_log_->WaitEnd()),
              HasSubstr("got 3 bytes of something else"));
  control = Control();
  control->Send(v1::ControlRequest());
  EXPECT_THAT(Message(control_log_->WaitEnd()), HasSubstr("unknown kind 0"));
}

TEST_F(StageProtocolTest, AGatewayWithoutANameIsRefused) {
  v1::Hello hello = Hello();
  hello.clear_gateway_id();
  const auto control = Control(hello);
  EXPECT_THAT(Message(control_log_->WaitEnd()), HasSubstr("gateway_id"));
}

TEST_F(StageProtocolTest, WhatAGatewayActsOnIsInTheDetailsNotInTheWords) {
  const auto reason_of = [](const Status& status) {
    v1::Refusal refusal;
    EXPECT_TRUE(refusal.ParseFromString(rpc::DetailsOf(status)));
    return refusal.reason();
  };
  const auto held = Hold();
  const auto log = std::make_shared<ControlLog>();
  const auto second = Open<v1::ControlRequest, v1::ControlResponse>(
      kControlMethod, log, Hello("another").SerializeAsString());
  EXPECT_EQ(reason_of(log->WaitEnd()), v1::Refusal::REASON_HELD);

  FakeStageOptions options;
  options.info = FakeInfo(0, 1);
  options.loaded = false;
  stage_ = std::make_unique<FakeStage>(options);
  const auto early = Control();
  EXPECT_EQ(reason_of(control_log_->WaitEnd()), v1::Refusal::REASON_LOADING);

  stage_->session().Shutdown();
  const auto late = Control();
  EXPECT_EQ(reason_of(control_log_->WaitEnd()),
            v1::Refusal::REASON_UNSPECIFIED);
}

TEST_F(StageProtocolTest, TheWelcomeTellsWhatTheStageServes) {
  const auto control = Control();
  ASSERT_TRUE(Eventually([&] { return control_log_->count() == 1; }));
  const v1::Welcome welcome = control_log_->message(0).welcome();
  EXPECT_EQ(welcome.protocol_version(), wire::kProtocolVersion);
  EXPECT_EQ(*wire::FromProto(welcome.identity()),
            StageIdentity(FakeInfo(0, 1)));
  EXPECT_EQ(welcome.limits().max_steps_in_flight(), 2);
}

TEST_F(StageProtocolTest, AssignmentsThatDoNotFitAreRefusedAndTheStreamLives) {
  const auto control = Control();
  size_t answers = 1;
  const auto refused = [&](auto change) {
    v1::ControlRequest request = Assign(FakeInfo(0, 1));
    change(request.mutable_assign());
    control->Send(request);
    const Status status = AssignedAt(answers++);
    EXPECT_FALSE(status.ok());
    return Message(status);
  };
  EXPECT_THAT(refused([](auto* a) { a->mutable_limits()->set_vocab_size(9); }),
              HasSubstr("this stage has 1000, the peer has 9"));
  EXPECT_THAT(
      refused([](auto* a) { a->mutable_limits()->set_max_step_tokens(65); }),
      HasSubstr("max_step_tokens of the pipeline is 65"));
  EXPECT_THAT(refused([](auto* a) { a->mutable_limits()->set_num_blocks(33); }),
              HasSubstr("this stage takes 32"));
  EXPECT_THAT(refused([](auto* a) { a->clear_limits(); }),
              HasSubstr("max_step_tokens"));
  EXPECT_THAT(refused([](auto* a) { a->set_next_address("127.0.0.1:1"); }),
              HasSubstr("ends the model"));
  EXPECT_THAT(refused([](auto* a) { a->set_last_address("127.0.0.1:1"); }),
              HasSubstr("for the first stage of several"));
  EXPECT_THAT(refused([](auto* a) { a->set_last_layer(1); }),
              HasSubstr("the place has layers 0 to 0, this stage holds layers "
                        "0 to 1"));
  EXPECT_THAT(refused([](auto* a) { a->set_secret("short"); }),
              HasSubstr("secret has 5 bytes, it must have 32"));
  EXPECT_THAT(refused([](auto* a) { wire::SetEpoch(Epoch(), a); }),
              HasSubstr("epoch 0.0 is not above 1.0"));
  control->Send(Assign(FakeInfo(0, 1)));
  EXPECT_TRUE(AssignedAt(answers++).ok());
  control->Send(Assign(FakeInfo(0, 1)));
  EXPECT_THAT(Message(AssignedAt(answers++)),
              HasSubstr("epoch 1.100 is not above 1.100"));
}

TEST_F(StageProtocolTest, TheEndOfOneGatewayLeavesTheNextOnesEpochAlone) {
  StageSession& session = stage_->session();
  const auto stream = [&] {
    return std::make_shared<ControlStream>(rpc::ServerStreamOptions{"Control"},
                                           session.shared_from_this());
  };
  const auto hold = [&](const char* gateway, Epoch epoch,
                        const std::shared_ptr<ControlStream>& control) {
    EXPECT_TRUE(session.OnHello(Hello(gateway), control).ok());
    session.OnAssign(Assign(FakeInfo(0, 1), epoch).assign(), control.get());
  };
  const auto first = stream();
  const auto next = stream();
  hold("first", kEpoch, first);
  FakeRunner& runner = stage_->runner();
  runner.HoldLettingGo(true);
  std::thread ending([&] { session.OnControlEnd(first.get()); });
  ASSERT_TRUE(Eventually([&] { return runner.letting_go(); }));
  std::atomic<bool> assigned = false;
  std::thread beginning([&] {
    hold("next", kNextTerm, next);
    assigned = true;
  });
  // The next gateway waits. One that did not would be assigned meanwhile, and
  // its epoch forgotten afterwards.
  Eventually([&] { return assigned.load(); }, std::chrono::milliseconds(300));
  runner.HoldLettingGo(false);
  ending.join();
  beginning.join();
  EXPECT_EQ(session.links().progress().epoch, kNextTerm);
  runner.HoldSteps();
  EXPECT_TRUE(
      session.links().OnStepInput({Plan(0, kNextTerm), {}}, {}, 0).ok());
  EXPECT_EQ(runner.held_steps(), 1);
  session.OnControlEnd(next.get());
}

TEST_F(StageProtocolTest, AReplacedControlStreamAssignsNothing) {
  StageSession& session = stage_->session();
  const auto old = std::make_shared<ControlStream>(
      rpc::ServerStreamOptions{"Control"}, session.shared_from_this());
  ASSERT_TRUE(session.OnHello(Hello(), old).ok());
  const auto control = Hold();
  session.OnAssign(Assign(FakeInfo(0, 1), kLaterEpoch).assign(), old.get());
  EXPECT_EQ(session.links().progress().epoch, kEpoch);
}

TEST_F(StageProtocolTest, ASuccessorThatCannotBeReachedIsNamed) {
  StartStage(FakeInfo(0, 2));
  const auto control = Control();
  v1::ControlRequest request = Assign(FakeInfo(0, 2));
  request.mutable_assign()->set_next_address("127.0.0.1:1");
  request.mutable_assign()->set_next_model_digest("d1");
  request.mutable_assign()->set_next_first_layer(2);
  control->Send(request);
  const Status lost = AssignedAt(1);
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(lost), HasSubstr("successor 127.0.0.1:1"));
  wire::SetEpoch(kLaterEpoch, request.mutable_assign());
  request.mutable_assign()->set_next_address("stage-1:7000");
  control->Send(request);
  EXPECT_THAT(Message(AssignedAt(2)), HasSubstr("--insecure"));
}

TEST_F(StageProtocolTest, AStepsHelloThatContradictsIsRefusedNamingBoth) {
  const auto control = Hold();
  const auto refused = [&](auto change) {
    v1::StepsHello hello = StepsHello();
    change(&hello);
    const auto steps = Steps(hello);
    const Status status = steps_log_->WaitEnd();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return Message(status);
  };
  EXPECT_THAT(refused([](auto* h) { h->set_model_digest("d2"); }),
              HasSubstr("this stage has d1, the peer has d2"));
  EXPECT_THAT(refused([](auto* h) { h->set_numerics("n2"); }),
              HasSubstr("this stage has n1, the peer has n2"));
  EXPECT_THAT(refused([](auto* h) { h->set_layer(4); }),
              HasSubstr("this stage has 0, the peer has 4"));
  EXPECT_THAT(refused([](auto* h) { h->set_hidden_size(16); }),
              HasSubstr("this stage has 8, the peer has 16"));
  EXPECT_THAT(refused([](auto* h) { h->set_protocol_version(99); }),
              HasSubstr(", the peer has 99"));
  EXPECT_THAT(refused([](auto* h) { h->set_epoch(99); }),
              HasSubstr("in epoch 1.100"));
  EXPECT_THAT(refused([](auto* h) { h->set_replica(1); }),
              HasSubstr("replica 1"));
  EXPECT_THAT(refused([](auto* h) { h->mutable_secret()->back() ^= 1; }),
              HasSubstr("not that of epoch 1.100"));
  EXPECT_THAT(refused([](auto* h) { h->clear_secret(); }),
              HasSubstr("not that of epoch 1.100"));
}

TEST_F(StageProtocolTest, StepsOfAnotherEpochAreDroppedWithoutAnAck) {
  const auto control = Hold();
  const auto steps = Steps(StepsHello());
  ASSERT_TRUE(Eventually([&] { return steps_log_->count() == 1; }));
  steps->Send(PlanFrame(Plan(0, Epoch(1, 99))));
  steps->Send(PlanFrame(Plan(0, kLaterEpoch)));
  steps->Send(PlanFrame(Plan(0)));
  ASSERT_TRUE(Eventually([&] { return steps_log_->count() == 2; }));
  auto split = rpc::SplitPayload(steps_log_->message(1), 0, 4096);
  ASSERT_TRUE(split.ok());
  const auto ack = rpc::ParseHead<v1::StepAck>(split->head);
  ASSERT_TRUE(ack.ok());
  EXPECT_EQ(wire::EpochOf(ack->header()), kEpoch);
  EXPECT_EQ(ack->header().step_id(), 0u);
}

TEST_F(StageProtocolTest, MoreStepsThanCreditsEndTheStreamAndTheEpoch) {
  const auto control = Hold();
  const auto steps = Steps(StepsHello());
  stage_->runner().HoldSteps();
  for (uint64_t step = 0; step < 3; ++step) {
    steps->Send(PlanFrame(Plan(step)));
  }
  const Status status = steps_log_->WaitEnd();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("limit 2"));
  ASSERT_TRUE(Eventually([&] { return control_log_->count() == 3; }));
  const v1::Failure failure = control_log_->message(2).failure();
  EXPECT_EQ(wire::EpochOf(failure), kEpoch);
  EXPECT_EQ(failure.side(), v1::FAILURE_SIDE_PREDECESSOR);
}

TEST_F(StageProtocolTest, FramesThatBreakTheLimitsEndTheStream) {
  const auto control = Hold();
  const auto refused = [&](const v1::StepFrame& frame, Buffer payload) {
    const auto steps = TakenSteps();
    steps->Send(
        rpc::JoinPayload(frame, wire::kHiddenStatesField, std::move(payload)));
    const Status status = steps_log_->WaitEnd();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return Message(status);
  };
  StepPlan plan = Plan(0);
  plan.chunks[0].tokens = {1000};
  EXPECT_THAT(refused(wire::StepFrameHead(plan, 0), Buffer()),
              HasSubstr("vocabulary size is 1000"));
  EXPECT_THAT(refused(wire::StepFrameHead(Plan(0), 0), Buffer(32)),
              HasSubstr("hidden states have 32 bytes"));
  EXPECT_THAT(refused(v1::StepFrame(), Buffer()), HasSubstr("has no step"));
}

TEST_F(StageProtocolTest, BytesThatAreNoMessageEndTheStream) {
  const auto control = Hold();
  for (const char* bytes : {"\x0b", "\xff\xff\xff", "\x7a\x7f"}) {
    const auto steps = TakenSteps();
    const grpc::Slice slice{std::string(bytes)};
    steps->Send(grpc::ByteBuffer(&slice, 1));
    EXPECT_EQ(steps_log_->WaitEnd().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(StageProtocolTest, StepsMustBeginWithAHelloThatFits) {
  const auto control = Hold();
  const auto steps = Steps(v1::StepsHello());
  EXPECT_THAT(Message(steps_log_->WaitEnd()), HasSubstr("begins with a hello"));
  v1::StepsHello large = StepsHello();
  large.set_model_digest(std::string(70'000, 'd'));
  const auto other = Steps(large);
  EXPECT_THAT(Message(steps_log_->WaitEnd()), HasSubstr("limit 61440"));
}

TEST_F(StageProtocolTest, ResultsAreForOneReaderOfThisEpoch) {
  const auto control = Hold();
  const auto read = [this](Epoch epoch, const std::string& secret,
                           bool tokens_only = false) {
    auto log = std::make_shared<Log<v1::StepResult>>();
    v1::ResultsRequest request;
    wire::SetEpoch(epoch, &request);
    request.set_secret(secret);
    request.set_tokens_only(tokens_only);
    (void)Open<v1::ResultsRequest, v1::StepResult>(kResultsMethod, log,
                                                   request.SerializeAsString());
    return log;
  };
  EXPECT_EQ(read(kLaterEpoch, EpochSecret())->WaitEnd().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(read(kEpoch, "guessed")->WaitEnd()),
              HasSubstr("not that of epoch 1.100"));
  EXPECT_THAT(Message(read(kEpoch, "guessed", true)->WaitEnd()),
              HasSubstr("not that of epoch 1.100"));
  // The first stage is told at once that it may read.
  const auto tokens = read(kEpoch, EpochSecret(), true);
  ASSERT_TRUE(Eventually([&] { return tokens->count() == 1; }));
  EXPECT_EQ(wire::EpochOf(tokens->message(0).header()), kEpoch);
  EXPECT_THAT(Message(read(kEpoch, EpochSecret(), true)->WaitEnd()),
              HasSubstr("the tokens of this epoch are being read"));
  // A result from before there was a reader is kept for it.
  const auto steps = Steps(StepsHello());
  steps->Send(PlanFrame(Plan(0)));
  ASSERT_TRUE(Eventually([&] { return steps_log_->count() == 2; }));
  const auto reader = read(kEpoch, EpochSecret());
  ASSERT_TRUE(Eventually([&] { return reader->count() == 1; }));
  EXPECT_EQ(wire::EpochOf(reader->message(0).header()), kEpoch);
  EXPECT_THAT(Message(read(kEpoch, EpochSecret())->WaitEnd()),
              HasSubstr("the results of this epoch are being read"));
  EXPECT_TRUE(Eventually([&] { return tokens->count() == 2; }));
}

TEST_F(StageProtocolTest, ADrainedStageTakesNoEpochAndNoStep) {
  const auto control = Hold();
  v1::ControlRequest drain;
  drain.mutable_drain();
  control->Send(drain);
  ASSERT_TRUE(Eventually([&] { return control_log_->count() == 3; }));
  EXPECT_TRUE(control_log_->message(2).has_drained());
  control->Send(Assign(FakeInfo(0, 1), kLaterEpoch));
  EXPECT_EQ(AssignedAt(3).code(), StatusCode::kUnavailable);
  const auto steps = Steps(StepsHello());
  EXPECT_EQ(steps_log_->WaitEnd().code(), StatusCode::kUnavailable);
}

TEST_F(StageProtocolTest, DrainedComesAfterTheStepsUnderWay) {
  const auto control = Hold();
  const auto steps = DrainDuringAStep(*control);
  stage_->runner().ReleaseOne();
  ASSERT_TRUE(Eventually([&] { return control_log_->count() == 4; }));
  EXPECT_TRUE(control_log_->message(3).has_drained());
}

TEST_F(StageProtocolTest, DrainedComesWhenTheStepsUnderWayAreLost) {
  const auto control = Hold();
  const auto steps = DrainDuringAStep(*control);
  stage_->session().links().OnStepError(kEpoch, StepId(0),
                                        FailedPrecondition("no such block"));
  ASSERT_TRUE(Eventually([&] { return control_log_->count() == 5; }));
  EXPECT_TRUE(control_log_->message(3).has_failure());
  EXPECT_TRUE(control_log_->message(4).has_drained());
}

TEST_F(StageProtocolTest, AStageThatEndsSaysSoAndGoesOnUntilItIsLetGo) {
  const auto control = Hold();
  const auto steps = Steps(StepsHello());
  std::thread leaving([this] {
    stage_->session().Leave(Clock::now() + std::chrono::seconds(60));
  });
  ASSERT_TRUE(Eventually([&] { return control_log_->count() == 3; }));
  const v1::ControlResponse told = control_log_->message(2);
  ASSERT_TRUE(told.has_draining());
  EXPECT_GT(told.draining().remaining_ms(), 30000);
  EXPECT_LE(told.draining().remaining_ms(), 60000);
  steps->Send(PlanFrame(Plan(0)));
  EXPECT_TRUE(Eventually([&] { return steps_log_->count() == 2; }))
      << "its epoch goes on";
  control->Send(Assign(FakeInfo(0, 1), kLaterEpoch));
  EXPECT_EQ(AssignedAt(3).code(), StatusCode::kUnavailable);
  control->HalfClose();
  leaving.join();
  EXPECT_FALSE(stage_->session().held());
  const auto next = Control();
  EXPECT_THAT(Message(control_log_->WaitEnd()), HasSubstr("shutting down"));
}

TEST_F(StageProtocolTest, AStageThatIsNotLetGoEndsAtItsDeadline) {
  const auto control = Hold();
  const TimePoint deadline = Clock::now() + std::chrono::milliseconds(50);
  stage_->session().Leave(deadline);
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_TRUE(stage_->session().held());
}

TEST(HopNanosTest, ASuccessorsTimesAreBelievedAsFarAsTheyFit) {
  const auto hop = [](int64_t compute, int64_t wait, int64_t round_trip) {
    v1::StepAck ack;
    ack.set_compute_ns(compute);
    ack.set_wait_ns(wait);
    return HopNanos(ack, round_trip);
  };
  EXPECT_EQ(hop(30, 20, 100), 50);
  EXPECT_EQ(hop(80, 90, 100), 0);
  for (const int64_t far : {INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(hop(far, far, 100), far < 0 ? 100 : 0);
    EXPECT_EQ(hop(far, 10, 100), far < 0 ? 90 : 0);
  }
}

}  // namespace
}  // namespace sluice
