#ifndef SLUICE_COMMON_TOOLS_HUB_FETCH_OUTLINE_H_
#define SLUICE_COMMON_TOOLS_HUB_FETCH_OUTLINE_H_

#include <string>

#include "common/base/status.h"
#include "common/tools/hub/hub_client.h"
#include "common/tools/hub/hub_protocol.h"

namespace sluice {

// Fetches the outline of the shard `file` at `url` into `path`, by ranges
// (weights/safetensors_outline.h). Nothing compares it with a digest: the
// handshake of gateway and stages compares the model's identity, which it is
// a part of.
Status FetchOutline(HubClient& client, const std::string& url,
                    const HubFile& file, const std::string& path);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_FETCH_OUTLINE_H_
