#include "common/placement/plan_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace sluice {
namespace {

// A coarser cut may be off its proportion by this share.
constexpr double kSlack = 0.1;

// Hosts with the same experts.
struct Group {
  std::vector<int32_t> hosts;  // rising
  int64_t most = 0;            // of every layer, that fit into each host
};

Status CheckOptions(const ModelConfig& config,
                    const ExpertPlanOptions& options) {
  if (config.moe().num_experts == 0) {
    return InvalidArgument("a model of type ", config.model_type,
                           " has no experts to place");
  }
  const auto hosts = static_cast<int64_t>(options.hosts.size());
  if (hosts < 1 || hosts > config.moe().num_experts) {
    return InvalidArgument("number of hosts must be between 1 and ",
                           config.moe().num_experts,
                           ", the experts of a layer; got ", hosts);
  }
  if (options.replicas < 1 || options.replicas > hosts) {
    return InvalidArgument("replicas must be between 1 and ", hosts,
                           ", the number of hosts; got ", options.replicas);
  }
  return OkStatus();
}

// Returns groups of similar hosts, the largest first.
std::vector<Group> MakeGroups(const ExpertPlanOptions& options,
                              int32_t num_experts, uint64_t expert_bytes) {
  const auto room = [&](int32_t host) {
    const uint64_t bytes = options.hosts[static_cast<size_t>(host)].bytes;
    if (bytes == 0) return int64_t{num_experts};
    return static_cast<int64_t>(
        std::min<uint64_t>(bytes / expert_bytes, num_experts));
  };
  std::vector<int32_t> order(options.hosts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return room(a) > room(b); });
  std::vector<Group> groups(order.size() /
                            static_cast<size_t>(options.replicas));
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t of = i / static_cast<size_t>(options.replicas);
    // Hosts left over are no larger than those of the last group.
    groups[std::min(of, groups.size() - 1)].hosts.push_back(order[i]);
  }
  for (Group& group : groups) {
    std::sort(group.hosts.begin(), group.hosts.end());
    group.most = num_experts;
    for (const int32_t host : group.hosts) {
      group.most = std::min(group.most, room(host));
    }
  }
  return groups;
}

// Shares `experts` out among the groups at multiples of `unit`. Nothing if they
// do not fit, or if `in_proportion` and a share is not.
std::optional<std::vector<int64_t>> Share(const std::vector<Group>& groups,
                                          int64_t experts, int64_t unit,
                                          bool in_proportion) {
  int64_t room = 0;
  for (const Group& group : groups) room += group.most;
  if (room < experts) return std::nullopt;
  if (room == 0) return std::vector<int64_t>(groups.size());
  std::vector<int64_t> shares;
  int64_t given = 0;
  int64_t before = 0;  // room of earlier groups
  for (const Group& group : groups) {
    before += group.most;
    const double until = static_cast<double>(experts) *
                         static_cast<double>(before) /
                         static_cast<double>(room);
    int64_t end = std::llround(until / static_cast<double>(unit)) * unit;
    end = std::min(std::max(end, given), experts);
    const double ideal = static_cast<double>(experts) *
                         static_cast<double>(group.most) /
                         static_cast<double>(room);
    shares.push_back(end - given);
    given = end;
    if (shares.back() > group.most) return std::nullopt;
    if (in_proportion &&
        std::abs(static_cast<double>(shares.back()) - ideal) > kSlack * ideal) {
      return std::nullopt;
    }
  }
  if (given != experts) return std::nullopt;
  return shares;
}

// Returns the coarsest fair cut, else the fairest that fits.
std::optional<std::vector<int64_t>> ShareOut(const std::vector<Group>& groups,
                                             int64_t experts) {
  int64_t unit = 1;
  while (unit * 2 <= experts) unit *= 2;
  for (; unit >= 1; unit /= 2) {
    if (auto shares = Share(groups, experts, unit, true)) return shares;
  }
  if (auto shares = Share(groups, experts, 1, false)) return shares;
  // Rounding overfilled a group: fill the groups one by one.
  std::vector<int64_t> shares(groups.size());
  int64_t left = experts;
  for (size_t i = 0; i < groups.size(); ++i) {
    shares[i] = std::min(left, groups[i].most);
    left -= shares[i];
  }
  if (left > 0) return std::nullopt;
  return shares;
}

}  // namespace

StatusOr<ExpertPlacement> PlanExperts(const ModelConfig& config,
                                      const ModelBytes& bytes,
                                      const ExpertPlanOptions& options) {
  SLUICE_RETURN_IF_ERROR(CheckOptions(config, options));
  const int32_t experts = config.moe().num_experts;
  uint64_t all = 0;  // bytes of the experts of all layers
  for (const uint64_t layer : bytes.experts) all += layer;
  const uint64_t one =
      (all + experts - 1) / experts;  // bytes of one id, over all layers
  const auto local = static_cast<int32_t>(
      std::min<uint64_t>(options.local_bytes / one, experts));
  const std::vector<Group> groups = MakeGroups(options, experts, one);
  const auto shares = ShareOut(groups, experts - local);
  if (!shares) {
    int64_t room = local;
    for (const Group& group : groups) room += group.most;
    return ResourceExhausted("the experts take ", all, " bytes, ", experts,
                             " ids of ", one,
                             " in all layers; there is room for ", room,
                             " of them on ", groups.size(), " groups of ",
                             options.replicas, " replicas and on the stages");
  }
  std::vector<PlacedExperts> runs;
  int32_t next = 0;
  const auto place = [&](int64_t count, const std::vector<int32_t>& hosts) {
    if (count == 0) return;
    const int32_t end = next + static_cast<int32_t>(count);
    runs.push_back({{next, end}, hosts});
    next = end;
  };
  // Groups come first: their cuts are aligned from zero on.
  for (size_t i = 0; i < groups.size(); ++i) {
    place((*shares)[i], groups[i].hosts);
  }
  place(local, {});
  ExpertPlacement placement;
  for (const HostRoom& room : options.hosts) {
    placement.hosts.push_back(room.host);
  }
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    placement.layers.push_back(
        config.is_sparse(i) ? runs : std::vector<PlacedExperts>());
  }
  // Checks names, and the result.
  return ParseExpertPlacement(ToText(placement), config);
}

}  // namespace sluice
