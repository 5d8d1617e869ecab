#include "common/device/cuda/make_communicators.h"

#include <algorithm>
#include <utility>

#include "common/base/cat.h"
#include "common/base/log.h"
#include "common/device/cuda/gathered_ranks.h"
#include "common/device/cuda/nccl_exchange.h"
#include "common/device/cuda/own_ranks.h"
#include "common/device/cuda/rank_telling.h"
#include "common/device/cuda/staged_exchange.h"
#include "common/device/cuda/virtual_ranks.h"
#include "kernels/cuda/runtime/unconfirmed.h"

namespace sluice {
namespace {

using Runtimes = std::span<kernels::cuda::Runtime* const>;
using Communicators = std::vector<std::unique_ptr<DeviceCommunicator>>;

std::vector<int> DevicesOf(Runtimes runtimes) {
  std::vector<int> devices;
  for (const auto* runtime : runtimes) {
    devices.push_back(runtime->facts().index);
  }
  return devices;
}

bool AsksForGraphs() {
  using kernels::cuda::Unconfirmed;
  return kernels::cuda::AskedUnconfirmed().set.Has(Unconfirmed::kNcclGraphs);
}

StatusOr<std::unique_ptr<DeviceExchange>> ConnectByNccl(
    Runtimes runtimes, const CommunicatorOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(NcclLibrary nccl, NcclLibrary::Load(options.nccl));
  const std::string version = nccl.version;
  SLUICE_ASSIGN_OR_RETURN(
      std::unique_ptr<DeviceExchange> exchange,
      NcclExchange::Make(std::move(nccl), DevicesOf(runtimes),
                         options.limits.deadline,
                         options.nccl_in_graphs || AsksForGraphs()));
  LogInfo(runtimes.size(), " GPUs: ranks gather by NCCL ", version);
  return exchange;
}

Status ReachPeers(Runtimes runtimes) {
  for (auto* runtime : runtimes) {
    for (const auto* other : runtimes) {
      if (runtime == other || runtime->ReachPeer(other->facts().index)) {
        continue;
      }
      return Unavailable("GPU ", runtime->facts().index,
                         " does not reach the memory of GPU ",
                         other->facts().index);
    }
  }
  LogInfo(runtimes.size(), " GPUs: ranks use each other's memory");
  return OkStatus();
}

Communicators Virtual(Runtimes runtimes) {
  const auto table =
      std::make_shared<VirtualRankTable>(static_cast<int>(runtimes.size()));
  Communicators made;
  for (size_t r = 0; r < runtimes.size(); ++r) {
    made.push_back(std::make_unique<VirtualCommunicator>(runtimes[r], table,
                                                         static_cast<int>(r)));
  }
  return made;
}

// `tellings`: by rank, of ranks of several processes.
using Tellings = std::vector<std::unique_ptr<TellingExchange>>;

Communicators Gathering(Runtimes runtimes, const OwnRanks& ranks,
                        std::unique_ptr<DeviceExchange> exchange,
                        const CollectiveLimits& limits,
                        Tellings tellings = {}) {
  tellings.resize(runtimes.size());
  const auto table =
      std::make_shared<GatheredRankTable>(ranks, std::move(exchange), limits);
  Communicators made;
  for (size_t r = 0; r < runtimes.size(); ++r) {
    made.push_back(std::make_unique<GatheringCommunicator>(
        runtimes[r], table, static_cast<int>(r), std::move(tellings[r])));
  }
  return made;
}

// The process of rank 0 makes the id, when it has NCCL, and decides whether
// gathers are in graphs. A process without NCCL has it at no other try.
StatusOr<std::unique_ptr<DeviceExchange>> JoinByNccl(
    Runtimes runtimes, const OwnRanks& ranks,
    const CommunicatorOptions& options) {
  SLUICE_RETURN_IF_ERROR(NcclExchange::PrepareToJoin());
  auto loaded = NcclLibrary::Load(options.nccl);
  if (!loaded.ok()) {
    return FailedPrecondition(
        ranks.Text(),
        ": ranks of several processes need NCCL: ", Message(loaded.status()));
  }
  const std::string version = loaded->version;
  std::string id;
  if (ranks.first == 0) {
    const bool in_graphs = options.nccl_in_graphs || AsksForGraphs();
    SLUICE_ASSIGN_OR_RETURN(id, NcclExchange::MakeId(*loaded, in_graphs));
  }
  SLUICE_ASSIGN_OR_RETURN(id, options.share_id(std::move(id)));
  SLUICE_ASSIGN_OR_RETURN(
      std::unique_ptr<DeviceExchange> exchange,
      NcclExchange::Join(*std::move(loaded), runtimes, ranks, id,
                         options.limits.deadline));
  LogInfo(ranks.Text(), ", of several processes, gather by NCCL ", version);
  return exchange;
}

// Of a stage with other processes.
StatusOr<Communicators> MakeWithOthers(Runtimes runtimes, const OwnRanks& ranks,
                                       const CommunicatorOptions& options) {
  if (options.link != "auto" && options.link != "nccl") {
    return InvalidArgument("ranks of several processes reach each other by ",
                           "nccl alone, got the link '", options.link, "'");
  }
  std::vector<int> devices = DevicesOf(runtimes);
  std::ranges::sort(devices);
  const auto twice = std::ranges::adjacent_find(devices);
  if (twice != devices.end()) {
    return InvalidArgument("ranks of several processes need a GPU each, but ",
                           "GPU ", *twice, " has several of ", ranks.Text());
  }
  if (!options.share_id) {
    return InvalidArgument(ranks.Text(), ": ranks of several processes have ",
                           "no way to share NCCL's id");
  }
  // Before others wait for these ranks.
  Tellings tellings;
  for (size_t r = 0; r < runtimes.size(); ++r) {
    SLUICE_ASSIGN_OR_RETURN(
        tellings.emplace_back(),
        TellingExchange::Make(runtimes[r], ranks, static_cast<int>(r)));
  }
  SLUICE_ASSIGN_OR_RETURN(auto exchange, JoinByNccl(runtimes, ranks, options));
  return Gathering(runtimes, ranks, std::move(exchange), options.limits,
                   std::move(tellings));
}

bool IsOneDevice(Runtimes runtimes) {
  for (const auto* runtime : runtimes) {
    if (runtime->facts().index != runtimes[0]->facts().index) return false;
  }
  return true;
}

}  // namespace

Status CheckOwnRanks(int32_t first, int32_t count, int32_t all) {
  const int64_t end = int64_t{first} + count;
  if (first >= 0 && count > 0 && end <= (all == 0 ? count : all)) {
    return OkStatus();
  }
  return InvalidArgument("a process cannot have ", count, " ranks from rank ",
                         first, " on of ", all == 0 ? count : all, " ranks");
}

StatusOr<Communicators> MakeCommunicators(Runtimes runtimes,
                                          const CommunicatorOptions& options) {
  const std::string& link = options.link;
  if (link != "auto" && link != "nccl" && link != "peer" && link != "staged") {
    return InvalidArgument("the link of ranks must be auto, nccl, peer or ",
                           "staged, got '", link, "'");
  }
  const int count = static_cast<int>(runtimes.size());
  SLUICE_RETURN_IF_ERROR(
      CheckOwnRanks(options.first_rank, count, options.all_ranks));
  const OwnRanks ranks = {options.first_rank, count,
                          std::max(options.all_ranks, count)};
  if (ranks.has_others()) return MakeWithOthers(runtimes, ranks, options);
  if (IsOneDevice(runtimes)) return Virtual(runtimes);
  if (link == "auto" || link == "nccl") {
    auto exchange = ConnectByNccl(runtimes, options);
    if (exchange.ok()) {
      return Gathering(runtimes, ranks, *std::move(exchange), options.limits);
    }
    if (link == "nccl") return Unavailable(Message(exchange.status()));
    LogWarning("no NCCL: ", Message(exchange.status()));
  }
  if (link == "auto" || link == "peer") {
    const Status reached = ReachPeers(runtimes);
    if (reached.ok()) return Virtual(runtimes);
    if (link == "peer") return reached;
    LogWarning(Message(reached));
  }
  LogInfo(runtimes.size(), " GPUs: ranks copy through the host's memory");
  return Gathering(runtimes, ranks, std::make_unique<StagedExchange>(count),
                   options.limits);
}

}  // namespace sluice
