#include "services/cli/clusters.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/base/text_file.h"
#include "common/http/http_client.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// The folder of links to run folders elsewhere, in the state folder.
constexpr char kElsewhere[] = ".elsewhere";

// Adds the cluster of a run folder. Returns false if there is none for sure:
// a folder that cannot be looked into may have one.
bool AddCluster(const fs::path& run_dir, const std::string& name,
                std::vector<KnownCluster>& clusters,
                std::vector<std::string>& problems) {
  StatusOr<ClusterFile> file = ReadClusterFile(run_dir.string());
  if (file.ok()) {
    clusters.push_back({name, run_dir.string(), *std::move(file)});
  } else if (file.status().code() == StatusCode::kNotFound) {
    return false;
  } else {
    problems.push_back(Message(file.status()));
  }
  return true;
}

// Returns whether a stage or another part of /readyz's answer is loading.
bool IsLoading(const Json& readiness) {
  const Json::array_t& parts = FindList(readiness, "not_ready");
  return std::any_of(parts.begin(), parts.end(), [](const Json& part) {
    return FindText(part, "why").starts_with("loading");
  });
}

// Returns the state of a cluster that gives no answer. A gateway that was just
// started refuses connections, as the way to the hosts of a cluster of several
// machines does; a gateway that hangs accepts them.
ClusterState StateWithoutAnswer(const KnownCluster& cluster,
                                const Status& error) {
  const ClusterFile& file = cluster.file;
  const bool is_remote = !file.remote.empty();
  const double age = SecondsSince(file.created);
  const bool is_recent =
      age >= 0 && age < static_cast<double>(file.ready_timeout);
  const bool is_whole =
      cluster.CountRunning() == static_cast<int>(file.processes.size());
  // Behind a tunnel a refused connection is a connection that ends.
  const bool is_refused =
      is_remote ? error.code() == StatusCode::kUnavailable
                : Message(error).ends_with(
                      std::generic_category().message(ECONNREFUSED));
  if (is_recent && is_whole && is_refused) return {"loading", Message(error)};
  return {"not ready",
          Cat(is_remote ? "no answer by the way to its hosts: " : "",
              Message(error))};
}

}  // namespace

int KnownCluster::CountRunning() const {
  return static_cast<int>(
      std::count_if(file.processes.begin(), file.processes.end(),
                    [](const auto& process) { return process.IsRunning(); }));
}

bool KnownCluster::IsAlive() const {
  return CountRunning() > 0 || file.supervisor.IsRunning();
}

ClusterState LookAt(const KnownCluster& cluster) {
  if (!cluster.IsAlive() && cluster.file.remote.empty()) {
    return {"dead", "none of its processes runs"};
  }
  if (!cluster.IsAlive()) {
    return {"not ready",
            "its supervisor, which holds the way to its hosts, does not run"};
  }
  const auto base = http::BaseUrl::Parse(cluster.file.url);
  if (!base.ok()) return {"unknown", Message(base.status())};
  const auto answer = http::HttpGet(*base, "/readyz", std::chrono::seconds(2));
  if (!answer.ok()) return StateWithoutAnswer(cluster, answer.status());
  if (answer->status == 200) return {"ready", ""};
  const StatusOr<Json> body = ParseJson(answer->body);
  if (!body.ok()) return {"not ready", answer->body};
  return {IsLoading(*body) ? "loading" : "not ready", FindText(*body, "why")};
}

std::vector<KnownCluster> ListClusters(std::vector<std::string>& problems) {
  std::vector<KnownCluster> clusters;
  std::error_code error;
  const fs::path state = StateFolder();
  for (const auto& entry : fs::directory_iterator(state, error)) {
    const std::string name = entry.path().filename().string();
    if (name != kElsewhere) {
      AddCluster(entry.path(), name, clusters, problems);
    }
  }
  for (const auto& entry : fs::directory_iterator(state / kElsewhere, error)) {
    const fs::path run_dir = fs::read_symlink(entry.path(), error);
    if (error) continue;
    if (!AddCluster(run_dir, run_dir.string(), clusters, problems)) {
      fs::remove(entry.path(), error);
    }
  }
  std::sort(clusters.begin(), clusters.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return clusters;
}

std::string RunDirOf(const std::string& name) {
  if (name.find('/') == std::string::npos) return Cat(StateFolder(), "/", name);
  return fs::absolute(name).lexically_normal().string();
}

StatusOr<std::string> ChooseRunDir(const std::string& name) {
  if (!name.empty()) {
    const std::string run_dir = RunDirOf(name);
    std::error_code error;
    if (fs::is_directory(run_dir, error)) return run_dir;
    return NotFound("there is no cluster '", name, "': ", run_dir,
                    " is no folder (sluice ps lists the clusters)");
  }
  std::vector<std::string> problems;
  const std::vector<KnownCluster> clusters = ListClusters(problems);
  if (clusters.size() == 1) return clusters[0].run_dir;
  if (clusters.empty()) {
    return NotFound(problems.empty() ? "no cluster runs" : problems[0]);
  }
  std::string names;
  for (const KnownCluster& cluster : clusters) names += " " + cluster.name;
  return FailedPrecondition(clusters.size(), " clusters run, name one:", names);
}

uint64_t ResidentBytes(const KnownCluster& cluster) {
  uint64_t bytes = 0;
  for (const ClusterProcess& process : cluster.file.processes) {
    if (!process.IsRunning()) continue;
    const auto text = ReadTextFile(Cat("/proc/", process.pid, "/statm"));
    unsigned long long whole = 0, resident = 0;
    if (text.ok() &&
        std::sscanf(text->c_str(), "%llu %llu", &whole, &resident) == 2) {
      bytes += resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    }
  }
  return bytes;
}

double SecondsSince(const std::string& iso_time) {
  tm parts = {};
  const char* rest = ::strptime(iso_time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return -1;
  if (*rest == '.') {
    do ++rest;
    while (*rest >= '0' && *rest <= '9');
  }
  if (::strptime(rest, "%z", &parts) == nullptr) return -1;
  const long zone = parts.tm_gmtoff;  // timegm sets it anew
  return ::difftime(std::time(nullptr), ::timegm(&parts) - zone);
}

}  // namespace sluice::cli
