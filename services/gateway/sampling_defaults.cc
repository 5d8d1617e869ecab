#include "common/base/json.h"
#include "common/core/sampling_params.h"
#include "common/openai/fields.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {

StatusOr<SamplingDefaults> ParseSamplingDefaults(
    const Json& generation_config) {
  if (!generation_config.is_object()) {
    return InvalidArgument("generation config must be an object");
  }
  openai::FieldReader in(generation_config, "generation config: ");
  SamplingDefaults out;
  if (const auto value = in.Number("temperature", 0, 2)) {
    out.temperature = static_cast<float>(*value);
  }
  if (const auto value = in.Number("top_p", 1e-6, 1)) {
    out.top_p = static_cast<float>(*value);
  }
  if (const auto value = in.Int("top_k", -1, 1 << 30)) {
    out.top_k = *value < 0 ? 0 : static_cast<int32_t>(*value);
  }
  if (const auto value = in.Number("min_p", 0, 1)) {
    out.min_p = static_cast<float>(*value);
  }
  if (const auto value = in.Number("repetition_penalty", kMinRepetitionPenalty,
                                   kMaxRepetitionPenalty)) {
    out.repetition_penalty = static_cast<float>(*value);
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  return out;
}

}  // namespace sluice::gateway
