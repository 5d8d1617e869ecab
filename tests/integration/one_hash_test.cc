// The same tokens and logprobs, bit for bit, however the work is cut: 32
// mixed requests over stages, ranks, concurrency, prefill chunks, the prefix
// cache and pools so small that sequences are preempted, all over gRPC; and
// over threads, instruction sets and weight types; and with layers that see a
// window.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/attention.h"
#include "kernels/context.h"
#include "tests/testing/local_cluster.h"
#include "tests/testing/shared_data.h"

namespace sluice {
namespace {

using testing::LocalCluster;
using testing::LocalClusterOptions;

constexpr int kRequests = 32;
constexpr int kVocab = 512;
constexpr int kPlentyOfBlocks = 1024;
// The longest request needs 19 blocks; a few sequences at once do not fit.
constexpr int kFewBlocks = 20;

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
std::vector<GenerateRequest> MixedRequests(int vocab) {
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

TEST(OneHashRequestsTest, APromptAndAnAnswerCrossAnAttentionChunk) {
  int prompts = 0;
  int answers = 0;
  for (const GenerateRequest& request : MixedRequests(kVocab)) {
    const int prompt = static_cast<int>(request.prompt_tokens.size());
    const int most = prompt + request.max_tokens;
    EXPECT_LE(most, (kFewBlocks - 1) * kBlockTokens);
    prompts += prompt > kernels::kAttentionChunk;
    // Without an end token it gets all of its tokens.
    answers += prompt < kernels::kAttentionChunk &&
               most > kernels::kAttentionChunk && request.eos_token_ids.empty();
  }
  EXPECT_EQ(prompts, 1);
  EXPECT_EQ(answers, 1);
}

// The requests' records in order, with at most `concurrency` alive.
std::vector<std::string> RunAll(EngineLoop& engine, int concurrency,
                                int vocab) {
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
    request.arrival = Clock::now();
    const auto id = engine.Submit(std::move(request), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    if (!id.ok()) return {};
    live.push_back(std::move(sink));
  }
  while (!live.empty()) collect();
  return records;
}

uint64_t Hash(const std::vector<std::string>& records) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const std::string& record : records) {
    for (const char c : record + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
  }
  return hash;
}

LocalClusterOptions Base(const std::string& model) {
  LocalClusterOptions options;
  options.stage.model_path = model;
  options.stage.threads = 1;
  options.stage.kv_blocks = kPlentyOfBlocks;
  options.stages = 1;
  options.grpc = true;
  return options;
}

struct Outcome {
  std::vector<std::string> records;
  EngineStats stats;
};

Outcome RunCluster(const LocalClusterOptions& options, int concurrency,
                   int vocab = kVocab) {
  auto cluster = LocalCluster::Start(options);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  if (!cluster.ok()) return {};
  Outcome outcome;
  outcome.records = RunAll((*cluster)->engine(), concurrency, vocab);
  EXPECT_TRUE(
      (*cluster)->engine().WaitIdle(Clock::now() + std::chrono::seconds(10)));
  outcome.stats = (*cluster)->engine().Stats();
  EXPECT_EQ(outcome.stats.blocks_used, 0);
  EXPECT_EQ(outcome.stats.running, 0);
  return outcome;
}

// Alone, whole, nothing cached: what every cut must equal.
const std::vector<std::string>& Reference(const std::string& model) {
  static const std::vector<std::string> records = [&] {
    LocalClusterOptions options = Base(model);
    options.engine.prefill_chunk = 0;
    options.engine.prefix_cache = false;
    options.grpc = false;
    return RunCluster(options, 1).records;
  }();
  return records;
}

void ExpectSame(const std::vector<std::string>& records,
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

// A way to cut the work, beside the number of stages.
struct Cut {
  int ranks, blocks, concurrency, chunk, prefix_cache;

  std::array<int, 5> values() const {
    return {ranks, blocks, concurrency, chunk, prefix_cache};
  }
};

std::vector<Cut> AllCuts() {
  std::vector<Cut> cuts;
  for (const int ranks : {1, 2, 3}) {
    for (const int blocks : {kPlentyOfBlocks, kFewBlocks}) {
      for (const int concurrency : {1, 8, 32}) {
        for (const int chunk : {16, 64, 0}) {
          for (const int prefix_cache : {1, 0}) {
            cuts.push_back({ranks, blocks, concurrency, chunk, prefix_cache});
          }
        }
      }
    }
  }
  return cuts;
}

// The combinations of three values, with their places, that `cut` has.
std::vector<std::array<int, 6>> TriplesOf(const Cut& cut) {
  const std::array<int, 5> values = cut.values();
  std::vector<std::array<int, 6>> triples;
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b) {
      for (int c = b + 1; c < 5; ++c) {
        triples.push_back({a, b, c, values[a], values[b], values[c]});
      }
    }
  }
  return triples;
}

// Cuts that have every combination of three values, taken one after the other
// by how many new ones a cut brings.
std::vector<Cut> CoveringCuts() {
  std::vector<Cut> chosen;
  std::set<std::array<int, 6>> covered;
  while (true) {
    const auto gain = [&](const Cut& cut) {
      const auto triples = TriplesOf(cut);
      return std::count_if(triples.begin(), triples.end(),
                           [&](const auto& t) { return !covered.contains(t); });
    };
    const std::vector<Cut> cuts = AllCuts();
    const auto best = std::max_element(
        cuts.begin(), cuts.end(),
        [&](const Cut& x, const Cut& y) { return gain(x) < gain(y); });
    if (gain(*best) == 0) return chosen;
    for (const auto& triple : TriplesOf(*best)) covered.insert(triple);
    chosen.push_back(*best);
  }
}

// Cuts of one number of stages: all of them in the long mode, else those that
// cover every combination of three values.
class OneHashTest : public ::testing::TestWithParam<int> {};

TEST_P(OneHashTest, EveryCutGivesTheSameBitsOverGrpc) {
  SLUICE_REQUIRE_SHARED(model, "data/models/stories260K-hf");
  Seen seen;
  const bool all = std::getenv("SLUICE_LONG") != nullptr;
  for (const Cut& cut : all ? AllCuts() : CoveringCuts()) {
    LocalClusterOptions options = Base(model);
    options.stages = GetParam();
    options.stage.ranks = cut.ranks;
    options.stage.kv_blocks = cut.blocks;
    options.engine.prefill_chunk = cut.chunk;
    options.engine.prefix_cache = cut.prefix_cache != 0;
    const Outcome outcome = RunCluster(options, cut.concurrency);
    ExpectSame(outcome.records, Reference(model),
               Cat("stages ", GetParam(), " ranks ", cut.ranks, " blocks ",
                   cut.blocks, " concurrency ", cut.concurrency, " chunk ",
                   cut.chunk, " prefix cache ", cut.prefix_cache));
    if (HasFatalFailure()) return;
    seen.Add(outcome.stats);
  }
  EXPECT_GT(seen.shared_steps, 0u);
  EXPECT_GT(seen.split_prefills, 0u);
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.prefix_hits, 0u);
  if (GetParam() > 1) {
    EXPECT_GE(seen.most_plans, 2);
  }
  std::printf(
      "stages %d: %d configurations, hash %016llx, %llu steps with several "
      "sequences, %llu split prefills, %llu preemptions, %llu prefix hit "
      "tokens, up to %d plans in flight\n",
      GetParam(), seen.configurations,
      static_cast<unsigned long long>(Hash(Reference(model))),
      static_cast<unsigned long long>(seen.shared_steps),
      static_cast<unsigned long long>(seen.split_prefills),
      static_cast<unsigned long long>(seen.preemptions),
      static_cast<unsigned long long>(seen.prefix_hits), seen.most_plans);
}

INSTANTIATE_TEST_SUITE_P(Stages, OneHashTest, ::testing::Values(1, 2, 3));

// Half of the layers see 16 tokens, and what is behind that is given back
// while requests of up to 18 such windows run.
TEST(OneHashWindowTest, EveryCutGivesTheSameBitsWithWindowedLayers) {
  SLUICE_REQUIRE_SHARED(model, "golden/gpt_oss-mxfp4");
  constexpr int kWindowedVocab = 256;
  LocalClusterOptions base = Base(model);
  base.stage.max_step_tokens = 64;
  LocalClusterOptions alone = base;
  alone.engine.prefill_chunk = 0;
  alone.engine.prefix_cache = false;
  alone.grpc = false;
  const auto reference = RunCluster(alone, 1, kWindowedVocab).records;
  Seen seen;
  for (const int stages : {1, 2, 3}) {
    // The longest request needs 19 blocks and 6 for its window and step.
    for (const int blocks : {kPlentyOfBlocks, 26}) {
      for (const bool prefix_cache : {true, false}) {
        LocalClusterOptions options = base;
        options.stages = stages;
        options.stage.ranks = stages == 2 ? 2 : 1;
        options.stage.kv_blocks = blocks;
        options.engine.prefill_chunk = stages == 2 ? 0 : 24;
        options.engine.prefix_cache = prefix_cache;
        const Outcome outcome = RunCluster(options, 16, kWindowedVocab);
        ExpectSame(outcome.records, reference,
                   Cat("stages ", stages, " blocks ", blocks, " prefix cache ",
                       prefix_cache));
        if (HasFatalFailure()) return;
        seen.Add(outcome.stats);
      }
    }
  }
  EXPECT_GT(seen.split_prefills, 0u);
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.prefix_hits, 0u);
  EXPECT_GE(seen.most_plans, 2);
}

TEST(OneHashKernelsTest, ThreadsAndInstructionSetsGiveTheSameBits) {
  SLUICE_REQUIRE_SHARED(model, "data/models/stories260K-hf");
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    const auto needed = std::string(isa) == "avx512" ? kernels::Isa::kAvx512
                        : std::string(isa) == "avx2" ? kernels::Isa::kAvx2
                                                     : kernels::Isa::kPortable;
    if (kernels::DetectIsa() < needed) {
      std::printf("this CPU cannot run %s: left out\n", isa);
      continue;
    }
    for (const int threads : {1, 2}) {
      LocalClusterOptions options = Base(model);
      options.stages = 2;
      options.stage.isa = isa;
      options.stage.threads = threads;
      ExpectSame(RunCluster(options, 8).records, Reference(model),
                 Cat("isa ", isa, " threads ", threads));
    }
  }
}

TEST(OneHashKernelsTest, Bf16WeightsHaveOneHashOfTheirOwn) {
  SLUICE_REQUIRE_SHARED(model, "data/models/stories260K-hf");
  std::vector<std::string> expected;
  for (const char* isa : {"auto", "portable"}) {
    for (const int ranks : {1, 3}) {
      for (const int stages : {1, 2}) {
        LocalClusterOptions options = Base(model);
        options.stages = stages;
        options.stage.ranks = ranks;
        options.stage.isa = isa;
        options.stage.weights = WeightsMode::kBf16;
        const auto records = RunCluster(options, 8).records;
        if (expected.empty()) expected = records;
        ExpectSame(records, expected,
                   Cat("isa ", isa, " ranks ", ranks, " stages ", stages));
      }
    }
  }
  EXPECT_NE(Hash(expected), Hash(Reference(model)));
}

TEST(OneHashKernelsTest, OneChangedBitInOneWeightChangesTheHash) {
  SLUICE_REQUIRE_SHARED(model, "data/models/stories260K-hf");
  namespace fs = std::filesystem;
  const fs::path copy = fs::temp_directory_path() / "sluice_one_hash_flipped";
  fs::remove_all(copy);
  fs::create_directories(copy);
  for (const auto& entry : fs::directory_iterator(model)) {
    const fs::path to = copy / entry.path().filename();
    fs::copy_file(entry.path(), to);
    fs::permissions(to, fs::perms::owner_all);
  }
  {
    std::fstream file(copy / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    const auto middle =
        static_cast<std::streamoff>(fs::file_size(copy / "model.safetensors")) /
        2 / 4 * 4;
    file.seekg(middle + 2);  // of the mantissa's upper bits
    const int byte = file.get();
    file.seekp(middle + 2);
    file.put(static_cast<char>(byte ^ 1));
  }
  LocalClusterOptions options = Base(copy.string());
  const auto records = RunCluster(options, 8).records;
  EXPECT_EQ(records.size(), size_t{kRequests});
  EXPECT_NE(Hash(records), Hash(Reference(model)));
  fs::remove_all(copy);
}

}  // namespace
}  // namespace sluice
