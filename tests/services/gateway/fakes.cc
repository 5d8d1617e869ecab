#include "tests/services/gateway/fakes.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "tests/testing/holds_within.h"

namespace sluice {

// What the engine's thread does, for a loop that was not started.
class EngineLoopPeer {
 public:
  static void Open(EngineLoop& loop) {
    MutexLock lock(loop.mutex_);
    loop.started_ = true;
  }
  static std::vector<EngineCommand> Take(EngineLoop& loop) {
    MutexLock lock(loop.mutex_);
    loop.admission_.OnTaken();
    loop.admission_.Publish({});
    loop.cancels_.clear();
    return std::exchange(loop.inbox_, {});
  }
  // False: the loop stops.
  static bool AwaitCommand(EngineLoop& loop) {
    MutexLock lock(loop.mutex_);
    while (loop.inbox_.empty() && !loop.stopping_) loop.wake_.Wait(loop.mutex_);
    return !loop.stopping_;
  }
  static void End(EngineLoop& loop, TokenSink& sink,
                  const std::string& request_id, FinalEvent event) {
    loop.OnEnded(request_id);
    sink.OnEnd(std::move(event));
  }
};

}  // namespace sluice

namespace sluice::gateway {
namespace {

EngineOptions RoomForAll() {
  EngineOptions options;
  options.max_queue = 1 << 20;
  return options;
}

}  // namespace

serving::ServedModel FakeModel(int positions) {
  serving::ServedModel model;
  model.name = "fake";
  model.root = "somewhere/fake";
  model.text = std::make_unique<serving::FakeText>();
  model.eos_ids = {serving::kFakeEos};
  model.vocab_size = serving::kFakeVocab;
  model.max_positions = positions;
  return model;
}

FinalEvent Echo(const GenerateRequest& request, TokenSink& sink) {
  sink.OnStart();
  TokenEvent event;
  for (const TokenId token : request.prompt_tokens) {
    if (token < 256) event.tokens.push_back({token, {}, {}});
  }
  sink.OnTokens(std::move(event));
  FinalEvent end;
  end.stop_token = serving::kFakeEos;
  return end;
}

ScriptedEngine::ScriptedEngine(Player player)
    : player_(std::move(player)), loop_(RoomForAll(), this) {
  EngineLoopPeer::Open(loop_);
  set_max_context(4096);
}

ScriptedEngine::~ScriptedEngine() {
  loop_.Stop();
  thread_.Join();
}

void ScriptedEngine::set_max_context(int tokens) {
  PlanLimits limits;
  limits.max_step_tokens = 512;
  limits.max_sequences = 1 << 16;
  limits.max_context = tokens;
  limits.num_blocks = 1 << 20;
  limits.vocab_size = 1 << 20;
  loop_.OnPipelineUp(++epoch_, limits, 1);
}

bool ScriptedEngine::Play() {
  MutexLock lock(playing_);
  const std::vector<EngineCommand> commands = EngineLoopPeer::Take(loop_);
  for (const EngineCommand& command : commands) {
    if (const auto* submission = std::get_if<Submission>(&command)) {
      Take(*submission);
    } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
      Cancel(cancel->id);
    }
  }
  return !commands.empty();
}

void ScriptedEngine::PlayOnThread() {
  thread_ = NamedThread("engine", [this] {
    while (EngineLoopPeer::AwaitCommand(loop_)) Play();
  });
}

void ScriptedEngine::Settle(http::FakeExchange& exchange) {
  do {
    exchange.RunPosted();
  } while (Play());
}

void ScriptedEngine::Take(Submission submission) {
  size_t index;
  {
    MutexLock lock(mutex_);
    index = sequences_.size();
    sequences_.push_back({submission.id, submission.request_id,
                          submission.request, submission.sink});
  }
  if (player_) EndNow(index, player_(submission.request, *submission.sink));
}

void ScriptedEngine::Cancel(SequenceId id) {
  size_t index;
  {
    MutexLock lock(mutex_);
    const auto found =
        std::find_if(sequences_.begin(), sequences_.end(),
                     [id](const Played& p) { return p.id == id; });
    if (found == sequences_.end()) return;
    index = static_cast<size_t>(found - sequences_.begin());
    cancelled_.insert(index);
  }
  EndNow(index, {.reason = FinishReason::kCancelled});
}

std::shared_ptr<TokenSink> ScriptedEngine::SinkOf(size_t sequence) {
  Play();
  MutexLock lock(mutex_);
  return sequences_.at(sequence).sink;
}

void ScriptedEngine::Start(size_t sequence) {
  if (const auto sink = SinkOf(sequence)) sink->OnStart();
}

void ScriptedEngine::Tokens(size_t sequence, TokenEvent event) {
  if (const auto sink = SinkOf(sequence)) sink->OnTokens(std::move(event));
}

void ScriptedEngine::Text(size_t sequence, std::string_view text) {
  for (const TokenId token : serving::Bytes(text)) {
    TokenEvent event;
    event.tokens = {{token, {}, {}}};
    Tokens(sequence, std::move(event));
  }
}

void ScriptedEngine::End(size_t sequence, FinalEvent event) {
  Play();
  EndNow(sequence, std::move(event));
}

void ScriptedEngine::EndNow(size_t sequence, FinalEvent event) {
  std::shared_ptr<TokenSink> sink;
  std::string request_id;
  {
    MutexLock lock(mutex_);
    sink = std::exchange(sequences_.at(sequence).sink, nullptr);
    request_id = sequences_[sequence].request_id;
  }
  if (sink) EngineLoopPeer::End(loop_, *sink, request_id, std::move(event));
}

void ScriptedEngine::End(size_t sequence, FinishReason reason) {
  FinalEvent event;
  event.reason = reason;
  End(sequence, std::move(event));
}

void ScriptedEngine::EndAll() {
  for (size_t i = 0; i < submitted(); ++i) End(i, FinishReason::kCancelled);
}

void ScriptedEngine::Forget() {
  MutexLock lock(mutex_);
  sequences_.clear();
  cancelled_.clear();
}

size_t ScriptedEngine::submitted() {
  Play();
  MutexLock lock(mutex_);
  return sequences_.size();
}

size_t ScriptedEngine::cancelled() {
  Play();
  MutexLock lock(mutex_);
  return cancelled_.size();
}

bool ScriptedEngine::Await(const std::function<bool()>& condition) {
  return testing::HoldsWithin(std::chrono::seconds(10), condition);
}

bool ScriptedEngine::AwaitSubmitted(size_t count) {
  return Await([&] { return submitted() >= count; });
}

bool ScriptedEngine::AwaitCancelled(size_t count) {
  return Await([&] { return cancelled() >= count; });
}

GenerateRequest ScriptedEngine::request(size_t sequence) {
  Play();
  MutexLock lock(mutex_);
  return sequences_.at(sequence).request;
}

}  // namespace sluice::gateway
