#ifndef SLUICE_COMMON_RPC_STATUS_H_
#define SLUICE_COMMON_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "common/base/status.h"

namespace sluice::rpc {

// The codes are the same numbers on both sides. Messages are cut at 4 KiB:
// they travel in HTTP/2 metadata.
grpc::Status ToGrpc(const Status& status);
Status FromGrpc(const grpc::Status& status);

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_STATUS_H_
