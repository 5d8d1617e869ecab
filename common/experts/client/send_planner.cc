#include "common/experts/client/send_planner.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr auto kLongestWait = std::chrono::milliseconds(50);
// The share of hedged batches in the long run.
constexpr double kHedgeShare = 0.1;

// A batch that crashes every host must end as well.
int32_t MaxAttempts(const ExpertShard& shard) {
  return 4 * static_cast<int32_t>(shard.hosts.size()) + 4;
}

bool Contains(const std::vector<int32_t>& list, int32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Returns the batch with the units of `chunk` for `host`.
template <typename Sends>
auto FindSend(Sends& sends, int32_t host, int32_t chunk) {
  return std::find_if(sends.begin(), sends.end(), [=](const auto& send) {
    return send.host == host && send.chunk == chunk;
  });
}

enum class Pick { kHost, kWait, kNone };
struct Choice {
  Pick pick = Pick::kNone;
  int32_t host = 0;
};

// Chooses the replica of `shard` for `unit`: the one with the least work
// outstanding that is not silent, has room, and neither has the unit nor
// refused it. `rotation` breaks ties. `whole`: only a host that takes the
// unit's chunk in one batch.
Choice ChooseReplica(const HostConnections& hosts, const ExpertShard& shard,
                     const DispatchUnit& unit, int32_t rotation, bool whole) {
  const std::vector<int32_t>& replicas = shard.hosts;
  const HostConnection* best = nullptr;
  bool any_heard = false;
  Choice choice;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const int32_t index =
        replicas[(i + static_cast<size_t>(rotation)) % replicas.size()];
    const HostConnection& host = hosts.at(index);
    if (!host.usable() || Contains(unit.refused_by, index)) continue;
    if (choice.pick == Pick::kNone) choice.pick = Pick::kWait;
    any_heard |= !host.silent();
    if (Contains(unit.sent_to, index) || host.full() ||
        (whole && host.limits().max_rows < unit.chunk_rows)) {
      continue;
    }
    const bool better =
        best == nullptr || std::pair(host.silent(), host.outstanding()) <
                               std::pair(best->silent(), best->outstanding());
    if (!better) continue;
    best = &host;
    choice = {Pick::kHost, index};
  }
  // A full host is better than a silent one.
  if (best != nullptr && best->silent() && any_heard) return {Pick::kWait, 0};
  return choice;
}

// Names the missing experts; the log has the reasons, with addresses.
Status NoHostLeft(const HostConnections& hosts, const ExpertShard& shard,
                  const DispatchUnit& unit) {
  std::string names;
  for (const int32_t host : shard.hosts) {
    names += Cat(names.empty() ? "" : ", ", hosts.at(host).name());
  }
  const std::string why =
      unit.refused_by.empty() ? "" : Cat("; ", Message(unit.why));
  return Unavailable(ToString(shard), " have no host left of: ", names, why);
}

// Puts unit `index` into the batch for `host`. Returns the batch.
HostBatch& AddTo(std::vector<HostBatch>& sends, int32_t host, size_t index,
                 LayerDispatch& layer, HostConnections& hosts) {
  DispatchUnit& unit = layer.units()[index];
  auto found = FindSend(sends, host, unit.chunk);
  const bool fresh = found == sends.end();
  if (fresh) {
    sends.push_back({.host = host, .chunk = unit.chunk});
    found = std::prev(sends.end());
  }
  hosts.at(host).AddWork(fresh ? 1 : 0, unit.pairs);
  found->units.push_back(index);
  found->pairs += unit.pairs;
  unit.state = DispatchUnit::State::kSent;
  unit.sent_to.push_back(host);
  ++unit.attempts;
  return *found;
}

}  // namespace

std::vector<HostBatch> SendPlanner::Plan(int64_t now, LayerDispatch& layer,
                                         HostConnections& hosts) {
  std::vector<HostBatch> sends;
  std::vector<DispatchUnit>& units = layer.units();
  for (size_t i = 0; i < units.size(); ++i) {
    DispatchUnit& unit = units[i];
    const ExpertShard& shard = layer.shard(unit);
    const bool sent = unit.state == DispatchUnit::State::kSent;
    // Sent to silent hosts alone.
    const bool in_vain =
        sent && std::all_of(unit.sent_to.begin(), unit.sent_to.end(),
                            [&](int32_t at) { return hosts.at(at).silent(); });
    // Late for its size.
    const bool late =
        sent && now - unit.sent_ns > latencies_.LateNanos(unit.batch_pairs);
    const bool hedge = in_vain || late;
    if (unit.state != DispatchUnit::State::kToSend && !hedge) continue;
    // A late unit may still be answered: it is not cut for another host.
    const Choice choice =
        ChooseReplica(hosts, shard, unit, rotation_, late && !in_vain);
    if (!hedge &&
        (choice.pick == Pick::kNone || unit.attempts > MaxAttempts(shard))) {
      unit.why = NoHostLeft(hosts, shard, unit);
      unit.state = DispatchUnit::State::kFailed;
    }
    if (!unit.open() || choice.pick != Pick::kHost) continue;
    const HostConnection& to = hosts.at(choice.host);
    if (hedge && to.silent())
      continue;  // no better than the hosts it waits
                 // for
    // A batch costs one of the budget, for any number of units. It costs
    // nothing where nothing else can help.
    const bool costs = hedge && !in_vain;
    const bool retry = !hedge && unit.attempts > 0;
    if (unit.chunk_rows > to.limits().max_rows) {
      // The host came up, or sent a new welcome, after this unit was cut.
      layer.Split(i, to.limits().max_rows);  // `unit` is no more
    }
    const auto with = FindSend(sends, choice.host, units[i].chunk);
    const bool charged = with != sends.end() && with->charged;
    if (costs && !charged && hedge_budget_ < 1) continue;
    HostBatch& send = AddTo(sends, choice.host, i, layer, hosts);
    send.hedge |= hedge;
    send.retry |= retry;
    if (!costs || charged) continue;
    send.charged = true;
    hedge_budget_ -= 1;
  }
  for (const HostBatch& send : sends) {
    ExpertClientMetrics* const seen = hosts.at(send.host).metrics();
    if (send.hedge && seen != nullptr) seen->OnHedge(send.host);
    if (send.retry && seen != nullptr) seen->OnRetry(send.host);
  }
  if (!sends.empty()) ++rotation_;
  return sends;
}

void SendPlanner::OnSent() {
  hedge_budget_ = std::min(most_hedges_, hedge_budget_ + kHedgeShare);
}

TimePoint SendPlanner::NextLook(int64_t now, const LayerDispatch& layer) const {
  int64_t wait = std::chrono::nanoseconds(kLongestWait).count();
  for (const DispatchUnit& unit : layer.units()) {
    if (unit.state != DispatchUnit::State::kSent || unit.sent_to.size() > 1) {
      continue;
    }
    if (layer.shard(unit).hosts.size() < 2) continue;
    const int64_t late =
        unit.sent_ns + latencies_.LateNanos(unit.batch_pairs) - now;
    // A late unit waits for budget or for a host.
    if (late > 0) wait = std::min(wait, late);
  }
  return Clock::now() + std::chrono::nanoseconds(wait);
}

}  // namespace sluice
