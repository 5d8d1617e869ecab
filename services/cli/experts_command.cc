#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_table.h"
#include "services/cli/commands.h"
#include "services/cli/heat_map.h"
#include "services/cli/http_client.h"

namespace sluice::cli {
namespace {

constexpr char kHeatUsage[] =
    "usage: sluice experts heat [--hosts ADDRESS,...] [--run-dir DIR] "
    "[--since-start] [--columns N] [--svg FILE]";

// Metrics addresses of the hosts: --hosts, else those of the run folder.
StatusOr<std::vector<std::string>> HeatHosts(const Arguments& arguments) {
  std::vector<std::string> hosts;
  if (const auto text = arguments.String("hosts")) {
    size_t begin = 0;
    while (begin <= text->size()) {
      const size_t end = std::min(text->find(',', begin), text->size());
      hosts.push_back(text->substr(begin, end - begin));
      begin = end + 1;
    }
    return hosts;
  }
  SLUICE_ASSIGN_OR_RETURN(const ClusterFile cluster,
                          ReadClusterFile(RunDir(arguments)));
  for (const ClusterProcess& process : cluster.processes) {
    if (process.role == "expert" && !process.metrics_address.empty()) {
      hosts.push_back(process.metrics_address);
    }
  }
  if (!hosts.empty()) return hosts;
  return FailedPrecondition(cluster.path, " lists no host of experts");
}

StatusOr<HeatMap> HeatOf(const std::string& host, bool recent) {
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, BaseUrl::Parse("http://" + host));
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse response,
                          HttpGet(base, "/experts"));
  if (response.status == 200) return ParseHeat(response.body, recent);
  return FailedPrecondition("no host of experts: ",
                            ErrorText(response.status, response.body));
}

}  // namespace

Status RunExperts(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          ParseArguments("experts", words));
  if (arguments.words() != Words{"heat"}) return InvalidArgument(kHeatUsage);
  SLUICE_ASSIGN_OR_RETURN(const auto columns, arguments.Int("columns"));
  if (columns.value_or(128) < 1 || columns.value_or(128) > 4096) {
    return InvalidArgument("--columns must be between 1 and 4096, got ",
                           *columns);
  }
  SLUICE_ASSIGN_OR_RETURN(const auto hosts, HeatHosts(arguments));
  HeatMap heat;
  for (const std::string& host : hosts) {
    const auto of_host = HeatOf(host, !arguments.Has("since-start"));
    if (!of_host.ok()) return Annotate(of_host.status(), host);
    SLUICE_RETURN_IF_ERROR(AddHeat(*of_host, &heat));
  }
  const std::string text =
      DrawHeat(heat, static_cast<int>(columns.value_or(128)));
  std::fwrite(text.data(), 1, text.size(), stdout);
  const std::string path = arguments.String("svg").value_or("");
  if (path.empty()) return OkStatus();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << DrawHeatSvg(heat);
  out.close();
  if (out) return OkStatus();
  return Unavailable("--svg ", path, " cannot be written");
}

}  // namespace sluice::cli
