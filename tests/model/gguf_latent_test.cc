// Latent attention in a GGUF (deepseek2; with an indexer deepseek32, glm-dsa),
// as llama.cpp's converter writes it now, keys and values of heads apart and
// keys transposed, and as it wrote it before: the same bits as from
// safetensors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::IsEmpty;

// The gguf package's constants.py, by what a layer's tensor is called in
// safetensors.
const std::map<std::string, std::string> kLatentNames = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
    {"self_attn.indexer.wk.weight", "indexer.attn_k.weight"},
    {"self_attn.indexer.weights_proj.weight", "indexer.proj.weight"},
    {"self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"},
    {"self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"}};

class LatentConverter {
 public:
  LatentConverter(const weights::ModelFile& from, std::string architecture,
                  bool split)
      : from_(from), architecture_(std::move(architecture)), split_(split) {}

  std::string Convert() {
    WriteKeys();
    Copy("model.embed_tokens.weight", "token_embd.weight");
    Copy("model.norm.weight", "output_norm.weight");
    Copy("lm_head.weight", "output.weight");
    for (int64_t layer = 0; layer < Int("num_hidden_layers"); ++layer) {
      const std::string from = Cat("model.layers.", layer, ".");
      const std::string to = Cat("blk.", layer, ".");
      for (const auto& [name, gguf] : kLatentNames) {
        if (from_.Find(from + name) != nullptr) Copy(from + name, to + gguf);
      }
      WriteHeads(from + "self_attn.kv_b_proj.weight", to);
      if (from_.Find(from + "mlp.gate.weight") == nullptr) continue;
      for (const char* kind : {"gate", "up", "down"}) {
        Stack(from, kind, Cat(to, "ffn_", kind, "_exps.weight"));
      }
    }
    return gguf_.Build();
  }

 private:
  int64_t Int(const char* key) const {
    return from_.config()[key].get<int64_t>();
  }
  std::string Key(const char* key) const {
    return Cat(architecture_, ".", key);
  }
  void U32(const char* key, int64_t value) {
    gguf_.U32(Key(key), static_cast<uint32_t>(value));
  }

  void WriteKeys() {
    const Json& config = from_.config();
    gguf_.Text("general.architecture", architecture_);
    const std::pair<const char*, const char*> keys[] = {
        {"block_count", "num_hidden_layers"},
        {"context_length", "max_position_embeddings"},
        {"embedding_length", "hidden_size"},
        {"feed_forward_length", "intermediate_size"},
        {"attention.head_count", "num_attention_heads"},
        {"attention.kv_lora_rank", "kv_lora_rank"},
        {"rope.dimension_count", "qk_rope_head_dim"},
        {"expert_count", "n_routed_experts"},
        {"expert_used_count", "num_experts_per_tok"},
        {"expert_shared_count", "n_shared_experts"},
        {"expert_group_count", "n_group"},
        {"expert_group_used_count", "topk_group"},
        {"expert_feed_forward_length", "moe_intermediate_size"},
        {"leading_dense_block_count", "first_k_dense_replace"}};
    for (const auto& [key, name] : keys) U32(key, Int(name));
    if (!config["q_lora_rank"].is_null()) {
      U32("attention.q_lora_rank", Int("q_lora_rank"));
    }
    const bool sigmoid = config["model_type"] != "deepseek_v2";
    U32("expert_gating_func", sigmoid ? 2 : 1);
    gguf_.Key(Key("expert_weights_norm"), 7,
              BytesOf(config["norm_topk_prob"].get<bool>()));
    gguf_.F32(Key("expert_weights_scale"),
              config["routed_scaling_factor"].get<float>());
    gguf_.F32(Key("attention.layer_norm_rms_epsilon"),
              config["rms_norm_eps"].get<float>());
    const Json& rope =
        config.contains("rope_parameters") ? config["rope_parameters"] : config;
    gguf_.F32(Key("rope.freq_base"), rope["rope_theta"].get<float>());
    WriteSizes();
    WriteIndexer();
    const Json scaling = config.value("rope_scaling", Json());
    if (!scaling.is_object()) return;
    gguf_.Text(Key("rope.scaling.type"), "yarn");
    gguf_.F32(Key("rope.scaling.factor"), scaling["factor"].get<float>());
    gguf_.F32(Key("rope.scaling.yarn_beta_fast"),
              scaling["beta_fast"].get<float>());
    gguf_.F32(Key("rope.scaling.yarn_beta_slow"),
              scaling["beta_slow"].get<float>());
    U32("rope.scaling.original_context_length",
        scaling["original_max_position_embeddings"].get<int64_t>());
    gguf_.F32(
        Key("rope.scaling.yarn_log_multiplier"),
        static_cast<float>(0.1 * scaling["mscale_all_dim"].get<double>()));
  }

  void WriteSizes() {
    const int64_t key = Int("qk_nope_head_dim") + Int("qk_rope_head_dim");
    const int64_t value = Int("v_head_dim");
    const int64_t rank = Int("kv_lora_rank");
    U32("attention.head_count_kv", split_ ? 1 : Int("num_attention_heads"));
    U32("attention.key_length", split_ ? rank + Int("qk_rope_head_dim") : key);
    U32("attention.value_length", split_ ? rank : value);
    if (!split_) return;
    U32("attention.key_length_mla", key);
    U32("attention.value_length_mla", value);
  }

  void WriteIndexer() {
    if (!from_.config().contains("index_topk")) return;
    U32("attention.indexer.head_count", Int("index_n_heads"));
    U32("attention.indexer.key_length", Int("index_head_dim"));
    U32("attention.indexer.top_k", Int("index_topk"));
    if (!from_.config().contains("indexer_types")) return;
    std::string bytes;
    for (const Json& type : from_.config()["indexer_types"]) {
      bytes += BytesOf(type == "full");
    }
    gguf_.Array(Key("attention.indexer.types"), 7, bytes.size(), bytes);
  }

  // The keys' rows of every head, transposed, and the values' rows.
  void WriteHeads(const std::string& name, const std::string& to) {
    if (!split_) return Copy(name, to + "attn_kv_b.weight");
    const std::vector<float> all = Values(name);
    const int64_t heads = Int("num_attention_heads");
    const int64_t nope = Int("qk_nope_head_dim");
    const int64_t value = Int("v_head_dim");
    const int64_t rank = Int("kv_lora_rank");
    std::vector<float> keys;
    std::vector<float> values;
    for (int64_t head = 0; head < heads; ++head) {
      const float* const rows = &all[head * (nope + value) * rank];
      for (int64_t c = 0; c < rank; ++c) {
        for (int64_t r = 0; r < nope; ++r) keys.push_back(rows[r * rank + c]);
      }
      values.insert(values.end(), rows + nope * rank,
                    rows + (nope + value) * rank);
    }
    Write(to + "attn_k_b.weight", {heads, rank, nope}, keys);
    Write(to + "attn_v_b.weight", {heads, value, rank}, values);
  }

  void Stack(const std::string& layer, const char* kind,
             const std::string& as) {
    std::vector<float> all;
    std::vector<int64_t> shape;
    for (int64_t e = 0; e < Int("n_routed_experts"); ++e) {
      const std::string name =
          Cat(layer, "mlp.experts.", e, ".", kind, "_proj.weight");
      const auto values = Values(name);
      all.insert(all.end(), values.begin(), values.end());
      shape = from_.Find(name)->shape;
    }
    shape.insert(shape.begin(), Int("n_routed_experts"));
    Write(as, shape, all);
  }

  void Copy(const std::string& name, const std::string& as) {
    Write(as, from_.Find(name)->shape, Values(name));
  }
  std::vector<float> Values(const std::string& name) const {
    const weights::TensorInfo& info = *from_.Find(name);
    std::vector<float> values(static_cast<size_t>(info.elements()));
    EXPECT_TRUE(
        from_.ReadF32(name, weights::Slice::All(info), values.data()).ok());
    return values;
  }
  void Write(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<float>& values) {
    gguf_.Tensor(name, {shape.rbegin(), shape.rend()}, 0, BytesOf(values));
  }

  const weights::ModelFile& from_;
  const std::string architecture_;
  const bool split_;
  GgufBuilder gguf_;
};

std::vector<float> LatentLogits(const std::string& path, int32_t ranks) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stage.ranks = ranks;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  Ask ask;
  // Longer than the 24 positions that the goldens' indexers choose.
  for (int i = 0; i < 40; ++i) ask.prompt.push_back(1 + i * 7 % 60);
  ask.max_tokens = 0;
  ask.prompt_logits = true;
  ask.sampling.return_logits = true;
  const auto answers = (*pipeline)->Generate({ask});
  EXPECT_TRUE(answers[0].status.ok()) << answers[0].status;
  return answers[0].logits;
}

// A golden and its architecture.
struct LatentCase {
  const char* golden;
  const char* architecture;
};

class GgufLatentTest
    : public ::testing::TestWithParam<std::tuple<LatentCase, bool>> {};

TEST_P(GgufLatentTest, AGgufGivesTheBitsOfTheModelThatItWasMadeFrom) {
  const auto& [tested, split] = GetParam();
  const std::string path = GoldenModel(tested.golden);
  const auto from = OpenModel(path);
  ASSERT_TRUE(from.ok()) << from.status();
  const TempDir dir;
  const std::string gguf = dir.Write(
      "m.gguf", LatentConverter(**from, tested.architecture, split).Convert());
  const auto to = OpenModel(gguf);
  ASSERT_TRUE(to.ok()) << to.status();
  const auto wanted = ParseModelConfig((*from)->config());
  const auto config = ParseModelConfig((*to)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ropes, wanted->ropes);
  EXPECT_EQ(config->layers[0].attention.scale,
            wanted->layers[0].attention.scale);
  EXPECT_EQ(config->moe(), wanted->moe());
  EXPECT_EQ(config->layers[0].attention.latent.indexer,
            wanted->layers[0].attention.latent.indexer);
  EXPECT_THAT((*to)->computed()->unread_keys, IsEmpty());
  EXPECT_EQ(config->layers[0].attention.latent.split, split);
  const std::vector<float> logits = LatentLogits(path, 1);
  ASSERT_FALSE(logits.empty());
  EXPECT_EQ(LatentLogits(gguf, 1), logits);
  EXPECT_EQ(LatentLogits(gguf, 3), logits);
}

// Layers without an indexer of their own take the choice of the layer before,
// also where the file has an indexer's tensors for them.
TEST(GgufIndexersTest, LayersShareAChoiceAsTheFilesListSays) {
  const std::string golden = GoldenModel("glm_moe_dsa");
  const TempDir folder;
  std::filesystem::create_symlink(golden + "/model.safetensors",
                                  folder.path() + "/model.safetensors");
  const auto all = OpenModel(golden);
  ASSERT_TRUE(all.ok()) << all.status();
  Json config = (*all)->config();
  config["indexer_types"] =
      Json::array({"full", "full", "shared", "full", "shared"});
  folder.Write("config.json", DumpJson(config));
  const auto from = OpenModel(folder.path());
  ASSERT_TRUE(from.ok()) << from.status();
  const TempDir dir;
  const std::string gguf = dir.Write(
      "m.gguf", LatentConverter(**from, "glm-dsa", /*split=*/true).Convert());
  const std::vector<float> logits = LatentLogits(folder.path(), 1);
  ASSERT_FALSE(logits.empty());
  EXPECT_NE(logits, LatentLogits(golden, 1));
  EXPECT_EQ(LatentLogits(gguf, 1), logits);
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, GgufLatentTest,
    ::testing::Combine(
        ::testing::Values(LatentCase{"deepseek_v2", "deepseek2"},
                          LatentCase{"deepseek_v3", "deepseek2"},
                          LatentCase{"kimi_k2", "deepseek2"},
                          LatentCase{"glm4_moe_lite", "deepseek2"},
                          LatentCase{"deepseek_v32", "deepseek32"},
                          LatentCase{"glm_moe_dsa", "glm-dsa"}),
        ::testing::Bool()),
    [](const auto& tested) {
      return std::string(std::get<0>(tested.param).golden) +
             (std::get<1>(tested.param) ? "HeadsApart" : "HeadsTogether");
    });

}  // namespace
}  // namespace sluice::testing
