#include "common/model_config/config_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <unordered_set>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/base/log.h"
#include "common/model_config/known_keys.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/composed_tensor.h"

namespace sluice {
namespace {

// RoPE's keys, which have several spellings of one meaning.
constexpr std::string_view kRopeKeys[] = {
    "partial_rotary_factor", "rope_parameters", "rope_scaling", "rope_theta"};
// Of the gateway alone.
constexpr std::string_view kTokenKeys[] = {"bos_token_id", "eos_token_id"};

template <size_t N>
bool IsIn(const std::string_view (&keys)[N], std::string_view key) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

void AddUnreadWithin(const std::string& name, const Json& object,
                     std::vector<std::string>& to) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || IsKnownWithinRope(key)) continue;
    if (value.is_object()) {  // of a type of layers
      AddUnreadWithin(Cat(name, ".", key), value, to);
    } else {
      to.push_back(Cat(name, ".", key));
    }
  }
}

// Returns one object for the spellings of RoPE, if no key has two values: that
// of config.json's top and of its objects together, as transformers 5 writes
// it. Else the keys as they stand.
Json OneRope(const Json& config) {
  Json all = Json::object();
  Json one = Json::object();
  bool differs = false;
  const auto take = [&](const std::string& key, const Json& value) {
    if (value.is_null()) return;
    const std::string name = key == "type" ? "rope_type" : key;
    differs = differs || value.is_object() ||
              (one.contains(name) && one[name] != value);
    one[name] = value;
  };
  for (const std::string_view key : kRopeKeys) {
    const Json* found = FindMember(config, std::string(key).c_str());
    if (found == nullptr) continue;
    all[std::string(key)] = *found;
    if (!found->is_object()) {
      take(std::string(key), *found);
      continue;
    }
    for (const auto& [within, value] : found->items()) take(within, value);
  }
  if (differs) return all;
  if (one.value("rope_type", Json()) == "default") one.erase("rope_type");
  return one;
}

// Writes a number without a fraction as an integer: 500000.0 is 500000.
void UseIntegers(SortedJson& json) {
  if (json.is_structured()) {
    for (auto& value : json) UseIntegers(value);
  } else if (json.is_number_float()) {
    const double value = json.get<double>();
    if (std::abs(value) < 0x1p53 && std::trunc(value) == value) {
      json = static_cast<int64_t>(value);
    }
  }
}

std::string TextOf(const SortedJson& json) {
  return json.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
}

// A scale of 1, a size or a scale of 0 and causal attention change nothing.
bool IsNeutral(const weights::GgufValue& value) {
  const auto* number = std::get_if<double>(&value.value);
  const auto* integer = std::get_if<int64_t>(&value.value);
  const auto* flag = std::get_if<bool>(&value.value);
  return (number != nullptr && (*number == 0.0 || *number == 1.0)) ||
         (integer != nullptr && *integer == 0) || (flag != nullptr && *flag);
}

}  // namespace

std::vector<std::string> UnreadConfigKeys(const Json& config,
                                          const ReadKeys& read) {
  std::vector<std::string> unread;
  for (const auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    const bool is_rope = key == "rope_scaling" || key == "rope_parameters";
    if (is_rope && value.is_object()) AddUnreadWithin(key, value, unread);
    if (!read.contains(key) && !HasNoEffect(key)) unread.push_back(key);
  }
  std::sort(unread.begin(), unread.end());
  return unread;
}

StatusOr<std::vector<std::string>> UnreadGgufKeys(
    const weights::GgufMetadata& metadata, const std::string& architecture,
    const std::set<std::string>& asked) {
  const std::string prefix = architecture + ".";
  std::vector<std::string> unread;
  for (const auto& [key, value] : metadata.entries()) {
    const std::string own =
        key.starts_with(prefix) ? key.substr(architecture.size()) : key;
    if (asked.contains(own) || GgufHasNoEffect(own)) continue;
    if (GgufChangesModel(own) && !IsNeutral(value)) {
      return InvalidArgument("GGUF key '", key,
                             "' changes what a model computes, and models of "
                             "architecture ",
                             architecture, " are not computed with it here");
    }
    if (!GgufChangesModel(own)) unread.push_back(key);
  }
  return unread;
}

namespace {

// Returns the stored tensors of which the model is made.
std::set<std::string> ComputedTensors(const ModelConfig& config,
                                      const weights::ModelFile& model) {
  std::set<std::string> stored;
  for (const weights::TensorInfo& wanted :
       ExpectedTensors(config, ExpertStorageOf(config, model))) {
    const auto& composed = model.composed();
    const auto at = std::lower_bound(
        composed.begin(), composed.end(), wanted.name,
        [](const weights::ComposedTensor& tensor, const std::string& name) {
          return tensor.info.name < name;
        });
    if (at != composed.end() && at->info.name == wanted.name) {
      for (std::string& part : at->parts()) stored.insert(std::move(part));
    } else if (model.FindStored(wanted.name) != nullptr) {
      stored.insert(wanted.name);
    }
  }
  return stored;
}

}  // namespace

std::vector<std::string> UnreadTensors(const ModelConfig& config,
                                       const weights::ModelFile& model) {
  std::vector<std::string> unread;
  const std::set<std::string> stored = ComputedTensors(config, model);
  for (const weights::TensorInfo& tensor : model.tensors()) {
    // The config has what a GGUF's vectors tell of RoPE.
    const bool is_rope = tensor.name == kRopeDivisors ||
                         tensor.name == kShortRopeDivisors ||
                         tensor.name == kLongRopeDivisors;
    if (!is_rope && !stored.contains(tensor.name)) {
      unread.push_back(tensor.name);
    }
  }
  return unread;
}

void LogUnreadKeys(const weights::ModelFile& model) {
  constexpr size_t kMostNamed = 20;
  if (!model.computed().has_value()) return;
  const std::vector<std::string>& keys = model.computed()->unread_keys;
  if (keys.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(keys.size(), kMostNamed); ++i) {
    names += Cat(i > 0 ? ", " : "", keys[i]);
  }
  if (keys.size() > kMostNamed) names += ", ...";
  LogWarning(model.path(), ": keys that are not read: ", names);
}

std::optional<weights::ComputedParts> ComputedPartsOf(
    const weights::ModelFile& model) {
  ReadKeys read;
  const auto config = ParseAndRecord(model.config(), read);
  if (!config.ok()) return std::nullopt;
  SortedJson keys = SortedJson::object();
  for (const auto& [key, value] : model.config().items()) {
    const bool is_computed =
        (read.contains(key) || key == "quantization_config") &&
        !IsIn(kTokenKeys, key) && !IsIn(kRopeKeys, key);
    if (is_computed && !value.is_null()) keys[key] = value;
  }
  keys["rope"] = OneRope(model.config());
  UseIntegers(keys);
  weights::ComputedParts parts;
  parts.config = TextOf(keys);
  const std::set<std::string> stored = ComputedTensors(*config, model);
  parts.tensors.assign(stored.begin(), stored.end());
  parts.unread_keys = UnreadConfigKeys(model.config(), read);
  return parts;
}

}  // namespace sluice
