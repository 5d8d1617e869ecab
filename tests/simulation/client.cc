#include "tests/simulation/client.h"

#include <utility>

#include "common/base/cat.h"
#include "tests/engine/fake_stages.h"
#include "tests/engine/random_shape.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {
namespace {

// What a client may be told when it gets less than it asked for.
constexpr const char* kExcuses[] = {
    "not recovered within",  // no pipeline in time
    "replayed too often",    // as many pipelines were lost as it may
    "no host",               // an expert had none for too long
    "shutting down",         // its gateway ends
    "another gateway has taken the stages",
    "the rebuilt pipeline is too small",
};

}  // namespace

Client::Client(GenerateRequest request)
    : request_(std::move(request)),
      alone_(Undisturbed(request_, kRunVocab)),
      history_(request_.prompt_tokens) {
  history_.insert(history_.end(), alone_.tokens.begin(), alone_.tokens.end());
}

void Client::Fail(const std::string& why) const {
  World::Get().Fail(Cat("request ", request_.request_id, ", choice ",
                        request_.sampling.choice, ": ", why));
}

void Client::OnTokens(TokenEvent event) {
  if (left_) return;
  if (ended_) return Fail("tokens come behind the end");
  CheckPrompt(event);
  CheckLogits(event);
  for (const TokenResult& token : event.tokens) {
    if (told_ >= alone_.tokens.size()) {
      return Fail(Cat("token ", told_, " is ", token.token,
                      ", alone there are ", alone_.tokens.size()));
    }
    const size_t before = request_.prompt_tokens.size() + told_;
    const TokenResult expected =
        WithLogprob(alone_.tokens[told_], request_.sampling.logprobs,
                    Digest(history_.data(), before));
    if (token.token != expected.token) {
      return Fail(Cat("token ", told_, " is ", token.token, ", alone it is ",
                      expected.token));
    }
    if (token != expected) {
      return Fail(Cat("token ", told_, " has other logprobs than alone"));
    }
    ++told_;
  }
}

void Client::CheckPrompt(const TokenEvent& event) {
  for (const TokenResult& position : event.prompt) {
    const size_t next = ++prompt_told_;
    if (next >= request_.prompt_tokens.size() ||
        position != WithLogprob(history_[next],
                                request_.sampling.prompt_logprobs,
                                Digest(history_.data(), next))) {
      return Fail(Cat("prompt position ", next, " is not the one alone"));
    }
  }
}

void Client::CheckLogits(const TokenEvent& event) {
  for (size_t i = 0; i < event.logits.size() / kRunVocab; ++i) {
    const size_t at = static_cast<size_t>(event.logits_position) + i;
    const bool is_last = request_.sampling.hidden == HiddenWanted::kLast;
    const size_t want = is_last ? request_.prompt_tokens.size() - 1 : 0;
    if (at != want + rows_told_++ || at >= history_.size() ||
        event.logits[i * kRunVocab] !=
            LogitOf(Digest(history_.data(), at + 1), 0)) {
      return Fail(Cat("the logits of position ", at, " are not those alone"));
    }
  }
}

void Client::OnEnd(FinalEvent event) {
  if (left_) return;
  if (std::exchange(ended_, true)) return Fail("a second end");
  const SequenceStats& stats = event.stats;
  const auto prompt = static_cast<int32_t>(request_.prompt_tokens.size());
  if (stats.prompt_tokens != prompt ||
      stats.completion_tokens != static_cast<int32_t>(told_) ||
      stats.cached_tokens < 0 || stats.cached_tokens > prompt) {
    return Fail(Cat("the usage is ", stats.prompt_tokens, " + ",
                    stats.completion_tokens, ", ", stats.cached_tokens,
                    " cached, the tokens are ", prompt, " + ", told_));
  }
  if (event.reason == FinishReason::kError) {
    const std::string why = Message(event.status);
    for (const char* excuse : kExcuses) {
      if (why.find(excuse) == std::string::npos) continue;
      excuse_ = excuse;
      return;
    }
    return Fail("ends with the error: " + why);
  }
  if (event.reason == FinishReason::kCancelled) {
    if (!cancelled_) Fail("is cancelled, and nobody did it");
    return;
  }
  CheckWhole(event);
}

void Client::CheckWhole(const FinalEvent& event) {
  if (told_ != alone_.tokens.size() || event.reason != alone_.reason) {
    return Fail(Cat("ends after ", told_, " tokens with ",
                    ToString(event.reason), ", alone after ",
                    alone_.tokens.size(), " with ", ToString(alone_.reason)));
  }
  if (event.reason == FinishReason::kStop &&
      event.stop_token != NextToken(history_, request_.sampling, kRunVocab)) {
    return Fail("has another stop token than alone");
  }
  const size_t prompt = request_.prompt_tokens.size();
  if (request_.sampling.prompt_logprobs >= 0 && prompt_told_ != prompt - 1) {
    return Fail(Cat("has logprobs of ", prompt_told_, " of ", prompt - 1,
                    " positions of its prompt"));
  }
  if (!WantsRawRows(request_.sampling)) return;
  const bool is_last = request_.sampling.hidden == HiddenWanted::kLast;
  size_t rows = is_last ? 1 : history_.size();
  if (event.reason == FinishReason::kLength && request_.max_tokens > 0) --rows;
  if (rows_told_ != rows) {
    Fail(Cat("has ", rows_told_, " rows of logits of ", rows));
  }
}

}  // namespace sluice::simulation
