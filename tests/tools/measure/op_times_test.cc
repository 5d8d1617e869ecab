#include "common/tools/measure/op_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/stage/stage.h"
#include "common/tools/measure/stage_steps.h"
#include "tests/testing/golden_model.h"

namespace sluice::measure {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;

// A golden model as one stage; timed where `ops` is given.
std::unique_ptr<Stage> Loaded(const std::string& path, StepOps* ops) {
  StageOptions options;
  options.model_path = path;
  options.threads = 2;
  options.max_step_tokens = 32;
  options.max_context = 64;
  options.max_sequences = 2;
  options.kv_blocks = 16;
  if (ops != nullptr) options.make_backends = TimedBackends(ops);
  auto stage = Stage::Load(options);
  EXPECT_TRUE(stage.ok()) << stage.status();
  return stage.ok() ? *std::move(stage) : nullptr;
}

// The raw logits of the last of `ids`, one chunk of one sequence.
std::vector<float> LogitsOf(Stage& stage, const std::vector<TokenId>& ids) {
  Stage::SequenceState state;
  state.sampling = Greedy();
  state.sampling.return_logits = true;
  state.num_prompt_tokens = static_cast<int32_t>(ids.size());
  state.tokens = ids;
  std::vector<BlockId> blocks;
  for (int b = 0; b < 4; ++b) blocks.push_back(BlockId(b));
  state.blocks.assign(static_cast<size_t>(stage.info().limits.num_kv_groups),
                      blocks);
  Chunk chunk;
  chunk.sequence = SequenceId(1);
  chunk.tokens = ids;
  chunk.logits = LogitsWanted::kLast;
  chunk.samples = true;
  HiddenStates out;
  std::vector<SequenceResult> results;
  stage.Run({{&chunk, &state}}, {}, out, results);
  EXPECT_EQ(results.size(), 1u);
  return results.empty() ? std::vector<float>() : results[0].logits;
}

std::set<std::string> NamesOf(const StepOps& step) {
  std::set<std::string> names;
  for (const OpTime& op : step.ops) names.insert(std::string(op.op));
  return names;
}

double SumOf(const StepOps& step) {
  double sum = 0;
  for (const OpTime& op : step.ops) sum += op.seconds;
  return sum;
}

const OpTime& First(const StepOps& step, std::string_view name) {
  return *std::find_if(step.ops.begin(), step.ops.end(),
                       [name](const OpTime& op) { return op.op == name; });
}

TEST(OpTimesTest, AStepThatIsTimedHasTheBitsOfOneThatIsNot) {
  for (const char* model :
       {"llama3-tied", "glm4", "glm4_moe-air", "gpt_oss-mxfp4", "stories"}) {
    const std::string path = testing::GoldenModel(model);
    StepOps ops;
    const auto timed = Loaded(path, &ops);
    const auto plain = Loaded(path, nullptr);
    ASSERT_TRUE(timed != nullptr && plain != nullptr);
    const std::vector<TokenId> ids = {5, 17, 9, 100, 4, 63, 21};
    const std::vector<float> logits = LogitsOf(*timed, ids);
    EXPECT_FALSE(logits.empty());
    EXPECT_EQ(logits, LogitsOf(*plain, ids)) << model;
  }
}

TEST(OpTimesTest, TheOperationsOfAStepAreNamedAndFitIntoIt) {
  const std::string path = testing::GoldenModel("llama3-tied");
  StepOps ops;
  const auto stage = Loaded(path, &ops);
  ASSERT_NE(stage, nullptr);
  StageSteps steps(stage.get(), 2, 8);
  const double seconds = steps.Step(7);
  EXPECT_THAT(
      NamesOf(ops),
      IsSupersetOf({"attention norm", "QKV", "attention", "o_proj", "MLP norm",
                    "gate/up", "activation", "down", "logits", "sampling"}));
  EXPECT_THAT(NamesOf(ops), Not(Contains("experts")));
  for (const std::string& name : NamesOf(ops)) {
    EXPECT_THAT(OpOrder(), Contains(name));
  }
  EXPECT_GT(SumOf(ops), 0);
  EXPECT_LE(SumOf(ops), seconds);
  EXPECT_GT(ops.joins, 0);
  const OpTime& qkv = First(ops, "QKV");
  EXPECT_EQ(qkv.shape, "240x96");
  EXPECT_EQ(qkv.type, "f32");
  EXPECT_EQ(qkv.tokens, 14);
  EXPECT_EQ(qkv.bytes, 240 * 96 * 4);
  EXPECT_EQ(qkv.operations, 2.0 * 240 * 96 * 14);
  EXPECT_FALSE(qkv.integer);
  // Two sequences of seven tokens: 1 + 2 + .. + 7 positions each.
  const OpTime& attention = First(ops, "attention");
  EXPECT_EQ(attention.shape, "6:2 heads of 24");
  EXPECT_EQ(attention.operations, 4.0 * 2 * 28 * 6 * 24);
  EXPECT_EQ(attention.bytes, 2 * (2.0 * 7 * 2 * 24 * 4));
  steps.Step(1);
  EXPECT_EQ(First(ops, "attention").operations, 4.0 * 2 * 8 * 6 * 24);
  EXPECT_EQ(First(ops, "logits").tokens, 2);
}

TEST(OpTimesTest, ExpertsCountOnceForAllTheirTokensAndWindowsCutPositions) {
  const std::string path = testing::GoldenModel("gpt_oss-mxfp4");
  StepOps ops;
  const auto stage = Loaded(path, &ops);
  ASSERT_NE(stage, nullptr);
  StageSteps steps(stage.get(), 1, 32);
  steps.Step(1);
  EXPECT_THAT(NamesOf(ops), IsSupersetOf({"router", "experts"}));
  // Four of eight experts for one token; all eight at the most for 30.
  const OpTime one = First(ops, "experts");
  EXPECT_EQ(one.type, "MXFP4");
  EXPECT_TRUE(one.integer);
  steps.Step(30);
  const OpTime& many = First(ops, "experts");
  EXPECT_EQ(many.operations, 30 * one.operations);
  EXPECT_GE(many.bytes, one.bytes);
  EXPECT_LE(many.bytes, 2 * one.bytes);
  // Layer 0 sees 16 positions, layer 1 all 32.
  steps.Step(1);
  std::vector<double> bytes;
  for (const OpTime& op : ops.ops) {
    if (op.op == "attention") bytes.push_back(op.bytes);
  }
  ASSERT_EQ(bytes.size(), 4u);
  EXPECT_EQ(bytes[1], 2 * bytes[0]);
}

TEST(OpTimesTest, SeveralRanksAreRefused) {
  StepOps ops;
  BackendOptions options;
  options.ranks = 2;
  const auto backends = TimedBackends(&ops)(options);
  EXPECT_EQ(backends.status().code(), StatusCode::kInvalidArgument);
}

TEST(StageStepsTest, ARewoundSequenceComputesTheSamePositionsAgain) {
  const std::string path = testing::GoldenModel("llama3-tied");
  StepOps ops;
  const auto stage = Loaded(path, &ops);
  ASSERT_NE(stage, nullptr);
  StageSteps steps(stage.get(), 1, 16);
  steps.Step(9);
  steps.Step(1);
  const double bytes = First(ops, "attention").bytes;
  steps.Step(1);
  EXPECT_GT(First(ops, "attention").bytes, bytes);
  steps.Rewind(9);
  steps.Step(1);
  EXPECT_EQ(First(ops, "attention").bytes, bytes);
}

}  // namespace
}  // namespace sluice::measure
