#ifndef SLUICE_COMMON_RPC_RPC_OBSERVER_H_
#define SLUICE_COMMON_RPC_RPC_OBSERVER_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace sluice::rpc {

// Gets every RPC that a server has ended. Called by gRPC's threads, may not
// block, must outlive the server.
class RpcObserver {
 public:
  virtual ~RpcObserver() = default;
  virtual void OnHandled(const std::string& method, StatusCode code,
                         Duration duration) = 0;
};

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_RPC_OBSERVER_H_
