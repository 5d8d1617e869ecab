#ifndef SLUICE_COMMON_TOOLS_HUB_READ_RANGES_H_
#define SLUICE_COMMON_TOOLS_HUB_READ_RANGES_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/tools/hub/hub_client.h"
#include "common/weights/safetensors_outline.h"

namespace sluice {

// Reads ranges of one file. The first request finds where the hub redirects to,
// the others go there. `client` must outlive the reader.
class RangeReader {
 public:
  RangeReader(HubClient& client, std::string url);

  // Returns the bytes of `range`. UNAVAILABLE where fewer come; errors of
  // HubClient::Get.
  StatusOr<std::string> Read(const weights::ShardBytes& range);

 private:
  HubClient& client_;
  const std::string url_;
  std::string place_;
};

// Returns length and header of the safetensors file at `reader`, which has
// `file_bytes`. INVALID_ARGUMENT, with `name`, for a header above its limit.
StatusOr<std::string> ReadSafetensorsHeader(RangeReader& reader,
                                            const std::string& name,
                                            uint64_t file_bytes);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_READ_RANGES_H_
