// The commands ps and stop.
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "services/cli/child_process.h"
#include "services/cli/clusters.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/format.h"
#include "services/cli/interrupts.h"
#include "services/cli/launcher.h"

namespace sluice::cli {
namespace {

// Returns "45 s", "12 min", "3 h 20 min" or "5 d 2 h".
std::string UptimeText(double seconds) {
  const auto whole = static_cast<long>(seconds);
  if (whole < 0) return "-";
  if (whole < 60) return Cat(whole, " s");
  if (whole < 60 * 60) return Cat(whole / 60, " min");
  if (whole < 24 * 60 * 60) {
    return Cat(whole / 3600, " h ", whole / 60 % 60, " min");
  }
  return Cat(whole / 86400, " d ", whole / 3600 % 24, " h");
}

std::string ModelName(const ClusterFile& file) {
  if (file.model_given.find('/') != std::string::npos &&
      !file.model_given.starts_with('/')) {
    return file.model_given;
  }
  return file.model.substr(file.model.rfind('/') + 1);
}

Json JsonOf(const KnownCluster& cluster, const ClusterState& state) {
  const double uptime = SecondsSince(cluster.file.created);
  return {{"name", cluster.name},
          {"run_dir", cluster.run_dir},
          {"model", cluster.file.model},
          {"state", state.state},
          {"why", state.why},
          {"processes", cluster.file.processes.size()},
          {"running", cluster.CountRunning()},
          {"remote_processes", cluster.file.remote.size()},
          {"resident_bytes", ResidentBytes(cluster)},
          {"created", cluster.file.created},
          {"uptime_seconds", uptime < 0 ? Json(nullptr) : Json(uptime)},
          {"url", cluster.file.url}};
}

Words RowOf(const KnownCluster& cluster, const ClusterState& state) {
  const size_t remote = cluster.file.remote.size();
  std::string processes =
      Cat(cluster.CountRunning(), "/", cluster.file.processes.size());
  if (remote > 0) processes = Cat(remote, " on hosts");
  return {cluster.name,
          ModelName(cluster.file),
          state.state,
          processes,
          Format("%.1f MB", static_cast<double>(ResidentBytes(cluster)) * 1e-6),
          UptimeText(SecondsSince(cluster.file.created)),
          cluster.file.url};
}

void PrintTable(const std::vector<Words>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const Words& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const Words& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    std::printf("%s\n", line.c_str());
  }
}

Status RunPs(bool json) {
  std::vector<std::string> problems;
  std::vector<Words> rows = {
      {"name", "model", "state", "processes", "memory", "up for", "url"}};
  Json list = Json::array();
  for (const KnownCluster& cluster : ListClusters(problems)) {
    const ClusterState state = LookAt(cluster);
    list.push_back(JsonOf(cluster, state));
    rows.push_back(RowOf(cluster, state));
  }
  for (const std::string& problem : problems) {
    std::fprintf(stderr, "not listed: %s\n", problem.c_str());
  }
  if (json) {
    std::printf(
        "%s\n",
        list.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    PrintTable(rows);
  }
  return OkStatus();
}

struct StopOptions {
  Words names;
  bool all = false;
};

// Stops the cluster of a run folder by the launcher, which says on stderr what
// it does.
Status StopCluster(const std::string& run_dir, Interrupts& interrupts) {
  SLUICE_ASSIGN_OR_RETURN(const Words argv,
                          LauncherCommand({"down", "--run-dir", run_dir}));
  SLUICE_ASSIGN_OR_RETURN(
      const auto child,
      ChildProcess::Start(argv, {interrupts.mask_before(), {}}));
  for (bool told = true; told;) {
    if (interrupts.Wait(child->output_fd(), POLLIN) ==
        Interrupts::Woken::kSignal) {
      child->Signal(SIGINT);
      child->Wait();
      return InterruptedBy(interrupts.Take());
    }
    told = child->ReadOutput();
  }
  const int code = child->Wait();
  if (code == 0) return OkStatus();
  return WithExitCode(Unavailable("the cluster in ", run_dir, " was not ",
                                  "stopped: exit code ", code, ", see above"),
                      code);
}

Status RunStop(const StopOptions& options) {
  if (options.all && !options.names.empty()) {
    return InvalidArgument("--all and names are both given: take one");
  }
  std::vector<std::string> run_dirs;
  if (options.all) {
    std::vector<std::string> problems;
    for (const KnownCluster& cluster : ListClusters(problems)) {
      run_dirs.push_back(cluster.run_dir);
    }
    for (const std::string& problem : problems) {
      std::fprintf(stderr, "not stopped: %s\n", problem.c_str());
    }
    if (run_dirs.empty()) std::fprintf(stderr, "no cluster runs\n");
  } else {
    const Words names = options.names.empty() ? Words{""} : options.names;
    for (const std::string& name : names) {
      SLUICE_ASSIGN_OR_RETURN(const std::string run_dir, ChooseRunDir(name));
      run_dirs.push_back(run_dir);
    }
  }
  Interrupts interrupts;
  Status failed = OkStatus();
  for (const std::string& run_dir : run_dirs) {
    const Status stopped = StopCluster(run_dir, interrupts);
    if (stopped.code() == StatusCode::kCancelled) return stopped;
    if (!stopped.ok()) failed = stopped;
  }
  return failed;
}

}  // namespace

void AddPs(CommandLine& sluice) {
  const auto json = std::make_shared<bool>(false);
  sluice
      .Add("ps", "the clusters of this user, wherever their run folders are",
           [json] { return RunPs(*json); })
      .add_flag("--json", *json, "a JSON array, bytes and seconds as numbers");
  const auto options = std::make_shared<StopOptions>();
  CLI::App& stop = sluice.Add("stop", "drains and stops clusters",
                              [options] { return RunStop(*options); });
  stop.add_option("NAME", options->names,
                  "as ps shows them, or run folders; none: the only one");
  stop.add_flag("--all", options->all, "each of this user");
}

}  // namespace sluice::cli
