#include "common/serving/sampling_fields.h"

#include <cstdint>

#include "common/core/sampling_params.h"

namespace sluice::serving {

void ReadSamplingFields(FieldReader& in, GenerationFields& out) {
  out.temperature = in.Number("temperature", 0, 2);
  out.top_p = in.Number("top_p", 0, 1);
  // No probability at all is the likeliest token's alone.
  if (out.top_p && static_cast<float>(*out.top_p) == 0.0f) {
    out.temperature = 0;
    out.top_p = 1;
  }
  out.top_k = in.Int("top_k", -1, kMaxInt32);
  if (out.top_k == -1) out.top_k = 0;
  out.min_p = in.Number("min_p", 0, 1);
  if (const auto seed = in.Int("seed", INT64_MIN, INT64_MAX)) {
    out.seed = static_cast<uint64_t>(*seed);
  }
  out.frequency_penalty =
      in.Number("frequency_penalty", -kMaxPenalty, kMaxPenalty);
  out.presence_penalty =
      in.Number("presence_penalty", -kMaxPenalty, kMaxPenalty);
  out.repetition_penalty = in.Number(
      "repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty);
}

}  // namespace sluice::serving
