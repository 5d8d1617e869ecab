#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/http/http_client.h"
#include "common/tools/load/server_queries.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/stage_facts.h"

namespace sluice::cli {
namespace {

// Returns the metrics of a process; nothing for one without an address for
// metrics. `api_key` may be empty.
StatusOr<load::Metrics> MetricsOf(const ClusterProcess& process,
                                  const std::string& api_key) {
  if (process.metrics_address.empty()) return load::Metrics();
  SLUICE_ASSIGN_OR_RETURN(
      http::BaseUrl base,
      http::BaseUrl::Parse("http://" + process.metrics_address));
  if (process.role == "gateway") base.api_key = api_key;
  return load::FetchMetrics(base);
}

std::string Shown(const load::Metrics& metrics, const std::string& name,
                  double scale, const char* unit) {
  const auto found = metrics.find(name);
  if (found == metrics.end()) return "-";
  char text[64];
  std::snprintf(text, sizeof(text), scale == 1.0 ? "%.0f%s" : "%.1f%s",
                found->second * scale, unit);
  return text;
}

std::string ProcessName(const ClusterProcess& process) {
  return process.role == "gateway" ? process.role
                                   : Cat(process.role, " ", process.index);
}

const StageFacts* FactsAt(const std::map<std::string, StageFacts>& stages,
                          const std::string& address) {
  const auto found = stages.find(address);
  return found == stages.end() ? nullptr : &found->second;
}

void PrintProcess(const ClusterProcess& process, bool running,
                  const std::string& api_key, int width,
                  const StageFacts* stage) {
  const StatusOr<load::Metrics> fetched =
      running ? MetricsOf(process, api_key)
              : StatusOr<load::Metrics>(load::Metrics());
  const load::Metrics metrics = fetched.ok() ? *fetched : load::Metrics();
  const std::string name = ProcessName(process);
  // Hosts of experts count batches: one per layer and step of each stage.
  const std::string counted =
      Cat("sluice_", process.role,
          process.role == "expert" ? "_batches_total" : "_steps_total");
  const std::string steps = Shown(metrics, counted, 1, "");
  std::printf(
      "%-10s %8d  %-8s %-*s %10s %10s%s%s\n", name.c_str(), process.pid,
      running ? "running" : "DEAD", width, process.address.c_str(),
      Shown(metrics, "process_resident_memory_bytes", 1e-6, " MB").c_str(),
      steps.c_str(), FactColumns(stage).c_str(),
      fetched.ok() ? ""
                   : Cat("  no metrics: ", Message(fetched.status())).c_str());
}

void PrintLoad(const load::Metrics& metrics) {
  const auto line = [&](const char* what, const char* name, double scale,
                        const char* unit) {
    std::printf("%-22s %s\n", what, Shown(metrics, name, scale, unit).c_str());
  };
  line("requests running", "vllm:num_requests_running", 1, "");
  line("requests waiting", "vllm:num_requests_waiting", 1, "");
  line("KV cache in use", "vllm:kv_cache_usage_perc", 100, " %");
  line("prompt tokens", "vllm:prompt_tokens_total", 1, "");
  line("generated tokens", "vllm:generation_tokens_total", 1, "");
  line("preemptions", "vllm:num_preemptions_total", 1, "");
}

// Returns the reason of /readyz; empty if the cluster is ready.
std::string WhyNotReady(const http::BaseUrl& base) {
  const auto ready = http::HttpGet(base, "/readyz", std::chrono::seconds(2));
  if (!ready.ok()) return "not ready: " + Message(ready.status());
  if (ready->status == 200) return "";
  return "not ready: " + http::ErrorText(ready->status, ready->body);
}

// Prints the processes of other machines, their states as the gateway tells
// them in `told`, its /cluster.
void PrintHosts(const std::vector<ClusterProcess>& processes,
                const Json& told) {
  std::printf("%-16s %-10s %-10s %-22s %10s%s\n", "host", "process", "state",
              "address", "steps", FactHeads().c_str());
  const std::map<std::string, StageFacts> stages = StagesOf(told);
  for (const ClusterProcess& process : processes) {
    const StageFacts* stage = FactsAt(stages, process.address);
    std::string state = told.is_object() ? "running" : "unknown";
    if (process.role == "stage") state = stage ? stage->state : "unknown";
    std::printf("%-16s %-10s %-10s %-22s %10s%s\n", process.host.c_str(),
                ProcessName(process).c_str(), state.c_str(),
                process.address.c_str(),
                stage && stage->steps ? Cat(*stage->steps).c_str() : "-",
                FactColumns(stage).c_str());
  }
}

// The gateway's own page; nothing if it does not answer.
Json ClusterPage(const http::BaseUrl& base) {
  const auto answer = http::HttpGet(base, "/cluster", std::chrono::seconds(2));
  if (!answer.ok() || answer->status != 200) return {};
  StatusOr<Json> page = ParseJson(answer->body);
  return page.ok() ? *std::move(page) : Json();
}

void PrintLoadOf(const StatusOr<load::Metrics>& metrics) {
  if (metrics.ok()) {
    PrintLoad(*metrics);
  } else {
    std::printf("no load is known, /metrics: %s\n",
                Message(metrics.status()).c_str());
  }
}

Status RunStatus(const EndpointOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const ClusterFile cluster,
                          ReadClusterFile(options.run_dir));
  SLUICE_ASSIGN_OR_RETURN(http::BaseUrl base,
                          http::BaseUrl::Parse(cluster.url));
  base.api_key = options.api_key;
  std::printf("%s\nmodel %s\n", cluster.url.c_str(), cluster.model.c_str());
  const std::string unready = WhyNotReady(base);
  std::printf("%s\n\n", unready.empty() ? "ready" : unready.c_str());
  if (!cluster.remote.empty()) {
    PrintHosts(cluster.remote, ClusterPage(base));
    std::printf("\n");
    PrintLoadOf(load::FetchMetrics(base));
    return unready.empty() ? OkStatus() : FailedPrecondition(unready);
  }
  size_t width = 22;  // of the addresses, without socket files
  for (const ClusterProcess& process : cluster.processes) {
    width = std::max(width, process.address.size());
  }
  std::printf("%-10s %8s  %-8s %-*s %10s %10s%s\n", "process", "pid", "state",
              static_cast<int>(width), "address", "memory", "steps",
              FactHeads().c_str());
  const std::map<std::string, StageFacts> stages = StagesOf(ClusterPage(base));
  std::string dead;
  for (const ClusterProcess& process : cluster.processes) {
    const bool running = process.IsRunning();
    if (!running) dead += (dead.empty() ? "" : ", ") + ProcessName(process);
    PrintProcess(process, running, base.api_key, static_cast<int>(width),
                 FactsAt(stages, process.address));
  }
  std::printf("\n");
  for (const ClusterProcess& process : cluster.processes) {
    if (process.role != "gateway") continue;
    PrintLoadOf(MetricsOf(process, base.api_key));
  }
  if (!dead.empty()) return FailedPrecondition("dead: ", dead);
  if (!unready.empty()) return FailedPrecondition(unready);
  return OkStatus();
}

}  // namespace

void AddStatus(CommandLine& sluice) {
  const auto options = std::make_shared<EndpointOptions>();
  AddRunDir(sluice.Add("status", "the cluster's processes, readiness and load",
                       [options] { return RunStatus(*options); }),
            *options);
}

}  // namespace sluice::cli
