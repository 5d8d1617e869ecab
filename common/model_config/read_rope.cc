#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_families.h"
#include "common/model_config/rope_frequencies.h"

namespace sluice {
namespace {

constexpr double kMaxTheta = 1e15;

// A position's angle is at most so many radians (see kernels/rope.h).
Status CheckFrequencies(const RopeConfig& rope,
                        const std::vector<double>& frequencies) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double frequency = frequencies[i];
    const bool stands = frequency == 0.0 &&
                        rope.scaling.kind == RopeScaling::Kind::kProportional;
    if (stands || (frequency > 0.0 && frequency <= 1.0)) continue;
    return InvalidArgument("rope_theta ", rope.theta,
                           " with rope_scaling gives pair ", i, " frequency ",
                           frequency, ", limits 0 (excluded) and 1");
  }
  return OkStatus();
}

// Returns the object that tells of RoPE: rope_scaling, unless it is empty, else
// rope_parameters, as transformers has it; of one with an object per type of
// layers, that of `layer_type`. An empty object without either.
StatusOr<Json> RopeKeysOf(const ConfigReader& reader,
                          std::string_view layer_type) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* found = reader.Find(key);
    if (found == nullptr) continue;
    if (!found->is_object()) {
      return InvalidArgument(key, " is ", found->type_name(),
                             ", expected an object");
    }
    if (found->empty()) continue;
    const Json& first = *found->begin();
    if (!first.is_object()) return *found;
    const auto own = found->find(layer_type);
    if (own != found->end() && own->is_object()) return *own;
    return InvalidArgument(key,
                           " has an object for each type of layers, and "
                           "none for '",
                           layer_type, "'");
  }
  return Json::object();
}

// Returns the value of a key of `keys`, else of the config; null: neither.
const Json* FindIn(const Json& keys, const ConfigReader& reader,
                   const char* key) {
  const Json* found = ConfigReader(keys).Find(key);
  return found != nullptr ? found : reader.Find(key);
}

// Reads the rotated share of a head; `rope.rotary_dim` is the family's default.
Status ReadRotaryDim(const ConfigReader& reader, const Json& keys,
                     int32_t head_dim, RopeConfig& rope) {
  constexpr char kKey[] = "partial_rotary_factor";
  const Json* found = FindIn(keys, reader, kKey);
  if (found == nullptr) return OkStatus();
  double factor = 1.0;
  SLUICE_RETURN_IF_ERROR(
      ConfigReader(Json{{kKey, *found}}).Positive(kKey, 1.0, 1.0, factor));
  rope.rotary_dim = static_cast<int32_t>(head_dim * factor);
  if (rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0) return OkStatus();
  return InvalidArgument(kKey, " ", factor, " of head_dim ", head_dim,
                         " gives ", rope.rotary_dim,
                         " dimensions, expected an even number above 0");
}

// Adds what a scaling takes from the config: the length that it was trained
// for, and a factor of lengths.
void AddLengths(const ConfigReader& reader, bool with_factor, Json& keys) {
  constexpr char kOriginal[] = "original_max_position_embeddings";
  const Json* all = reader.Find("max_position_embeddings");
  if (const Json* found = reader.Find(kOriginal)) keys[kOriginal] = *found;
  if (ConfigReader(keys).Find(kOriginal) == nullptr && all != nullptr) {
    keys[kOriginal] = *all;
  }
  const Json* original = ConfigReader(keys).Find(kOriginal);
  if (!with_factor || ConfigReader(keys).Find("factor") != nullptr ||
      all == nullptr || original == nullptr || !all->is_number() ||
      !original->is_number() || original->get<double>() <= 0) {
    return;
  }
  keys["factor"] = all->get<double>() / original->get<double>();
}

}  // namespace

Status ReadRope(const ConfigReader& reader, std::string_view layer_type,
                int32_t head_dim, RopeConfig& rope) {
  SLUICE_ASSIGN_OR_RETURN(Json keys, RopeKeysOf(reader, layer_type));
  if (const Json* theta = FindIn(keys, reader, "rope_theta")) {
    SLUICE_RETURN_IF_ERROR(
        ConfigReader(Json{{"rope_theta", *theta}})
            .Positive("rope_theta", kMaxTheta, 10000.0, rope.theta));
  } else if (rope.theta == 0.0) {
    rope.theta = 10000.0;
  }
  const ConfigReader of_rope(keys);
  const Json* named = of_rope.Find("rope_type");
  if (named == nullptr) named = of_rope.Find("type");
  const std::string type = named != nullptr && named->is_string()
                               ? named->get<std::string>()
                               : std::string();
  if (type != "proportional") {
    SLUICE_RETURN_IF_ERROR(ReadRotaryDim(reader, keys, head_dim, rope));
  }
  if (type == "yarn" || type == "longrope" || type == "su" ||
      type == "llama3") {
    AddLengths(reader, /*with_factor=*/type != "llama3", keys);
  }
  SLUICE_ASSIGN_OR_RETURN(rope.scaling,
                          ParseRopeScaling(keys, rope.rotary_dim));
  rope.inv_freq = RopeInvFreq(rope.theta, rope.rotary_dim, rope.scaling);
  SLUICE_RETURN_IF_ERROR(CheckFrequencies(rope, rope.inv_freq));
  if (rope.scaling.kind != RopeScaling::Kind::kLongRope) return OkStatus();
  RopeScaling scaling = rope.scaling;
  scaling.divisors = scaling.long_divisors;
  rope.long_inv_freq = RopeInvFreq(rope.theta, rope.rotary_dim, scaling);
  return CheckFrequencies(rope, rope.long_inv_freq);
}

}  // namespace sluice
