#ifndef SLUICE_COMMON_SERVING_SAMPLING_FIELDS_H_
#define SLUICE_COMMON_SERVING_SAMPLING_FIELDS_H_

#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::serving {

// Reads the fields of sampling that have the same names and ranges in several
// dialects: temperature, top_p, top_k, min_p, seed, and the three penalties. An
// absent field leaves the model's default. Errors stay in `in`.
void ReadSamplingFields(FieldReader& in, GenerationFields& out);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_SAMPLING_FIELDS_H_
