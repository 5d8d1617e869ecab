// Stages and hosts of experts over gRPC, in one process: the same tokens
// wherever experts are, and as long as one replica of them lives.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/model/model_config.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/transport.h"
#include "common/weights/model_file.h"
#include "services/stage/experts/client_metrics.h"
#include "services/stage/experts/expert_client.h"
#include "sluice/v1/expert.grpc.pb.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/expert_hosts.h"
#include "tests/testing/shared_data.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(30);

bool IsLong() {
  const char* value = std::getenv("SLUICE_LONG");
  return value != nullptr && std::string(value) == "1";
}

StageOptions StageOf(const std::string& path, int32_t ranks) {
  StageOptions options;
  options.model_path = path;
  options.ranks = ranks;
  options.threads = 1;
  options.kv_blocks = 256;
  return options;
}

// Greedy and sampled, short and long.
std::vector<Ask> Asks(const std::string& path) {
  const auto goldens = ReadGolden(path);
  std::vector<Ask> asks;
  for (size_t i = 0; i < 8; ++i) {
    Ask ask{goldens[i % goldens.size()].ids, {}, 12, /*prompt_logits=*/true};
    ask.sampling.seed = 40 + i;
    ask.sampling.temperature = i < 4 ? 0.0f : 0.8f;
    ask.sampling.logprobs = 3;
    ask.sampling.prompt_logprobs = 0;
    asks.push_back(ask);
  }
  return asks;
}

// A client for every layer of a model: a test's stages run one after another
// and may share it.
class Clients {
 public:
  Clients(const std::string& path, ExpertPlacement placement,
          const StageInfo& info, double most_hedges = 10) {
    const auto file = weights::OpenModel(path);
    const auto config = ParseModelConfig((*file)->config());
    ExpertClientOptions options;
    options.placement = std::move(placement);
    options.layers = {0, config->num_layers};
    options.most_hedges = most_hedges;
    options.metrics = &metrics_;
    options.on_ready = [this](bool ready) { told_ready_ = ready; };
    auto made = ExpertClient::Make(*config, std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    client_ = *std::move(made);
    client_->Connect(info);
  }
  ExpertClient& operator*() { return *client_; }
  ExpertClient* operator->() { return client_.get(); }
  bool told_ready() const { return told_ready_; }
  // The sum of a series over its labels.
  double Metric(const std::string& name) const {
    const std::string text = registry_.Text();
    double sum = 0;
    for (size_t at = text.find("\n" + name); at != std::string::npos;
         at = text.find("\n" + name, at + 1)) {
      const size_t end = text.find('\n', at + 1);
      const size_t space = text.rfind(' ', end);
      sum += std::stod(text.substr(space + 1, end - space));
    }
    return sum;
  }

 private:
  std::atomic<bool> told_ready_{false};
  metrics::Registry registry_;
  ExpertClientMetrics metrics_{&registry_, {"a", "b", "c"}};
  std::unique_ptr<ExpertClient> client_;
};

const StageInfo& InfoOf(const std::string& path) {
  static std::map<std::string, StageInfo> known;
  if (!known.contains(path)) {
    known[path] = (*Stage::Load(StageOf(path, 1)))->info();
  }
  return known[path];
}

const std::vector<Answer>& AllLocal(const std::string& path) {
  static std::map<std::string, std::vector<Answer>> known;
  if (!known.contains(path)) {
    auto pipeline = Pipeline::Load({StageOf(path, 1), 1});
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    known[path] = (*pipeline)->Generate(Asks(path), {1 << 20, 1});
  }
  return known[path];
}

void ExpectSame(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i].status.ok()) << a[i].status;
    EXPECT_TRUE(a[i].tokens == b[i].tokens) << "request " << i;
    EXPECT_TRUE(a[i].prompt == b[i].prompt) << "request " << i;
  }
}

// Where experts are.
struct Cut {
  const char* name;
  int hosts;
  std::vector<PlacedEighths> entries;
  bool is_short;  // also in the default run
};

const std::vector<Cut>& Cuts() {
  static const std::vector<Cut> cuts = {
      {"half remote", 1, {{0, 3, {}}, {4, 7, {"a"}}}, true},
      {"uneven", 2, {{0, 0, {"b"}}, {1, 2, {}}, {3, 7, {"a"}}}, true},
      {"all on one", 1, {{0, 7, {"a"}}}, false},
      {"all on two", 2, {{0, 3, {"a"}}, {4, 7, {"b"}}}, false},
      {"all on three", 3, {{0, 2, {"a"}}, {3, 5, {"b"}}, {6, 7, {"c"}}}, false},
      {"replicated", 3, {{0, 3, {"a", "b"}}, {4, 7, {"b", "c"}}}, true},
  };
  return cuts;
}

class OneHashTest : public ::testing::TestWithParam<const char*> {};

TEST_P(OneHashTest, TokensAndLogprobsAreThoseOfAllExpertsOnTheStage) {
  SLUICE_REQUIRE_SHARED(path, std::string("golden/") + GetParam());
  const std::vector<Ask> asks = Asks(path);
  for (const Cut& cut : Cuts()) {
    if (!IsLong() && !cut.is_short) continue;
    auto hosts = ExpertHosts::Start({path, cut.entries, cut.hosts});
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    Clients clients(path, (*hosts)->placement(), InfoOf(path));
    ASSERT_TRUE(clients->WaitReady(Clock::now() + kLimit).ok())
        << clients->Ready();
    for (const int32_t stages : {1, 2, 3}) {
      for (const int32_t ranks : {1, 2}) {
        // The default run: one cut of the stage per place of the experts.
        if (!IsLong() && (stages != cut.hosts || ranks != 1 + stages % 2)) {
          continue;
        }
        PipelineOptions options = {StageOf(path, ranks), stages};
        options.stage.placement = (*hosts)->placement();
        options.stage.elsewhere = &*clients;
        auto pipeline = Pipeline::Load(options);
        ASSERT_TRUE(pipeline.ok()) << pipeline.status();
        for (const int32_t batch : {1, 8}) {
          SCOPED_TRACE(Cat(cut.name, ", ", stages, " stages, ", ranks,
                           " ranks, batch ", batch));
          ExpectSame((*pipeline)->Generate(asks, {1 << 20, batch}),
                     AllLocal(path));
        }
      }
    }
    EXPECT_GT(clients.Metric("sluice_stage_expert_batches_total"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OneHashTest,
                         ::testing::Values("glm4_moe-air", "glm4_moe-46",
                                           "gpt_oss-mxfp4"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A host that welcomes askers, answers pings until the first batch (or none),
// and no batch.
class MuteHost {
 public:
  MuteHost(const HostedExpertsInfo& info, bool pongs)
      : service_(WelcomeOf(info), pongs) {
    auto server = rpc::Listen("127.0.0.1:0", {}, &service_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~MuteHost() {
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server->Wait();
  }
  const std::string& address() const { return server_.address; }
  int batches() const { return service_.batches; }

 private:
  using Frame = grpc::ByteBuffer;
  struct Service
      : v1::Expert::WithRawCallbackMethod_Batches<v1::Expert::Service> {
    Service(wire::ExpertWelcome said, bool answers_pings)
        : welcome(std::move(said)), pongs(answers_pings) {}
    grpc::ServerBidiReactor<Frame, Frame>* Batches(
        grpc::CallbackServerContext*) override {
      auto stream = std::make_shared<Stream>(this);
      stream->Open();
      return stream.get();
    }
    const wire::ExpertWelcome welcome;
    const bool pongs;
    std::atomic<int> batches{0};
  };
  class Stream : public rpc::ServerStream<Frame, Frame> {
   public:
    explicit Stream(Service* service)
        : ServerStream(rpc::ServerStreamOptions{"Batches"}),
          service_(*service) {}

   private:
    void OnMessage(Frame& frame) override {
      const auto split =
          rpc::SplitPayload(frame, wire::kExpertPayloadField, frame.Length());
      ASSERT_TRUE(split.ok()) << split.status();
      const auto head = rpc::ParseHead<v1::ExpertFrame>(split->head);
      ASSERT_TRUE(head.ok()) << head.status();
      v1::ExpertAnswer answer;
      if (head->has_batch()) ++service_.batches;
      if (head->has_hello()) {
        *answer.mutable_welcome() = wire::ToProto(service_.welcome);
      } else if (head->has_ping() && service_.pongs && service_.batches == 0) {
        answer.mutable_pong()->set_sequence(head->ping().sequence());
      } else {
        return;
      }
      Send(rpc::JoinPayload(answer, 0, Buffer()));
    }
    Service& service_;
  };
  static wire::ExpertWelcome WelcomeOf(const HostedExpertsInfo& info) {
    wire::ExpertWelcome welcome;
    welcome.model_name = info.model_name;
    welcome.model = {info.model_digest,      info.numerics,
                     ToString(info.weights), info.num_layers,
                     info.hidden_size,       info.num_experts,
                     info.experts_per_token};
    welcome.weights_dtype = info.weights_dtype;
    for (const LayerRanges& layer : info.held) {
      auto& held = welcome.held.emplace_back();
      held.layer = layer.layer;
      for (const ExpertRange& range : layer.ranges) {
        held.ranges.push_back({range.begin, range.end});
      }
    }
    welcome.limits = {2048, 64};
    return welcome;
  }

  Service service_;
  rpc::ListeningServer server_;
};

// A pipeline of one stage with its hosts.
class ReplicasTest : public ::testing::Test {
 protected:
  void StartHosts(ExpertHostsOptions options) {
    auto hosts = ExpertHosts::Start(std::move(options));
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    hosts_ = *std::move(hosts);
  }
  // `placement` of the hosts, or of others in their place.
  void StartClients(const ExpertPlacement& placement, const StageInfo& info,
                    double most_hedges = 10) {
    clients_ = std::make_unique<Clients>(*path_, placement, info, most_hedges);
    PipelineOptions pipeline = {StageOf(*path_, 1), 1};
    pipeline.stage.placement = placement;
    pipeline.stage.elsewhere = &**clients_;
    auto loaded = Pipeline::Load(pipeline);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    pipeline_ = *std::move(loaded);
  }
  void WaitReady() {
    ASSERT_TRUE((*clients_)->WaitReady(Clock::now() + kLimit).ok())
        << (*clients_)->Ready();
  }
  void Start(ExpertHostsOptions options) {
    ASSERT_NO_FATAL_FAILURE(StartHosts(std::move(options)));
    ASSERT_NO_FATAL_FAILURE(StartClients(hosts_->placement(), InfoOf(*path_)));
    WaitReady();
  }
  template <typename Condition>
  static bool Eventually(const Condition& condition) {
    const TimePoint end = Clock::now() + kLimit;
    while (!condition()) {
      if (Clock::now() >= end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  double Batches() const {
    return clients_->Metric("sluice_stage_expert_batches_total");
  }
  std::vector<Answer> Generate() {
    return pipeline_->Generate(Asks(*path_), {1 << 20, 8});
  }

  std::optional<std::string> path_ = SharedData("golden/glm4_moe-air");
  std::unique_ptr<ExpertHosts> hosts_;
  std::unique_ptr<Clients> clients_;
  std::unique_ptr<Pipeline> pipeline_;
};

#define SLUICE_REQUIRE_AIR()                            \
  if (!path_.has_value()) {                             \
    GTEST_SKIP() << "golden/glm4_moe-air is not there"; \
  }

TEST_F(ReplicasTest, OneOfTwoMayEndAtAnyTime) {
  SLUICE_REQUIRE_AIR();
  Start({*path_, {{0, 7, {"a", "b"}}}, 2});
  for (const int gone : {0, 1}) {
    const double before = Batches();
    std::atomic<bool> over{false};
    bool within = false;
    std::thread killer([&] {
      // In the midst of it: the first layers are answered.
      EXPECT_TRUE(Eventually([&] { return Batches() > before + 2 || over; }));
      within = !over;
      hosts_->Stop(gone);
    });
    ExpectSame(Generate(), AllLocal(*path_));
    over = true;
    killer.join();
    EXPECT_TRUE(within);
    ExpectSame(Generate(), AllLocal(*path_));
    ASSERT_TRUE(hosts_->Restart(gone).ok());
    // Only a host that is used again lets the other one go.
    ASSERT_TRUE(Eventually(
        [&] { return clients_->Metric("sluice_stage_expert_up") == 2; }));
  }
}

TEST_F(ReplicasTest, ALateOneIsNotWaitedFor) {
  SLUICE_REQUIRE_AIR();
  // So late that waiting for every layer would take half a minute.
  Start({*path_,
         {{0, 7, {"a", "b"}}},
         2,
         WeightsMode::kAuto,
         {std::chrono::seconds(1)}});
  const TimePoint begin = Clock::now();
  ExpectSame(Generate(), AllLocal(*path_));
  EXPECT_LT(Seconds(Clock::now() - begin), 3);
  EXPECT_GT(clients_->Metric("sluice_stage_expert_hedges_total"), 0);
}

TEST_F(ReplicasTest, WithNoneLeftSequencesEndAndTheStageGoesOn) {
  SLUICE_REQUIRE_AIR();
  Start({*path_, {{0, 3, {}}, {4, 7, {"a"}}}, 1});
  hosts_->Stop(0);
  for (const Answer& answer : Generate()) {
    EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(Message(answer.status),
              "experts 4-7 of layers 1-3 have no host left of: a");
  }
  EXPECT_FALSE((*clients_)->Ready().ok());
  EXPECT_TRUE(Eventually([&] { return !clients_->told_ready(); }));
  ASSERT_TRUE(hosts_->Restart(0).ok());
  ASSERT_TRUE((*clients_)->WaitReady(Clock::now() + kLimit).ok());
  EXPECT_TRUE(Eventually([&] { return clients_->told_ready(); }));
  ExpectSame(Generate(), AllLocal(*path_));
}

TEST_F(ReplicasTest, WhoAsksNothingOfALostHostGoesOn) {
  SLUICE_REQUIRE_AIR();
  Start({*path_, {{0, 6, {}}, {7, 7, {"a"}}}, 1});
  hosts_->Stop(0);
  // Prompts of one token: some of them never ask the last expert.
  std::vector<Ask> asks;
  for (int i = 0; i < 24; ++i) {
    Ask ask{{static_cast<TokenId>(5 + 9 * i)}, {}, 1};
    ask.sampling.temperature = 0;
    asks.push_back(ask);
  }
  const auto answers = pipeline_->Generate(asks);
  const auto local = (*Pipeline::Load({StageOf(*path_, 1), 1}))->Generate(asks);
  int failed = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].status.ok()) {
      EXPECT_TRUE(answers[i].tokens == local[i].tokens) << "request " << i;
      continue;
    }
    ++failed;
    EXPECT_EQ(Message(answers[i].status),
              "experts 7-7 of layers 1-3 have no host left of: a");
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, static_cast<int>(answers.size()));
}

TEST_F(ReplicasTest, AHostOfAnotherModelIsNamedAndNeverAsked) {
  SLUICE_REQUIRE_AIR();
  StartHosts({*path_, {{0, 7, {"a"}}}, 1});
  StageInfo other = InfoOf(*path_);
  other.model_digest = std::string(64, 'e');
  StartClients(hosts_->placement(), other);
  std::string why;
  EXPECT_TRUE(Eventually([&] {
    why = Message((*clients_)->Ready());
    return why.find("differs") != std::string::npos;
  }));
  EXPECT_THAT(why, HasSubstr("host a: model digest differs"));
  EXPECT_THAT(why, HasSubstr(other.model_digest));
  EXPECT_THAT(why, HasSubstr(InfoOf(*path_).model_digest));
  for (const Answer& answer : Generate()) {
    EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(Batches(), 0);
  EXPECT_THAT(hosts_->host(0).HeatJson(), HasSubstr("\"asks\": [0, 0, 0"));
}

TEST_F(ReplicasTest, ASilentOneIsNotAskedAndDoesNotCount) {
  SLUICE_REQUIRE_AIR();
  StartHosts({*path_, {{0, 7, {"a", "b"}}}, 2});
  MuteHost mute(*hosts_->host(0).info(), /*pongs=*/false);
  ExpertPlacement placement = hosts_->placement();
  placement.hosts[0].address = mute.address();
  StartClients(placement, InfoOf(*path_));
  WaitReady();
  ASSERT_TRUE(Eventually([&] {
    return clients_->Metric("sluice_stage_expert_up") == 2 &&
           clients_->Metric("sluice_stage_expert_silent") == 1;
  }));
  ExpectSame(Generate(), AllLocal(*path_));
  EXPECT_EQ(mute.batches(), 0);
  hosts_->Stop(1);
  ASSERT_TRUE(Eventually([&] { return !(*clients_)->Ready().ok(); }));
  EXPECT_THAT(Message((*clients_)->Ready()), HasSubstr("host a: silent"));
  EXPECT_TRUE(Eventually([&] { return !clients_->told_ready(); }));
}

TEST_F(ReplicasTest, WhatASilentOneHasIsAskedElsewhereWithoutAHedgeToSpare) {
  SLUICE_REQUIRE_AIR();
  StartHosts({*path_, {{0, 7, {"a", "b"}}}, 2});
  MuteHost mute(*hosts_->host(0).info(), /*pongs=*/true);
  ExpertPlacement placement = hosts_->placement();
  placement.hosts[0].address = mute.address();
  StartClients(placement, InfoOf(*path_), /*most_hedges=*/0);
  WaitReady();
  ASSERT_TRUE(Eventually(
      [&] { return clients_->Metric("sluice_stage_expert_up") == 2; }));
  const TimePoint begin = Clock::now();
  ExpectSame(Generate(), AllLocal(*path_));
  EXPECT_LT(Seconds(Clock::now() - begin), 8);
  EXPECT_EQ(mute.batches(), 1);
  EXPECT_GT(clients_->Metric("sluice_stage_expert_hedges_total"), 0);
}

TEST_F(ReplicasTest, AHostThatLacksExpertsIsNamed) {
  SLUICE_REQUIRE_AIR();
  auto hosts = ExpertHosts::Start({*path_, {{0, 3, {"a"}}, {4, 7, {"b"}}}, 2});
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  auto more = ExpertHosts::Start({*path_, {{0, 7, {"a"}}}, 1});
  ASSERT_TRUE(more.ok()) << more.status();
  // Where a host should have all there is one that has half.
  (*more)->Stop(0);
  ExpertPlacement wrong = (*more)->placement();
  wrong.hosts[0].address = (*hosts)->placement().hosts[0].address;
  const auto file = weights::OpenModel(*path_);
  const auto config = ParseModelConfig((*file)->config());
  ExpertClientOptions options;
  options.placement = wrong;
  options.layers = {0, config->num_layers};
  auto client = ExpertClient::Make(*config, std::move(options));
  ASSERT_TRUE(client.ok()) << client.status();
  (*client)->Connect(InfoOf(*path_));
  const TimePoint end = Clock::now() + kLimit;
  std::string why;
  do {
    why = Message((*client)->WaitReady(Clock::now()));
  } while (Clock::now() < end && why.find("wanted") == std::string::npos);
  EXPECT_THAT(why, HasSubstr("experts 0-7 of layer 1 are wanted and not all "
                             "of them are here"));
}

TEST_F(ReplicasTest, AHostWithoutAnAddressIsRefused) {
  SLUICE_REQUIRE_AIR();
  auto hosts = ExpertHosts::Start({*path_, {{0, 7, {"a"}}}, 1});
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  const auto file = weights::OpenModel(*path_);
  const auto config = ParseModelConfig((*file)->config());
  ExpertClientOptions options;
  options.placement = (*hosts)->placement();
  options.layers = {0, config->num_layers};
  options.placement.hosts[0].address.clear();
  EXPECT_EQ(Message(ExpertClient::Make(*config, options).status()),
            "placement: host 'a' has no address");
  options.placement.hosts[0].address = "10.1.2.3:7101";
  EXPECT_THAT(Message(ExpertClient::Make(*config, options).status()),
              HasSubstr("host 'a': address 10.1.2.3:7101 is beyond loopback"));
}

}  // namespace
}  // namespace sluice::testing
