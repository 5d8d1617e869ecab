#ifndef SLUICE_TESTS_PIPELINE_FAKE_STAGE_H_
#define SLUICE_TESTS_PIPELINE_FAKE_STAGE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/pipeline/stage/stage_service.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/transport.h"
#include "tests/testing/holds_within.h"

namespace sluice::testing {

// Computes without a model: the first stage gives every token's id as its
// hidden state, each later one adds 1, the last samples the sum.
class FakeRunner : public StepRunner {
 public:
  FakeRunner(const StageInfo& info, StepOutputSink* sink)
      : info_(info), sink_(*sink) {}

  Status Push(StepInput input) override;
  void Reset(Epoch epoch) override;
  StageLoopStats Stats() const override;
  void OnSampled(const StepResult& result) override;

  // What the last stage sampled, by its steps.
  std::vector<StepResult> sampled() const;
  // While held, steps are kept, and given out by Release one by one.
  void HoldSteps();
  void ReleaseOne();
  int held_steps() const;
  // The running epoch's streams break, as after a step that failed.
  void BreakStreams();
  // While mute, heartbeats are not answered: Stats does not return.
  void SetMute(bool mute);
  // While held, the Reset of a stage that is let go does not return.
  void HoldLettingGo(bool hold);
  bool letting_go() const;  // such a Reset has come

 private:
  StepOutput Compute(StepInput input) const;

  const StageInfo info_;
  StepOutputSink& sink_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  bool mute_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_letting_go_ ABSL_GUARDED_BY(mutex_) = false;
  bool letting_go_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<StepInput> held_ ABSL_GUARDED_BY(mutex_);
  std::vector<StepResult> sampled_ ABSL_GUARDED_BY(mutex_);
  Epoch epoch_ ABSL_GUARDED_BY(mutex_);
};

// What stage `index` of `parts` would say of itself.
StageInfo FakeInfo(int index, int parts);
// The same of one that can load other layers: each takes 100 bytes of `memory`.
StageInfo FakeRoomyInfo(int index, int parts, uint64_t memory = 1 << 20);

// What a FakeStage says while it loads.
inline constexpr char kFakeProgress[] = "loading, 40 % of 5 MB";

struct FakeStageOptions {
  StageInfo info;
  std::string listen = "127.0.0.1:0";
  rpc::TransportOptions transport;
  int max_steps_in_flight = 4;
  bool loaded = true;
  // Has no layers of its own, and answers every Assign that names some with
  // this: it has them at once, or they cannot be loaded.
  std::optional<Status> loads = std::nullopt;
  // Has the layers of `info` before the first Assign.
  bool begins_loaded = false;
  // Such an Assign is answered when the test calls FinishLoading, and until
  // then hellos with kFakeProgress.
  bool holds_loads = false;
};

// The real protocol, session and server around a FakeRunner.
class FakeStage {
 public:
  explicit FakeStage(FakeStageOptions options);
  ~FakeStage();

  const std::string& address() const { return server_.address; }
  FakeRunner& runner() { return *runner_; }
  StageSession& session() { return *session_; }
  // Ends the first load, or that of the latest Assign.
  void FinishLoading();
  // Whether a load of an Assign is held.
  bool loading() const;

 private:
  const FakeStageOptions options_;
  void OnAssigned(const StagePlace& place);
  void Load(const StagePlace& place);
  StageInfo Unloaded() const;

  const std::shared_ptr<StageSession> session_;
  std::unique_ptr<FakeRunner> runner_;
  const std::unique_ptr<grpc::Service> service_;
  rpc::ListeningServer server_;
  mutable Mutex mutex_;
  std::optional<StagePlace> held_load_ ABSL_GUARDED_BY(mutex_);
};

// Spins until `condition` holds; false after ten seconds.
template <typename Condition>
bool Eventually(Condition condition,
                Duration limit = std::chrono::seconds(10)) {
  return HoldsWithin(limit, condition);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_PIPELINE_FAKE_STAGE_H_
