// Every family's golden model, cut in several ways: the reference's greedy ids,
// and its logits of each prompt's last positions.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/device/apart_backend.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_families.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/model/reference_model.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice::testing {
namespace {

// The larger of 1e-4 and three times the reference's own difference between
// float and double.
constexpr double kTolerance = 1e-4;

using kernels::BlockActivations;

struct Cut {
  int32_t stages = 1;
  int32_t ranks = 1;
  Device device = Device::kCpu;
  int32_t chunk = 37;
  std::string isa = "auto";
};

std::ostream& operator<<(std::ostream& out, const Cut& cut) {
  return out << cut.stages << "x" << cut.ranks << ", chunks of " << cut.chunk
             << ", " << cut.isa;
}

// How weights, keys and values are held, and what blocks are multiplied with.
struct Form {
  WeightsMode weights = WeightsMode::kF32;
  BlockActivations activations = BlockActivations::kEightBits;
  KvChoice kv_type = kernels::WeightType::kF32;
};

std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << "weights " << ToString(form.weights) << ", keys and values "
             << ToString(form.kv_type);
}

std::unique_ptr<Pipeline> Load(const Family& family, const Cut& cut,
                               const Form& form) {
  PipelineOptions options = family.Cut(cut.stages);
  options.stage.weights = form.weights;
  options.stage.activations = form.activations;
  options.stage.kv_type = form.kv_type;
  options.stage.ranks = cut.ranks;
  options.stage.isa = cut.isa;
  options.stage.make_backends = FactoryOf(cut.device);
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return pipeline.ok() ? *std::move(pipeline) : nullptr;
}

std::vector<Answer> AnswersOf(const Family& family, const Cut& cut) {
  const auto pipeline = Load(family, cut, {});
  if (pipeline == nullptr) return {};
  const auto goldens = ReadGolden(GoldenModel(family.name));
  std::vector<Ask> asks;
  for (size_t i = family.first; i < family.last; ++i) {
    SamplingParams greedy;
    greedy.temperature = 0;
    greedy.return_logits = true;
    asks.push_back({goldens[i].ids, greedy,
                    static_cast<int32_t>(goldens[i].greedy_ids.size()),
                    /*prompt_logits=*/true});
  }
  return pipeline->Generate(asks, {.prefill_chunk = cut.chunk});
}

// Some drawn tokens of each prompt, with log probabilities.
std::vector<Answer> QuantisedAnswersOf(const Family& family, const Cut& cut,
                                       const Form& form) {
  const auto pipeline = Load(family, cut, form);
  if (pipeline == nullptr) return {};
  const auto goldens = ReadGolden(GoldenModel(family.name));
  std::vector<Ask> asks;
  for (size_t i = family.first; i < family.last; ++i) {
    SamplingParams drawn;
    drawn.temperature = 0.8f;
    drawn.seed = 5 + i;
    drawn.logprobs = 3;
    drawn.return_logits = true;
    asks.push_back({goldens[i].ids, drawn, /*max_tokens=*/5});
  }
  return pipeline->Generate(asks, {.prefill_chunk = cut.chunk});
}

class FamilyTest : public ::testing::TestWithParam<Family> {};

TEST_P(FamilyTest, GreedyIdsAndLogitsAreTheReferencesInEveryCut) {
  const Family& family = GetParam();
  const auto goldens = ReadGolden(GoldenModel(family.name));
  std::vector<std::vector<float>> first;  // a cut's logits
  for (const Cut& cut :
       {Cut{2, 2}, Cut{1, 1}, Cut{3, 2}, Cut{1, 3, Device::kApart}}) {
    if (OnlyQuick() && !first.empty()) break;
    SCOPED_TRACE(cut);
    const auto answers = AnswersOf(family, cut);
    ASSERT_EQ(answers.size(), family.last - family.first);
    double worst = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      const GoldenPrompt& golden = goldens[family.first + i];
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status;
      EXPECT_EQ(answers[i].ids(), golden.greedy_ids) << "prompt " << i;
      const auto begin =
          static_cast<size_t>(golden.first_position * golden.vocab_size);
      ASSERT_GE(answers[i].logits.size(), begin + golden.last_logits.size());
      worst = std::max<double>(
          worst,
          LargestDifference(&answers[i].logits[begin], golden.last_logits));
      if (first.size() <= i) first.push_back(answers[i].logits);
      EXPECT_EQ(answers[i].logits, first[i]) << "prompt " << i;
    }
    EXPECT_LE(worst, kTolerance);
    std::cout << family << " " << cut.stages << "x" << cut.ranks
              << ": logits differ from the reference's by at most " << worst
              << "\n";
  }
}

// Models whose four heads are one block of 32 columns: they cannot be cut over
// ranks when they are quantised.
constexpr std::string_view kHeadsOfOneBlock[] = {
    "mistral",     "mistral3",  "ministral3", "hunyuan_v1_dense",
    "ernie4_5",    "gemma",     "gemma2",     "gemma3",
    "gemma3_text", "ministral", "internlm3",  "glm4v_moe"};

// Weights that are quantised at load, with activations of 8 bits and in F32,
// with keys and values in F32 and as auto keeps them: one answer over stages,
// ranks, chunks and instruction sets.
TEST_P(FamilyTest, QuantisedFormsHaveOneHash) {
  const int32_t ranks =
      std::ranges::count(kHeadsOfOneBlock, GetParam().name) > 0 ? 1 : 2;
  using A = BlockActivations;
  const Form forms[] = {{WeightsMode::kQ8_0, A::kEightBits},
                        {WeightsMode::kQ4_0, A::kEightBits, std::nullopt},
                        {WeightsMode::kQ5_1, A::kF32}};
  for (const Form& form : forms) {
    std::vector<Answer> first;
    for (const Cut& cut :
         {Cut{}, Cut{2, ranks, Device::kCpu, 16}, Cut{3, 1, Device::kCpu, 7},
          Cut{1, ranks, Device::kApart, 50},
          Cut{1, 1, Device::kCpu, 37, "portable"}}) {
      if (OnlyQuick() && cut.stages == 3) break;
      SCOPED_TRACE(::testing::Message() << form << ", " << cut);
      auto answers = QuantisedAnswersOf(GetParam(), cut, form);
      ASSERT_EQ(answers.size(), GetParam().last - GetParam().first);
      for (const Answer& answer : answers) {
        ASSERT_TRUE(answer.status.ok()) << answer.status;
      }
      if (first.empty()) first = answers;
      ExpectSame(answers, first);
    }
  }
}

// A stage that was asked for a short context has other frequencies: the
// handshake refuses the pair by their numerics.
TEST(LongRopeTest, StagesOfOtherContextsHaveOtherNumerics) {
  const auto numerics = [](int32_t context) {
    PipelineOptions options = Family{"phi3", context}.Cut(1);
    auto pipeline = Pipeline::Load(options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return pipeline.ok() ? (*pipeline)->stage(0).info().numerics : "";
  };
  EXPECT_NE(numerics(112), numerics(0));
  EXPECT_EQ(numerics(112), numerics(64));
}

INSTANTIATE_TEST_SUITE_P(Goldens, FamilyTest,
                         ::testing::ValuesIn(GoldenFamilies()),
                         [](const auto& tested) {
                           return tested.param.Name();
                         });

}  // namespace
}  // namespace sluice::testing
