#include "common/pipeline/gateway/kv_moves.h"

#include <algorithm>

namespace sluice {

void KvMoves::OnUp(Epoch epoch, const StageProcesses& holders,
                   const std::vector<StagePlace>& places) {
  epoch_ = epoch;
  is_planned_ = false;
  homes_.clear();
  for (size_t i = 0; i < places.size(); ++i) {
    homes_.push_back({holders[i], places[i]});
  }
}

bool KvMoves::IsDonor(const StageProcess& process) const {
  return is_planned_ && std::ranges::any_of(homes_, [&](const Home& home) {
           return home.process.get() == &process;
         });
}

std::vector<act::KvDonor> KvMoves::DonorsOf(const StageProcess& receiver,
                                            const StagePlace& place) const {
  std::vector<act::KvDonor> donors;
  int32_t next = place.first_layer;
  for (const Home& home : homes_) {
    if (!is_planned_ || next >= place.last_layer) break;
    const StagePlace part = {std::max(next, home.place.first_layer),
                             std::min(place.last_layer, home.place.last_layer)};
    if (part.empty()) continue;
    const bool is_self = home.process.get() == &receiver;
    if (is_self && home.place == place) return {};
    if (part.first_layer != next || !home.process->welcomed()) return {};
    donors.push_back({home.process->id(), part, is_self});
    next = part.last_layer;
  }
  if (next < place.last_layer) donors.clear();
  return donors;
}

}  // namespace sluice
