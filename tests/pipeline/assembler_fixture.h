#ifndef SLUICE_TESTS_PIPELINE_ASSEMBLER_FIXTURE_H_
#define SLUICE_TESTS_PIPELINE_ASSEMBLER_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice::testing {

// What the pipeline's owner was told, in order of arrival.
class Listener : public PipelineObserver {
 public:
  void OnUp(Epoch epoch, const PlanLimits& limits, int num_stages,
            const LostStages& lost) override {
    MutexLock lock(mutex_);
    epochs_.push_back(epoch);
    lost_.push_back(lost);
    limits_ = limits;
    num_stages_ = num_stages;
  }
  void OnLost(const Status& why) override {
    MutexLock lock(mutex_);
    losses_.push_back(Message(why));
  }
  void OnResult(StepResult result) override {
    if (throws_.exchange(false)) throw std::bad_alloc();
    MutexLock lock(mutex_);
    results_.push_back(std::move(result));
  }
  void OnException(const Status&) override { ++exceptions_; }
  void OnResplit(const Status&) override { ++resplits_; }
  int64_t PauseCost() override { return cost_; }

  void ThrowOnce() { throws_ = true; }
  void SetPauseCost(int64_t cost) { cost_ = cost; }
  int exceptions() const { return exceptions_; }
  int resplits() const { return resplits_; }
  size_t ups() const { return Locked(epochs_).size(); }
  size_t losses() const { return Locked(losses_).size(); }
  std::string loss(size_t i) const { return Locked(losses_)[i]; }
  Epoch epoch() const { return Locked(epochs_).back(); }
  LostStages lost() const { return Locked(lost_).back(); }
  PlanLimits limits() const { return Locked(limits_); }
  int num_stages() const { return Locked(num_stages_); }
  std::vector<StepResult> results() const { return Locked(results_); }

 private:
  template <typename T>
  T Locked(const T& value) const {
    MutexLock lock(mutex_);
    return value;
  }
  mutable Mutex mutex_;
  std::vector<Epoch> epochs_;
  std::vector<LostStages> lost_;
  PlanLimits limits_;
  int num_stages_ = 0;
  std::vector<std::string> losses_;
  std::vector<StepResult> results_;
  std::atomic<bool> throws_{false};
  std::atomic<int> exceptions_{0};
  std::atomic<int> resplits_{0};
  std::atomic<int64_t> cost_{0};
};

struct Timing {
  Duration peer_timeout = std::chrono::seconds(10);
  Duration suspect_after = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::milliseconds(50);
};

class PipelineAssemblerTest : public ::testing::Test {
 protected:
  void AddStage(const StageInfo& info, const std::string& listen = "") {
    FakeStageOptions options;
    options.info = info;
    if (!listen.empty()) options.listen = listen;
    stages_.push_back(std::make_unique<FakeStage>(options));
  }
  void AddStages(int count) {
    for (int i = 0; i < count; ++i) AddStage(FakeInfo(i, count));
  }
  // A stage that has the layers that it is told, once the test lets it if
  // `holds_loads`; `info` is of the rest of it.
  void AddSpare(const StageInfo& info, Status loads = OkStatus(),
                bool holds_loads = false) {
    FakeStageOptions options;
    options.info = info;
    options.holds_loads = holds_loads;
    options.loads = std::move(loads);
    spares_.push_back(std::make_unique<FakeStage>(options));
  }
  PipelineOptions Options(Timing timing) const {
    PipelineOptions options;
    for (const auto& spare : spares_) {
      options.spares.push_back(spare->address());
    }
    options.places = places_;
    options.steps_ahead = steps_ahead_;
    for (const auto& stage : stages_) {
      options.stages.push_back(stage->address());
    }
    options.replica = ReplicaId(7);
    options.transport.peer_timeout = timing.peer_timeout;
    options.suspect_after = timing.suspect_after;
    options.heartbeat = timing.heartbeat;
    options.check_model = check_model_;
    return options;
  }
  std::unique_ptr<PipelineAssembler> Connect(Timing timing = {}) {
    return Connect(Options(timing));
  }
  std::unique_ptr<PipelineAssembler> Connect(PipelineOptions options) {
    auto client = PipelineAssembler::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    (*client)->Start(&listener_);
    return *std::move(client);
  }
  StepPlan Plan(uint64_t step, TokenId token) const {
    StepPlan plan;
    plan.replica = ReplicaId(7);
    plan.epoch = listener_.epoch();
    plan.step_id = StepId(step);
    Chunk chunk;
    chunk.sequence = SequenceId(1);
    chunk.start = static_cast<int32_t>(step);
    chunk.tokens = {token};
    chunk.logits = LogitsWanted::kLast;
    chunk.samples = true;
    plan.chunks = {chunk};
    return plan;
  }
  // Submits plans 0 to `count` - 1, no more at once than an epoch lets go
  // without its results, as the engine does; false if results stay out.
  bool SubmitInTurn(PipelineAssembler& client, uint64_t count) {
    const uint64_t before = listener_.results().size();
    const auto room =
        static_cast<uint64_t>(FakeStageOptions().max_steps_in_flight);
    for (uint64_t step = 0; step < count; ++step) {
      client.plans().Submit(Plan(step, static_cast<TokenId>(100 + step)));
      const bool has_room = Eventually([&] {
        return listener_.results().size() + room > before + step + 1;
      });
      if (!has_room) return false;
    }
    return true;
  }
  // Whether every spare has said what it is.
  static bool SparesAreThere(const PipelineAssembler& client) {
    const PipelineStatus status = client.status();
    return std::none_of(status.spares.begin(), status.spares.end(),
                        [](const StageStatus& spare) {
                          return spare.state == StageState::kConnecting;
                        });
  }
  static StageState State(const PipelineAssembler& client, size_t stage) {
    return client.status().stages[stage].state;
  }

  Listener listener_;
  std::vector<std::unique_ptr<FakeStage>> stages_;
  std::vector<std::unique_ptr<FakeStage>> spares_;
  std::vector<StagePlace> places_;
  bool steps_ahead_ = false;
  std::function<Status(const StageFacts&)> check_model_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_PIPELINE_ASSEMBLER_FIXTURE_H_
