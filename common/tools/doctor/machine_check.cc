#include "common/tools/doctor/machine_check.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/base/cat.h"
#include "common/tools/measure/machine.h"
#include "kernels/block_matmul.h"
#include "kernels/context.h"

namespace sluice::doctor {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGiB = uint64_t{1} << 30;
// The gateway holds a socket for each of its clients.
constexpr uint64_t kFewOpenFiles = 4096;
// The default model and its cluster.
constexpr uint64_t kLittleMemory = kGiB;
constexpr int kReadMegabytes = 128;
constexpr int kReadPasses = 3;

uint64_t MemInfo(const std::string& root, const std::string& wanted) {
  std::ifstream in(root + "/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == wanted + ":") return kib * 1024;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

int32_t ProcessorsIn(const std::string& root) {
  std::ifstream in(root + "/proc/cpuinfo");
  int32_t count = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("processor")) ++count;
  }
  return count;
}

// Returns the word in brackets of "always [madvise] never".
std::string HugePages(const std::string& root) {
  std::ifstream in(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; in >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') {
      return word.substr(1, word.size() - 2);
    }
  }
  return "";
}

int32_t CountGpus(const std::string& root) {
  int32_t count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/dev", error)) {
    const std::string name = entry.path().filename().string();
    const bool numbered = name.size() > 6 && std::isdigit(name[6]) != 0;
    if (name.starts_with("nvidia") && numbered) ++count;
  }
  return count;
}

std::string Gib(uint64_t bytes) {
  return Cat(std::round(static_cast<double>(bytes) / double(kGiB) * 10) / 10,
             " GiB");
}

Finding JudgeCpus(const MachineFacts& facts) {
  const std::string all = Cat(facts.usable_cpus, " of ", facts.cpus, " CPUs",
                              facts.cpu.empty() ? "" : ", ", facts.cpu);
  if (std::isfinite(facts.groups.cpus)) {
    return Note(
        "CPUs",
        Cat(all, "; the control group's quota is ", facts.groups.cpus, " CPUs"),
        "stages take as many threads as the quota has CPUs");
  }
  return Fine("CPUs", all);
}

Finding JudgeIsa(const MachineFacts& facts) {
  if (facts.isa == "portable") {
    return Note("instruction set",
                "none of AVX2, AVX-512 and NEON: kernels are portable code",
                "another machine is many times as fast");
  }
  return Fine("instruction set", facts.isa);
}

Finding JudgeMemory(const MachineFacts& facts) {
  constexpr uint64_t kNone = ControlGroupLimits::kNoLimit;
  const ControlGroupLimits& groups = facts.groups;
  const uint64_t left = std::min(facts.available_memory, groups.memory_left);
  std::string what = Cat(Gib(left), " free of ",
                         Gib(std::min(facts.memory, groups.memory_limit)));
  if (groups.memory_limit != kNone) {
    what += Cat("; the control group's limit is ", Gib(groups.memory_limit));
  }
  if (left < kLittleMemory) {
    return Problem("memory", what,
                   "weights and KV cache need more: stop what takes it, raise "
                   "the limit, or plan more stages (sluice plan)");
  }
  return Fine("memory", what);
}

Finding JudgeHugePages(const MachineFacts& facts) {
  if (facts.huge_pages == "never") {
    return Note("huge pages", "never",
                "weights and KV cache are read faster with them: echo madvise "
                "> /sys/kernel/mm/transparent_hugepage/enabled");
  }
  return Fine("huge pages",
              facts.huge_pages.empty() ? "not known" : facts.huge_pages);
}

Finding JudgeOpenFiles(const MachineFacts& facts) {
  const std::string what = Cat(facts.open_files, " at most");
  if (facts.open_files > 0 && facts.open_files < kFewOpenFiles) {
    return Note("open files", what,
                Cat("the gateway needs one for each client: ulimit -n ",
                    kFewOpenFiles, " or more"));
  }
  return Fine("open files", what);
}

}  // namespace

MachineFacts ReadMachineFacts(const std::string& root) {
  MachineFacts facts;
  facts.groups = ReadControlGroups(root);
  facts.cpus = ProcessorsIn(root);
  facts.usable_cpus = UsableCpus(facts.groups);
  facts.memory = MemInfo(root, "MemTotal");
  facts.available_memory = MemInfo(root, "MemAvailable");
  facts.huge_pages = HugePages(root);
  facts.gpus = CountGpus(root);
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.open_files = files.rlim_max;
  }
  return facts;
}

void MeasureMachine(MachineFacts& facts) {
  const std::string cpu = measure::DescribeCpu();
  const size_t begin = cpu.find(": ") + 2;
  facts.cpu = cpu.substr(begin, cpu.find(", ", begin) - begin);
  facts.isa = kernels::ToString(kernels::DotIsaFor(kernels::DetectIsa()));
  measure::ReadProbe probe(facts.usable_cpus, kReadMegabytes);
  for (int pass = 0; pass < kReadPasses; ++pass) {
    facts.read_gb_per_s = std::max(facts.read_gb_per_s, probe.Measure());
  }
}

Findings JudgeMachine(const MachineFacts& facts) {
  Findings findings = {JudgeCpus(facts), JudgeIsa(facts), JudgeMemory(facts),
                       JudgeHugePages(facts), JudgeOpenFiles(facts)};
  if (facts.read_gb_per_s > 0) {
    findings.push_back(Fine(
        "bandwidth", Cat(std::round(facts.read_gb_per_s * 10) / 10,
                         " GB/s read: at most so many GB of weights a second, "
                         "for one stream")));
  }
  findings.push_back(
      facts.gpus > 0
          ? Note("GPUs", Cat(facts.gpus, " from NVIDIA"),
                 "stages built with SLUICE_CUDA compute on them with "
                 "--device auto")
          : Fine("GPUs", "none"));
  return findings;
}

}  // namespace sluice::doctor
