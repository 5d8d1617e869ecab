#ifndef SLUICE_SERVICES_GATEWAY_STREAM_RECORD_H_
#define SLUICE_SERVICES_GATEWAY_STREAM_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/serving/stream_journal.h"

namespace sluice::gateway {

// Returns a kept request as bytes. Its age goes along: clocks of machines
// differ.
std::string EncodeStreamRequest(const serving::StreamRequest& request);
// INVALID_ARGUMENT for bytes that are no request.
StatusOr<serving::StreamRequest> DecodeStreamRequest(std::string_view bytes);

// Returns StreamJournal::KeptAfter as bytes: the records of a
// standby::StreamFeed.
std::vector<std::string> RecordsAfter(serving::StreamJournal& journal,
                                      uint64_t& after, size_t bytes);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_STREAM_RECORD_H_
