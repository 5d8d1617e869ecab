// The same tokens and logprobs come out, bit for bit, however work is cut.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/json.h"
#include "common/device/cpu/cpu_options.h"
#include "tests/device/apart_backend.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice::testing {
namespace {

// How the same work is cut.
struct Cut {
  std::string name;
  int32_t stages = 1;
  int32_t ranks = 1;
  int32_t threads = 1;
  std::string isa = "auto";
  WeightsMode weights = WeightsMode::kAuto;
  Drive drive = {1 << 20, 1};
  Device device = Device::kCpu;

  // Three threads or more work on one step.
  bool representative() const { return isa == "auto" && ranks * threads >= 3; }
};

std::ostream& operator<<(std::ostream& out, const Cut& cut) {
  return out << cut.name;
}

// Greedy and sampled, short and long: one crosses a 256-token attention
// chunk.
std::vector<Ask> MixedAsks(const std::vector<TokenId>& text) {
  std::vector<Ask> asks;
  for (size_t i = 0; i < 10; ++i) {
    Ask ask;
    const size_t length = i == 9 ? 250 : 1 + i * 13;
    for (size_t t = 0; t < length; ++t) {
      ask.prompt.push_back(text[(i * 7 + t) % text.size()]);
    }
    ask.max_tokens = static_cast<int32_t>(6 + 3 * i);
    ask.sampling.seed = 1000 + i;
    ask.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    ask.sampling.top_k = i % 3 == 1 ? 40 : 0;
    ask.sampling.top_p = i % 3 == 2 ? 0.9f : 1.0f;
    ask.sampling.min_p = i % 4 == 3 ? 0.05f : 0.0f;
    ask.sampling.logprobs = 4;
    ask.sampling.prompt_logprobs = i % 2 == 0 ? 2 : -1;
    ask.prompt_logits = i % 2 == 0;
    asks.push_back(ask);
  }
  return asks;
}

std::vector<Answer> Answers(const std::string& path, const Cut& cut,
                            const std::vector<Ask>& asks) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.ranks = cut.ranks;
  options.stage.threads = cut.threads;
  options.stage.isa = cut.isa;
  options.stage.weights = cut.weights;
  options.stage.kv_blocks = 256;
  options.stage.max_step_tokens = 1024;
  options.stage.make_backends = FactoryOf(cut.device);
  options.stages = cut.stages;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate(asks, cut.drive);
}

std::vector<TokenId> StoryIds() {
  const GoldenPrompt golden = ReadGolden(GoldenModel("stories"))[0];
  std::vector<TokenId> ids = golden.ids;
  ids.insert(ids.end(), golden.greedy_ids.begin(), golden.greedy_ids.end());
  return ids;
}

// The plainest kernels, except where these take half of all time: other
// builds compare them with the rest.
const char* ReferenceIsa() { return OnlyQuick() ? "auto" : "portable"; }

// The answers of one uncut run. Under ThreadSanitizer, which has nothing to see
// in the one thread of that run, the first cut's `answers` take its place: the
// first cut is compared with nothing, and later cuts with the first.
std::vector<Answer> UncutOr(const std::vector<Answer>& answers,
                            const std::string& path,
                            const std::vector<Ask>& asks) {
  if (OnlyRepresentative()) return answers;
  return Answers(path, {"uncut", 1, 1, 1, ReferenceIsa()}, asks);
}

class OneHashTest : public ::testing::TestWithParam<Cut> {};

TEST_P(OneHashTest, TokensAndLogprobsAreThoseOfOneUncutRun) {
  const Cut& cut = GetParam();
  if (OnlyQuick() && !cut.representative()) {
    GTEST_SKIP() << "under sanitizers in the long mode alone";
  }
  const std::string path = GoldenModel("stories");
  if (const auto isa = ParseIsa(cut.isa); !isa.ok()) {
    GTEST_SKIP() << isa.status().message();
  }
  const auto asks = MixedAsks(StoryIds());
  const auto answers = Answers(path, cut, asks);
  ASSERT_EQ(answers.size(), asks.size());
  static const std::vector<Answer> uncut = UncutOr(answers, path, asks);
  ASSERT_EQ(uncut[9].tokens.size(), static_cast<size_t>(asks[9].max_tokens));
  ASSERT_EQ(uncut[8].prompt.size(), asks[8].prompt.size() - 1);
  ExpectSame(answers, uncut);
}

const WeightsMode kAuto = WeightsMode::kAuto;

INSTANTIATE_TEST_SUITE_P(
    Cuts, OneHashTest,
    ::testing::Values(
        Cut{"Batch10", 1, 1, 1, "auto", kAuto, {1 << 20, 10}},
        Cut{"Batch3Chunk16", 1, 1, 1, "auto", kAuto, {16, 3}},
        Cut{"Chunk1", 1, 1, 1, "auto", kAuto, {1, 10}},
        Cut{"Chunk64", 1, 1, 1, "auto", kAuto, {64, 4}},
        Cut{"Threads2", 1, 1, 2, "auto", kAuto, {64, 10}},
        Cut{"Threads3", 1, 1, 3, "auto", kAuto, {1 << 20, 1}},
        Cut{"Avx512", 1, 1, 1, "avx512"}, Cut{"Avx2", 1, 1, 1, "avx2"},
        Cut{"Avx2Batch", 1, 1, 2, "avx2", kAuto, {33, 10}},
        Cut{"PortableBatch", 1, 1, 1, "portable", kAuto, {33, 10}},
        Cut{"Ranks2", 1, 2, 1}, Cut{"Ranks3", 1, 3, 1}, Cut{"Ranks5", 1, 5, 1},
        Cut{"Ranks8", 1, 8, 1},
        Cut{"Ranks2Threads4", 1, 2, 4, "auto", kAuto, {64, 10}},
        Cut{"Stages2", 2, 1, 1}, Cut{"Stages5", 5, 1, 1},
        Cut{"Stages3Ranks3Batch", 3, 3, 1, "auto", kAuto, {16, 8}},
        Cut{"Apart", 1, 1, 2, "auto", kAuto, {1 << 20, 1}, Device::kApart},
        Cut{"ApartStages2Ranks3Batch",
            2,
            3,
            1,
            "auto",
            kAuto,
            {16, 8},
            Device::kApart}),
    [](const auto& tested) { return tested.param.name; });

std::vector<Ask> GoldenAsks(const std::vector<GoldenPrompt>& goldens) {
  std::vector<Ask> asks;
  for (const GoldenPrompt& golden : goldens) {
    Ask ask{golden.ids, {}, 32, /*prompt_logits=*/true};
    ask.sampling.seed = 5;
    ask.sampling.logprobs = 3;
    ask.sampling.prompt_logprobs = 0;
    asks.push_back(ask);
  }
  return asks;
}

TEST(Bf16Test, Bf16WeightsGiveTheBitsOfTheSameValuesInF32) {
  const std::string path = GoldenModel("llama2-bf16-sharded");
  const auto asks = GoldenAsks(ReadGolden(path));
  ExpectSame(Answers(path, {"bf16", 2, 3, 1, "auto", WeightsMode::kBf16}, asks),
             Answers(path, {"f32", 1, 1, 1, "auto", WeightsMode::kF32}, asks));
}

// The laws on the other families: one model for sparse layers, shared
// experts and biases, one for windows, sinks and packed experts. The threads
// of the others do nothing that these two's do not.
class FamilyLawsTest
    : public ::testing::TestWithParam<std::tuple<const char*, Cut>> {};

TEST_P(FamilyLawsTest, TokensAndLogprobsAreThoseOfOneUncutRun) {
  const auto& [name, cut] = GetParam();
  const bool has_threads_of_its_own = name == std::string("glm4_moe-46") ||
                                      name == std::string("gpt_oss-mxfp4");
  if ((OnlyQuick() && !cut.representative()) ||
      (OnlyRepresentative() && !has_threads_of_its_own)) {
    GTEST_SKIP() << "under sanitizers in the long mode alone";
  }
  const std::string path = GoldenModel(name);
  if (const auto isa = ParseIsa(cut.isa); !isa.ok()) {
    GTEST_SKIP() << isa.status().message();
  }
  std::vector<TokenId> text(97);
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<TokenId>(4 + i * i * 7 % 250);
  }
  const auto asks = MixedAsks(text);
  const auto answers = Answers(path, cut, asks);
  ASSERT_EQ(answers.size(), asks.size());
  static std::map<std::string, std::vector<Answer>> uncut;
  if (!uncut.contains(name)) uncut[name] = UncutOr(answers, path, asks);
  ASSERT_EQ(uncut[name][9].tokens.size(),
            static_cast<size_t>(asks[9].max_tokens));
  ExpectSame(answers, uncut[name]);
}

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyLawsTest,
    ::testing::Combine(
        ::testing::Values("glm4_moe-air", "glm4_moe-46", "gpt_oss-mxfp4",
                          "glm4", "lfm2_moe", "qwen3_next", "nemotron_h-moe",
                          "falcon_h1", "deepseek_v3", "glm_moe_dsa"),
        ::testing::Values(
            Cut{"Batch10", 1, 1, 1, "auto", kAuto, {1 << 20, 10}},
            Cut{"Chunk1", 1, 1, 1, "auto", kAuto, {1, 10}},
            Cut{"Chunk33Threads3", 1, 1, 3, "auto", kAuto, {33, 4}},
            Cut{"Avx512", 1, 1, 1, "avx512"},
            Cut{"Avx2Batch", 1, 1, 2, "avx2", kAuto, {64, 10}},
            Cut{"Ranks2", 1, 2, 1},
            Cut{"Ranks3Batch", 1, 3, 1, "auto", kAuto, {16, 8}},
            Cut{"Ranks4Stages2", 2, 4, 1},
            Cut{"ApartRanks3Stages2Batch",
                2,
                3,
                1,
                "auto",
                kAuto,
                {33, 8},
                Device::kApart},
            Cut{"Stages3", 3, 1, 1, "auto", kAuto, {50, 3}})),
    [](const auto& tested) {
      std::string name = std::string(std::get<0>(tested.param)) +
                         std::get<1>(tested.param).name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(Mxfp4Test, WidenedExpertsGiveTheBitsOfTheSameValuesInF32) {
  const std::string path = GoldenModel("gpt_oss-mxfp4");
  const std::string wide = GoldenModel("gpt_oss");
  const auto asks = GoldenAsks(ReadGolden(path));
  // The same model, saved as F32 and transposed.
  ExpectSame(Answers(wide, {"transposed", 1, 3, 1}, asks),
             Answers(path, {"f32", 2, 2, 1, "auto", WeightsMode::kF32}, asks));
}

// A copy of a model folder whose weights file can be changed.
class CopiedModel {
 public:
  explicit CopiedModel(const std::string& from)
      : folder_(std::filesystem::temp_directory_path() /
                ("sluice-laws-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(from, folder_);
  }
  ~CopiedModel() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path() const { return folder_.string(); }
  void FlipBit(std::streamoff byte, int bit) {
    std::fstream file(folder_ / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(byte);
    const auto value = static_cast<char>(file.get() ^ (1 << bit));
    file.seekp(byte);
    file.put(value);
  }

 private:
  std::filesystem::path folder_;
};

TEST(ChangedBitTest, OneChangedBitInOneWeightChangesTheResult) {
  const std::string path = GoldenModel("stories");
  const auto asks = MixedAsks(StoryIds());
  CopiedModel copy(path);
  const auto before = Answers(copy.path(), {"before"}, asks);
  // Near the end of the file stand the last layers' weights, F32 little
  // endian: the third byte is the upper mantissa.
  const auto size = static_cast<std::streamoff>(
      std::filesystem::file_size(copy.path() + "/model.safetensors"));
  copy.FlipBit((size * 3 / 4) / 4 * 4 + size % 4 + 2, 3);
  const auto after = Answers(copy.path(), {"after"}, asks);
  bool same = true;
  for (size_t i = 0; i < asks.size(); ++i) {
    same = same && before[i].tokens == after[i].tokens;
  }
  EXPECT_FALSE(same);
}

}  // namespace
}  // namespace sluice::testing
