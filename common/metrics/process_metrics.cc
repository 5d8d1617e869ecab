#include "common/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "common/base/build_info.h"
#include "common/base/control_group.h"
#include "common/base/exception_counts.h"
#include "common/base/log.h"
#include "common/metrics/metric_names.h"

namespace sluice::metrics {
namespace {

// Fields of /proc/self/stat from the third on: the second may hold blanks.
std::vector<std::string> StatFields() {
  std::ifstream in("/proc/self/stat");
  std::string line((std::istreambuf_iterator<char>(in)), {});
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

double FieldAt(const std::vector<std::string>& fields, size_t number) {
  // proc(5) counts from 1, and StatFields begins with field 3.
  if (fields.size() + 3 <= number) return 0.0;
  return std::strtod(fields[number - 3].c_str(), nullptr);
}

double BootTimeSeconds() {
  std::ifstream in("/proc/stat");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("btime ", 0) == 0) {
      return std::strtod(line.c_str() + 6, nullptr);
    }
  }
  return 0.0;
}

double OpenFiles() {
  DIR* dir = opendir("/proc/self/fd");
  if (dir == nullptr) return 0.0;
  double count = 0;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(dir);
  return count - 1;  // the directory itself was open
}

double MaxFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0.0;
  return static_cast<double>(limit.rlim_cur);
}

// The process's control groups and the machine, whichever has less.
void AddMemoryMetrics(Registry& registry) {
  const Gauge limit =
      registry.AddGauge(names::kMemoryLimitBytes, "Memory of the groups");
  const Gauge left =
      registry.AddGauge(names::kMemoryLeftBytes, "Memory not in use there");
  const uint64_t total = ReadMemInfo("MemTotal");
  registry.OnScrape([=] {
    const ControlGroupLimits groups = ReadControlGroups();
    limit.Set(static_cast<double>(std::min(total, groups.memory_limit)));
    left.Set(static_cast<double>(
        std::min(ReadMemInfo("MemAvailable"), groups.memory_left)));
  });
}

}  // namespace

void AddProcessMetrics(Registry& registry, std::string_view service,
                       std::string_view isa) {
  registry
      .AddGauge(names::kBuildInfo, "What was built, as labels",
                {{"version", std::string(BuildVersion())},
                 {"git", std::string(BuildCommit())},
                 {"service", std::string(service)},
                 {"isa", std::string(isa)},
                 {"cuda", SLUICE_CUDA_VERSION}})  // none: without
      .Set(1);
  const Counter cpu = registry.AddCounter(names::kProcessCpuSeconds,
                                          "User and system CPU time");
  const Counter dropped = registry.AddCounter(
      names::kLogLinesDropped, "Lines of the log that stderr did not take");
  const Gauge resident =
      registry.AddGauge(names::kProcessResidentBytes, "Resident memory");
  const Gauge virtual_size =
      registry.AddGauge(names::kProcessVirtualBytes, "Virtual memory");
  const Gauge open_files =
      registry.AddGauge(names::kProcessOpenFds, "Open file descriptors");
  registry.AddGauge(names::kProcessMaxFds, "Limit of open file descriptors")
      .Set(MaxFiles());
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  registry.AddGauge(names::kProcessStartTime, "Start, in Unix time")
      .Set(BootTimeSeconds() + FieldAt(StatFields(), 22) / ticks);
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  registry.OnScrape([=, &registry] {
    for (const auto& [where, count] : ExceptionCounts()) {
      registry
          .AddCounter(names::kExceptions, "Exceptions caught, by edge",
                      {{"where", where}})
          .AdvanceTo(static_cast<double>(count));
    }
    const auto fields = StatFields();
    cpu.AdvanceTo((FieldAt(fields, 14) + FieldAt(fields, 15)) / ticks);
    dropped.AdvanceTo(static_cast<double>(LogLinesDropped()));
    virtual_size.Set(FieldAt(fields, 23));
    resident.Set(FieldAt(fields, 24) * page);
    open_files.Set(OpenFiles());
  });
  AddMemoryMetrics(registry);
}

}  // namespace sluice::metrics
