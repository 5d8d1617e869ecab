#ifndef SLUICE_COMMON_RPC_STATUS_H_
#define SLUICE_COMMON_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "common/base/status.h"

namespace sluice::rpc {

// The codes are the same numbers on both sides. Messages are cut at 4 KiB,
// since they travel in HTTP/2 metadata. Details of at most 1 KiB travel along.
grpc::Status ToGrpc(const Status& status);
Status FromGrpc(const grpc::Status& status);

// Adds bytes for programs to a status; the RPC's contract gives their meaning.
// Annotate drops them. Does nothing to OK.
Status WithDetails(Status status, const std::string& details);
// Returns the details; empty if there are none.
std::string DetailsOf(const Status& status);

// Whether `status` ends a call to an address at which no process listens. gRPC
// has no code for it, so this reads the message.
bool IsConnectionRefused(const Status& status);

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_STATUS_H_
