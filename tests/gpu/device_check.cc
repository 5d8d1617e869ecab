// A device's facts, its bandwidth, and every operation of the backend on it:
// the CPU's bits, and the time beside what the bandwidth allows. For
// tests/gpu/run, which reads the JSON that this prints.
//
// usage: device_check DEVICE facts | bandwidth | check | check-fast | time |
//                            time-fast | try-time
//   check-fast, time-fast: of what fast numerics compute in their own way; the
//     results are held against the CPU's within kMostFastError
//   try-time: of small shapes, to try this program itself
// Exit code 77: the device is not there.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/device/device_choice.h"
#include "common/device/make_backends.h"
#include "tests/device/cuda/device_ops.h"
#include "tests/device/cuda/row_bits.h"
#include "tests/gpu/bandwidth.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::testing {
namespace {

constexpr int kSkipped = 77;

std::unique_ptr<Backend> MakeOne(const std::string& device,
                                 kernels::WeightType kv_type,
                                 const char* numerics = "canonical") {
  BackendOptions options;
  options.device = device;
  options.numerics = numerics;
  options.kv_type = kv_type;
  auto backends = MakeBackends(options);
  SLUICE_CHECK(backends.ok());
  return std::move((*backends)[0]);
}

std::vector<float> ResultsOn(Backend& backend, const DeviceOp& op) {
  const auto prepared = op.prepare(backend);
  backend.BeginStep(prepared->step());
  prepared->Enqueue();
  backend.EndStep();
  return prepared->Results();
}

// Seconds of one call, by as many as take a twentieth of a second.
double SecondsOf(Backend& backend, const DeviceOp& op) {
  constexpr double kEnough = 0.05;
  const auto prepared = op.prepare(backend);
  backend.BeginStep(prepared->step());
  prepared->Enqueue();
  backend.Sync();
  double seconds = 0;
  for (int times = 1;; times *= 4) {
    const int64_t start = MonotonicNanos();
    for (int i = 0; i < times; ++i) prepared->Run();
    backend.Sync();
    seconds = static_cast<double>(MonotonicNanos() - start) * 1e-9;
    if (seconds >= kEnough || times >= 1 << 14) {
      seconds /= times;
      break;
    }
  }
  backend.EndStep();
  return seconds;
}

OpSizes Boundaries(int64_t tokens) {
  OpSizes sizes;
  sizes.tokens = tokens;
  sizes.context = tokens == 1 ? 270 : 10;
  sizes.head_dim = tokens == 1 ? 32 : 64;
  sizes.experts = 5;
  sizes.per_token = 3;
  return sizes;
}

// Llama 3.1 8B's at batch 1 and for a piece of a prompt, but for a quarter of
// its vocabulary; few experts.
OpSizes Large(int64_t tokens) {
  OpSizes sizes;
  sizes.tokens = tokens;
  sizes.context = 1024;
  sizes.hidden = 4096;
  sizes.mlp = 14336;
  sizes.heads = 32;
  sizes.kv_heads = 8;
  sizes.head_dim = 128;
  sizes.vocab = 32064;
  sizes.experts = 4;
  sizes.per_token = 2;
  sizes.rows_repeat = true;
  return sizes;
}

// Whether every operation gives the CPU's bits.
bool Check(const std::string& device, Json& to) {
  bool all = true;
  for (const int64_t tokens : {1, 2, 11, 33}) {
    for (const DeviceOp& op : AllDeviceOps(Boundaries(tokens))) {
      const auto cpu = MakeOne("cpu", op.kv_type);
      const auto own = MakeOne(device, op.kv_type);
      const bool same =
          kernels::SameBits(ResultsOn(*own, op), ResultsOn(*cpu, op));
      to.push_back({{"op", op.name}, {"tokens", tokens}, {"same", same}});
      all = all && same;
    }
  }
  return all;
}

// Whether fast numerics are close to the CPU's, and the same again, and whether
// rows have the bits that they have alone.
bool CheckFast(const std::string& device, Json& to) {
  bool all = true;
  for (const int64_t tokens : {1, 2, 11, 33}) {
    for (const DeviceOp& op : AllDeviceOps(Boundaries(tokens))) {
      if (!IsFastOp(op)) continue;
      const auto cpu = MakeOne("cpu", op.kv_type);
      const auto own = MakeOne(device, op.kv_type, "auto");
      const auto got = ResultsOn(*own, op);
      const double error = ErrorOf(got, ResultsOn(*cpu, op));
      const bool same = kernels::SameBits(ResultsOn(*own, op), got);
      to.push_back({{"op", op.name},
                    {"tokens", tokens},
                    {"error", error},
                    {"same_again", same}});
      all = all && same && error < kMostFastError;
    }
  }
  const auto own = MakeOne(device, kernels::WeightType::kF32, "auto");
  return RowsHaveTheirOwnBits(*own, LargeRowBits(), to) && all;
}

void Time(const std::string& device, OpSizes (*sizes)(int64_t tokens),
          const char* numerics, Json& to) {
  for (const int64_t tokens : {1, 128}) {
    for (const DeviceOp& op : AllDeviceOps(sizes(tokens))) {
      const bool fast = std::strcmp(numerics, "canonical") != 0;
      if (fast && !IsFastOp(op)) continue;
      const auto own = MakeOne(device, op.kv_type, numerics);
      const double seconds = SecondsOf(*own, op);
      to.push_back({{"op", op.name},
                    {"tokens", tokens},
                    {"us", seconds * 1e6},
                    {"gb_per_s", op.bytes / seconds * 1e-9}});
    }
  }
}

Json BandwidthOf(const std::string& device) {
#ifdef SLUICE_CUDA
  const DeviceChoice choice = *ParseDevice(device);
  if (choice.cuda) return GpuBandwidth(choice.gpus[0]);
#endif
  return CpuBandwidth();
}

int Main(const std::string& device, const std::string& what) {
  if (const Status there = CheckDevice(device); !there.ok()) {
    std::fprintf(stderr, "%s\n", Message(there).c_str());
    return there.code() == StatusCode::kFailedPrecondition ? kSkipped : 1;
  }
  Json answer;
  bool fine = true;
  if (what == "facts") {
    const auto backend = MakeOne(device, kernels::WeightType::kF32);
    answer = {{"device", device},
              {"architecture", backend->info().isa},
              {"memory_for_kv", backend->info().available_memory}};
  } else if (what == "bandwidth") {
    answer = BandwidthOf(device);
  } else if (what == "check") {
    fine = Check(device, answer);
  } else if (what == "time") {
    Time(device, Large, "canonical", answer);
  } else if (what == "check-fast") {
    fine = CheckFast(device, answer);
  } else if (what == "time-fast") {
    Time(device, Large, "fast", answer);
  } else if (what == "try-time") {
    Time(device, Boundaries, "canonical", answer);
  } else {
    std::fprintf(stderr, "no such part: '%s'\n", what.c_str());
    return 2;
  }
  std::printf("%s\n", answer.dump().c_str());
  return fine ? 0 : 1;
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr,
                 "usage: device_check DEVICE facts | bandwidth | check | "
                 "check-fast | time | time-fast | try-time\n");
    return 2;
  }
  return sluice::testing::Main(argv[1], argv[2]);
}
