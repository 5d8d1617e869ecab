// A stage process that loads other layers: what its probes and metrics say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/pipeline/gateway/pipeline_assembler.h"
#include "services/stage/stage_server.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/holds_within.h"
#include "tests/testing/http_exchange.h"

namespace sluice::stage {
namespace {

using ::testing::HasSubstr;

template <typename Condition>
bool Eventually(Condition condition) {
  return testing::HoldsWithin(std::chrono::seconds(30), condition);
}

class NoObserver : public PipelineObserver {
 public:
  void OnUp(Epoch, const PlanLimits&, int, const LostStages&) override {}
  void OnLost(const Status&) override {}
  void OnResult(StepResult) override {}
};

// Holds loads, while it is closed.
class Gate {
 public:
  void Set(bool open) {
    MutexLock lock(mutex_);
    open_ = open;
    changed_.NotifyAll();
  }
  // What a load that comes by ends with.
  Status Pass() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
    return result_;
  }
  void SetResult(Status result) {
    MutexLock lock(mutex_);
    result_ = std::move(result);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  Status result_ ABSL_GUARDED_BY(mutex_);
};

class ReloadTest : public ::testing::Test {
 protected:
  void Start(const std::string& model) {
    for (int i = 0; i < 2; ++i) {
      StageServerOptions options;
      options.metrics_listen = "127.0.0.1:0";
      options.layers.assigned = true;
      options.stage.model_path = model;
      options.stage.threads = 2;
      options.stage.ranks = 2;
      options.stage.kv_blocks = 64;
      options.stage.make_backends = [this](const BackendOptions& backends)
          -> StatusOr<std::vector<std::unique_ptr<Backend>>> {
        SLUICE_RETURN_IF_ERROR(gate_.Pass());
        return MakeBackends(backends);
      };
      auto server = StageServer::Start(std::move(options));
      ASSERT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
    }
  }
  void TearDown() override {
    gate_.Set(true);
    client_.reset();
    servers_.clear();
  }
  // Begins to gather a pipeline of five layers, cut at `cut`.
  void Gather(int32_t cut) {
    client_.reset();
    PipelineOptions options;
    options.places = {{0, cut}, {cut, 5}};
    for (const auto& server : servers_) {
      options.stages.push_back(server->address());
    }
    auto client = PipelineAssembler::Create(std::move(options));
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    client_->Start(&observer_);
  }
  std::string Page(const char* path) const {
    return testing::Get(servers_[0]->metrics_port(), path);
  }
  // Of the first stage's series `name` with `label`; -1: there is none.
  double Value(const std::string& name, const std::string& label = "") const {
    const std::string page = Page("/metrics");
    for (size_t at = 0; (at = page.find("\n" + name, at)) != page.npos; ++at) {
      const std::string line =
          page.substr(at + 1, page.find('\n', at + 1) - at);
      if (line.find(label) == line.npos) continue;
      return std::atof(line.c_str() + line.rfind(' '));
    }
    return -1;
  }

  Gate gate_;
  std::vector<std::unique_ptr<StageServer>> servers_;
  NoObserver observer_;
  std::unique_ptr<PipelineAssembler> client_;
};

TEST_F(ReloadTest, AStageThatLoadsOtherLayersIsNotReadyAndHoldsNothing) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  ASSERT_TRUE(Eventually(
      [&] { return Value("sluice_stage_state", "state=\"ready\"") == 1; }));
  EXPECT_THAT(Page("/readyz"), HasSubstr("\"state\":\"spare\""));
  EXPECT_EQ(Value("sluice_stage_weights_bytes"), 0);
  for (const int32_t cut : {3, 1, 4}) {
    gate_.Set(false);
    Gather(cut);
    ASSERT_TRUE(Eventually([&] {
      return client_->status().stages[0].state == StageState::kLoading;
    })) << client_->status().message;
    EXPECT_EQ(client_->status().stages[0].message,
              Cat("this stage loads layers 0 to ", cut - 1));
    ASSERT_TRUE(
        Eventually([&] { return Value("sluice_stage_weights_bytes") == 0; }));
    EXPECT_EQ(Value("sluice_stage_state", "state=\"loading\""), 1);
    EXPECT_EQ(Value("sluice_stage_state", "state=\"ready\""), 0);
    EXPECT_EQ(Value("sluice_stage_kv_blocks"), 0);
    EXPECT_THAT(Page("/readyz"), HasSubstr("\"state\":\"loading\""));
    gate_.Set(true);
    ASSERT_TRUE(Eventually([&] { return client_->ready(); }))
        << client_->status().message;
    EXPECT_TRUE(Eventually(
        [&] { return Value("sluice_stage_state", "state=\"ready\"") == 1; }));
    EXPECT_EQ(Value("sluice_stage_state", "state=\"loading\""), 0);
    EXPECT_EQ(Value("sluice_stage_kv_blocks"), 64);
    EXPECT_GT(Value("sluice_stage_weights_bytes"), 0);
    EXPECT_THAT(Page("/readyz"), HasSubstr("\"state\":\"ready\""));
  }
}

TEST_F(ReloadTest, AFailedLoadLeavesAStageThatWaitsForTheNext) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  gate_.SetResult(ResourceExhausted("no such device"));
  Gather(2);
  EXPECT_TRUE(Eventually([&] {
    return client_->status().stages[0].message ==
           "layers 0 to 1 were not loaded: no such device";
  })) << client_->status().stages[0].message;
  EXPECT_TRUE(Eventually(
      [&] { return Value("sluice_stage_state", "state=\"ready\"") == 1; }));
  EXPECT_EQ(Value("sluice_stage_kv_blocks"), 0);
  gate_.SetResult(OkStatus());
  Gather(2);
  EXPECT_TRUE(Eventually([&] { return client_->ready(); }))
      << client_->status().message;
}

}  // namespace
}  // namespace sluice::stage
