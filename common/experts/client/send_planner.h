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

// Units that go to one host in one batch.
struct HostBatch {
  int32_t host = 0;
  int32_t chunk = 0;
  std::vector<size_t> units = {};
  int64_t pairs = 0;
  bool hedge = false;
  bool charged = false;  // to the budget of hedges
  bool retry = false;
};

// Which replica gets which units of a layer, and when a unit is sent to another
// one too: routing and hedging, apart from streams and locks. Not thread-safe.
class SendPlanner {
 public:
  // `most_hedges`: late batches that may be sent twice, saved up.
  explicit SendPlanner(double most_hedges)
      : most_hedges_(most_hedges), hedge_budget_(most_hedges) {}

  // Everything that can be sent at `now`, marked as sent in `layer` and as
  // outstanding at `hosts`; units that no host is left for fail. Cuts a unit
  // for a host that takes fewer rows.
  std::vector<HostBatch> Plan(int64_t now, LayerDispatch& layer,
                              HostConnections& hosts);
  // When to look again if nothing happens before.
  TimePoint NextLook(int64_t now, const LayerDispatch& layer) const;

  // A batch was sent; one with so many pairs was answered after so long.
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
