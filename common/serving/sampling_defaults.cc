#include <optional>

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/core/sampling_params.h"
#include "common/serving/fields.h"
#include "common/serving/served_model.h"

namespace sluice::serving {
namespace {

// Reads a value with `read`; one of a wrong type or out of range is logged and
// left out, since a file of defaults need not keep a model from being served.
template <typename Read>
auto ReadDefault(const Json& generation_config, const Read& read)
    -> decltype(read(std::declval<FieldReader&>())) {
  FieldReader in(generation_config, "generation_config.json: ");
  auto value = read(in);
  if (in.status().ok()) return value;
  LogWarning(Message(in.status()), "; it is left out");
  return std::nullopt;
}

}  // namespace

StatusOr<SamplingDefaults> ParseSamplingDefaults(
    const Json& generation_config) {
  if (!generation_config.is_object()) {
    return InvalidArgument("generation config must be an object");
  }
  const auto number = [&](const char* key, double min, double max) {
    return ReadDefault(generation_config, [&](FieldReader& in) {
      return in.Number(key, min, max);
    });
  };
  SamplingDefaults out;
  if (const auto value = number("temperature", 0, 2)) {
    out.temperature = static_cast<float>(*value);
  }
  if (const auto value = number("top_p", 1e-6, 1)) {
    out.top_p = static_cast<float>(*value);
  }
  const auto top_k = ReadDefault(generation_config, [&](FieldReader& in) {
    return in.Int("top_k", -1, 1 << 30);
  });
  if (top_k) out.top_k = *top_k < 0 ? 0 : static_cast<int32_t>(*top_k);
  if (const auto value = number("min_p", 0, 1)) {
    out.min_p = static_cast<float>(*value);
  }
  if (const auto value = number("repetition_penalty", kMinRepetitionPenalty,
                                kMaxRepetitionPenalty)) {
    out.repetition_penalty = static_cast<float>(*value);
  }
  return out;
}

}  // namespace sluice::serving
