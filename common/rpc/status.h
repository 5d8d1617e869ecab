#ifndef SLUICE_COMMON_RPC_STATUS_H_
#define SLUICE_COMMON_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "common/base/status.h"

namespace sluice::rpc {

// The codes are the same numbers on both sides. Messages are cut at 4 KiB:
// they travel in HTTP/2 metadata. Details go along, if they have at most 1 KiB.
grpc::Status ToGrpc(const Status& status);
Status FromGrpc(const grpc::Status& status);

// Bytes beside a status' message, for programs: what they are is the RPC's
// contract. Annotate drops them. Nothing for OK, which has no details.
Status WithDetails(Status status, const std::string& details);
// Empty if there are none.
std::string DetailsOf(const Status& status);

// Whether `status` is the end of a call to an address at which no process
// listens. gRPC has no code for it: the words tell.
bool IsConnectionRefused(const Status& status);

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_STATUS_H_
