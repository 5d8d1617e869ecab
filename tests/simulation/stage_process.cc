#include "tests/simulation/stage_process.h"

#include <utility>

#include "common/base/cat.h"
#include "common/pipeline/stage/stage_service.h"
#include "tests/simulation/network.h"

namespace sluice::simulation {
namespace {

// As services/stage has them.
constexpr Duration kLastSteps = std::chrono::seconds(5);
constexpr Duration kLastWords = std::chrono::milliseconds(500);

// Honest peers send no plan that contradicts the ones before it.
class NoStepError : public StepOutputSink {
 public:
  explicit NoStepError(StepOutputSink* sink) : sink_(*sink) {}
  void OnStep(StepOutput output) override { sink_.OnStep(std::move(output)); }
  void OnStepError(Epoch epoch, StepId step, Status why) override {
    World::Get().Fail(Cat("a stage refuses step ", step, ": ", Message(why)));
    sink_.OnStepError(epoch, step, std::move(why));
  }

 private:
  StepOutputSink& sink_;
};

}  // namespace

StageProcess::StageProcess(const StageSetup& setup, Process* process)
    : setup_(setup), process_(process), place_(setup.info.place()) {}

void StageProcess::Start() {
  World::Get().Spawn(process_, [self = shared_from_this()] {
    self->Run();
    self->ended_ = true;
  });
}

void StageProcess::Wake() {
  World::Get().Spawn(process_, [self = shared_from_this()] {
    MutexLock lock(self->mutex_);
    self->wake_.NotifyAll();
  });
}

void StageProcess::Crash(bool silently) {
  if (process_->dead()) return;
  process_->Die();
  Network::Get().Cut(process_, silently);
  Wake();
}

void StageProcess::Leave(Duration limit) {
  if (!leave_limit_.has_value()) leave_limit_ = limit;
  Wake();
}

void StageProcess::Run() {
  StageSessionOptions options;
  options.transport = setup_.transport;
  options.max_steps_in_flight = setup_.max_steps_in_flight;
  if (setup_.assignable) {
    options.load = [this](const StagePlace& place) {
      MutexLock lock(mutex_);
      wanted_ = place;
      wake_.NotifyAll();
    };
  }
  session_ = std::make_shared<StageSession>(std::move(options));
  sink_ = std::make_unique<NoStepError>(&session_->links());
  service_ = MakeStageService(session_, nullptr);
  Network::Get().Listen(process_, service_.get());
  loader_ = NamedThread("stage-load", [this] { Load(); });
  {
    MutexLock lock(mutex_);
    while (!process_->dead() && !leave_limit_.has_value()) wake_.Wait(mutex_);
  }
  if (!process_->dead()) {
    session_->Leave(Clock::now() + *leave_limit_);
    session_->Drain(Clock::now() + kLastSteps);
  }
  session_->Shutdown();
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (!process_->dead()) {
    World& world = World::Get();
    (void)world.Await([this] { return process_->calls == 0; }, kLastWords);
    process_->Die();
    Network::Get().Cut(process_, false);
  }
  loader_.Join();
  if (loop_ != nullptr) loop_->Stop();
  while (process_->calls > 0) {
    World::Get().Sleep(std::chrono::milliseconds(10));
  }
  Unload();
  service_ = nullptr;
  sink_ = nullptr;
  session_ = nullptr;
}

// As services/stage's thread "stage-load".
void StageProcess::Load() {
  if (place_.empty()) {
    session_->SetLoaded(setup_.info, nullptr);
  } else if (!LoadLayers().ok()) {
    return;
  }
  while (TakeWanted()) {
    Unload();
    Status loaded = FailedPrecondition("the file cannot be read");
    if (!World::Get().random().Chance(setup_.failed_loads)) {
      loaded = LoadLayers();
    }
    if (loaded.ok()) continue;
    StageInfo none = setup_.info;
    none.first_layer = none.last_layer = 0;
    session_->SetLoadFailed(none, loaded);
  }
}

bool StageProcess::TakeWanted() {
  MutexLock lock(mutex_);
  while (!stopping_ && !wanted_.has_value()) wake_.Wait(mutex_);
  if (stopping_) return false;
  place_ = *std::exchange(wanted_, std::nullopt);
  return true;
}

Status StageProcess::LoadLayers() {
  World& world = World::Get();
  session_->SetLoading("loading");
  world.Sleep(world.random().Up(setup_.load_time) * process_->slowness);
  StageInfo info = setup_.info;
  info.first_layer = place_.first_layer;
  info.last_layer = place_.last_layer;
  auto stage = std::make_unique<Stage>(info, setup_.step_time, setup_.no_host);
  auto loop = std::make_unique<StageLoop>(stage.get(), sink_.get(),
                                          2 * setup_.max_steps_in_flight);
  loop->Start();
  {
    MutexLock lock(mutex_);
    stage_ = std::move(stage);
    loop_ = std::move(loop);
  }
  session_->SetLoaded(stage_->info(), loop_.get());
  return OkStatus();
}

void StageProcess::Unload() {
  std::unique_ptr<Stage> stage;  // first: the loop ends before it
  std::unique_ptr<StageLoop> loop;
  {
    MutexLock lock(mutex_);
    loop = std::move(loop_);
    stage = std::move(stage_);
  }
  if (loop != nullptr) loop->Stop();
}

}  // namespace sluice::simulation
