// The CPU, its flags, and the bandwidth at which its threads read memory: what
// the scripts print beside their figures.
// Usage: machine_bench [--threads N] [--megabytes M] [--passes P]
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "common/tools/measure/machine.h"

int main(int argc, char** argv) {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int megabytes = 512;
  int passes = 7;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    int* const option = flag == "--threads"     ? &threads
                        : flag == "--megabytes" ? &megabytes
                        : flag == "--passes"    ? &passes
                                                : nullptr;
    if (option == nullptr || value < 1) {
      std::fprintf(stderr,
                   "usage: machine_bench [--threads N] [--megabytes M] "
                   "[--passes P]\n");
      return 2;
    }
    *option = value;
  }
  sluice::measure::ReadProbe probe(threads, megabytes);
  std::printf("%s%s", sluice::measure::DescribeCpu().c_str(),
              probe.Describe(passes).c_str());
  return 0;
}
