#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/text_file.h"
#include "services/cli/bench/model_report.h"
#include "services/cli/bench/model_run.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "tests/testing/golden_model.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

// What the command prints, and its status.
struct Answer {
  Status status = OkStatus();
  std::string text;
};

Answer Sluice(const Words& words) {
  CommandLine sluice("sluice 1.2.3\n");
  AddCommands(sluice);
  ::testing::internal::CaptureStdout();
  Answer answer;
  answer.status = sluice.Run(words);
  std::fflush(stdout);
  answer.text = ::testing::internal::GetCapturedStdout();
  return answer;
}

// A round of 10 ms with two products of 3 ms and 1 ms, and attention of 4 ms.
StepRound RoundOf(double scale) {
  StepRound round;
  round.limits = {.read_one = 10,
                  .read_all = 20,
                  .dot_peak = 1000,
                  .fma_peak = 100,
                  .join_seconds = 1e-6};
  round.seconds = 0.010 * scale;
  round.ops.ops = {{"QKV", "30x10", "Q4_0", 1, 0.003 * scale, 30e6, 3e8, true},
                   {"attention", "2:1 heads of 8", "KV f32", 1, 0.004 * scale,
                    8e6, 4e8, false},
                   {"QKV", "30x10", "Q4_0", 1, 0.001 * scale, 30e6, 3e8, true}};
  round.ops.joins = 100;
  return round;
}

TEST(ModelReportTest, RowsAreCallsOfOneShapeWithSharesOfTheirOwnLimit) {
  const StepRun run = {{1, 1}, 7, {RoundOf(1), RoundOf(2), RoundOf(1)}};
  const std::vector<KernelRow> rows = KernelRows(run);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].op, "QKV");
  EXPECT_EQ(rows[0].calls, 2);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 0.002);
  EXPECT_DOUBLE_EQ(rows[0].gb_per_s, 15);
  EXPECT_DOUBLE_EQ(rows[0].read_share, 0.75);
  EXPECT_DOUBLE_EQ(rows[0].gop_per_s, 150);
  EXPECT_DOUBLE_EQ(rows[0].peak_share, 0.15);
  EXPECT_DOUBLE_EQ(rows[1].gop_per_s, 100);
  EXPECT_DOUBLE_EQ(rows[1].peak_share, 1);  // of F32's peak
}

TEST(ModelReportTest, ThePartsOfAPictureAreTheWholeStepOfTheMedianRound) {
  const StepRun run = {{1, 1}, 7, {RoundOf(3), RoundOf(1), RoundOf(2)}};
  const StepPicture picture = PictureOf(run);
  EXPECT_DOUBLE_EQ(picture.seconds, 0.020);
  ASSERT_EQ(picture.parts.size(), 3u);
  EXPECT_DOUBLE_EQ(picture.parts[0].seconds, 0.008);
  EXPECT_EQ(picture.parts[1].name, "attention");
  EXPECT_EQ(picture.parts[2].name, "between ops");
  EXPECT_DOUBLE_EQ(picture.parts[2].seconds, 0.004);
  EXPECT_DOUBLE_EQ(picture.barriers, 1e-4);
  EXPECT_NEAR(picture.gb_per_s, 3.4, 1e-9);
  EXPECT_NEAR(picture.read_share, 0.17, 1e-9);
}

TEST(ModelBenchTest, KernelsTellsEveryOperationOfAModelBesideTheLimits) {
  const std::string path = testing::GoldenModel("stories");
  const std::string json = Cat(::testing::TempDir(), "kernels-", getpid());
  const Answer answer =
      Sluice({"bench", "kernels", "--model", path, "--threads", "2", "--rounds",
              "3", "--json", json});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  for (const char* word :
       {"flags: ", "limits: read ", "decode of 1 after 128 tokens",
        "decode of 8 after 128 tokens", "prefill of 512 tokens", "QKV",
        "o_proj", "gate/up", "down", "logits", "sampling"}) {
    EXPECT_THAT(answer.text, HasSubstr(word));
  }
  const auto text = ReadTextFile(json);
  ASSERT_TRUE(text.ok());
  const Json result = Json::parse(*text);
  ASSERT_EQ(result["steps"].size(), 3u);
  for (const Json& step : result["steps"]) {
    EXPECT_EQ(step["seconds"].size(), 3u);
    EXPECT_EQ(step["limits"].size(), 3u);
    for (const Json& row : step["kernels"]) {
      EXPECT_GT(row["seconds"], 0) << row;
      EXPECT_GT(row["calls"], 0) << row;
    }
  }
  std::remove(json.c_str());
}

TEST(ModelBenchTest, ThePartsOfAStepAreItsWholeTime) {
  for (const char* model : {"llama3-tied", "glm4_moe-air"}) {
    const std::string path = testing::GoldenModel(model);
    const auto run = MeasureModel(
        {.model = path, .threads = 2, .rounds = 3, .json_path = ""},
        {{1, 1}, {1, 64}}, [](int32_t) {});
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_EQ(run->steps.size(), 2u);
    for (const StepRun& step : run->steps) {
      const StepPicture picture = PictureOf(step);
      double sum = 0;
      for (const StepPart& part : picture.parts) {
        EXPECT_GE(part.seconds, 0) << part.name;
        sum += part.seconds;
      }
      EXPECT_NEAR(sum, picture.seconds, 1e-9);
      // A decode of so small a model needs one thread.
      EXPECT_EQ(picture.joins > 0, step.kind.tokens > 1) << model;
    }
    const std::string text = LayersText(*run);
    EXPECT_THAT(text, HasSubstr("of it barriers"));
    EXPECT_THAT(text, HasSubstr("prefill of 64 tokens"));
  }
}

TEST(ModelBenchTest, ContextsAndPrefillsFitIntoTheModelsPositions) {
  const std::string path = testing::GoldenModel("stories");
  const auto run = MeasureModel({.model = path,
                                 .threads = 1,
                                 .rounds = 1,
                                 .context = 100000,
                                 .json_path = ""},
                                {{2, 1}, {1, 100000}}, [](int32_t) {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->steps[0].context, 511);
  EXPECT_EQ(run->steps[1].kind.tokens, 512);
  EXPECT_EQ(run->info.threads, 1);
}

TEST(ModelBenchTest, WrongCommandLinesAndModelsAreRefused) {
  const auto error = [](const Words& words) {
    const Answer answer = Sluice(words);
    EXPECT_FALSE(answer.status.ok());
    return Message(answer.status);
  };
  EXPECT_THAT(error({"bench", "kernels"}), HasSubstr("--model"));
  EXPECT_THAT(error({"bench", "layers", "--rate", "3"}),
              HasSubstr("unknown option --rate"));
  EXPECT_THAT(error({"bench", "kernels", "--model", "x", "--rounds", "0"}),
              HasSubstr("--rounds"));
  EXPECT_THAT(error({"bench", "kernels", "--model", "x", "--threads", "two"}),
              HasSubstr("--threads"));
  EXPECT_THAT(error({"bench", "layers", "--model", "x", "--isa", "sse9"}),
              HasSubstr("sse9"));
  EXPECT_THAT(error({"bench", "layers", "--model", "x", "--weights", "q3"}),
              HasSubstr("q3"));
  EXPECT_THAT(error({"bench", "layers", "--model", "/nowhere"}),
              HasSubstr("/nowhere"));
  EXPECT_THAT(error({"bench", "nothing"}), HasSubstr("nothing"));
}

TEST(ModelBenchTest, PartsOfBenchHaveHelpOfTheirOwnAndBenchKeepsIts) {
  for (const Words& words :
       {Words{"bench", "layers", "--help"}, Words{"help", "bench", "layers"},
        Words{"--help", "bench", "layers"}, Words{"bench-layers", "-h"}}) {
    EXPECT_THAT(Sluice(words).text, HasSubstr("usage: sluice bench-layers"));
  }
  EXPECT_THAT(Sluice({"bench", "--help"}).text, HasSubstr("--concurrency"));
}

}  // namespace
}  // namespace sluice::cli
