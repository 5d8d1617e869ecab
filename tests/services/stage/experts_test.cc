// Stages and hosts of experts over gRPC, in one process: the same tokens
// wherever experts are, and as long as one replica of them lives.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/model/model_config.h"
#include "common/weights/model_file.h"
#include "services/stage/experts/client_metrics.h"
#include "services/stage/experts/expert_client.h"
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
  Clients(const std::string& path, const ExpertHosts& hosts,
          const StageInfo& info) {
    const auto file = weights::OpenModel(path);
    const auto config = ParseModelConfig((*file)->config());
    ExpertClientOptions options;
    options.placement = hosts.placement();
    options.layers = {0, config->num_layers};
    options.metrics = &metrics_;
    auto made = ExpertClient::Make(*config, std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    client_ = *std::move(made);
    client_->Connect(info);
  }
  ExpertClient& operator*() { return *client_; }
  ExpertClient* operator->() { return client_.get(); }
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
    Clients clients(path, **hosts, InfoOf(path));
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

// A pipeline of one stage with its hosts.
class ReplicasTest : public ::testing::Test {
 protected:
  void Start(ExpertHostsOptions options) {
    auto hosts = ExpertHosts::Start(std::move(options));
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    hosts_ = *std::move(hosts);
    clients_ = std::make_unique<Clients>(*path_, *hosts_, InfoOf(*path_));
    ASSERT_TRUE((*clients_)->WaitReady(Clock::now() + kLimit).ok())
        << (*clients_)->Ready();
    PipelineOptions pipeline = {StageOf(*path_, 1), 1};
    pipeline.stage.placement = hosts_->placement();
    pipeline.stage.elsewhere = &**clients_;
    auto loaded = Pipeline::Load(pipeline);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    pipeline_ = *std::move(loaded);
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
    std::thread killer([&] { hosts_->Stop(gone); });
    ExpectSame(Generate(), AllLocal(*path_));
    killer.join();
    ExpectSame(Generate(), AllLocal(*path_));
    ASSERT_TRUE(hosts_->Restart(gone).ok());
    // Only a host that is used again lets the other one go.
    const TimePoint end = Clock::now() + kLimit;
    while (clients_->Metric("sluice_stage_expert_up") < 2 &&
           Clock::now() < end) {
      std::this_thread::yield();
    }
    ASSERT_EQ(clients_->Metric("sluice_stage_expert_up"), 2);
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
  ASSERT_TRUE(hosts_->Restart(0).ok());
  ASSERT_TRUE((*clients_)->WaitReady(Clock::now() + kLimit).ok());
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
  auto hosts = ExpertHosts::Start({*path_, {{0, 7, {"a"}}}, 1});
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  StageInfo other = InfoOf(*path_);
  other.model_digest = std::string(64, 'e');
  Clients clients(*path_, **hosts, other);
  const TimePoint end = Clock::now() + kLimit;
  std::string why;
  do {
    why = Message(clients->WaitReady(Clock::now()));
  } while (Clock::now() < end && why.find("differs") == std::string::npos);
  EXPECT_THAT(why, HasSubstr("host a: model digest differs"));
  EXPECT_THAT(why, HasSubstr(other.model_digest));
  EXPECT_THAT(why, HasSubstr(InfoOf(*path_).model_digest));
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
