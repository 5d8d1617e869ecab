#include "services/cli/clusters.h"

#include <unistd.h>

#include <algorithm>
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

// Adds the cluster of a run folder that has one.
void AddCluster(const fs::path& run_dir, const std::string& name,
                std::vector<KnownCluster>& clusters,
                std::vector<std::string>& problems) {
  std::error_code error;
  if (!fs::exists(run_dir / "cluster.json", error)) return;
  StatusOr<ClusterFile> file = ReadClusterFile(run_dir.string());
  if (file.ok()) {
    clusters.push_back({name, run_dir.string(), *std::move(file)});
  } else {
    problems.push_back(Message(file.status()));
  }
}

// Returns whether a stage or another part of /readyz's answer is loading.
bool IsLoading(const Json& readiness) {
  const Json::array_t& parts = FindList(readiness, "not_ready");
  return std::any_of(parts.begin(), parts.end(), [](const Json& part) {
    return FindText(part, "why").starts_with("loading");
  });
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
  if (!cluster.IsAlive()) return {"dead", "none of its processes runs"};
  const auto base = http::BaseUrl::Parse(cluster.file.url);
  if (!base.ok()) return {"unknown", Message(base.status())};
  const auto answer = http::HttpGet(*base, "/readyz", std::chrono::seconds(2));
  if (!answer.ok()) {
    // A gateway that was just started does not listen yet.
    const int missing = static_cast<int>(cluster.file.processes.size()) -
                        cluster.CountRunning();
    return {missing == 0 ? "loading" : "not ready", Message(answer.status())};
  }
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
    if (fs::exists(run_dir / "cluster.json", error)) {
      AddCluster(run_dir, run_dir.string(), clusters, problems);
    } else {
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
