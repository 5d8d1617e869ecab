#ifndef SLUICE_TESTS_EXPERTS_EXPERTS_FIXTURE_H_
#define SLUICE_TESTS_EXPERTS_EXPERTS_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/experts/client/client_metrics.h"
#include "common/experts/client/expert_dispatcher.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/expert_hosts.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/holds_within.h"
#include "tests/testing/test_data.h"

// Stages and hosts of experts over gRPC, in one process.
namespace sluice::testing {

inline constexpr auto kLimit = std::chrono::seconds(30);

inline StageOptions StageOf(const std::string& path, int32_t ranks) {
  StageOptions options;
  options.model_path = path;
  options.ranks = ranks;
  options.threads = 1;
  options.kv_blocks = 256;
  return options;
}

// Greedy and sampled, short and long.
// Prompts of a golden model, or the ends of the demo model's golden chats,
// which lie beside its weights: eight of them fit one step.
inline std::vector<std::vector<TokenId>> PromptsOf(const std::string& path) {
  std::vector<std::vector<TokenId>> prompts;
  const std::string chats = path + "/../golden.json";
  if (std::filesystem::exists(chats)) {
    const Json told = *ParseJson(ReadFileOrDie(chats));
    for (const Json& prompt : told.at("prompts")) {
      const auto ids = prompt.at("prompt_ids").get<std::vector<TokenId>>();
      prompts.emplace_back(ids.end() - std::min<ptrdiff_t>(60, std::ssize(ids)),
                           ids.end());
    }
  } else {
    for (const auto& golden : ReadGolden(path)) prompts.push_back(golden.ids);
  }
  return prompts;
}

inline std::vector<Ask> Asks(const std::string& path) {
  const auto prompts = PromptsOf(path);
  std::vector<Ask> asks;
  for (size_t i = 0; i < 8; ++i) {
    Ask ask{prompts[i % prompts.size()], {}, 12, /*prompt_logits=*/true};
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
    const auto file = OpenModel(path);
    const auto config = ParseModelConfig((*file)->config());
    DispatchOptions options;
    options.placement = std::move(placement);
    options.layers = {0, config->num_layers()};
    options.most_hedges = most_hedges;
    options.metrics = &metrics_;
    options.on_ready = [this](bool ready) { told_ready_ = ready; };
    auto made = ExpertDispatcher::Make(*config, std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    client_ = *std::move(made);
    client_->Connect(info);
  }
  ~Clients() { client_->Stop(); }  // while the metrics live
  ExpertDispatcher& operator*() { return *client_; }
  ExpertDispatcher* operator->() { return client_.get(); }
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
  std::shared_ptr<ExpertDispatcher> client_;
};

inline const StageInfo& InfoOf(const std::string& path) {
  static std::map<std::string, StageInfo> known;
  if (!known.contains(path)) {
    known[path] = (*Stage::Load(StageOf(path, 1)))->info();
  }
  return known[path];
}

inline const std::vector<Answer>& AllLocal(const std::string& path) {
  static std::map<std::string, std::vector<Answer>> known;
  if (!known.contains(path)) {
    auto pipeline = Pipeline::Load({StageOf(path, 1), 1});
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    known[path] = (*pipeline)->Generate(Asks(path), {1 << 20, 1});
  }
  return known[path];
}

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
    clients_ = std::make_unique<Clients>(path_, placement, info, most_hedges);
    PipelineOptions pipeline = {StageOf(path_, 1), 1};
    pipeline.stage.placement = placement;
    pipeline.stage.expert_transport = &**clients_;
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
    ASSERT_NO_FATAL_FAILURE(StartClients(hosts_->placement(), InfoOf(path_)));
    WaitReady();
  }
  template <typename Condition>
  static bool Eventually(const Condition& condition) {
    return HoldsWithin(kLimit, condition);
  }
  double Batches() const {
    return clients_->Metric("sluice_stage_expert_batches_total");
  }
  std::vector<Answer> Generate() {
    return pipeline_->Generate(Asks(path_), {1 << 20, 8});
  }

  const std::string path_ = GoldenModel("glm4_moe-air");
  std::unique_ptr<ExpertHosts> hosts_;
  std::unique_ptr<Clients> clients_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_EXPERTS_EXPERTS_FIXTURE_H_
