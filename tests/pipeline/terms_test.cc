// Terms of stages that differ: which stage a gateway refuses, and which one it
// raises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/epochs.h"
#include "common/pipeline/gateway/stage_places.h"
#include "common/rpc/server_stream.h"
#include "sluice/v1/stage.grpc.pb.h"
#include "tests/pipeline/assembler_fixture.h"
#include "tests/pipeline/gateway_run.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::FakeInfo;
using testing::FakeStage;
using testing::GatewayRun;
using ::testing::HasSubstr;
using testing::Timing;

constexpr uint64_t kFar = 5'000'000;
constexpr uint64_t kAbsurd = uint64_t{1} << 62;

v1::Welcome WelcomeOf(const StageInfo& info, uint64_t term) {
  v1::Welcome welcome;
  welcome.set_protocol_version(wire::kProtocolVersion);
  welcome.set_highest_term(term);
  *welcome.mutable_identity() = wire::ToProto(info);
  *welcome.mutable_limits() = wire::ToProto(LimitsOf(info, 4));
  return welcome;
}

// Places whose stages have welcomed the gateway, with these terms; the ones
// beyond `count` are spares.
struct Places {
  Places(const std::vector<uint64_t>& terms, size_t count)
      : places(Stages(terms, count), count, {}, out) {
    for (size_t i = 0; i < terms.size(); ++i) places.OnWelcome(i, false);
  }
  StageProcesses Stages(const std::vector<uint64_t>& terms, size_t count) {
    StageProcesses stages;
    for (size_t i = 0; i < terms.size(); ++i) {
      const std::string address = Cat("host-", i, ":1");
      stages.push_back(
          std::make_shared<StageProcess>(i, address, Clock::now()));
      stages.back()->Hello(i + 1, 0, Clock::now(), out);
      const int place = static_cast<int>(std::min(i, count - 1));
      const v1::Welcome welcome =
          WelcomeOf(FakeInfo(place, static_cast<int>(count)), terms[i]);
      auto facts = CheckWelcome(address, welcome);
      EXPECT_TRUE(facts.ok()) << facts.status();
      stages.back()->OnWelcome(
          {*std::move(facts), HighestOf(welcome), welcome.run()});
    }
    return stages;
  }
  // The message that refuses the stages; empty: they are a pipeline.
  std::string Refusal() { return Message(places.Join(std::nullopt).status()); }
  bool refuses(size_t index) const { return places.stages()[index]->refused(); }
  act::Outbox out;
  StagePlaces places;
};

TEST(TermsTest, OfTwoThatDifferTheHigherOneIsRefusedByName) {
  Places places({kFar, 3}, 2);
  EXPECT_THAT(places.Refusal(),
              ::testing::AllOf(
                  HasSubstr("stage 0 (host-0:1, layers 0 to 1): its term "
                            "5000000 is more than 1048576 above the others', "
                            "3: `sluice reset-term host-0:1` resets it")));
  EXPECT_TRUE(places.refuses(0));
  EXPECT_FALSE(places.refuses(1));
}

TEST(TermsTest, WithinTheLimitTheHigherOneLeads) {
  Places places({kMostTermsAbove + 3, 3}, 2);
  EXPECT_EQ(places.Refusal(), "");
  EXPECT_EQ(places.places.NextEpoch(), Epoch(kMostTermsAbove + 3, 1));
}

TEST(TermsTest, MostStagesAreRight) {
  Places fresh({kFar, 1, kFar + 1}, 3);
  EXPECT_EQ(fresh.Refusal(), "") << "one has started again";
  Places burnt({1, kFar, 2}, 3);
  EXPECT_THAT(burnt.Refusal(), HasSubstr("stage 1 (host-1:1"));
  Places halves({kFar, 1, kFar, 1}, 4);
  EXPECT_THAT(halves.Refusal(), HasSubstr("stage 0 (host-0:1"));
  EXPECT_TRUE(halves.refuses(2));
}

TEST(TermsTest, ASpareHasAVoice) {
  Places places({kFar, 1}, 1);
  EXPECT_THAT(places.Refusal(), HasSubstr("`sluice reset-term host-0:1`"));
  Places burnt({1, kFar}, 1);
  EXPECT_EQ(burnt.Refusal(), "");
  EXPECT_THAT(
      Message(burnt.places.CheckSpare(burnt.places.stages()[1]->facts())),
      HasSubstr("`sluice reset-term host-1:1` resets it"));
}

TEST(TermsTest, AStageAloneIsComparedWithTheGatewaysOwn) {
  Places alone({kFar}, 1);
  EXPECT_EQ(alone.Refusal(), "") << "a gateway that knows nothing";
  alone.places.OnUp(Epoch(kFar, 1), Clock::now());
  EXPECT_EQ(alone.Refusal(), "");
  Places known({kFar}, 1);
  known.places.OnUp(Epoch(7, 1), Clock::now());
  EXPECT_THAT(known.Refusal(), HasSubstr("above the others', 7"));
}

TEST(TermsTest, TheGatewaysOwnIsOneVoiceAndItsStagesStay) {
  Places raised({kFar, kFar}, 2);
  raised.places.OnUp(Epoch(7, 1), Clock::now());
  EXPECT_EQ(raised.Refusal(), "") << "another gateway led";
  Places fresh({kFar, 1, 1}, 2);  // with a spare
  fresh.places.OnUp(Epoch(kFar, 9), Clock::now());
  EXPECT_EQ(fresh.Refusal(), "") << "what this gateway led is no outlier";
}

TEST(TermsTest, ATermWhoseStagesAreGoneCountsNoMore) {
  Places fresh({1, 2}, 2);
  fresh.places.OnUp(Epoch(kAbsurd, 4), Clock::now());
  EXPECT_EQ(fresh.Refusal(), "");
  fresh.places.SetEpoch(Epoch(kAbsurd, 4));
  EXPECT_EQ(fresh.places.NextEpoch(), Epoch(2, 1));
  fresh.places.SetEpoch(Epoch(900, 4));
  EXPECT_EQ(fresh.places.NextEpoch(), Epoch(900, 5));
}

TEST(TermsTest, AStageThatCannotBeRaisedIsRefused) {
  Places places({kAbsurd, kAbsurd, 1}, 3);
  EXPECT_THAT(places.Refusal(),
              HasSubstr("stage 2 (host-2:1, layers 4 to 5): its term 1 is more "
                        "than 16777216 below the others'"));
}

TEST(TermsTest, AnEpochIsFollowedByTheNextTermAtItsEnd) {
  Epoch epoch(4, UINT64_MAX - 1);
  EXPECT_EQ(++epoch, Epoch(4, UINT64_MAX));
  EXPECT_EQ(++epoch, Epoch(5, 0));
  EXPECT_EQ(RaisedTerm(kMaxTerm - 3, kTermsPerHold), kMaxTerm);
  EXPECT_EQ(RaisedTerm(UINT64_MAX, 1), kMaxTerm);
}

// Clusters -------------------------------------------------------------------

class ClusterTermsTest : public testing::PipelineAssemblerTest {
 protected:
  // A stranger holds the stage, `holds` times, and raises its term each time.
  static void Burn(const FakeStage& stage, uint64_t holds) {
    for (uint64_t hold = 1; hold <= holds; ++hold) {
      std::optional<Epoch> before;
      ASSERT_TRUE(Eventually([&] {
        const GatewayRun rogue(stage, 'r', {}, kMaxTerm, 0);
        const auto highest = rogue.highest();
        const bool rose =
            before && highest && highest->term() >= before->term() + 900;
        if (!before) before = highest;
        return rose;
      }));
    }
  }
  void ExpectUp(PipelineAssembler& client) {
    ASSERT_TRUE(Eventually([&] { return client.ready(); }))
        << client.status().message;
  }
};

TEST_F(ClusterTermsTest, ServesOnAfterAStrangersHold) {
  AddStages(2);
  {
    GatewayRun rogue(*stages_[0], 'r');
    ASSERT_TRUE(rogue.highest().has_value());
    EXPECT_NE(rogue.Assign(Epoch((uint64_t{1} << 31) - 1, 5)).status_code(), 0);
  }
  for (int run = 0; run < 3; ++run) {  // each gateway after another one
    const auto client = Connect();
    ExpectUp(*client);
    EXPECT_LE(client->status().epoch.term(), 1001u + 3);
  }
}

TEST_F(ClusterTermsTest, StagesFarBelowAreRaisedStepByStep) {
  AddStages(3);
  Burn(*stages_[1], 6);
  for (size_t run = 0; run < 2; ++run) {
    const auto client = Connect();
    ExpectUp(*client);
    EXPECT_GE(client->status().epoch.term(), 5 * 900u);
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > run; }));
    client->plans().Submit(Plan(0, 41));
    ASSERT_TRUE(Eventually([&] { return listener_.results().size() > run; }));
  }
  const auto client = Connect();
  ExpectUp(*client);
  // A stage that starts again comes up to the others as well.
  const std::string address = stages_[2]->address();
  stages_[2].reset();
  ASSERT_TRUE(Eventually([&] { return !client->ready(); }));
  testing::FakeStageOptions options;
  options.info = FakeInfo(2, 3);
  options.listen = address;
  stages_[2] = std::make_unique<FakeStage>(options);
  ExpectUp(*client);
}

// A stage that lies about its term.
class Liar {
 public:
  Liar(const StageInfo& info, uint64_t term) : service_(info, term) {
    auto server = rpc::Listen("127.0.0.1:0", {}, &service_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~Liar() { server_.server->Shutdown(std::chrono::system_clock::now()); }
  const std::string& address() const { return server_.address; }

 private:
  class Control
      : public rpc::ServerStream<v1::ControlRequest, v1::ControlResponse> {
   public:
    explicit Control(v1::Welcome welcome)
        : ServerStream(rpc::ServerStreamOptions{"Control"}),
          welcome_(std::move(welcome)) {}

   private:
    Status OnHello(const std::string&) override {
      v1::ControlResponse response;
      *response.mutable_welcome() = welcome_;
      Send(std::move(response));
      return OkStatus();
    }
    void OnMessage(v1::ControlRequest& request) override {
      if (!request.has_heartbeat()) return;
      v1::ControlResponse response;
      response.mutable_heartbeat()->set_sequence(
          request.heartbeat().sequence());
      Send(std::move(response));
    }
    const v1::Welcome welcome_;
  };
  class Service
      : public v1::Stage::WithCallbackMethod_Control<v1::Stage::Service> {
   public:
    Service(const StageInfo& info, uint64_t term)
        : welcome_(WelcomeOf(info, term)) {}
    grpc::ServerBidiReactor<v1::ControlRequest, v1::ControlResponse>* Control(
        grpc::CallbackServerContext*) override {
      auto stream = std::make_shared<Liar::Control>(welcome_);
      stream->Open("");
      return stream.get();
    }

   private:
    const v1::Welcome welcome_;
  };

  Service service_;
  rpc::ListeningServer server_;
};

TEST_F(ClusterTermsTest, GoesOnWithASpareForAStageWithAnAbsurdTerm) {
  AddStages(2);
  AddSpare(FakeInfo(0, 2));
  for (const uint64_t term : {kAbsurd, kMaxTerm - 1}) {
    const Liar liar(FakeInfo(0, 2), term);
    PipelineOptions options = Options({});
    options.stages[0] = liar.address();
    const auto client = Connect(std::move(options));
    ExpectUp(*client);
    const PipelineStatus status = client->status();
    EXPECT_EQ(status.stages[0].address, spares_[0]->address());
    EXPECT_LE(status.epoch.term(), 3u);
    ASSERT_EQ(status.spares.size(), 1u);
    EXPECT_EQ(status.spares[0].state, StageState::kRefused);
    EXPECT_THAT(
        status.spares[0].message,
        HasSubstr(Cat("`sluice reset-term ", liar.address(), "` resets it")));
  }
}

TEST_F(ClusterTermsTest, WithoutASpareItNamesTheStageAndTheCommand) {
  AddStages(2);
  const Liar liar(FakeInfo(0, 2), kAbsurd);
  PipelineOptions options = Options({});
  options.stages[0] = liar.address();
  const auto client = Connect(std::move(options));
  const std::string command =
      Cat("`sluice reset-term ", liar.address(), "` resets it");
  ASSERT_TRUE(Eventually([&] {
    const PipelineStatus status = client->status();
    return status.stages[0].state == StageState::kRefused &&
           status.message.find(command) != std::string::npos;
  })) << client->status().message;
  EXPECT_THAT(client->status().stages[0].message, HasSubstr(command));
  // Its honest successor in the same place is taken.
  client->Stop();
  const auto honest = Connect();
  ExpectUp(*honest);
  EXPECT_LE(honest->status().epoch.term(), 3u);
}

}  // namespace
}  // namespace sluice
