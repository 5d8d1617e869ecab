#ifndef SLUICE_TESTS_INTEGRATION_ONE_HASH_H_
#define SLUICE_TESTS_INTEGRATION_ONE_HASH_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "tests/testing/local_cluster.h"

// 32 mixed requests, and what a cluster answers to them, bit for bit.
namespace sluice {

using testing::LocalCluster;
using testing::LocalClusterOptions;

inline constexpr int kRequests = 32;
inline constexpr int kVocab = 512;
inline constexpr int kPlentyOfBlocks = 1024;
// The longest request needs 19 blocks; a few sequences at once do not fit.
inline constexpr int kFewBlocks = 20;

// Everything a sequence was given, as text that shows the bits.
class RecordingSink : public TokenSink {
 public:
  void OnTokens(TokenEvent event) override {
    MutexLock lock(mutex_);
    for (const TokenResult& result : event.prompt) Append("p", result);
    for (const TokenResult& result : event.tokens) Append("t", result);
  }
  void OnEnd(FinalEvent event) override {
    MutexLock lock(mutex_);
    record_ += ToString(event.reason);
    if (!event.status.ok()) record_ += event.status.ToString();
    ended_ = true;
    changed_.NotifyAll();
  }
  // Empty if `deadline` passed before the end.
  std::string WaitRecord(TimePoint deadline) {
    MutexLock lock(mutex_);
    while (!ended_) {
      if (!changed_.WaitUntil(mutex_, deadline)) return "";
    }
    return record_;
  }

 private:
  void Append(const char* kind, const TokenResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    record_ += Cat(kind, result.token);
    if (result.logprob.has_value()) AppendLogprob(*result.logprob);
    for (const TokenLogprob& top : result.top_logprobs) AppendLogprob(top);
    record_ += ' ';
  }
  void AppendLogprob(const TokenLogprob& logprob)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    record_ += Cat(':', logprob.token, '/', logprob.rank, '/',
                   std::bit_cast<uint32_t>(logprob.logprob));
  }

  Mutex mutex_;
  CondVar changed_;
  std::string record_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Greedy and sampled, short and long, with and without logprobs, penalties
// and biases; every fourth shares its first 48 tokens with others, and every
// eighth is another choice of the request before it. A prompt is longer than
// one attention chunk, and an answer begins before its end and ends beyond it.
inline std::vector<GenerateRequest> MixedRequests(int vocab) {
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % uint32_t(high - low + 1));
  };
  std::vector<TokenId> shared;
  for (int i = 0; i < 48; ++i) shared.push_back(draw(3, vocab - 1));
  constexpr int kPromptLengths[] = {1, 3, 17, 40, 70, 110, 150};
  constexpr int kLongPromptLengths[] = {30, 196, 242};  // after the shared
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    GenerateRequest request;
    request.request_id = Cat("request-", i);
    if (i % 4 == 3) request.prompt_tokens = shared;
    // The first ones grow long from little, so that a small pool runs dry.
    const bool grows = i < 8;
    const bool crosses = i == 23;
    const int length = grows        ? i + 1
                       : i % 8 == 7 ? kLongPromptLengths[i / 8 - 1]
                                    : kPromptLengths[i % 8];
    for (int k = 0; k < length; ++k) {
      request.prompt_tokens.push_back(draw(3, vocab - 1));
    }
    if (i % 8 == 5) {
      requests.back().num_choices = request.num_choices = 2;
      request.request_id = requests.back().request_id;
      request.prompt_tokens = requests.back().prompt_tokens;
    }
    request.max_tokens = grows ? draw(46, 62) : crosses ? 18 : draw(3, 10);
    SamplingParams& sampling = request.sampling;
    sampling.seed = 1000u + static_cast<uint64_t>(i);
    sampling.choice = static_cast<uint32_t>(i % 3);
    sampling.temperature = i % 2 == 0 ? 0.0f : 0.5f + 0.1f * float(i % 7);
    if (i % 5 == 1) sampling.top_p = 0.9f;
    if (i % 5 == 3) sampling.top_k = 20;
    if (i % 7 == 5) sampling.min_p = 0.05f;
    if (i % 6 == 1) sampling.frequency_penalty = 0.6f;
    if (i % 6 == 2) sampling.presence_penalty = -0.7f;
    if (i % 6 >= 4) sampling.repetition_penalty = 1.3f;
    if (i % 5 == 2) sampling.logit_bias = {{7, 3.0f}, {40 + i, -100.0f}};
    sampling.logprobs = i % 4 - 1 + (i % 3 == 0 ? 1 : 0);
    if (i % 8 == 6) sampling.prompt_logprobs = 2;
    if (!crosses) request.eos_token_ids = {2};
    requests.push_back(std::move(request));
  }
  return requests;
}

// Changes a request by its index, before it is submitted.
using ChangeRequest = std::function<void(size_t index, GenerateRequest&)>;

// The requests' records in order, with at most `concurrency` alive.
inline std::vector<std::string> RunAll(EngineLoop& engine, int concurrency,
                                       int vocab,
                                       const ChangeRequest& change = {}) {
  const TimePoint deadline = Clock::now() + std::chrono::seconds(120);
  std::vector<std::string> records;
  std::deque<std::shared_ptr<RecordingSink>> live;
  const auto collect = [&] {
    records.push_back(live.front()->WaitRecord(deadline));
    live.pop_front();
  };
  for (GenerateRequest& request : MixedRequests(vocab)) {
    if (static_cast<int>(live.size()) == concurrency) collect();
    auto sink = std::make_shared<RecordingSink>();
    if (change) change(records.size() + live.size(), request);
    request.arrival = Clock::now();
    const auto id = engine.Submit(std::move(request), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    if (!id.ok()) return {};
    live.push_back(std::move(sink));
  }
  while (!live.empty()) collect();
  return records;
}

inline uint64_t Hash(const std::vector<std::string>& records) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const std::string& record : records) {
    for (const char c : record + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
  }
  return hash;
}

inline LocalClusterOptions Base(const std::string& model) {
  LocalClusterOptions options;
  options.stage.model_path = model;
  options.stage.threads = 1;
  options.stage.kv_blocks = kPlentyOfBlocks;
  options.stages = 1;
  options.grpc = true;
  // A busy machine refuses nothing.
  options.engine.max_queue_wait = std::chrono::hours(1);
  return options;
}

struct Outcome {
  std::vector<std::string> records;
  EngineStats stats;
};

inline Outcome RunCluster(const LocalClusterOptions& options, int concurrency,
                          int vocab = kVocab,
                          const ChangeRequest& change = {}) {
  auto cluster = LocalCluster::Start(options);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  if (!cluster.ok()) return {};
  Outcome outcome;
  outcome.records = RunAll((*cluster)->engine(), concurrency, vocab, change);
  EXPECT_TRUE(
      (*cluster)->engine().WaitIdle(Clock::now() + std::chrono::seconds(10)));
  outcome.stats = (*cluster)->engine().Stats();
  EXPECT_EQ(outcome.stats.blocks_used, 0);
  EXPECT_EQ(outcome.stats.running, 0);
  return outcome;
}

inline void ExpectSame(const std::vector<std::string>& records,
                       const std::vector<std::string>& expected,
                       const std::string& what) {
  ASSERT_EQ(records.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(records[i], expected[i]) << what << ", request " << i;
  }
}

struct Seen {
  uint64_t shared_steps = 0;
  uint64_t split_prefills = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_hits = 0;
  int most_plans = 0;
  int configurations = 0;

  void Add(const EngineStats& stats) {
    shared_steps += stats.steps_with_several_sequences;
    split_prefills += stats.split_prefills;
    preemptions += stats.preemptions;
    prefix_hits += stats.prefix_hit_tokens;
    most_plans = std::max(most_plans, stats.max_plans_in_flight_seen);
    ++configurations;
  }
};

}  // namespace sluice

#endif  // SLUICE_TESTS_INTEGRATION_ONE_HASH_H_
