#include "tests/pipeline/fake_stage.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"

namespace sluice::testing {

StepOutput FakeRunner::Compute(StepInput input) const {
  StepOutput output;
  output.plan = std::move(input.plan);
  const int32_t tokens = output.plan.num_tokens();
  HiddenStates hidden(tokens, info_.hidden_size);
  const size_t width = static_cast<size_t>(info_.hidden_size);
  size_t row = 0;
  for (const Chunk& chunk : output.plan.chunks) {
    for (const TokenId token : chunk.tokens) {
      for (size_t i = 0; i < width; ++i) {
        hidden.values()[row * width + i] =
            info_.is_first() ? static_cast<float>(token)
                             : input.hidden.values()[row * width + i] + 1;
      }
      ++row;
    }
  }
  if (!info_.is_last()) {
    output.hidden = std::move(hidden);
    return output;
  }
  StepResult& result = output.result.emplace();
  result.replica = output.plan.replica;
  result.epoch = output.plan.epoch;
  result.step_id = output.plan.step_id;
  row = 0;
  for (const Chunk& chunk : output.plan.chunks) {
    row += chunk.tokens.size();
    if (!chunk.samples) continue;
    SequenceResult& sequence = result.sequences.emplace_back();
    sequence.sequence = chunk.sequence;
    const auto token = static_cast<TokenId>(hidden.values()[(row - 1) * width]);
    sequence.sampled = {{token, std::nullopt, {}}};
  }
  return output;
}

Status FakeRunner::Push(StepInput input) {
  {
    MutexLock lock(mutex_);
    if (input.plan.epoch != epoch_) return OkStatus();
    if (holding_) {
      held_.push_back(std::move(input));
      return OkStatus();
    }
  }
  sink_.OnStep(Compute(std::move(input)));
  return OkStatus();
}

void FakeRunner::Reset(Epoch epoch) {
  MutexLock lock(mutex_);
  if (epoch == Epoch(0)) letting_go_ = true;
  while (epoch == Epoch(0) && hold_letting_go_) changed_.Wait(mutex_);
  epoch_ = epoch;
  held_.clear();
}

void FakeRunner::OnSampled(const StepResult& result) {
  MutexLock lock(mutex_);
  sampled_.push_back(result);
}

std::vector<StepResult> FakeRunner::sampled() const {
  MutexLock lock(mutex_);
  return sampled_;
}

StageLoopStats FakeRunner::Stats() const {
  MutexLock lock(mutex_);
  while (mute_) changed_.Wait(mutex_);
  return StageLoopStats();
}

void FakeRunner::HoldSteps() {
  MutexLock lock(mutex_);
  holding_ = true;
}

void FakeRunner::ReleaseOne() {
  StepInput input;
  {
    MutexLock lock(mutex_);
    SLUICE_CHECK(!held_.empty());
    input = std::move(held_.front());
    held_.erase(held_.begin());
  }
  sink_.OnStep(Compute(std::move(input)));
}

void FakeRunner::BreakStreams() {
  Epoch epoch;
  {
    MutexLock lock(mutex_);
    epoch = epoch_;
  }
  sink_.OnStepError(epoch, StepId(0), Unavailable("no stream lasts here"));
}

int FakeRunner::held_steps() const {
  MutexLock lock(mutex_);
  return static_cast<int>(held_.size());
}

void FakeRunner::SetMute(bool mute) {
  {
    MutexLock lock(mutex_);
    mute_ = mute;
  }
  changed_.NotifyAll();
}

void FakeRunner::HoldLettingGo(bool hold) {
  {
    MutexLock lock(mutex_);
    hold_letting_go_ = hold;
  }
  changed_.NotifyAll();
}

bool FakeRunner::letting_go() const {
  MutexLock lock(mutex_);
  return letting_go_;
}

StageInfo FakeInfo(int index, int parts) {
  StageInfo info;
  info.model_name = "fake";
  info.model_digest = "d1";
  info.numerics = "n1";
  info.weights_dtype = "f32";
  info.num_layers = 2 * parts;
  info.first_layer = 2 * index;
  info.last_layer = 2 * index + 2;
  info.hidden_size = 8;
  info.ranks = 1;
  info.threads = 1;
  info.isa = "portable";
  info.replay_log = !info.is_last();
  info.limits.max_step_tokens = 64;
  info.limits.max_sequences = 8;
  info.limits.max_context = 128;
  info.limits.num_blocks = 32;
  info.limits.vocab_size = 1000;
  return info;
}

StageInfo FakeRoomyInfo(int index, int parts, uint64_t memory) {
  StageInfo info = FakeInfo(index, parts);
  info.room.memory = memory;
  info.room.layers.assign(static_cast<size_t>(info.num_layers), 100);
  return info;
}

FakeStage::FakeStage(FakeStageOptions options)
    : options_(std::move(options)),
      session_(std::make_shared<StageSession>(StageSessionOptions{
          options_.transport, options_.max_steps_in_flight, nullptr,
          options_.loads.has_value()
              ? [this](const StagePlace& place) { OnAssigned(place); }
              : std::function<void(const StagePlace&)>()})),
      runner_(std::make_unique<FakeRunner>(options_.info, &session_->links())),
      service_(MakeStageService(session_, nullptr)) {
  auto server =
      rpc::Listen(options_.listen, options_.transport, service_.get());
  if (!server.ok()) LogError(Message(server.status()));
  SLUICE_CHECK(server.ok());
  server_ = *std::move(server);
  if (options_.loaded) FinishLoading();
}

FakeStage::~FakeStage() {
  runner_->SetMute(false);
  runner_->HoldLettingGo(false);
  session_->Shutdown();
  server_.server->Shutdown(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(500));
}

bool FakeStage::loading() const {
  MutexLock lock(mutex_);
  return held_load_.has_value();
}

void FakeStage::OnAssigned(const StagePlace& place) {
  if (!options_.holds_loads) return Load(place);
  session_->SetLoading(kFakeProgress);
  MutexLock lock(mutex_);
  held_load_ = place;
}

void FakeStage::FinishLoading() {
  std::optional<StagePlace> held;
  {
    MutexLock lock(mutex_);
    held = std::exchange(held_load_, std::nullopt);
  }
  if (held.has_value()) return Load(*held);
  if (options_.loads.has_value() && !options_.begins_loaded) {
    session_->SetLoaded(Unloaded(), nullptr);
  } else {
    session_->SetLoaded(options_.info, runner_.get());
  }
  rpc::SetReady(*server_.server, true);
}

StageInfo FakeStage::Unloaded() const {
  StageInfo info = options_.info;
  info.first_layer = info.last_layer = 0;
  info.numerics.clear();
  info.weights_dtype.clear();
  return info;
}

void FakeStage::Load(const StagePlace& place) {
  if (!options_.loads->ok()) {
    session_->SetLoadFailed(Unloaded(), *options_.loads);
    return;
  }
  StageInfo info = options_.info;
  info.first_layer = place.first_layer;
  info.last_layer = place.last_layer;
  info.replay_log = !info.is_last();
  runner_ = std::make_unique<FakeRunner>(info, &session_->links());
  session_->SetLoaded(info, runner_.get());
}

}  // namespace sluice::testing
