// The same tokens and logprobs, bit for bit, however the work is cut: 32
// mixed requests over stages, ranks, concurrency, prefill chunks, the prefix
// cache and pools so small that sequences are preempted, all over gRPC; and
// over threads, instruction sets and weight types; and with layers that see a
// window.
#include "tests/integration/one_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "common/device/cpu/cpu_options.h"
#include "kernels/attention.h"
#include "kernels/weight_type.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice {
namespace {

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

// Plans go ahead whatever a step takes.
constexpr Duration kAlways = std::chrono::seconds(60);

// A way to cut the work.
struct Cut {
  int stages, ranks, blocks, concurrency, chunk, prefix_cache, ahead;

  std::array<int, 7> values() const {
    return {stages, ranks, blocks, concurrency, chunk, prefix_cache, ahead};
  }
};

std::vector<Cut> AllCuts() {
  std::vector<Cut> cuts;
  for (const int stages : {1, 2, 3}) {
    for (const int ranks : {1, 2, 3}) {
      for (const int blocks : {kPlentyOfBlocks, kFewBlocks}) {
        for (const int concurrency : {1, 8, 32}) {
          for (const int chunk : {16, 64, 0}) {
            for (const int prefix_cache : {1, 0}) {
              for (const int ahead : {1, 0}) {
                cuts.push_back({stages, ranks, blocks, concurrency, chunk,
                                prefix_cache, ahead});
              }
            }
          }
        }
      }
    }
  }
  return cuts;
}

// The pairs of values, with their places, that `cut` has.
std::vector<std::array<int, 4>> PairsOf(const Cut& cut) {
  const std::array<int, 7> values = cut.values();
  std::vector<std::array<int, 4>> pairs;
  for (int a = 0; a < 7; ++a) {
    for (int b = a + 1; b < 7; ++b) {
      pairs.push_back({a, b, values[a], values[b]});
    }
  }
  return pairs;
}

// Cuts that have every pair of values, taken one after the other by how many
// new pairs a cut brings.
std::vector<Cut> CoveringCuts() {
  const std::vector<Cut> cuts = AllCuts();
  std::vector<Cut> chosen;
  std::set<std::array<int, 4>> covered;
  while (true) {
    const Cut* best = nullptr;
    int64_t most = 0;
    for (const Cut& cut : cuts) {
      const auto pairs = PairsOf(cut);
      const int64_t gain = std::count_if(
          pairs.begin(), pairs.end(),
          [&](const auto& pair) { return !covered.contains(pair); });
      if (gain <= most) continue;
      most = gain;
      best = &cut;
    }
    if (best == nullptr) return chosen;
    for (const auto& pair : PairsOf(*best)) covered.insert(pair);
    chosen.push_back(*best);
  }
}

// The cuts whose number of stages is the parameter: all of them in the long
// mode, else those of one set, over all numbers of stages, that has every pair
// of values.
class OneHashTest : public ::testing::TestWithParam<int> {};

TEST_P(OneHashTest, EveryCutGivesTheSameBitsOverGrpc) {
  const std::string model = testing::GoldenModel("stories");
  Seen seen;
  const bool all = testing::IsLong();
  for (const Cut& cut : all ? AllCuts() : CoveringCuts()) {
    if (cut.stages != GetParam()) continue;
    LocalClusterOptions options = Base(model);
    options.stages = cut.stages;
    options.stage.ranks = cut.ranks;
    options.stage.kv_blocks = cut.blocks;
    options.engine.prefill_chunk = cut.chunk;
    options.engine.prefix_cache = cut.prefix_cache != 0;
    options.engine.ahead_within = cut.ahead != 0 ? kAlways : Duration::zero();
    const Outcome outcome = RunCluster(options, cut.concurrency);
    ExpectSame(
        outcome.records, Reference(model),
        Cat("stages ", cut.stages, " ranks ", cut.ranks, " blocks ", cut.blocks,
            " concurrency ", cut.concurrency, " chunk ", cut.chunk,
            " prefix cache ", cut.prefix_cache, " ahead ", cut.ahead));
    if (HasFatalFailure()) return;
    seen.Add(outcome.stats);
  }
  EXPECT_GT(seen.shared_steps, 0u);
  EXPECT_GT(seen.split_prefills, 0u);
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.prefix_hits, 0u);
  EXPECT_EQ(seen.most_plans, GetParam() + 1);  // one goes ahead
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

TEST(OneHashPlacesTest, StagesThatLoadWhatTheyAreAssignedGiveTheSameBits) {
  const std::string model = testing::GoldenModel("stories");
  for (const int32_t cut : {1, 4}) {
    LocalClusterOptions options = Base(model);
    options.stages = 2;
    options.places = {{0, cut}, {cut, 5}};
    options.engine.prefill_chunk = 24;
    options.engine.ahead_within = kAlways;
    const Outcome outcome = RunCluster(options, 16);
    ExpectSame(outcome.records, Reference(model), Cat("cut at layer ", cut));
    if (HasFatalFailure()) return;
  }
}

// Half of the layers see 16 tokens, and what is behind that is given back
// while requests of up to 18 such windows run.
TEST(OneHashWindowTest, EveryCutGivesTheSameBitsWithWindowedLayers) {
  const std::string model = testing::GoldenModel("gpt_oss-mxfp4");
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
        options.engine.ahead_within =
            (blocks == 26) == prefix_cache ? kAlways : Duration::zero();
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
  const std::string model = testing::GoldenModel("stories");
  for (const char* isa : {"portable", "avx2", "avx512", "neon"}) {
    if (!ParseIsa(isa).ok()) {
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

// One model with heads of 8 and one with heads of 32 elements: lanes lie along
// the head, and along the queries of a prompt.
TEST(OneHashKernelsTest, KeysAndValuesInBf16HaveOneHashOfTheirOwn) {
  constexpr int kIds = 256;  // below both models' vocabularies
  for (const char* name : {"stories", "glm4"}) {
    const std::string model = testing::GoldenModel(name);
    std::vector<std::string> expected;
    for (const char* isa : {"auto", "avx2", "portable"}) {
      if (!ParseIsa(isa).ok()) continue;
      for (const int stages : {1, 2}) {
        LocalClusterOptions options = Base(model);
        options.stages = stages;
        options.stage.ranks = stages == 2 ? 2 : 1;
        options.stage.isa = isa;
        options.stage.kv_type = kernels::WeightType::kBf16;
        options.engine.prefill_chunk = stages == 2 ? 0 : 24;
        const auto records = RunCluster(options, 8, kIds).records;
        if (expected.empty()) expected = records;
        ExpectSame(records, expected,
                   Cat(name, " isa ", isa, " stages ", stages));
      }
    }
    LocalClusterOptions f32 = Base(model);
    EXPECT_NE(Hash(expected), Hash(RunCluster(f32, 8, kIds).records));
  }
}

// Blocks of 32 elements of a head, over every way to cut the work.
TEST(OneHashKernelsTest, KeysAndValuesInQ8HaveOneHashOfTheirOwn) {
  const std::string model = testing::GoldenModel("glm4");
  constexpr int kIds = 256;  // below the model's vocabulary
  std::vector<std::string> expected;
  Seen seen;
  for (const char* isa :
       {"auto", "avx512vnni", "avx512", "avxvnni", "avx2", "portable"}) {
    if (!ParseIsa(isa).ok()) continue;
    for (const int stages : {1, 2}) {
      for (const int blocks : {kPlentyOfBlocks, kFewBlocks}) {
        const bool hardest = stages == 2 && blocks == kFewBlocks;
        if (isa != std::string("auto") && !hardest) continue;
        LocalClusterOptions options = Base(model);
        options.stages = stages;
        options.stage.ranks = stages == 2 ? 2 : 1;
        options.stage.threads = blocks == kFewBlocks ? 2 : 1;
        options.stage.isa = isa;
        options.stage.kv_type = kernels::WeightType::kQ8_0;
        options.stage.kv_blocks = blocks;
        options.engine.prefill_chunk = stages == 2 ? 24 : 0;
        options.engine.prefix_cache = blocks == kFewBlocks;
        const Outcome outcome = RunCluster(options, 8, kIds);
        if (expected.empty()) expected = outcome.records;
        ExpectSame(outcome.records, expected,
                   Cat("isa ", isa, " stages ", stages, " blocks ", blocks));
        if (HasFatalFailure()) return;
        seen.Add(outcome.stats);
      }
    }
  }
  EXPECT_GT(seen.split_prefills, 0u);
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.prefix_hits, 0u);
  LocalClusterOptions f32 = Base(model);
  EXPECT_NE(Hash(expected), Hash(RunCluster(f32, 8, kIds).records));
}

TEST(OneHashKernelsTest, Bf16WeightsHaveOneHashOfTheirOwn) {
  const std::string model = testing::GoldenModel("stories");
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
  const std::string model = testing::GoldenModel("stories");
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
