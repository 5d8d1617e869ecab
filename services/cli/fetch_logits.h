#ifndef SLUICE_SERVICES_CLI_FETCH_LOGITS_H_
#define SLUICE_SERVICES_CLI_FETCH_LOGITS_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// Logits [ids, vocabulary], as the cluster made them.
struct LogitRows {
  size_t columns = 0;
  std::vector<float> values;
};

// The logits after each of `ids` (at least one), by the gateway's
// /debug/logits, as bytes. NOT_FOUND if the gateway runs without it.
StatusOr<LogitRows> FetchLogits(const BaseUrl& base,
                                const std::vector<int64_t>& ids);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_FETCH_LOGITS_H_
