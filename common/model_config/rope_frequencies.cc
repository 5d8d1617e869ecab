#include "common/model_config/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/model_config/portable_math.h"

namespace sluice {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr double kMaxScaledFrom = 1e9;

Status ReadPositive(const Json& scaling, const char* key, double limit,
                    double& value) {
  const auto found = scaling.find(key);
  if (found == scaling.end() || !found->is_number()) {
    return InvalidArgument("rope_scaling needs a number ", key);
  }
  value = found->get<double>();
  if (!(value > 0.0 && value <= limit)) {
    return InvalidArgument("rope_scaling.", key, " is ", value,
                           ", limits 0 (excluded) and ", limit);
  }
  return OkStatus();
}

Status ReadDivisors(const Json& scaling, const char* key, int rotary_dim,
                    std::vector<double>& divisors) {
  const auto found = scaling.find(key);
  if (found == scaling.end() || !found->is_array() ||
      found->size() != static_cast<size_t>(rotary_dim / 2)) {
    return InvalidArgument("rope_scaling.", key, ": expected ", rotary_dim / 2,
                           " numbers, one for each pair of rotary_dim ",
                           rotary_dim);
  }
  for (const Json& divisor : *found) {
    const double value = divisor.is_number() ? divisor.get<double>() : 0.0;
    if (!(value > 0.0 && value <= kMaxFactor)) {
      return InvalidArgument("rope_scaling.", key, " has ", DumpJson(divisor),
                             ", limits 0 (excluded) and ", kMaxFactor);
    }
    divisors.push_back(value);
  }
  return OkStatus();
}

Status ReadLlama3(const Json& scaling, RopeScaling& parsed) {
  SLUICE_RETURN_IF_ERROR(
      ReadPositive(scaling, "factor", kMaxFactor, parsed.factor));
  SLUICE_RETURN_IF_ERROR(ReadPositive(scaling, "low_freq_factor", kMaxFactor,
                                      parsed.low_freq_factor));
  SLUICE_RETURN_IF_ERROR(ReadPositive(scaling, "high_freq_factor", kMaxFactor,
                                      parsed.high_freq_factor));
  SLUICE_RETURN_IF_ERROR(
      ReadPositive(scaling, "original_max_position_embeddings", kMaxScaledFrom,
                   parsed.original_max_position_embeddings));
  if (parsed.high_freq_factor <= parsed.low_freq_factor) {
    return InvalidArgument(
        "rope_scaling.high_freq_factor ", parsed.high_freq_factor,
        " is not above low_freq_factor ", parsed.low_freq_factor);
  }
  return OkStatus();
}

Status ReadYarn(const Json& scaling, RopeScaling& parsed) {
  SLUICE_RETURN_IF_ERROR(
      ReadPositive(scaling, "factor", kMaxFactor, parsed.factor));
  SLUICE_RETURN_IF_ERROR(
      ReadPositive(scaling, "original_max_position_embeddings", kMaxScaledFrom,
                   parsed.original_max_position_embeddings));
  const auto has = [&](const char* key) {
    const auto found = scaling.find(key);
    return found != scaling.end() && !found->is_null();
  };
  // 0 counts as absent.
  double mscale = 0.0;
  for (const auto& [key, value] :
       {std::pair("mscale", &mscale),
        std::pair("mscale_all_dim", &parsed.mscale_all_dim)}) {
    if (!has(key) || scaling[key] == 0) continue;
    SLUICE_RETURN_IF_ERROR(ReadPositive(scaling, key, kMaxFactor, *value));
  }
  if (has("beta_fast")) {
    SLUICE_RETURN_IF_ERROR(
        ReadPositive(scaling, "beta_fast", kMaxFactor, parsed.beta_fast));
  }
  if (has("beta_slow")) {
    SLUICE_RETURN_IF_ERROR(
        ReadPositive(scaling, "beta_slow", kMaxFactor, parsed.beta_slow));
  }
  if (has("truncate")) {
    if (!scaling["truncate"].is_boolean()) {
      return InvalidArgument("rope_scaling.truncate is ",
                             scaling["truncate"].type_name(),
                             ", expected true or false");
    }
    parsed.truncate = scaling["truncate"].get<bool>();
  }
  if (has("attention_factor")) {
    return ReadPositive(scaling, "attention_factor", kMaxFactor,
                        parsed.attention_factor);
  }
  const bool both = mscale != 0.0 && parsed.mscale_all_dim != 0.0;
  parsed.attention_factor =
      both ? YarnScale(parsed.factor, mscale) /
                 YarnScale(parsed.factor, parsed.mscale_all_dim)
           : YarnScale(parsed.factor, 1.0);
  return OkStatus();
}

Status ReadLongRope(const Json& scaling, int rotary_dim, RopeScaling& parsed) {
  SLUICE_RETURN_IF_ERROR(
      ReadPositive(scaling, "factor", kMaxFactor, parsed.factor));
  SLUICE_RETURN_IF_ERROR(
      ReadPositive(scaling, "original_max_position_embeddings", kMaxScaledFrom,
                   parsed.original_max_position_embeddings));
  SLUICE_RETURN_IF_ERROR(
      ReadDivisors(scaling, "short_factor", rotary_dim, parsed.divisors));
  SLUICE_RETURN_IF_ERROR(
      ReadDivisors(scaling, "long_factor", rotary_dim, parsed.long_divisors));
  if (scaling.contains("attention_factor") &&
      !scaling["attention_factor"].is_null()) {
    return ReadPositive(scaling, "attention_factor", kMaxFactor,
                        parsed.attention_factor);
  }
  if (parsed.factor > 1.0) {
    parsed.attention_factor =
        std::sqrt(1.0 + OwnLog(parsed.factor) /
                            OwnLog(parsed.original_max_position_embeddings));
  }
  return OkStatus();
}

// With an alpha "dynamic" is Hunyuan's, which depends on no length. Without, it
// changes nothing up to max_position_embeddings, beyond which no sequence goes.
Status ReadDynamic(const Json& scaling, RopeScaling& parsed) {
  if (!scaling.contains("alpha")) {
    parsed.kind = RopeScaling::Kind::kNone;
    return ReadPositive(scaling, "factor", kMaxFactor, parsed.factor);
  }
  return ReadPositive(scaling, "alpha", kMaxFactor, parsed.alpha);
}

// YaRN: pairs up to `low` stay, pairs from `high` on are divided; between them
// both are mixed linearly by the pair's index.
std::vector<double> ScaleYarn(std::vector<double> frequencies, double theta,
                              int rotary_dim, const RopeScaling& scaling) {
  const auto pair_of_turns = [&](double turns) {
    return rotary_dim *
           OwnLog(scaling.original_max_position_embeddings /
                  (turns * 2.0 * std::numbers::pi)) /
           (2.0 * OwnLog(theta));
  };
  double low = pair_of_turns(scaling.beta_fast);
  double high = pair_of_turns(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp =
        std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = ramp * (frequencies[i] / scaling.factor) +
                     (1.0 - ramp) * frequencies[i];
  }
  return frequencies;
}

// llama3: wavelengths up to original/high stay, wavelengths above original/low
// are divided; between them both are mixed linearly.
double ScaleLlama3(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double original = scaling.original_max_position_embeddings;
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) {
    return frequency / scaling.factor;
  }
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

double YarnScale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * OwnLog(factor) + 1.0;
}

StatusOr<RopeScaling> ParseRopeScaling(const Json& scaling, int rotary_dim) {
  RopeScaling parsed;
  if (scaling.is_null()) return parsed;
  if (!scaling.is_object()) {
    return InvalidArgument("rope_scaling is ", scaling.type_name(),
                           ", expected an object or null");
  }
  // Configs before 2024 have "type".
  auto kind = scaling.find("rope_type");
  if (kind == scaling.end()) kind = scaling.find("type");
  if (kind == scaling.end()) {
    // rope_parameters with nothing but a theta.
    if (!scaling.contains("factor")) return parsed;
    return InvalidArgument("rope_scaling has a factor but no rope_type");
  }
  const std::string name =
      kind->is_string() ? kind->get<std::string>() : DumpJson(*kind);
  // Of text alone "mrope" is the plain one.
  if (name == "default" || name == "mrope") return parsed;
  if (name == "llama3") {
    parsed.kind = RopeScaling::Kind::kLlama3;
    SLUICE_RETURN_IF_ERROR(ReadLlama3(scaling, parsed));
  } else if (name == "yarn") {
    parsed.kind = RopeScaling::Kind::kYarn;
    SLUICE_RETURN_IF_ERROR(ReadYarn(scaling, parsed));
  } else if (name == "linear") {
    parsed.kind = RopeScaling::Kind::kLinear;
    SLUICE_RETURN_IF_ERROR(
        ReadPositive(scaling, "factor", kMaxFactor, parsed.factor));
  } else if (name == "divisors") {
    parsed.kind = RopeScaling::Kind::kDivisors;
    SLUICE_RETURN_IF_ERROR(
        ReadDivisors(scaling, "divisors", rotary_dim, parsed.divisors));
  } else if (name == "longrope" || name == "su") {
    parsed.kind = RopeScaling::Kind::kLongRope;
    SLUICE_RETURN_IF_ERROR(ReadLongRope(scaling, rotary_dim, parsed));
  } else if (name == "proportional") {
    parsed.kind = RopeScaling::Kind::kProportional;
    if (scaling.contains("partial_rotary_factor")) {
      SLUICE_RETURN_IF_ERROR(
          ReadPositive(scaling, "partial_rotary_factor", 1.0, parsed.share));
    }
  } else if (name == "dynamic") {
    parsed.kind = RopeScaling::Kind::kDynamic;
    SLUICE_RETURN_IF_ERROR(ReadDynamic(scaling, parsed));
  } else {
    return InvalidArgument("rope_scaling.rope_type '", name,
                           "' is not supported; supported are default, "
                           "linear, llama3, yarn, longrope, dynamic, "
                           "proportional and mrope");
  }
  return parsed;
}

std::vector<double> RopeInvFreq(double theta, int rotary_dim,
                                const RopeScaling& scaling) {
  std::vector<double> inv_freq;
  if (scaling.kind == RopeScaling::Kind::kDynamic) {
    theta *= OwnPow(scaling.alpha, rotary_dim / (rotary_dim - 2.0));
  }
  for (int i = 0; i < rotary_dim / 2; ++i) {
    double frequency = OwnPow(theta, -2.0 * i / rotary_dim);
    switch (scaling.kind) {
      case RopeScaling::Kind::kNone:
      case RopeScaling::Kind::kYarn:  // below, over all pairs
      case RopeScaling::Kind::kDynamic:
        break;
      case RopeScaling::Kind::kProportional:
        if (i >= static_cast<int>(scaling.share * rotary_dim / 2)) {
          frequency = 0.0;
        }
        break;
      case RopeScaling::Kind::kLinear:
        frequency /= scaling.factor;
        break;
      case RopeScaling::Kind::kLlama3:
        frequency = ScaleLlama3(frequency, scaling);
        break;
      case RopeScaling::Kind::kDivisors:
      case RopeScaling::Kind::kLongRope:
        frequency /= scaling.divisors[static_cast<size_t>(i)];
        break;
    }
    inv_freq.push_back(frequency);
  }
  if (scaling.kind == RopeScaling::Kind::kYarn) {
    return ScaleYarn(std::move(inv_freq), theta, rotary_dim, scaling);
  }
  return inv_freq;
}

}  // namespace sluice
