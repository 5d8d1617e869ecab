#include "tests/grammar/walk.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>

namespace sluice::testing {
namespace {

// The ids of `mask` below `vocab_size` that end something.
std::vector<TokenId> ClosersOf(const Tokenizer& tokenizer,
                               const TokenMask& mask,
                               std::span<const TokenId> eos_ids) {
  std::vector<TokenId> closers;
  for (const TokenId id : eos_ids) {
    if (Allows(mask, id)) closers.push_back(id);
  }
  if (!closers.empty()) return closers;
  for (const char* name : {"\"", "}", "]", "\"}", "\"]", "}}", "0"}) {
    const auto id = tokenizer.TokenToId(name);
    if (id && Allows(mask, *id)) closers.push_back(*id);
  }
  return closers;
}

// A token of `mask`, each as likely.
TokenId Draw(const TokenMask& mask, int32_t vocab_size,
             std::mt19937_64& random) {
  std::vector<TokenRun> runs = mask.runs;
  if (mask.excludes) {
    runs.clear();
    TokenId begin = 0;
    for (const TokenRun& run : mask.runs) {
      if (run.begin > begin) runs.push_back({begin, run.begin});
      begin = run.end;
    }
    if (begin < vocab_size) runs.push_back({begin, vocab_size});
  }
  int64_t total = 0;
  for (const TokenRun& run : runs) total += run.end - run.begin;
  auto left = static_cast<int64_t>(random() % static_cast<uint64_t>(total));
  for (const TokenRun& run : runs) {
    if (left < run.end - run.begin) {
      return static_cast<TokenId>(run.begin + left);
    }
    left -= run.end - run.begin;
  }
  return runs.back().end - 1;
}

}  // namespace

const ConstraintStep& Await(TokenConstraint& constraint,
                            std::span<const TokenId> appended) {
  // Shared with the call, which may return after the future is read.
  const auto ready = std::make_shared<std::promise<void>>();
  std::future<void> done = ready->get_future();
  constraint.Advance(appended, [ready] { ready->set_value(); });
  done.wait();
  return *constraint.Latest();
}

bool Allows(const TokenMask& mask, TokenId id) {
  const bool in_runs = std::any_of(
      mask.runs.begin(), mask.runs.end(),
      [id](const TokenRun& run) { return run.begin <= id && id < run.end; });
  return in_runs != mask.excludes;
}

Walk DrawAnswer(const Tokenizer& tokenizer, int32_t vocab_size,
                std::span<const TokenId> eos_ids, const NextStep& next,
                std::mt19937_64& random, const WalkOptions& options) {
  std::bernoulli_distribution hurries(options.hurry);
  Walk walk;
  std::vector<TokenId> appended;
  std::deque<TokenId> ending;  // what is left of one that was begun
  while (walk.tokens.size() < options.max_tokens) {
    const TimePoint begin = Clock::now();
    const ConstraintStep step = next(appended);
    walk.waits.push_back(Clock::now() - begin);
    walk.status = step.status;
    walk.is_complete = step.is_complete;
    if (!step.status.ok() || step.is_complete) return walk;
    appended = step.forced;
    if (!step.forced.empty()) {
      walk.forced_runs.push_back(static_cast<int>(step.forced.size()));
    }
    const TokenMask all{.runs = {}, .excludes = true};
    const TokenMask& mask = step.mask ? *step.mask : all;
    std::vector<TokenId> closers;
    if (ending.empty() && !options.endings.empty() && hurries(random)) {
      const std::string& text =
          options.endings[random() % options.endings.size()];
      const auto ids = tokenizer.Encode(text, {.add_special_tokens = false});
      ending.assign(ids->begin(), ids->end());
    }
    if (!ending.empty() && Allows(mask, ending.front())) {
      closers = {ending.front()};
      ending.pop_front();
    } else {
      ending.clear();
    }
    if (closers.empty() && hurries(random))
      closers = ClosersOf(tokenizer, mask, eos_ids);
    const TokenId id = closers.empty() ? Draw(mask, vocab_size, random)
                                       : closers[random() % closers.size()];
    const bool ends =
        std::find(eos_ids.begin(), eos_ids.end(), id) != eos_ids.end();
    if (!ends) appended.push_back(id);
    walk.tokens.insert(walk.tokens.end(), appended.begin(), appended.end());
    if (ends) {
      walk.is_complete = true;
      return walk;
    }
  }
  return walk;
}

Walk DrawAnswer(const Tokenizer& tokenizer, int32_t vocab_size,
                std::span<const TokenId> eos_ids, TokenConstraint& constraint,
                std::mt19937_64& random, const WalkOptions& options) {
  return DrawAnswer(
      tokenizer, vocab_size, eos_ids,
      [&](std::span<const TokenId> appended) {
        return Await(constraint, appended);
      },
      random, options);
}

}  // namespace sluice::testing
