#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"

namespace sluice::cli {
namespace {

// Sums of a Prometheus text over labels, by metric name.
std::map<std::string, double> ParseMetrics(const std::string& text) {
  std::map<std::string, double> sums;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    sums[line.substr(0, line.find_first_of("{ "))] +=
        std::strtod(line.c_str() + space, nullptr);
  }
  return sums;
}

std::map<std::string, double> FetchMetrics(const std::string& address) {
  const auto base = BaseUrl::Parse("http://" + address);
  if (!base.ok()) return {};
  const auto response = HttpGet(*base, "/metrics", std::chrono::seconds(2));
  if (!response.ok() || response->status != 200) return {};
  return ParseMetrics(response->body);
}

std::string Shown(const std::map<std::string, double>& metrics,
                  const std::string& name, double scale, const char* unit) {
  const auto found = metrics.find(name);
  if (found == metrics.end()) return "-";
  char text[64];
  std::snprintf(text, sizeof(text), scale == 1.0 ? "%.0f%s" : "%.1f%s",
                found->second * scale, unit);
  return text;
}

std::string ProcessName(const ClusterProcess& process) {
  return process.role == "stage" ? Cat(process.role, " ", process.index)
                                 : process.role;
}

void PrintProcess(const ClusterProcess& process, bool running) {
  const auto metrics = running ? FetchMetrics(process.metrics_address)
                               : std::map<std::string, double>();
  const std::string name = ProcessName(process);
  const std::string steps =
      process.role == "stage"
          ? Shown(metrics, "sluice_stage_steps_total", 1, "")
          : Shown(metrics, "sluice_gateway_steps_total", 1, "");
  std::printf(
      "%-10s %8d  %-8s %-22s %10s %10s\n", name.c_str(), process.pid,
      running ? "running" : "DEAD", process.address.c_str(),
      Shown(metrics, "process_resident_memory_bytes", 1e-6, " MB").c_str(),
      steps.c_str());
}

void PrintLoad(const std::map<std::string, double>& metrics) {
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

// Empty if /readyz says ready.
std::string WhyNotReady(const BaseUrl& base) {
  const auto ready = HttpGet(base, "/readyz", std::chrono::seconds(2));
  if (!ready.ok()) return "not ready: " + Message(ready.status());
  if (ready->status == 200) return "";
  return "not ready: " + ErrorText(ready->status, ready->body);
}

}  // namespace

Status RunStatus(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          Arguments::Parse(words, {"run-dir"}, {}));
  SLUICE_ASSIGN_OR_RETURN(const ClusterFile cluster,
                          ReadClusterFile(RunDir(arguments)));
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, BaseUrl::Parse(cluster.url));
  std::printf("%s\nmodel %s\n", cluster.url.c_str(), cluster.model.c_str());
  const std::string unready = WhyNotReady(base);
  std::printf("%s\n\n", unready.empty() ? "ready" : unready.c_str());
  std::printf("%-10s %8s  %-8s %-22s %10s %10s\n", "process", "pid", "state",
              "address", "memory", "steps");
  std::string dead;
  for (const ClusterProcess& process : cluster.processes) {
    const bool running = process.IsRunning();
    if (!running) dead += (dead.empty() ? "" : ", ") + ProcessName(process);
    PrintProcess(process, running);
  }
  std::printf("\n");
  for (const ClusterProcess& process : cluster.processes) {
    if (process.role == "gateway") {
      PrintLoad(FetchMetrics(process.metrics_address));
    }
  }
  if (!dead.empty()) return FailedPrecondition("dead: ", dead);
  if (!unready.empty()) return FailedPrecondition(unready);
  return OkStatus();
}

}  // namespace sluice::cli
