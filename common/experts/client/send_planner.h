#ifndef SLUICE_COMMON_EXPERTS_CLIENT_SEND_PLANNER_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_SEND_PLANNER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/clock.h"
#include "common/experts/client/host_connection.h"
#include "common/experts/client/latency_window.h"
#include "common/experts/client/layer_dispatch.h"

namespace sluice {

// By the placement's index.
using HostConnections = std::map<int32_t, HostConnection>;

// Units for one host in one batch.
struct HostBatch {
  int32_t host = 0;
  int32_t chunk = 0;
  std::vector<size_t> units = {};
  int64_t pairs = 0;
  bool hedge = false;
  bool charged = false;  // to the budget of hedges
  bool retry = false;
};

// Chooses the replica of each unit of a layer, and when another one gets a late
// unit as well: routing and hedging, without streams and locks. Not
// thread-safe.
class SendPlanner {
 public:
  // `most_hedges`: the most late batches in a row that may be sent twice.
  explicit SendPlanner(double most_hedges)
      : most_hedges_(most_hedges), hedge_budget_(most_hedges) {}

  // Returns all batches that can be sent at `now`, marked as sent in `layer`
  // and as outstanding at `hosts`. Units without any host left fail. Cuts a
  // unit for a host that takes fewer rows.
  std::vector<HostBatch> Plan(int64_t now, LayerDispatch& layer,
                              HostConnections& hosts);
  // Returns when to plan again if no event comes before.
  TimePoint NextLook(int64_t now, const LayerDispatch& layer) const;

  // A batch was sent; a batch with `pairs` was answered after a time.
  void OnSent();
  void OnAnswered(int64_t pairs, int64_t nanos) {
    latencies_.Add(pairs, nanos);
  }

 private:
  const double most_hedges_;
  double hedge_budget_;
  int32_t rotation_ = 0;
  LatencyWindow latencies_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_SEND_PLANNER_H_
