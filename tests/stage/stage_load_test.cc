#include <gtest/gtest.h>
#include <sched.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/concurrency/named_thread.h"
#include "common/device/cpu/available_memory.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/placement/layer_loads.h"
#include "common/stage/stage.h"
#include "common/weights/model_file.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using testing::ReadFileOrDie;
using testing::TempDir;

StageOptions OptionsFor(const std::string& path) {
  StageOptions options;
  options.model_path = path;
  options.threads = 1;
  options.kv_blocks = 8;
  return options;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

StageInfo InfoOf(const StageOptions& options) {
  const auto stage = Stage::Load(options);
  EXPECT_TRUE(stage.ok()) << stage.status();
  return stage.ok() ? (*stage)->info() : StageInfo{};
}

TEST(StageLoadTest, InfoTellsWhatTheStageIs) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path + "/");
  options.first_layer = 1;
  options.last_layer = 3;
  options.ranks = 2;
  const StageInfo info = InfoOf(options);
  EXPECT_EQ(info.model_name, "stories");
  EXPECT_EQ(info.model_digest.size(), 64u);
  EXPECT_EQ(info.numerics, "f32-canonical-3");
  EXPECT_EQ(info.weights_dtype, "f32");
  EXPECT_FALSE(info.is_first());
  EXPECT_FALSE(info.is_last());
  EXPECT_EQ(info.hidden_size, 64);
  EXPECT_EQ(info.limits.vocab_size, 512);
  EXPECT_EQ(info.limits.max_context, 512);
  EXPECT_EQ(info.limits.num_blocks, 8);
  // 2 layers, 4 kv heads of 8, keys and values, F32, 8 blocks of 16.
  EXPECT_EQ(info.kv_bytes, 2u * 4 * 8 * 2 * 4 * 8 * 16);
}

TEST(StageLoadTest, KeysAndValuesInBf16TakeHalfAndHaveNumericsOfTheirOwn) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path + "/");
  const StageInfo f32 = InfoOf(options);
  options.kv_type = kernels::WeightType::kBf16;
  const StageInfo bf16 = InfoOf(options);
  EXPECT_EQ(bf16.kv_bytes, f32.kv_bytes / 2);
  EXPECT_EQ(bf16.numerics, "f32-canonical-3+kv-bf16-1");
  EXPECT_EQ(bf16.product_numerics, f32.numerics);
  EXPECT_EQ(f32.product_numerics, f32.numerics);
}

TEST(StageLoadTest, AutoKeepsKeysAndValuesInBf16BesideQuantisedWeightsAlone) {
  for (const char* name : {"gpt_oss-mxfp4", "qwen3"}) {
    StageOptions options = OptionsFor(testing::GoldenModel(name));
    options.kv_type = std::nullopt;
    const StageInfo chosen = InfoOf(options);
    const bool is_quantised = name == std::string("gpt_oss-mxfp4");
    options.kv_type =
        is_quantised ? kernels::WeightType::kBf16 : kernels::WeightType::kF32;
    const StageInfo named = InfoOf(options);
    EXPECT_EQ(chosen.numerics, named.numerics);
    EXPECT_EQ(chosen.kv_bytes, named.kv_bytes);
    EXPECT_EQ(chosen.numerics.ends_with("+kv-bf16-1"), is_quantised);
    options.kv_type = kernels::WeightType::kF32;
    const StageInfo f32 = InfoOf(options);
    EXPECT_EQ(chosen.kv_bytes, f32.kv_bytes / (is_quantised ? 2 : 1));
  }
}

TEST(StageLoadTest, KeysAndValuesInQ8Take34BytesFor32Elements) {
  const std::string path = testing::GoldenModel("qwen3");
  StageOptions options = OptionsFor(path);
  const StageInfo f32 = InfoOf(options);
  options.kv_type = kernels::WeightType::kQ8_0;
  const StageInfo q8 = InfoOf(options);
  EXPECT_EQ(q8.kv_bytes, f32.kv_bytes / (4 * 32) * 34);
  EXPECT_EQ(q8.numerics, f32.numerics + "+kv-q8_0-1");
  EXPECT_EQ(q8.product_numerics, f32.numerics);
}

TEST(StageLoadTest, F32ActivationsOfBlocksHaveTheNumericsOfF32) {
  StageOptions options = OptionsFor(testing::GoldenModel("gpt_oss-mxfp4"));
  EXPECT_EQ(InfoOf(options).numerics, "f32-canonical-3+q8-canonical-1");
  options.activations = kernels::BlockActivations::kF32;
  const StageInfo widened = InfoOf(options);
  EXPECT_EQ(widened.numerics, "f32-canonical-3");
  EXPECT_EQ(widened.product_numerics, "f32-canonical-3");
}

TEST(StageLoadTest, Q8RefusesHeadsThatAreNoWholeNumberOfBlocks) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path);
  options.kv_type = kernels::WeightType::kQ8_0;
  const Status status = Stage::Load(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("head_dim must be a multiple of 32, is 8"),
            std::string::npos)
      << status;
}

TEST(StageLoadTest, AStageReadsItsLayersAndASampleOfTheRest) {
  const std::string path = testing::GoldenModel("llama3-tied");
  const auto file = OpenModel(path);
  ASSERT_TRUE(file.ok());
  uint64_t whole = 0;
  uint64_t samples = 0;
  uint64_t layer_1 = 0;
  for (const auto& tensor : (*file)->tensors()) {
    const auto bytes = static_cast<uint64_t>(tensor.stored_bytes());
    whole += bytes;
    samples += std::min<uint64_t>(bytes, 4096);
    if (tensor.name.find("layers.1.") != std::string::npos) layer_1 += bytes;
  }
  StageOptions options = OptionsFor(path);
  options.first_layer = 1;
  options.last_layer = 2;
  EXPECT_LE(InfoOf(options).bytes_read, layer_1 + samples);
  EXPECT_GE(InfoOf(options).bytes_read, layer_1);
  // Tied, one stage, one rank: the embedding is read and stored once.
  StageOptions all = OptionsFor(path);
  EXPECT_LE(InfoOf(all).bytes_read, whole + samples);
  EXPECT_LE(InfoOf(all).weights_bytes, whole);
}

TEST(StageLoadTest, RanksShareOutTheWeightsWithoutCopies) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path);
  options.first_layer = 1;
  options.last_layer = 3;
  const uint64_t alone = InfoOf(options).weights_bytes;
  options.ranks = 4;  // as many as kv heads: nothing is held twice
  EXPECT_EQ(InfoOf(options).weights_bytes, alone);
}

TEST(StageLoadTest, AutoKeepsBf16AndF32TakesTwiceTheBytes) {
  const std::string path = testing::GoldenModel("llama2-bf16-sharded");
  StageOptions options = OptionsFor(path);
  const StageInfo bf16 = InfoOf(options);
  EXPECT_EQ(bf16.weights_dtype, "bf16");
  options.weights = WeightsMode::kF32;
  const StageInfo f32 = InfoOf(options);
  EXPECT_EQ(f32.weights_dtype, "f32");
  EXPECT_EQ(f32.weights_bytes, 2 * bf16.weights_bytes);
  EXPECT_EQ(f32.model_digest, bf16.model_digest);
}

TEST(StageLoadTest, ProgressRisesToTheTotal) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path);
  options.ranks = 3;
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  options.progress = [&](uint64_t done, uint64_t total) {
    seen.emplace_back(done, total);
  };
  InfoOf(options);
  ASSERT_FALSE(seen.empty());
  for (size_t i = 1; i < seen.size(); ++i) {
    EXPECT_GE(seen[i].first, seen[i - 1].first);
    EXPECT_EQ(seen[i].second, seen[0].second);
  }
  EXPECT_EQ(seen.back().first, seen.back().second);
}

TEST(StageLoadTest, KvBlocksAreChosenWithinWhatSequencesCanUse) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path);
  options.kv_blocks = 0;
  options.max_context = 100;
  options.max_sequences = 3;
  EXPECT_EQ(InfoOf(options).limits.num_blocks, 3 * 7);
}

TEST(StageLoadTest, TheContextIsTheModelsOrWhatTheKvCacheHolds) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path);
  options.kv_blocks = 0;
  StageInfo info = InfoOf(options);
  EXPECT_EQ(info.context, 512);
  EXPECT_EQ(info.context_limit, "the model's");

  // The same model, said to have more positions than its memory holds.
  const TempDir dir;
  const auto text = ReadFileOrDie(path + "/config.json");
  auto config = ParseJson(text);
  ASSERT_TRUE(config.ok());
  (*config)["max_position_embeddings"] = 1 << 20;
  dir.Write("config.json", DumpJson(*config));
  dir.Write("model.safetensors", ReadFileOrDie(path + "/model.safetensors"));
  options.model_path = dir.path();
  constexpr uint64_t kBlock = 5 * 4 * 8 * 2 * 4 * 16;  // layers, heads, dims
  // In steps: a process with a little more memory chooses as many.
  for (const uint64_t more : {0, 60}) {
    options.memory =
        info.weights_bytes + (uint64_t{1} << 16) + (1024 + more) * kBlock;
    EXPECT_EQ(InfoOf(options).limits.num_blocks, 1024);
  }
  info = InfoOf(options);
  EXPECT_EQ(info.context, info.limits.num_blocks * 16);
  EXPECT_EQ(info.limits.max_context, info.context);
  EXPECT_EQ(info.context_limit,
            "what the KV cache holds; the model has 1048576");
  // Less than the usual context: BF16 is proposed, unless it is there.
  options.memory = info.weights_bytes + (uint64_t{1} << 16) + 256 * kBlock;
  info = InfoOf(options);
  EXPECT_EQ(info.context, 256 * 16);
  EXPECT_EQ(info.context_limit,
            "what the KV cache holds; the model has 1048576; memory is short: "
            "--kv-type bf16 halves the 5 MB of keys and values");
  options.kv_type = kernels::WeightType::kBf16;
  info = InfoOf(options);
  EXPECT_EQ(info.context, 512 * 16);
  EXPECT_EQ(info.context_limit,
            "what the KV cache holds; the model has 1048576");
  options.kv_type = kernels::WeightType::kF32;
  options.max_context = 700;
  info = InfoOf(options);
  EXPECT_EQ(info.context, 700);
  EXPECT_EQ(info.context_limit, "--max-context");
  options.max_context = 0;
  options.kv_blocks = 10;  // of others' choice: they are all there is
  info = InfoOf(options);
  EXPECT_EQ(info.context, 160);
  EXPECT_EQ(info.limits.max_context, 1 << 20);
}

TEST(StageLoadTest, AKvCacheLargerThanMemoryIsRefused) {
  const std::string path = testing::GoldenModel("stories");
  StageOptions options = OptionsFor(path);
  options.kv_blocks = 1 << 24;  // of 20 KiB each
  if (AvailableMemory() >= uint64_t{20480} << 24) {
    GTEST_SKIP() << "this machine has room for it";
  }
  const Status status = Stage::Load(options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(Message(status).find("16777216 blocks"), std::string::npos)
      << status;
  EXPECT_TRUE(Message(status).ends_with("; --kv-type bf16 takes half"))
      << status;
}

TEST(StageLoadTest, AKvCacheIsChosenWithinWhatTheWeightsLeaveOfItsMemory) {
  const std::string path = testing::GoldenModel("stories");
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  StageOptions options = OptionsFor(path);
  options.kv_blocks = 0;
  options.max_context = 16;
  for (const int32_t ranks : {1, 8}) {  // two for each of the kv heads
    options.ranks = ranks;
    options.kv_blocks = 0;
    options.memory = 0;
    EXPECT_EQ(InfoOf(options).limits.num_blocks, options.max_sequences);
    const StageBytes bytes = LoadsOf(*config, **model,
                                     {options.weights, nullptr, 1, 16,
                                      options.max_step_tokens, ranks})
                                 .Of({0, config->num_layers()});
    options.memory = bytes.weights + 5 * bytes.kv;
    EXPECT_EQ(InfoOf(options).limits.num_blocks, 5) << ranks;
    options.kv_blocks = 6;
    const Status status = Stage::Load(options).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(Message(status).find("6 blocks"), std::string::npos) << status;
  }
}

// CPUs that a thread may run on after its first step of a stage.
std::vector<int> CpusAfterAStep(const StageOptions& options) {
  std::vector<int> cpus;
  const auto stage = Stage::Load(options);
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (!stage.ok()) return cpus;
  NamedThread runner("runner", [&] {
    Chunk chunk;
    chunk.tokens = {1};
    Stage::SequenceState state;
    state.num_prompt_tokens = 1;
    state.tokens = {1};
    state.blocks = {{BlockId(0)}};
    HiddenStates out;
    std::vector<SequenceResult> results;
    (*stage)->Run({{&chunk, &state}}, {}, out, results);
    cpus = AllowedCpus();
  });
  runner.Join();
  return cpus;
}

TEST(StageLoadTest, PinnedThreadsStayOnCpusOfTheirOwn) {
  const std::string path = testing::GoldenModel("stories");
  const std::vector<int> all = AllowedCpus();
  StageOptions options = OptionsFor(path);
  EXPECT_EQ(CpusAfterAStep(options), all);
  options.pin_threads = true;
  EXPECT_EQ(CpusAfterAStep(options), std::vector<int>{all[0]});
  // More threads than CPUs: pinning would only hurt.
  options.threads = static_cast<int32_t>(all.size()) + 1;
  EXPECT_EQ(CpusAfterAStep(options), all);
}

TEST(StageLoadTest, OptionsThatDoNotFitAreRefusedByName) {
  const std::string path = testing::GoldenModel("stories");
  const std::vector<std::pair<std::string, std::function<void(StageOptions&)>>>
      faults = {
          {"layers [3, 3)",
           [](StageOptions& o) { o.first_layer = o.last_layer = 3; }},
          {"layers [0, 6)", [](StageOptions& o) { o.last_layer = 6; }},
          {"layers [-1, 5)", [](StageOptions& o) { o.first_layer = -1; }},
          {"ranks must be between 1 and 8",
           [](StageOptions& o) { o.ranks = 9; }},
          {"ranks must", [](StageOptions& o) { o.ranks = 0; }},
          {"isa must", [](StageOptions& o) { o.isa = "sse"; }},
          {"max_context must", [](StageOptions& o) { o.max_context = 513; }},
          {"threads must", [](StageOptions& o) { o.threads = -1; }},
          {"kv_blocks must", [](StageOptions& o) { o.kv_blocks = -1; }},
          {"max_step_tokens must",
           [](StageOptions& o) { o.max_step_tokens = 0; }},
          {"max_sequences must", [](StageOptions& o) { o.max_sequences = 0; }},
      };
  for (const auto& [message, fault] : faults) {
    StageOptions options = OptionsFor(path);
    fault(options);
    const Status status = Stage::Load(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_NE(Message(status).find(message), std::string::npos) << status;
  }
  EXPECT_EQ(Stage::Load(OptionsFor(path + "-gone")).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
