// Embeddings from hidden states, and what a model's files say of them.
#include "common/serving/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"
#include "tests/weights/quantised_matrix.h"

namespace sluice::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> PooledBy(Pooling pooling, const std::vector<float>& rows,
                            size_t size, size_t dimensions = 0) {
  Pooler pooler(pooling);
  pooler.Add(rows, size);
  return pooler.Finish(dimensions);
}

TEST(PoolingTest, TakesARowOrTheMeanAndNormalizes) {
  const std::vector<float> rows = {3, 4, 0, 0, 6, 8};  // [3, 2]
  EXPECT_THAT(PooledBy(Pooling::kFirst, rows, 2), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(PooledBy(Pooling::kMean, rows, 2), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(PooledBy(Pooling::kLast, {6, 8}, 2), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(PooledBy(Pooling::kLast, {6, 8}, 2, 1), ElementsAre(1.0f));
  EXPECT_THAT(PooledBy(Pooling::kLast, {0, 0}, 2), ElementsAre(0.0f, 0.0f));
}

TEST(PoolingTest, DoesNotDependOnHowTheRowsWereCut) {
  constexpr size_t kSize = 7;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> rows(kSize * 50);
  for (float& value : rows) value = normal(random);
  for (const Pooling pooling : {Pooling::kFirst, Pooling::kMean}) {
    const std::vector<float> whole = PooledBy(pooling, rows, kSize);
    for (int round = 0; round < 20; ++round) {
      Pooler pooler(pooling);
      for (size_t at = 0; at < rows.size();) {
        const size_t count =
            std::min(kSize * (1 + random() % 9), rows.size() - at);
        pooler.Add(std::span(rows).subspan(at, count), kSize);
        at += count;
      }
      EXPECT_EQ(pooler.Finish(0), whole);
    }
  }
}

// A golden model with the files of sentence-transformers beside it.
class EmbeddingRuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::create_symlink(
          testing::GoldenModel("qwen3") + "/" + name, path(name));
    }
  }
  std::string path(const std::string& name) const {
    return dir_.path() + "/" + name;
  }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(
        std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name)) << text;
  }
  EmbeddingRule Read() const {
    const auto file = OpenModel(dir_.path());
    EXPECT_TRUE(file.ok()) << file.status();
    return ReadEmbeddingRule(**file);
  }

  const testing::TempDir dir_;
};

TEST_F(EmbeddingRuleTest, ReadsThePoolingOfSentenceTransformers) {
  EXPECT_THAT(Read().why, HasSubstr("has no 1_Pooling/config.json"));
  Write("1_Pooling/config.json",
        R"({"word_embedding_dimension":64,"pooling_mode_cls_token":false,
            "pooling_mode_lasttoken":true,"include_prompt":true})");
  EXPECT_EQ(Read().pooling, Pooling::kLast);
  Write("modules.json",
        R"([{"type":"sentence_transformers.models.Transformer","path":""},
            {"type":"sentence_transformers.models.Pooling","path":"p"},
            {"type":"sentence_transformers.models.Normalize","path":"n"}])");
  EXPECT_THAT(Read().why, HasSubstr("has no p/config.json"));
  Write("p/config.json", R"({"pooling_mode_mean_tokens":true})");
  EXPECT_EQ(Read().pooling, Pooling::kMean);
}

TEST_F(EmbeddingRuleTest, NamesWhatIsNotBuilt) {
  const auto why = [this](const std::string& modules,
                          const std::string& config) {
    Write("modules.json", modules);
    Write("1_Pooling/config.json", config);
    const EmbeddingRule rule = Read();
    EXPECT_EQ(rule.pooling, Pooling::kNone);
    return rule.why;
  };
  const std::string sound = R"([{"type":"x.Pooling","path":"1_Pooling"}])";
  EXPECT_THAT(why(sound, R"({"pooling_mode_max_tokens":true})"),
              HasSubstr("pooling_mode_max_tokens, which is not built"));
  EXPECT_THAT(why(sound, R"({"pooling_mode_cls_token":true,
                             "pooling_mode_mean_tokens":true})"),
              HasSubstr("joins 2 pooling modes"));
  EXPECT_THAT(why(sound, "{}"), HasSubstr("turns on no pooling_mode"));
  EXPECT_THAT(why(sound, "["), HasSubstr("is no JSON object"));
  EXPECT_THAT(why(R"([{"type":"x.Dense","path":"2"}])", "{}"),
              HasSubstr("a module Dense, which is not built"));
  EXPECT_THAT(why(R"([{"type":"x.Pooling","path":"../secret"}])", "{}"),
              HasSubstr("outside the model"));
  EXPECT_THAT(why("{", "{}"), HasSubstr("is no JSON array"));
}

TEST(EmbeddingRuleOfGgufTest, ReadsPoolingType) {
  const testing::TempDir dir;
  const auto rule = [&dir](testing::GgufBuilder gguf) {
    const auto file = OpenModel(dir.Write("tiny.gguf", gguf.Build()));
    EXPECT_TRUE(file.ok()) << file.status();
    return ReadEmbeddingRule(**file);
  };
  using testing::TinyLlama;
  constexpr char kKey[] = "llama.pooling_type";
  EXPECT_EQ(rule(TinyLlama()).why, "its GGUF has no key llama.pooling_type");
  EXPECT_EQ(rule(TinyLlama().U32(kKey, 1)).pooling, Pooling::kMean);
  EXPECT_EQ(rule(TinyLlama().U32(kKey, 2)).pooling, Pooling::kFirst);
  EXPECT_EQ(rule(TinyLlama().U32(kKey, 3)).pooling, Pooling::kLast);
  for (const uint32_t other : {0u, 4u, 9u}) {
    EXPECT_THAT(rule(TinyLlama().U32(kKey, other)).why,
                HasSubstr(Cat("llama.pooling_type ", other, " is not built")));
  }
}

}  // namespace
}  // namespace sluice::serving
