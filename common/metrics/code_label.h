#ifndef SLUICE_COMMON_METRICS_CODE_LABEL_H_
#define SLUICE_COMMON_METRICS_CODE_LABEL_H_

#include <string>

#include "common/base/status.h"

namespace sluice::metrics {

// The value of a label grpc_code, as gRPC's own exporters spell it.
std::string CodeLabel(StatusCode code);

}  // namespace sluice::metrics

#endif  // SLUICE_COMMON_METRICS_CODE_LABEL_H_
