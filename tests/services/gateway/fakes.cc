#include "tests/services/gateway/fakes.h"

#include <chrono>
#include <utility>

namespace sluice::gateway {

ServedModel FakeModel(int positions) {
  ServedModel model;
  model.name = "fake";
  model.root = "somewhere/fake";
  model.text = std::make_unique<openai::FakeText>();
  model.eos_ids = {openai::kFakeEos};
  model.vocab_size = openai::kFakeVocab;
  model.max_positions = positions;
  return model;
}

FakeGenerator::~FakeGenerator() = default;

StatusOr<SequenceId> FakeGenerator::Submit(GenerateRequest request,
                                           std::shared_ptr<TokenSink> sink) {
  if (!refusal_.ok()) return refusal_;
  size_t index;
  std::vector<TokenId> prompt = request.prompt_tokens;
  {
    MutexLock lock(mutex_);
    index = requests_.size();
    requests_.push_back(std::move(request));
    sinks_.push_back(std::move(sink));
  }
  changed_.NotifyAll();
  if (mode_ == Mode::kEcho) {
    Start(index);
    TokenEvent event;
    for (const TokenId token : prompt) {
      if (token < 256) event.tokens.push_back({token, {}, {}});
    }
    Tokens(index, std::move(event));
    FinalEvent end;
    end.stop_token = openai::kFakeEos;
    End(index, end);
  }
  return SequenceId(index + 1);
}

void FakeGenerator::Cancel(SequenceId sequence) {
  const size_t index = sequence.value() - 1;
  {
    MutexLock lock(mutex_);
    cancelled_.insert(index);
  }
  changed_.NotifyAll();
  End(index, FinishReason::kCancelled);
}

std::shared_ptr<TokenSink> FakeGenerator::SinkOf(size_t sequence) const {
  MutexLock lock(mutex_);
  return sinks_.at(sequence);
}

void FakeGenerator::Start(size_t sequence) {
  if (const auto sink = SinkOf(sequence)) sink->OnStart();
}

void FakeGenerator::Tokens(size_t sequence, TokenEvent event) {
  if (const auto sink = SinkOf(sequence)) sink->OnTokens(std::move(event));
}

void FakeGenerator::Text(size_t sequence, std::string_view text) {
  for (const TokenId token : openai::Bytes(text)) {
    TokenEvent event;
    event.tokens = {{token, {}, {}}};
    Tokens(sequence, std::move(event));
  }
}

void FakeGenerator::End(size_t sequence, FinalEvent event) {
  std::shared_ptr<TokenSink> sink;
  {
    MutexLock lock(mutex_);
    sink = std::exchange(sinks_.at(sequence), nullptr);
  }
  if (sink) sink->OnEnd(std::move(event));
}

void FakeGenerator::End(size_t sequence, FinishReason reason) {
  FinalEvent event;
  event.reason = reason;
  End(sequence, std::move(event));
}

void FakeGenerator::Forget() {
  MutexLock lock(mutex_);
  requests_.clear();
  sinks_.clear();
  cancelled_.clear();
}

size_t FakeGenerator::submitted() const {
  MutexLock lock(mutex_);
  return requests_.size();
}

bool FakeGenerator::AwaitSubmitted(size_t count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  MutexLock lock(mutex_);
  while (requests_.size() < count) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return true;
}

bool FakeGenerator::AwaitCancelled(size_t count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  MutexLock lock(mutex_);
  while (cancelled_.size() < count) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return true;
}

GenerateRequest FakeGenerator::request(size_t sequence) const {
  MutexLock lock(mutex_);
  return requests_.at(sequence);
}

}  // namespace sluice::gateway
