#include "common/device/cuda/make_communicators.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/base/cat.h"
#include "common/base/log.h"
#include "common/device/cuda/gathered_ranks.h"
#include "common/device/cuda/nccl_exchange.h"
#include "common/device/cuda/staged_exchange.h"
#include "common/device/cuda/virtual_ranks.h"

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
  const char* const asked = std::getenv("SLUICE_NCCL_GRAPHS");
  return asked != nullptr && std::string_view(asked) == "1";
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

Communicators Gathering(Runtimes runtimes,
                        std::unique_ptr<DeviceExchange> exchange,
                        const CollectiveLimits& limits) {
  const auto table = std::make_shared<GatheredRankTable>(
      static_cast<int>(runtimes.size()), std::move(exchange), limits);
  Communicators made;
  for (size_t r = 0; r < runtimes.size(); ++r) {
    made.push_back(std::make_unique<GatheringCommunicator>(
        runtimes[r], table, static_cast<int>(r)));
  }
  return made;
}

bool IsOneDevice(Runtimes runtimes) {
  for (const auto* runtime : runtimes) {
    if (runtime->facts().index != runtimes[0]->facts().index) return false;
  }
  return true;
}

}  // namespace

StatusOr<Communicators> MakeCommunicators(Runtimes runtimes,
                                          const CommunicatorOptions& options) {
  const std::string& link = options.link;
  if (link != "auto" && link != "nccl" && link != "peer" && link != "staged") {
    return InvalidArgument("the link of ranks must be auto, nccl, peer or ",
                           "staged, got '", link, "'");
  }
  if (IsOneDevice(runtimes)) return Virtual(runtimes);
  if (link == "auto" || link == "nccl") {
    auto exchange = ConnectByNccl(runtimes, options);
    if (exchange.ok()) {
      return Gathering(runtimes, *std::move(exchange), options.limits);
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
  const int count = static_cast<int>(runtimes.size());
  return Gathering(runtimes, std::make_unique<StagedExchange>(count),
                   options.limits);
}

}  // namespace sluice
