#include "tests/model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"

namespace sluice::testing {
namespace {

// Rows of equal length.
struct Rows {
  size_t count = 0;
  size_t width = 0;
  std::vector<double> values;

  Rows(size_t rows, size_t columns)
      : count(rows), width(columns), values(rows * columns) {}
  double* at(size_t row) { return values.data() + row * width; }
  const double* at(size_t row) const { return values.data() + row * width; }
};

double Silu(double x) { return x / (1.0 + std::exp(-x)); }
double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void AddTo(const Rows& x, Rows& sum) {
  for (size_t i = 0; i < x.values.size(); ++i) sum.values[i] += x.values[i];
}

// Divides by the root mean square of `size` values and multiplies by `gain`.
void NormRow(double* x, size_t size, double eps,
             const std::vector<double>& gain) {
  double squares = 0;
  for (size_t i = 0; i < size; ++i) squares += x[i] * x[i];
  const double scale =
      1.0 / std::sqrt(squares / static_cast<double>(size) + eps);
  for (size_t i = 0; i < size; ++i) x[i] = x[i] * scale * gain[i];
}

// The `count` largest of `values`, the lower index first among equals.
std::vector<size_t> Largest(const std::vector<double>& values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

std::vector<double> Softmax(const std::vector<double>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  std::vector<double> y;
  for (const double value : x) y.push_back(std::exp(value - top));
  const double sum = std::accumulate(y.begin(), y.end(), 0.0);
  for (double& value : y) value /= sum;
  return y;
}

// MXFP4: sign, two bits of exponent, one of mantissa.
double Mxfp4Value(unsigned code) {
  static constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace

class ReferenceModel::Impl {
 public:
  explicit Impl(const std::string& folder) : file_(Open(folder)) {
    type_ = config_.at("model_type").get<std::string>();
    hidden_ = Size("hidden_size");
    heads_ = Size("num_attention_heads");
    kv_heads_ = Size("num_key_value_heads", heads_);
    head_dim_ = Size("head_dim", hidden_ / heads_);
    eps_ = config_.value("rms_norm_eps", 1e-6);
    MakeFrequencies();
  }

  std::vector<double> Logits(const std::vector<TokenId>& ids) const {
    const std::vector<double> table = Tensor("model.embed_tokens.weight");
    Rows x(ids.size(), hidden_);
    for (size_t t = 0; t < ids.size(); ++t) {
      std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(
                                      static_cast<size_t>(ids[t]) * hidden_),
                  hidden_, x.at(t));
    }
    const size_t layers = Size("num_hidden_layers");
    for (size_t layer = 0; layer < layers; ++layer) Layer(layer, x);
    x = Norm(x, "model.norm");
    const bool tied = config_.value("tie_word_embeddings", false);
    return Product(x, tied ? table : Tensor("lm_head.weight"),
                   Size("vocab_size"))
        .values;
  }

 private:
  std::unique_ptr<weights::ModelFile> Open(const std::string& folder) {
    auto file = OpenModel(folder);
    SLUICE_CHECK(file.ok());
    config_ = (*file)->config();
    return *std::move(file);
  }

  size_t Size(const char* key, size_t absent = 0) const {
    const auto found = config_.find(key);
    const bool there = found != config_.end() && !found->is_null();
    const size_t size = there ? found->get<size_t>() : absent;
    SLUICE_CHECK(size > 0);
    return size;
  }

  bool Has(const std::string& name) const {
    return file_->Find(name) != nullptr;
  }

  std::vector<double> Tensor(const std::string& name) const {
    const weights::TensorInfo* info = file_->Find(name);
    SLUICE_CHECK(info != nullptr);
    std::vector<float> stored(static_cast<size_t>(info->elements()));
    SLUICE_CHECK(
        file_->ReadF32(name, weights::Slice::All(*info), stored.data()).ok());
    return {stored.begin(), stored.end()};
  }

  std::vector<uint8_t> Bytes(const std::string& name) const {
    const weights::TensorInfo* info = file_->Find(name);
    SLUICE_CHECK(info != nullptr);
    std::vector<uint8_t> bytes(static_cast<size_t>(info->stored_bytes()));
    SLUICE_CHECK(
        file_->ReadStoredBytes(name, 0, bytes.size(), bytes.data()).ok());
    return bytes;
  }

  // y = W x, W [out, in] at `weight`.
  static Rows Product(const Rows& x, const std::vector<double>& weight,
                      size_t out, size_t from = 0) {
    SLUICE_CHECK(weight.size() >= (from + out) * x.width);
    Rows y(x.count, out);
    for (size_t t = 0; t < x.count; ++t) {
      for (size_t o = 0; o < out; ++o) {
        const double* row = weight.data() + (from + o) * x.width;
        double sum = 0;
        for (size_t i = 0; i < x.width; ++i) sum += row[i] * x.at(t)[i];
        y.at(t)[o] = sum;
      }
    }
    return y;
  }

  // With its bias, if the tensors have one.
  Rows Linear(const Rows& x, const std::string& name) const {
    const std::vector<double> weight = Tensor(name + ".weight");
    Rows y = Product(x, weight, weight.size() / x.width);
    if (!Has(name + ".bias")) return y;
    const std::vector<double> bias = Tensor(name + ".bias");
    for (size_t t = 0; t < y.count; ++t) {
      for (size_t o = 0; o < y.width; ++o) y.at(t)[o] += bias[o];
    }
    return y;
  }

  Rows Norm(Rows x, const std::string& name) const {
    const std::vector<double> gain = Tensor(name + ".weight");
    for (size_t t = 0; t < x.count; ++t) NormRow(x.at(t), x.width, eps_, gain);
    return x;
  }

  void Layer(size_t layer, Rows& x) const {
    const std::string prefix = Cat("model.layers.", layer, ".");
    Rows attended = Attention(layer, prefix + "self_attn.",
                              Norm(x, prefix + "input_layernorm"));
    const bool sandwich = type_ == "glm4";
    if (sandwich) {
      attended = Norm(attended, prefix + "post_self_attn_layernorm");
    }
    AddTo(attended, x);
    const Rows normed = Norm(x, prefix + "post_attention_layernorm");
    Rows fed = Feed(prefix + "mlp.", normed);
    if (sandwich) fed = Norm(fed, prefix + "post_mlp_layernorm");
    AddTo(fed, x);
  }

  // ---- RoPE

  void MakeFrequencies() {
    const bool glm = type_ == "glm4" || type_ == "glm4_moe";
    const double share =
        config_.value("partial_rotary_factor", glm ? 0.5 : 1.0);
    rotary_ = static_cast<size_t>(static_cast<double>(head_dim_) * share);
    const double theta = config_.value("rope_theta", 10000.0);
    for (size_t i = 0; i < rotary_ / 2; ++i) {
      frequencies_.push_back(std::pow(
          theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_)));
    }
    const auto scaling = config_.find("rope_scaling");
    if (scaling == config_.end() || scaling->is_null()) return;
    if (scaling->at("rope_type") == "llama3") return ScaleLlama3(*scaling);
    SLUICE_CHECK(scaling->at("rope_type") == "yarn");
    ScaleYarn(*scaling, theta);
  }

  void ScaleLlama3(const Json& scaling) {
    const double factor = scaling.at("factor");
    const double low = scaling.at("low_freq_factor");
    const double high = scaling.at("high_freq_factor");
    const double length = scaling.at("original_max_position_embeddings");
    for (double& frequency : frequencies_) {
      const double turns = length * frequency / (2.0 * M_PI);
      const double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      frequency *= keep + (1.0 - keep) / factor;
    }
  }

  void ScaleYarn(const Json& scaling, double theta) {
    const double factor = scaling.at("factor");
    const double length = scaling.at("original_max_position_embeddings");
    SLUICE_CHECK(!scaling.value("truncate", true));
    const auto pair_of = [&](double turns) {
      return static_cast<double>(rotary_) *
             std::log(length / (turns * 2.0 * M_PI)) / (2.0 * std::log(theta));
    };
    const double low = std::max(pair_of(scaling.value("beta_fast", 32.0)), 0.0);
    const double high = std::min(pair_of(scaling.value("beta_slow", 1.0)),
                                 static_cast<double>(rotary_) - 1.0);
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const double ramp =
          std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      frequencies_[i] *= (1.0 - ramp) + ramp / factor;
    }
    rope_scale_ = 0.1 * std::log(factor) + 1.0;
  }

  void Rotate(double* head, size_t position) const {
    const bool adjacent = type_ == "glm4";
    const size_t half = rotary_ / 2;
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      const double cos = std::cos(angle) * rope_scale_;
      const double sin = std::sin(angle) * rope_scale_;
      double& a = head[adjacent ? 2 * i : i];
      double& b = head[adjacent ? 2 * i + 1 : i + half];
      const double turned = a * cos - b * sin;
      b = b * cos + a * sin;
      a = turned;
    }
  }

  // ---- Attention

  // q or k: projected, its heads normed where the tensors say so, rotated.
  Rows Heads(const Rows& x, const std::string& prefix,
             const std::string& which) const {
    Rows y = Linear(x, Cat(prefix, which, "_proj"));
    const std::string norm = Cat(prefix, which, "_norm.weight");
    const std::vector<double> gain =
        Has(norm) ? Tensor(norm) : std::vector<double>();
    for (size_t t = 0; t < y.count; ++t) {
      for (size_t at = 0; at < y.width; at += head_dim_) {
        if (!gain.empty()) NormRow(y.at(t) + at, head_dim_, eps_, gain);
        Rotate(y.at(t) + at, t);
      }
    }
    return y;
  }

  // Positions that a query sees, its own included; 0: all.
  size_t Window(size_t layer) const {
    const auto types = config_.find("layer_types");
    if (types == config_.end() || (*types)[layer] != "sliding_attention") {
      return 0;
    }
    return Size("sliding_window");
  }

  Rows Attention(size_t layer, const std::string& prefix, const Rows& x) const {
    const Rows q = Heads(x, prefix, "q");
    const Rows k = Heads(x, prefix, "k");
    const Rows v = Linear(x, prefix + "v_proj");
    std::vector<double> sinks;
    if (Has(prefix + "sinks")) sinks = Tensor(prefix + "sinks");
    const size_t window = Window(layer);
    Rows mixed(x.count, q.width);
    for (size_t t = 0; t < x.count; ++t) {
      const size_t first = window > 0 && t + 1 > window ? t + 1 - window : 0;
      for (size_t head = 0; head < heads_; ++head) {
        const size_t of_q = head * head_dim_;
        const size_t of_kv = head / (heads_ / kv_heads_) * head_dim_;
        std::vector<double> scores;
        for (size_t s = first; s <= t; ++s) {
          double dot = 0;
          for (size_t i = 0; i < head_dim_; ++i) {
            dot += q.at(t)[of_q + i] * k.at(s)[of_kv + i];
          }
          scores.push_back(dot / std::sqrt(static_cast<double>(head_dim_)));
        }
        // A sink takes its share and gives nothing.
        if (!sinks.empty()) scores.push_back(sinks[head]);
        const std::vector<double> shares = Softmax(scores);
        for (size_t s = first; s <= t; ++s) {
          for (size_t i = 0; i < head_dim_; ++i) {
            mixed.at(t)[of_q + i] += shares[s - first] * v.at(s)[of_kv + i];
          }
        }
      }
    }
    return Linear(mixed, prefix + "o_proj");
  }

  // ---- MLP and experts

  Rows Feed(const std::string& prefix, const Rows& x) const {
    if (type_ == "gpt_oss") return Experts(prefix, "router", x);
    if (Has(prefix + "gate.weight")) {
      Rows y = Experts(prefix, "gate", x);
      if (Has(prefix + "shared_experts.up_proj.weight")) {
        AddTo(Mlp(prefix + "shared_experts.", x), y);
      }
      return y;
    }
    return Mlp(prefix, x);
  }

  Rows Mlp(const std::string& prefix, const Rows& x) const {
    const bool fused = Has(prefix + "gate_up_proj.weight");
    const std::vector<double> gate =
        Tensor(prefix + (fused ? "gate_up_proj.weight" : "gate_proj.weight"));
    const size_t size = gate.size() / x.width / (fused ? 2 : 1);
    Rows inner = Product(x, gate, size);
    const Rows up =
        fused ? Product(x, gate, size, size) : Linear(x, prefix + "up_proj");
    for (size_t i = 0; i < inner.values.size(); ++i) {
      inner.values[i] = Silu(inner.values[i]) * up.values[i];
    }
    return Linear(inner, prefix + "down_proj");
  }

  using Routed = std::vector<std::pair<size_t, double>>;  // expert, weight

  // Sets the choice of experts outside the best groups to 0.
  void KeepBestGroups(std::vector<double>& choice) const {
    const size_t groups = Size("n_group", 1);
    const size_t size = choice.size() / groups;
    if (groups == 1) return;
    std::vector<double> scores;
    for (size_t g = 0; g < groups; ++g) {
      const auto begin = choice.begin() + static_cast<std::ptrdiff_t>(g * size);
      const std::vector<double> of_group(
          begin, begin + static_cast<std::ptrdiff_t>(size));
      const std::vector<size_t> best = Largest(of_group, 2);
      scores.push_back(of_group[best[0]] + of_group[best[1]]);
    }
    const std::vector<size_t> kept = Largest(scores, Size("topk_group", 1));
    for (size_t e = 0; e < choice.size(); ++e) {
      if (std::count(kept.begin(), kept.end(), e / size) == 0) choice[e] = 0;
    }
  }

  Routed Route(const std::string& router,
               const std::vector<double>& logits) const {
    const size_t per_token = Size("num_experts_per_tok");
    Routed routed;
    if (type_ == "gpt_oss") {
      std::vector<double> chosen;
      for (const size_t e : Largest(logits, per_token)) {
        routed.emplace_back(e, 0.0);
        chosen.push_back(logits[e]);
      }
      const std::vector<double> shares = Softmax(chosen);
      for (size_t i = 0; i < routed.size(); ++i) routed[i].second = shares[i];
      return routed;
    }
    const bool sigmoid = type_ == "glm4_moe";
    std::vector<double> scores = sigmoid ? logits : Softmax(logits);
    std::vector<double> choice = scores;
    if (sigmoid) {
      const auto bias = Tensor(router + ".e_score_correction_bias");
      for (size_t e = 0; e < scores.size(); ++e) {
        scores[e] = Sigmoid(logits[e]);
        choice[e] = scores[e] + bias[e];
      }
      KeepBestGroups(choice);
    }
    double sum = 0;
    for (const size_t e : Largest(choice, per_token)) {
      routed.emplace_back(e, scores[e]);
      sum += scores[e];
    }
    const bool normalise = config_.value("norm_topk_prob", sigmoid);
    const double scale =
        sigmoid ? config_.value("routed_scaling_factor", 1.0) : 1.0;
    for (auto& [expert, weight] : routed) {
      weight *= scale / (normalise ? sum + (sigmoid ? 1e-20 : 0.0) : 1.0);
    }
    return routed;
  }

  Rows Experts(const std::string& prefix, const std::string& router,
               const Rows& x) const {
    const Rows logits = Linear(x, prefix + router);
    // Which tokens each expert has, and their weights.
    std::vector<Routed> tokens(logits.width);
    for (size_t t = 0; t < x.count; ++t) {
      const std::vector<double> row(logits.at(t), logits.at(t) + logits.width);
      for (const auto& [expert, weight] : Route(prefix + router, row)) {
        tokens[expert].emplace_back(t, weight);
      }
    }
    Rows y(x.count, x.width);
    for (size_t e = 0; e < tokens.size(); ++e) {
      if (tokens[e].empty()) continue;
      Rows own(tokens[e].size(), x.width);
      for (size_t i = 0; i < own.count; ++i) {
        std::copy_n(x.at(tokens[e][i].first), x.width, own.at(i));
      }
      const Rows out = type_ == "gpt_oss"
                           ? OssExpert(prefix + "experts.", e, own)
                           : Mlp(Cat(prefix, "experts.", e, "."), own);
      for (size_t i = 0; i < out.count; ++i) {
        const auto& [t, weight] = tokens[e][i];
        for (size_t c = 0; c < out.width; ++c) {
          y.at(t)[c] += weight * out.at(i)[c];
        }
      }
    }
    return y;
  }

  // One expert's matrix of gpt-oss as [out, in], however it is stored.
  std::vector<double> OssMatrix(const std::string& name, size_t expert,
                                size_t out, size_t in) const {
    std::vector<double> matrix(out * in);
    if (Has(name + "_blocks")) {
      const std::vector<uint8_t> codes = Bytes(name + "_blocks");
      const std::vector<uint8_t> scales = Bytes(name + "_scales");
      for (size_t i = 0; i < matrix.size(); ++i) {
        const size_t at = expert * matrix.size() + i;
        const unsigned code = codes[at / 2] >> (at % 2 == 0 ? 0 : 4) & 15;
        matrix[i] = std::ldexp(Mxfp4Value(code), scales[at / 32] - 127);
      }
      return matrix;
    }
    const std::vector<double> all = Tensor(name);  // [E, in, out]
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) {
        matrix[o * in + i] = all[(expert * in + i) * out + o];
      }
    }
    return matrix;
  }

  static void AddBias(const std::vector<double>& biases, size_t expert,
                      Rows& y) {
    for (size_t t = 0; t < y.count; ++t) {
      for (size_t o = 0; o < y.width; ++o) {
        y.at(t)[o] += biases[expert * y.width + o];
      }
    }
  }

  Rows OssExpert(const std::string& prefix, size_t expert,
                 const Rows& x) const {
    const size_t size = Size("intermediate_size");
    const double limit = config_.value("swiglu_limit", 7.0);
    Rows both = Product(
        x, OssMatrix(prefix + "gate_up_proj", expert, 2 * size, x.width),
        2 * size);
    AddBias(Tensor(prefix + "gate_up_proj_bias"), expert, both);
    Rows inner(x.count, size);
    for (size_t t = 0; t < x.count; ++t) {
      for (size_t i = 0; i < size; ++i) {
        const double gate = std::min(both.at(t)[2 * i], limit);
        const double up = std::clamp(both.at(t)[2 * i + 1], -limit, limit);
        inner.at(t)[i] = (up + 1.0) * gate * Sigmoid(1.702 * gate);
      }
    }
    Rows y = Product(
        inner, OssMatrix(prefix + "down_proj", expert, x.width, size), x.width);
    AddBias(Tensor(prefix + "down_proj_bias"), expert, y);
    return y;
  }

  Json config_;
  const std::unique_ptr<weights::ModelFile> file_;
  std::string type_;
  size_t hidden_ = 0;
  size_t heads_ = 0;
  size_t kv_heads_ = 0;
  size_t head_dim_ = 0;
  size_t rotary_ = 0;
  double eps_ = 0;
  double rope_scale_ = 1.0;
  std::vector<double> frequencies_;
};

ReferenceModel::ReferenceModel(const std::string& folder)
    : impl_(std::make_unique<const Impl>(folder)) {}
ReferenceModel::~ReferenceModel() = default;

std::vector<double> ReferenceModel::Logits(
    const std::vector<TokenId>& ids) const {
  return impl_->Logits(ids);
}

}  // namespace sluice::testing
