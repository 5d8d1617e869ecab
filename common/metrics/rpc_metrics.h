#ifndef SLUICE_COMMON_METRICS_RPC_METRICS_H_
#define SLUICE_COMMON_METRICS_RPC_METRICS_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/metrics/metrics.h"

namespace sluice::metrics {

// One RPC that a server has ended.
struct HandledRpc {
  std::string service;  // with its package: "sluice.v1.Stage"
  std::string method;
  std::string type;  // gRPC's word: "bidi_stream", "server_stream", "unary"
  StatusCode code = StatusCode::kOk;
  Duration duration = {};  // from its start to its end
};

// Counts it in grpc_server_handled_total and observes how long it took, under
// the names, labels and codes of gRPC's own exporters. Any thread.
void RecordHandled(Registry& registry, const HandledRpc& rpc);

}  // namespace sluice::metrics

#endif  // SLUICE_COMMON_METRICS_RPC_METRICS_H_
