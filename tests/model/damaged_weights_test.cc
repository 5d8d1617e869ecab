// A flipped byte of any kind of tensor is refused by whoever reads it, and by
// nobody else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model/hosted_experts.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/stage/stage.h"
#include "common/weights/weight_sums.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"
#include "tests/testing/test_data.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kDigestBytes = 4096;  // of each tensor, see ComputeIdentity

// A model in a folder of its own, whose bytes may be changed.
class Victim {
 public:
  explicit Victim(const std::string& folder) : path_(dir_.path()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      if (entry.is_regular_file() && name != "expected.safetensors") {
        dir_.Write(name, ReadFileOrDie(entry.path()));
      }
    }
    Open();
  }
  // A llama in GGUF.
  Victim() : path_(dir_.Write("tiny.gguf", TinyLlama().Build())) { Open(); }

  const std::string& path() const { return path_; }
  const weights::ModelFile& model() const { return *model_; }
  const ModelConfig& config() const { return config_; }

  // Changes one bit of the byte in the tensor's middle; again: changes it back.
  void Flip(const weights::TensorInfo& info) {
    const std::string file = *model_->FileOf(info.name);
    std::string bytes = ReadFileOrDie(file);
    bytes[OffsetOf(info, bytes) + Middle(info)] ^= 0x10;
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }

  static size_t Middle(const weights::TensorInfo& info) {
    return static_cast<size_t>(info.stored_bytes() / 2);
  }

 private:
  void Open() {
    auto model = OpenModel(path_);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto config = ParseModelConfig(model_->config());
    ASSERT_TRUE(config.ok()) << config.status();
    config_ = *std::move(config);
    const auto digest = weights::ComputeIdentity(*model_);
    const auto sums = weights::ComputeWeightSums(*model_, *digest);
    ASSERT_TRUE(sums.ok()) << sums.status();
    ASSERT_TRUE(weights::WriteWeightSums(*model_, *sums).ok());
  }

  size_t OffsetOf(const weights::TensorInfo& info, const std::string& bytes) {
    const auto known = offsets_.find(info.name);
    if (known != offsets_.end()) return known->second;
    size_t offset = 0;
    if (model_->gguf() != nullptr) {
      // Its values are unlike any other's.
      std::string own(static_cast<size_t>(info.stored_bytes()), '\0');
      EXPECT_TRUE(model_
                      ->ReadStoredBytes(info.name, 0, own.size(),
                                        reinterpret_cast<uint8_t*>(own.data()))
                      .ok());
      offset = bytes.find(own);
    } else {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data(), sizeof(size));
      const auto header = ParseJson(std::string_view(bytes).substr(8, size));
      offset =
          8 + size + header->at(info.name).at("data_offsets")[0].get<size_t>();
    }
    return offsets_[info.name] = offset;
  }

  const TempDir dir_;
  const std::string path_;
  std::unique_ptr<weights::ModelFile> model_;
  ModelConfig config_;
  std::map<std::string, size_t> offsets_;
};

// A tensor's name without its numbers.
std::string KindOf(const weights::TensorInfo& info) {
  std::string kind = info.name;
  kind.erase(std::remove_if(kind.begin(), kind.end(),
                            [](char c) { return c >= '0' && c <= '9'; }),
             kind.end());
  return kind;
}

// The last tensor of each kind; tensors of layers that the model does not run
// are left out.
std::vector<weights::TensorInfo> OneOfEachKind(const Victim& victim) {
  std::map<std::string, weights::TensorInfo> kinds;
  for (const auto& info : victim.model().tensors()) {
    std::string_view rest;
    if (LayerOfTensor(info.name, rest) >= victim.config().num_layers())
      continue;
    kinds[KindOf(info)] = info;  // the last one
  }
  std::vector<weights::TensorInfo> infos;
  for (const auto& [kind, info] : kinds) infos.push_back(info);
  return infos;
}

bool Reads(const StageOptions& stage, const ModelConfig& config,
           const weights::TensorInfo& info) {
  std::string_view rest;
  const int32_t layer = LayerOfTensor(info.name, rest);
  if (layer >= 0) return layer >= stage.first_layer && layer < stage.last_layer;
  const bool first = stage.first_layer == 0;
  const bool last = stage.last_layer == config.num_layers();
  if (info.name != "model.embed_tokens.weight") return last;
  return first || (last && config.tie_word_embeddings);
}

void ExpectRefusedWhereRead(const Victim& victim,
                            const weights::TensorInfo& info) {
  const int32_t layers = victim.config().num_layers();
  StageOptions options;
  options.model_path = victim.path();
  options.threads = 1;
  options.kv_blocks = 8;
  for (int32_t stages = 1; stages <= std::min(3, layers); ++stages) {
    for (options.ranks = 1; options.ranks <= 2; ++options.ranks) {
      for (int32_t i = 0; i < stages; ++i) {
        options.first_layer = layers * i / stages;
        options.last_layer = layers * (i + 1) / stages;
        const Status status = Stage::Load(options).status();
        // What is in the digest is refused by every stage.
        const bool refused = Victim::Middle(info) < kDigestBytes ||
                             Reads(options, victim.config(), info);
        EXPECT_EQ(status.code(),
                  refused ? StatusCode::kDataLoss : StatusCode::kOk)
            << info.name << ", stage " << i << " of " << stages << ": "
            << status;
        if (!refused) continue;
        EXPECT_THAT(Message(status),
                    HasSubstr(Cat("tensor '", info.name, "'")));
        EXPECT_THAT(Message(status),
                    HasSubstr(*victim.model().FileOf(info.name)));
      }
    }
  }
}

void ExpectRefusedByHosts(const Victim& victim,
                          const weights::TensorInfo& info) {
  const ModelConfig& config = victim.config();
  std::string_view rest;
  const int32_t layer = LayerOfTensor(info.name, rest);
  const int32_t experts = config.moe().num_experts;
  HostedExpertsOptions options;
  options.model_path = victim.path();
  options.threads = 1;
  for (int32_t held = 0; held < config.num_layers(); ++held) {
    if (!config.is_sparse(held)) continue;
    options.held = {{held, {{0, experts}}}};
    const bool refused = Victim::Middle(info) < kDigestBytes || held == layer;
    const Status status = HostedExperts::Load(options).status();
    EXPECT_EQ(status.code(), refused ? StatusCode::kDataLoss : StatusCode::kOk)
        << info.name << ", host of layer " << held << ": " << status;
    if (refused) {
      EXPECT_THAT(Message(status), HasSubstr(Cat("tensor '", info.name, "'")));
    }
  }
}

void ExpectEveryFlipRefused(Victim& victim) {
  static std::set<std::string> flipped;  // kinds, in any model
  for (const weights::TensorInfo& info : OneOfEachKind(victim)) {
    if (!flipped.insert(KindOf(info)).second && OnlyQuick()) continue;
    victim.Flip(info);
    ExpectRefusedWhereRead(victim, info);
    if (info.name.find(".experts.") != std::string::npos) {
      ExpectRefusedByHosts(victim, info);
    }
    victim.Flip(info);
  }
  StageOptions options;
  options.model_path = victim.path();
  options.threads = 1;
  options.kv_blocks = 8;
  options.ranks = 2;
  EXPECT_TRUE(Stage::Load(options).ok());  // As it was.
}

class DamagedWeightsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DamagedWeightsTest, AFlippedByteIsRefusedByTheTensorsName) {
  if (OnlyRepresentative()) {
    GTEST_SKIP() << "under ThreadSanitizer in the long mode alone";
  }
  const std::string path = GoldenModel(GetParam());
  Victim victim(path);
  if (!HasFatalFailure()) ExpectEveryFlipRefused(victim);
}

INSTANTIATE_TEST_SUITE_P(EveryReader, DamagedWeightsTest,
                         ::testing::Values("llama3-tied", "llama2-bf16-sharded",
                                           "glm4", "glm4_moe-air", "gpt_oss",
                                           "gpt_oss-mxfp4"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DamagedGgufTest, AFlippedByteIsRefusedByTheTensorsName) {
  Victim victim;
  if (!HasFatalFailure()) ExpectEveryFlipRefused(victim);
}

}  // namespace
}  // namespace sluice::testing
