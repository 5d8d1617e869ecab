#include "common/model/expert_weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model/local_experts.h"
#include "common/model_config/open_model.h"
#include "tests/device/apart_backend.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

struct Opened {
  std::unique_ptr<weights::ModelFile> file;
  ModelConfig config;
};

Opened Open(const std::string& path) {
  auto file = OpenModel(path);
  EXPECT_TRUE(file.ok()) << file.status();
  auto config = ParseModelConfig((*file)->config());
  EXPECT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(CheckTensors(*config, **file).ok());
  return {*std::move(file), *std::move(config)};
}

std::unique_ptr<Backend> BackendOn(Device device) {
  return std::move((*FactoryOf(device)({.threads = 1}))[0]);
}

TEST(ExpertLoaderTest, OnlyTheBytesOfTheExpertsAskedForAreRead) {
  for (const char* name :
       {"glm4_moe-air", "glm4_moe-46", "gpt_oss", "gpt_oss-mxfp4"}) {
    const std::string path = GoldenModel(name);
    const Opened model = Open(path);
    const auto backend = BackendOn(Device::kCpu);
    PackedWeights off;
    ExpertLoader loader(*model.file, model.config, WeightsMode::kAuto, &off);
    const int32_t experts = model.config.moe().num_experts;
    uint64_t sum = 0;
    for (const ExpertRange range :
         {ExpertRange{0, 3}, ExpertRange{3, 3}, ExpertRange{3, experts}}) {
      const uint64_t before = model.file->bytes_read();
      uint64_t told = 0;
      const auto loaded =
          loader.Load(3, range, *backend, [&](uint64_t b) { told += b; });
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(loaded->first, range.begin);
      EXPECT_EQ(loaded->gate_up.size(), static_cast<size_t>(range.size()));
      const uint64_t bytes = loader.StoredBytes(3, range);
      EXPECT_EQ(told, bytes) << name;
      EXPECT_EQ(loaded->bytes(), bytes) << name;  // as stored, packed
      const bool bias = loaded->gate_up_bias.bytes() > 0;
      const uint64_t bias_bytes =
          bias ? range.size() * sizeof(float) *
                     (2 * model.config.moe().intermediate_size +
                      model.config.hidden_size)
               : 0;
      EXPECT_EQ(model.file->bytes_read() - before, bytes + bias_bytes) << name;
      sum += bytes;
    }
    EXPECT_EQ(sum, loader.StoredBytes(3, {0, experts}));
    EXPECT_EQ(FormatsOf(model.config, *model.file, WeightsMode::kAuto)
                  .has(kernels::WeightType::kMxfp4),
              std::string(name) == "gpt_oss-mxfp4");
  }
}

class LocalExpertsTest : public ::testing::TestWithParam<Device> {};

TEST_P(LocalExpertsTest, OwnersOfHalvesFinishWhatOneOwnerDoes) {
  const std::string path = GoldenModel("glm4_moe-46");
  const Opened model = Open(path);
  const auto backend = BackendOn(GetParam());
  PackedWeights off;
  ExpertLoader loader(*model.file, model.config, WeightsMode::kAuto, &off);
  const int64_t hidden = model.config.hidden_size;
  std::vector<float> x(static_cast<size_t>(2 * hidden));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  }
  const std::vector<int32_t> ids = {1, 5, 9, 14, 8, 10, 11, 15};
  const std::vector<float> shares = {0.5f, 0.25f, 1.5f, 0.75f, 1, 2, 3, 4};
  const StepInputs step{StepLimits()};
  std::vector<DeviceMemory> memory;
  const auto matrix = [&](int64_t cols, ElementType type) {
    memory.push_back(backend->Allocate(BytesOf(type) * 2 * cols));
    return DeviceMatrix{memory.back().data(), 2, cols, cols, type};
  };
  const DeviceMatrix rows = matrix(hidden, ElementType::kF32);
  const DeviceRouting routing = {matrix(4, ElementType::kInt32),
                                 matrix(4, ElementType::kF32)};
  backend->CopyIn(x.data(), rows);
  backend->CopyIn(ids.data(), routing.ids);
  backend->CopyIn(shares.data(), routing.weights);
  // Asks an owner of one range, which is one node.
  const auto finish = [&](int32_t begin, int32_t end) {
    const auto experts = loader.Load(4, {begin, end}, *backend, {});
    EXPECT_TRUE(experts.ok()) << experts.status();
    LocalExperts owner(backend.get(), {{16, {&*experts}}}, /*alone=*/true);
    EXPECT_EQ(owner.nodes(0).size(), 1u);
    const DeviceMatrix part = matrix(hidden, ElementType::kF32);
    std::vector<float> sum(x.size());
    backend->BeginStep(step);
    owner.Run(0, rows, routing, model.config.moe().activation, {&part, 1});
    backend->CopyOut(part, sum.data());
    backend->EndStep();
    return sum;
  };
  const auto whole = finish(0, 16);
  auto joined = finish(0, 8);
  const auto right = finish(8, 16);
  for (size_t i = 0; i < joined.size(); ++i) joined[i] += right[i];
  EXPECT_EQ(std::memcmp(joined.data(), whole.data(), sizeof(float) * x.size()),
            0);
}

INSTANTIATE_TEST_SUITE_P(Devices, LocalExpertsTest,
                         ::testing::Values(Device::kCpu, Device::kApart));

// Writes `from`, whose experts are tensors of their own, with all experts of
// a layer in one tensor, as newer transformers saves them.
void Restack(const std::string& from, const ModelConfig& config,
             const std::filesystem::path& to) {
  std::filesystem::remove_all(to);
  std::filesystem::create_directories(to);
  std::filesystem::copy(from + "/config.json", to / "config.json");
  const auto file = OpenModel(from);
  ASSERT_TRUE(file.ok());
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::string> bytes;
  const auto append = [&](const std::string& name, const std::string& stored) {
    const auto all = (*file)->ReadStoredPrefix(stored, int64_t{1} << 40);
    ASSERT_TRUE(all.ok());
    bytes[name] += *all;
  };
  const int64_t hidden = config.hidden_size;
  const int64_t experts = config.moe().num_experts;
  const int64_t mlp = config.moe().intermediate_size;
  for (const auto& tensor : (*file)->tensors()) {
    if (tensor.name.find(".mlp.experts.") != std::string::npos) continue;
    shapes[tensor.name] = tensor.shape;
    append(tensor.name, tensor.name);
  }
  for (int layer = SparseSpan(config).first; layer < config.num_layers();
       ++layer) {
    const std::string prefix = Cat("model.layers.", layer, ".mlp.experts.");
    shapes[prefix + "gate_up_proj"] = {experts, 2 * mlp, hidden};
    shapes[prefix + "down_proj"] = {experts, hidden, mlp};
    for (int64_t e = 0; e < experts; ++e) {
      const std::string own = Cat(prefix, e, ".");
      append(prefix + "gate_up_proj", own + "gate_proj.weight");
      append(prefix + "gate_up_proj", own + "up_proj.weight");
      append(prefix + "down_proj", own + "down_proj.weight");
    }
  }
  Json header = Json::object();
  uint64_t offset = 0;
  for (const auto& [name, shape] : shapes) {
    const uint64_t end = offset + bytes[name].size();
    header[name] = {
        {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream out(to / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out << text;
  for (const auto& [name, shape] : shapes) out << bytes[name];
}

TEST(ExpertStorageTest, StackedExpertsGiveTheTokensOfSeparateOnes) {
  const std::string path = GoldenModel("glm4_moe-air");
  const Opened model = Open(path);
  const auto folder = std::filesystem::temp_directory_path() /
                      ("sluice-stacked-" + std::to_string(::getpid()));
  Restack(path, model.config, folder);
  const Opened stacked = Open(folder.string());
  EXPECT_EQ(ExpertStorageOf(stacked.config, *stacked.file),
            ExpertStorage::kStacked);
  const auto golden = ReadGolden(path)[1];
  PipelineOptions options;
  options.stage.model_path = folder.string();
  options.stage.threads = 1;
  options.stage.ranks = 2;
  options.stage.kv_blocks = 16;
  auto pipeline = Pipeline::Load(options);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  Ask ask{golden.ids, {}, 64};
  ask.sampling.temperature = 0;
  const auto answers = (*pipeline)->Generate({ask});
  ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
  EXPECT_EQ(answers[0].ids(), golden.greedy_ids);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::testing
