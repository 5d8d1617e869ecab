// A model whose layers differ in everything that a layer's config says, against
// the same computed in double: heads, kv heads, their size, RoPE, window,
// biases and norms of q and k, intermediate size, activation, norms, experts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/rope_frequencies.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_file.h"
#include "tests/device/apart_backend.h"
#include "tests/model/pipeline.h"
#include "tests/model/reference_model.h"
#include "tests/testing/representative.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using Vector = std::vector<double>;
using kernels::Activation;

constexpr double kTolerance = 3e-5;
constexpr char kConfig[] = R"({
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8,
    "intermediate_size": 96, "vocab_size": 96, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0})";

LayerConfig Layer(int32_t heads, int32_t kv_heads, int32_t dim, double eps) {
  LayerConfig layer;
  layer.attention.num_heads = heads;
  layer.attention.num_kv_heads = kv_heads;
  layer.attention.head_dim = dim;
  layer.attention.scale = 1.0 / std::sqrt(static_cast<double>(dim));
  layer.norm.eps = eps;
  return layer;
}

StatusOr<ModelConfig> Mixed(const Json& json) {
  SLUICE_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(json));
  config.tensors = &kQwen3MoeTensors;
  RopeConfig turned = {1e6, {}, 16, /*interleaved=*/true};
  turned.inv_freq = RopeInvFreq(turned.theta, turned.rotary_dim, {});
  config.ropes.push_back(turned);
  config.layers = {config.layers[0], Layer(4, 2, 16, 1e-2),
                   Layer(6, 1, 16, 1e-5), Layer(16, 16, 8, 1e-3)};
  LayerConfig& second = config.layers[1];
  second.attention.rope = 1;
  second.attention.window = 20;
  second.attention.scale = 0.4;
  second.attention.o_bias = true;
  second.norm.after = true;
  second.mlp = {160, false, {Activation::Kind::kClampedSwiGlu, 0.5f}};
  LayerConfig& third = config.layers[2];
  third.attention.rope = 1;
  third.attention.qkv_bias = true;
  third.attention.qk_norm = QkNorm::kHeads;
  third.moe.num_experts = 4;
  third.moe.experts_per_token = 2;
  third.moe.intermediate_size = 32;
  LayerConfig& last = config.layers[3];
  last.attention.window = 20;
  last.moe = third.moe;
  last.moe.num_experts = 6;
  last.moe.experts_per_token = 3;
  last.moe.intermediate_size = 48;
  last.moe.normalise = true;
  last.moe.activation = second.mlp.activation;
  return config;
}

// Tensors of random values, which are F32 in the file.
class Weights {
 public:
  explicit Weights(const ModelConfig& config) {
    std::mt19937 random(7);
    for (const auto& info : ExpectedTensors(config, ExpertStorage::kSeparate)) {
      const bool is_norm = info.name.ends_with("norm.weight");
      std::normal_distribution<float> normal(
          is_norm ? 1.0f : 0.0f,
          info.shape.size() == 1 ? 0.1f : 1.0f / std::sqrt(info.cols()));
      std::vector<float>& values = values_[info.name];
      for (int64_t i = 0; i < info.elements(); ++i) {
        values.push_back(normal(random));
      }
      const size_t begin = data_.size();
      data_ += BytesOf(values);
      header_[info.name] = {{"dtype", "F32"},
                            {"shape", info.shape},
                            {"data_offsets", {begin, data_.size()}}};
    }
  }
  void Write(const TempDir& dir) const {
    dir.Write("config.json", kConfig);
    dir.Write("model.safetensors", Safetensors(DumpJson(header_), data_));
  }
  bool Has(const std::string& name) const { return values_.contains(name); }
  const std::vector<float>& At(const std::string& name) const {
    return values_.at(name);
  }
  // w x + bias
  Vector Linear(const std::string& name, const Vector& x) const {
    const std::vector<float>& w = At(name + ".weight");
    Vector y(w.size() / x.size());
    for (size_t r = 0; r < y.size(); ++r) {
      if (Has(name + ".bias")) y[r] = At(name + ".bias")[r];
      for (size_t i = 0; i < x.size(); ++i) y[r] += w[r * x.size() + i] * x[i];
    }
    return y;
  }
  // `dim` elements of x from `at` on, normed; unchanged without the tensor.
  void Norm(const std::string& name, double eps, size_t at, size_t dim,
            Vector& x) const {
    if (!Has(name)) return;
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += x[at + i] * x[at + i];
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (size_t i = 0; i < dim; ++i) x[at + i] *= scale * At(name)[i];
  }
  Vector Normed(const std::string& name, double eps, Vector x) const {
    Norm(name, eps, 0, x.size(), x);
    return x;
  }

 private:
  std::map<std::string, std::vector<float>> values_;
  Json header_ = Json::object();
  std::string data_;
};

void AddTo(const Vector& y, Vector& x) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

Vector Softmax(Vector x) {
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value - max);
  for (double& value : x) value /= sum;
  return x;
}

// The model, position by position.
class Reference {
 public:
  Reference(const ModelConfig& config, const Weights& weights)
      : config_(config),
        weights_(weights),
        keys_(config.layers.size()),
        values_(config.layers.size()) {}

  // Logits at the next position, which has this token.
  Vector Step(TokenId token) {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    const float* row =
        &weights_.At("model.embed_tokens.weight")[token * hidden];
    Vector x(row, row + hidden);
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      const std::string prefix = Cat("model.layers.", i, ".");
      const double eps = config_.layers[i].norm.eps;
      Vector y =
          Attend(i, weights_.Normed(prefix + "input_layernorm.weight", eps, x));
      AddTo(weights_.Normed(prefix + "post_self_attn_layernorm.weight", eps, y),
            x);
      y = Feed(i, weights_.Normed(prefix + "post_attention_layernorm.weight",
                                  eps, x));
      AddTo(weights_.Normed(prefix + "post_mlp_layernorm.weight", eps, y), x);
    }
    ++position_;
    return weights_.Linear("lm_head", weights_.Normed("model.norm.weight",
                                                      config_.rms_norm_eps, x));
  }

 private:
  // q or k: the heads normed and rotated.
  Vector Heads(size_t layer, const std::string& name, const Vector& x) const {
    const LayerConfig& of = config_.layers[layer];
    const RopeConfig& rope = config_.ropes[of.attention.rope];
    const std::string prefix = Cat("model.layers.", layer, ".self_attn.", name);
    const auto dim = static_cast<size_t>(of.attention.head_dim);
    const size_t half = rope.inv_freq.size();
    Vector y = weights_.Linear(prefix + "_proj", x);
    for (size_t at = 0; at < y.size(); at += dim) {
      weights_.Norm(prefix + "_norm.weight", of.norm.eps, at, dim, y);
      for (size_t i = 0; i < half; ++i) {
        const double angle = position_ * rope.inv_freq[i];
        double& a = y[at + (rope.interleaved ? 2 * i : i)];
        double& b = y[at + (rope.interleaved ? 2 * i + 1 : i + half)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
    }
    return y;
  }

  Vector Attend(size_t layer, const Vector& x) {
    const AttentionConfig& of = config_.layers[layer].attention;
    const auto dim = static_cast<size_t>(of.head_dim);
    const std::string prefix = Cat("model.layers.", layer, ".self_attn.");
    const Vector q = Heads(layer, "q", x);
    keys_[layer].push_back(Heads(layer, "k", x));
    values_[layer].push_back(weights_.Linear(prefix + "v_proj", x));
    const int first =
        of.window > 0 ? std::max(0, position_ + 1 - of.window) : 0;
    Vector mixed(q.size());
    for (int head = 0; head < of.num_heads; ++head) {
      const size_t kv = head / (of.num_heads / of.num_kv_heads) * dim;
      Vector scores;
      for (int s = first; s <= position_; ++s) {
        double dot = 0;
        for (size_t i = 0; i < dim; ++i) {
          dot += q[head * dim + i] * keys_[layer][s][kv + i];
        }
        scores.push_back(dot * of.scale);
      }
      const Vector shares = Softmax(scores);
      for (int s = first; s <= position_; ++s) {
        for (size_t i = 0; i < dim; ++i) {
          mixed[head * dim + i] +=
              shares[s - first] * values_[layer][s][kv + i];
        }
      }
    }
    return weights_.Linear(prefix + "o_proj", mixed);
  }

  Vector Mlp(const std::string& prefix, const Activation& act,
             const Vector& x) const {
    Vector gate = weights_.Linear(prefix + "gate_proj", x);
    const Vector up = weights_.Linear(prefix + "up_proj", x);
    for (size_t i = 0; i < gate.size(); ++i) {
      if (act.kind == Activation::Kind::kSilu) {
        gate[i] *= up[i] / (1 + std::exp(-gate[i]));
        continue;
      }
      const double limit = act.limit;
      const double g = std::min(gate[i], limit);
      gate[i] = g / (1 + std::exp(-1.702 * g)) *
                (std::clamp(up[i], -limit, limit) + 1);
    }
    return weights_.Linear(prefix + "down_proj", gate);
  }

  Vector Feed(size_t layer, const Vector& x) const {
    const LayerConfig& of = config_.layers[layer];
    const std::string prefix = Cat("model.layers.", layer, ".mlp.");
    if (!of.is_sparse()) return Mlp(prefix, of.mlp.activation, x);
    const Vector scores = Softmax(weights_.Linear(prefix + "gate", x));
    std::vector<std::pair<double, int>> best;
    for (int e = 0; e < of.moe.num_experts; ++e)
      best.push_back({-scores[e], e});
    std::sort(best.begin(), best.end());
    best.resize(of.moe.experts_per_token);
    double sum = 0;
    for (const auto& [score, expert] : best) sum -= score;
    Vector y(x.size());
    for (const auto& [score, expert] : best) {
      Vector one =
          Mlp(Cat(prefix, "experts.", expert, "."), of.moe.activation, x);
      for (double& value : one) {
        value *= of.moe.normalise ? -score / sum : -score;
      }
      AddTo(one, y);
    }
    return y;
  }

  const ModelConfig& config_;
  const Weights& weights_;
  std::vector<std::vector<Vector>> keys_;  // [layer][position]
  std::vector<std::vector<Vector>> values_;
  int position_ = 0;
};

TEST(MixedLayersTest, LogitsAreThoseOfTheModelInDouble) {
  if (OnlyRepresentative()) {
    GTEST_SKIP() << "under ThreadSanitizer in the long mode alone";
  }
  const auto config = Mixed(*ParseJson(kConfig));
  ASSERT_TRUE(config.ok()) << config.status();
  const Weights weights(*config);
  const TempDir dir;
  weights.Write(dir);
  std::vector<TokenId> prompt;
  Vector wanted;
  Reference reference(*config, weights);
  for (int i = 0; i < 60; ++i) {
    prompt.push_back(1 + i * 37 % 90);
    const Vector logits = reference.Step(prompt.back());
    wanted.insert(wanted.end(), logits.begin(), logits.end());
  }

  PipelineOptions options;
  options.stage.model_path = dir.path();
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stage.parse_config = Mixed;
  std::vector<float> first;
  const auto run = [&](int32_t chunk) {
    auto pipeline = Pipeline::Load(options);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    Ask ask{prompt, {}, 0, /*prompt_logits=*/true};
    ask.sampling.return_logits = true;
    const auto answers = (*pipeline)->Generate({ask}, {.prefill_chunk = chunk});
    ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
    const std::vector<float>& logits = answers[0].logits;
    ASSERT_EQ(logits.size(), wanted.size());
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first);  // However it is cut.
  };
  for (options.stages = 1; options.stages <= 4; ++options.stages) {
    // Four query heads are the fewest of a layer.
    for (const int32_t ranks : {1, 3, 4}) {
      options.stage.ranks = ranks;
      run(options.stages == 2 ? 7 : 60);
    }
  }
  options.stages = options.stage.ranks = 2;
  options.stage.make_backends = MakeApartBackends;
  run(60);
  EXPECT_LE(LargestDifference(first, wanted), kTolerance);
  options.stage.ranks = 5;
  EXPECT_EQ(Message(Pipeline::Load(options).status()),
            "ranks must be between 1 and 4 for a model of 4 query heads, got "
            "5");
}

}  // namespace
}  // namespace sluice::testing
