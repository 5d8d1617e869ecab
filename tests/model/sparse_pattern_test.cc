// Models whose layers are dense and sparse in any pattern, against the same
// computed in double.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/device/apart_backend.h"
#include "tests/model/pipeline.h"
#include "tests/model/reference_model.h"
#include "tests/testing/representative.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

constexpr double kTolerance = 3e-5;

struct Pattern {
  const char* name;
  const char* options;  // of make_model.py
  const char* sparse;   // SparseLayers
};

std::ostream& operator<<(std::ostream& out, const Pattern& pattern) {
  return out << pattern.name;
}

class SparsePatternTest : public ::testing::TestWithParam<Pattern> {};

TEST_P(SparsePatternTest, LogitsAreThoseOfTheModelInDouble) {
  if (OnlyRepresentative()) {
    GTEST_SKIP() << "under ThreadSanitizer in the long mode alone";
  }
  const TempDir dir;
  const std::string command =
      Cat("python3 '", SLUICE_SOURCE_DIR,
          "/tests/testing/make_model.py' --preset qwen3moe-tiny ",
          GetParam().options, " --out '", dir.path(), "'");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const auto file = OpenModel(dir.path());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto config = ParseModelConfig((*file)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(SparseLayers(*config), GetParam().sparse);

  std::vector<TokenId> prompt;
  for (int i = 0; i < 60; ++i) prompt.push_back(4 + i * 37 % 250);
  const std::vector<double> wanted = ReferenceModel(dir.path()).Logits(prompt);
  PipelineOptions options;
  options.stage.model_path = dir.path();
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  std::vector<float> first;
  const auto run = [&] {
    auto pipeline = Pipeline::Load(options);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    Ask ask{prompt, {}, 0, /*prompt_logits=*/true};
    ask.sampling.return_logits = true;
    const auto answers = (*pipeline)->Generate({ask});
    ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
    const std::vector<float>& logits = answers[0].logits;
    ASSERT_EQ(logits.size(), wanted.size());
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first);  // However it is cut.
  };
  for (options.stages = 1; options.stages <= 3; ++options.stages) {
    for (options.stage.ranks = 1; options.stage.ranks <= 2;
         ++options.stage.ranks) {
      run();
    }
  }
  options.stages = options.stage.ranks = 2;
  options.stage.make_backends = MakeApartBackends;
  run();
  const double largest = LargestDifference(first, wanted);
  EXPECT_LE(largest, kTolerance);
  std::cout << "logits differ from double by at most " << largest << "\n";
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, SparsePatternTest,
    ::testing::Values(
        Pattern{"All", "", "0-5"},
        Pattern{"EverySecond", "--sparse-step 2", "1, 3, 5"},
        Pattern{"SomeDense", "--mlp-only-layers 0,3", "1-2, 4-5"},
        Pattern{"OneSparse", "--sparse-step 3 --mlp-only-layers 2", "5"},
        Pattern{"LastDense", "--mlp-only-layers 4,5 --dtype bf16", "0-3"},
        Pattern{"AllDense", "--sparse-step 7", ""}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace sluice::testing
