#ifndef SLUICE_COMMON_TOOLS_HUB_FETCH_FILE_H_
#define SLUICE_COMMON_TOOLS_HUB_FETCH_FILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/status.h"
#include "common/tools/hub/hub_cache.h"
#include "common/tools/hub/hub_client.h"
#include "common/tools/hub/hub_protocol.h"

namespace sluice {

// Is told of bytes that came, whether fetched or found from an earlier run.
using OnBytes = std::function<void(uint64_t count)>;

// Fetches `file` from `url` into `blob`. What an earlier run left in
// BLOB.incomplete is kept and gone on with. The whole file's digest is compared
// with the etag, SHA-256 or git's SHA-1, before it gets its name: DATA_LOSS for
// another, and nothing is left. A failed request leaves BLOB.incomplete.
Status FetchFile(HubClient& client, const std::string& url, const HubFile& file,
                 const std::string& blob, const OnBytes& on_bytes);

// Returns the bytes of the file that are here: of the blob, or of its
// unfinished download.
uint64_t BytesHere(const std::string& blob, const HubFile& file);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_FETCH_FILE_H_
