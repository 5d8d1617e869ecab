#ifndef SLUICE_COMMON_MODEL_CONFIG_ROPE_FREQUENCIES_H_
#define SLUICE_COMMON_MODEL_CONFIG_ROPE_FREQUENCIES_H_

#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/model_config/model_config.h"

namespace sluice {

// Parses the rope_scaling (or rope_parameters) object of a config.json; null or
// "default" is no scaling. INVALID_ARGUMENT for kinds that are not built, for
// missing members and for values outside their limits.
StatusOr<RopeScaling> ParseRopeScaling(const Json& scaling, int rotary_dim);

// YaRN's 0.1 mscale ln(factor) + 1; 1 for factors up to 1.
double YarnScale(double factor, double mscale);

// Returns theta^(-2i/rotary_dim), scaled, in double precision [rotary_dim / 2].
// The same bits on every machine, without the C library's functions.
std::vector<double> RopeInvFreq(double theta, int rotary_dim,
                                const RopeScaling& scaling);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_ROPE_FREQUENCIES_H_
