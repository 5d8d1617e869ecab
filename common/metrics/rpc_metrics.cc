#include "common/metrics/rpc_metrics.h"

#include <iterator>

#include "common/metrics/metric_names.h"

namespace sluice::metrics {
namespace {

// The code as the value of a label.
std::string CodeLabel(StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "Canceled",
                                           "Unknown",
                                           "InvalidArgument",
                                           "DeadlineExceeded",
                                           "NotFound",
                                           "AlreadyExists",
                                           "PermissionDenied",
                                           "ResourceExhausted",
                                           "FailedPrecondition",
                                           "Aborted",
                                           "OutOfRange",
                                           "Unimplemented",
                                           "Internal",
                                           "Unavailable",
                                           "DataLoss",
                                           "Unauthenticated"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "Unknown";
}

}  // namespace

void RecordHandled(Registry& registry, const HandledRpc& rpc) {
  const Labels labels = {{"grpc_service", rpc.service},
                         {"grpc_method", rpc.method},
                         {"grpc_type", rpc.type}};
  Labels handled = labels;
  handled["grpc_code"] = CodeLabel(rpc.code);
  registry.AddCounter(names::kGrpcHandled, "RPCs that have ended.", handled)
      .Add();
  registry
      .AddHistogram(names::kGrpcHandlingSeconds, "Time from start to end.",
                    buckets::RequestLatency(), labels)
      .Observe(Seconds(rpc.duration));
}

}  // namespace sluice::metrics
