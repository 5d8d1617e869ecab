#include "common/serving/pooling.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/base/text_file.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_file.h"

namespace sluice::serving {
namespace {

EmbeddingRule None(std::string why) { return {Pooling::kNone, std::move(why)}; }

struct NamedPooling {
  std::string_view key;
  Pooling pooling;  // kNone: not built
};
// The keys of sentence-transformers' Pooling.
constexpr NamedPooling kPoolings[] = {
    {"pooling_mode_cls_token", Pooling::kFirst},
    {"pooling_mode_lasttoken", Pooling::kLast},
    {"pooling_mode_mean_tokens", Pooling::kMean},
    {"pooling_mode_max_tokens", Pooling::kNone},
    {"pooling_mode_mean_sqrt_len_tokens", Pooling::kNone},
    {"pooling_mode_weightedmean_tokens", Pooling::kNone}};
// llama.cpp's numbers of ARCH.pooling_type.
constexpr Pooling kGgufPoolings[] = {Pooling::kNone, Pooling::kMean,
                                     Pooling::kFirst, Pooling::kLast};

EmbeddingRule OfGguf(const weights::ModelFile& file) {
  const weights::GgufMetadata& metadata = *file.gguf();
  const auto arch = metadata.String("general.architecture");
  const std::string key = Cat(arch.ok() ? *arch : "ARCH", ".pooling_type");
  const auto type = metadata.Int(key);
  if (!type.ok()) return None(Cat("its GGUF has no key ", key));
  const int64_t number = *type;
  const bool is_known =
      number > 0 && number < static_cast<int64_t>(std::size(kGgufPoolings));
  if (!is_known)
    return None(Cat("its GGUF's ", key, " ", number,
                    " is not built; 1 (mean), 2 (first) and 3 "
                    "(last) are"));
  return {kGgufPoolings[number], ""};
}

// Returns a file's JSON; nothing where there is no such file.
std::optional<StatusOr<Json>> ReadJson(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const auto text = ReadTextFile(path.string());
  if (!text.ok()) return text.status();
  return ParseJson(*text);
}

// Returns the pooling of `config`, an object of sentence-transformers.
EmbeddingRule OfConfig(const Json& config, const std::string& where) {
  EmbeddingRule found = None(Cat(where, " turns on no pooling_mode"));
  int modes = 0;
  for (const NamedPooling& named : kPoolings) {
    const auto value = config.find(std::string(named.key));
    if (value == config.end() || *value != Json(true)) continue;
    ++modes;
    found = {named.pooling, ""};
    if (named.pooling == Pooling::kNone) {
      return None(Cat(where, " has ", named.key, ", which is not built"));
    }
  }
  if (modes > 1)
    return None(Cat(where, " joins ", modes,
                    " pooling modes, "
                    "which is not built"));
  return found;
}

// Returns the last part of a module's type, "Pooling" of
// "sentence_transformers.models.Pooling".
std::string ModuleKind(const Json& module) {
  if (!module.is_object() || !module.contains("type") ||
      !module["type"].is_string()) {
    return "";
  }
  const auto& type = module["type"].get_ref<const std::string&>();
  return type.substr(type.rfind('.') + 1);
}

}  // namespace

EmbeddingRule ReadEmbeddingRule(const weights::ModelFile& file) {
  if (file.gguf() != nullptr) return OfGguf(file);
  const std::filesystem::path folder(file.path());
  const auto modules = ReadJson(folder / "modules.json");
  std::string pooling = "1_Pooling";
  if (modules && modules->ok() && (*modules)->is_array()) {
    pooling.clear();
    for (const Json& module : **modules) {
      const std::string kind = ModuleKind(module);
      if (kind == "Pooling" && module.contains("path") &&
          module["path"].is_string()) {
        pooling = module["path"].get<std::string>();
      } else if (kind != "Transformer" && kind != "Normalize") {
        return None(Cat("its modules.json has a module ", kind.substr(0, 64),
                        ", which is not built"));
      }
    }
    if (pooling.empty()) return None("its modules.json has no Pooling");
  } else if (modules) {
    return None("its modules.json is no JSON array");
  }
  const std::filesystem::path inner(pooling);
  if (inner.is_absolute() || std::ranges::count(inner, "..") > 0) {
    return None("its modules.json names a path outside the model");
  }
  const std::string where = Cat("its ", pooling, "/config.json");
  const auto config = ReadJson(folder / inner / "config.json");
  if (!config) {
    return None(
        Cat("it has no ", pooling,
            "/config.json with a pooling_mode (sentence-transformers)"));
  }
  if (!config->ok() || !(*config)->is_object()) {
    return None(Cat(where, " is no JSON object"));
  }
  return OfConfig(**config, where);
}

HiddenWanted WantedBy(Pooling pooling) {
  return pooling == Pooling::kLast ? HiddenWanted::kLast : HiddenWanted::kAll;
}

void Pooler::Add(std::span<const float> rows, size_t hidden_size) {
  sums_.resize(hidden_size);
  for (size_t at = 0; at + hidden_size <= rows.size(); at += hidden_size) {
    const bool counts = pooling_ == Pooling::kMean || count_ == 0;
    ++count_;
    if (!counts) continue;
    for (size_t i = 0; i < hidden_size; ++i) sums_[i] += rows[at + i];
  }
}

std::vector<float> Pooler::Finish(size_t dimensions) const {
  const size_t size =
      dimensions == 0 ? sums_.size() : std::min(dimensions, sums_.size());
  double squares = 0;
  for (size_t i = 0; i < size; ++i) squares += sums_[i] * sums_[i];
  // The mean's divisor goes with the norm.
  const double norm = squares > 0 ? std::sqrt(squares) : 1;
  std::vector<float> out(size);
  for (size_t i = 0; i < size; ++i) {
    out[i] = static_cast<float>(sums_[i] / norm);
  }
  return out;
}

}  // namespace sluice::serving
