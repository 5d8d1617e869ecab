// A device's facts, its bandwidth, and every operation of the backend on it:
// the CPU's bits, and the time beside what the bandwidth allows. For
// tests/gpu/run, which reads the JSON that this prints.
//
// usage: device_check DEVICE facts | bandwidth | peaks | check | check-fast |
//                            check-small | check-fast-small | check-groups |
//                            time | time-fast | try-time [FIRST]
//   check-fast, time-fast: of what fast numerics compute in their own way; the
//     results are held against the CPU's with the same weights in F32, within
//     kMostFastError
//   check-groups: of what SLUICE_UNCONFIRMED=wgmma multiplies in groups of
//   warps -small: of small shapes, for tools that make a GPU slow try-time: of
//   small shapes, to try this program itself
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/device/device_choice.h"
#include "common/device/make_backends.h"
#include "common/tensor/weight_format.h"
#include "tests/device/cuda/device_ops.h"
#include "tests/device/cuda/row_bits.h"
#include "tests/gpu/bandwidth.h"
#include "tests/gpu/checked_shapes.h"
#ifdef SLUICE_CUDA
#include "tests/gpu/peaks.h"
#endif

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

OpResults ResultsOn(Backend& backend, const DeviceOp& op) {
  return ResultsOf(backend, *op.prepare(backend));
}

// An operation's time.
struct Timed {
  double seconds = 0;  // of one call
  bool cold = false;   // each call reads what no cache has
};

// By as many calls as take a twentieth of a second, the third time that they
// come: then they are a graph's, if the backend makes them one. Of copies in
// turn that are more than caches hold, if few of them are.
Timed TimeOf(Backend& backend, const DeviceOp& op) {
  constexpr double kEnough = 0.05;
  constexpr double kMoreThanCaches = 256e6;
  constexpr double kMostCopies = 16;
  constexpr size_t kMostCalls = 1 << 14;
  const double enough = std::ceil(kMoreThanCaches / op.bytes);
  // Operations without weights read again what they write.
  const bool cold = enough <= kMostCopies && !op.name.starts_with("norm");
  std::vector<std::unique_ptr<PreparedOp>> prepared;
  do {
    prepared.push_back(op.prepare(backend));
  } while (cold && static_cast<double>(prepared.size()) < enough);
  backend.BeginStep(prepared[0]->step());
  for (const auto& copy : prepared) {
    copy->CopyIn();
    copy->Run();
  }
  backend.Sync();
  const auto seconds_of = [&](size_t times) {
    const int64_t start = MonotonicNanos();
    for (size_t i = 0; i < times; ++i) prepared[i % prepared.size()]->Run();
    backend.Sync();
    return static_cast<double>(MonotonicNanos() - start) * 1e-9;
  };
  size_t times = prepared.size();
  while (seconds_of(times) < kEnough && times < kMostCalls) times *= 4;
  seconds_of(times);
  const double seconds = seconds_of(times) / static_cast<double>(times);
  backend.EndStep();
  return {seconds, cold};
}

// An operation to be looked at; the next ones are looked at by a new process if
// this one ends its own.
struct Case {
  Json name;  // what its entries begin with
  // Adds what was found, an entry each; false if it is not as it must be.
  std::function<bool(Json& to)> look;
};

Json NameOf(const Shapes& shapes, const DeviceOp& op) {
  return {{"op", op.name},
          {"shapes", shapes.name},
          {"tokens", shapes.sizes.tokens}};
}

// Adds `found` under the name of `of`.
void Add(Json& to, Json name, const Json& found) {
  name.update(found);
  to.push_back(std::move(name));
}

// Whether every operation gives the CPU's bits.
std::vector<Case> CheckCases(const std::string& device, bool small) {
  std::vector<Case> cases;
  for (const Shapes& shapes : CheckedShapes(small, /*fast=*/false)) {
    for (const DeviceOp& op : OpsOf(shapes)) {
      const Json name = NameOf(shapes, op);
      cases.push_back(
          {name, [device, op, name, times = shapes.times](Json& to) {
             const auto cpu = MakeOne("cpu", op.kv_type);
             const auto own = MakeOne(device, op.kv_type);
             const auto prepared = op.prepare(*own);
             const OpResults got = ResultsOf(*own, *prepared);
             const bool same = SameBits(got, ResultsOn(*cpu, op));
             const bool again = RepeatsItself(*own, *prepared, got, times);
             Add(to, name, {{"same", same}, {"same_again", again}});
             return same && again;
           }});
    }
  }
  return cases;
}

// Whether fast numerics are close to the CPU's of the same weights in F32, and
// the same again, and whether rows have the bits that they have alone.
// `bits`: the types of products whose rows are.
std::vector<Case> CheckFastCases(const std::string& device,
                                 const std::vector<Shapes>& checked,
                                 const std::vector<kernels::WeightType>& bits) {
  std::vector<Case> cases;
  for (const Shapes& shapes : checked) {
    Shapes widened = shapes;
    // The CPU is held against itself.
    widened.sizes.widened = device != "cpu";
    const std::vector<DeviceOp> ops = OpsOf(shapes);
    const std::vector<DeviceOp> wide = OpsOf(widened);
    for (size_t i = 0; i < ops.size(); ++i) {
      const DeviceOp& op = ops[i];
      if (!IsFastOp(op)) continue;
      const Json name = NameOf(shapes, op);
      cases.push_back(
          {name, [device, op, in_f32 = wide[i], name,
                  times = shapes.times](Json& to) {
             const auto cpu = MakeOne("cpu", op.kv_type);
             const auto own = MakeOne(device, op.kv_type, "auto");
             const auto prepared = op.prepare(*own);
             const OpResults got = ResultsOf(*own, *prepared);
             const double error = ErrorOf(got, ResultsOn(*cpu, in_f32));
             const bool same = SameBits(ResultsOn(*own, op), got) &&
                               RepeatsItself(*own, *prepared, got, times);
             Add(to, name, {{"error", error}, {"same_again", same}});
             return same && error < kMostFastError;
           }});
    }
  }
  for (const kernels::WeightType type : bits) {
    RowBitsSizes sizes = LargeRowBits();
    sizes.types = {type};
    const Json name = {{"op", Cat(FormatOf(type).name, " rows alone")},
                       {"tokens", 0}};  // several
    cases.push_back({name, [device, sizes](Json& to) {
                       const auto own =
                           MakeOne(device, kernels::WeightType::kF32, "auto");
                       return RowsHaveTheirOwnBits(*own, sizes, to);
                     }});
  }
  return cases;
}

std::vector<Case> TimeCases(const std::string& device,
                            OpSizes (*sizes)(int64_t tokens),
                            const char* numerics) {
  std::vector<Case> cases;
  const bool fast = std::strcmp(numerics, "canonical") != 0;
  for (const int64_t tokens : {1, 128}) {
    const Shapes shapes = {"large", sizes(tokens), {}};
    for (const DeviceOp& op : OpsOf(shapes)) {
      if (fast && !IsFastOp(op)) continue;
      const Json name = NameOf(shapes, op);
      cases.push_back({name, [device, op, name, numerics](Json& to) {
                         const auto own = MakeOne(device, op.kv_type, numerics);
                         const Timed timed = TimeOf(*own, op);
                         Json found = {{"us", timed.seconds * 1e6}};
                         if (timed.cold) {
                           found["gb_per_s"] = op.bytes / timed.seconds * 1e-9;
                         }
                         Add(to, name, found);
                         return true;
                       }});
    }
  }
  return cases;
}

// The rates of a GPU's matrix units, and what its launches cost; none of a CPU.
std::vector<Case> PeakCases(const std::string& device) {
  std::vector<Case> cases;
#ifdef SLUICE_CUDA
  const DeviceChoice choice = *ParseDevice(device);
  if (!choice.cuda) return cases;
  for (const std::string& peak : PeakNames()) {
    const Json name = {{"op", peak}};
    cases.push_back({name, [gpu = choice.gpus[0], peak, name](Json& to) {
                       const Json found = GpuPeak(gpu, peak);
                       Add(to, name, found);
                       return found.contains("left_out") ||
                              found.at("as_computed").get<bool>();
                     }});
  }
#else
  (void)device;
#endif
  return cases;
}

// Looks at `cases` from number `first` on. Prints a line of JSON with a case's
// number as the case begins, one per entry, and one at the end of the list: the
// reader of an output that breaks off knows which case ended the process, or
// hangs.
bool Look(const std::vector<Case>& cases, size_t first) {
  bool fine = true;
  for (size_t i = first; i < cases.size(); ++i) {
    Json begin = cases[i].name;
    begin["begin"] = i;
    std::printf("%s\n", begin.dump().c_str());
    std::fflush(stdout);
    Json found = Json::array();
    fine = cases[i].look(found) && fine;
    for (const Json& entry : found) std::printf("%s\n", entry.dump().c_str());
    std::fflush(stdout);
  }
  std::printf("%s\n", Json{{"end", cases.size()}}.dump().c_str());
  return fine;
}

Json BandwidthOf(const std::string& device) {
#ifdef SLUICE_CUDA
  const DeviceChoice choice = *ParseDevice(device);
  if (choice.cuda) return GpuBandwidth(choice.gpus[0]);
#endif
  return CpuBandwidth();
}

int Main(const std::string& device, const std::string& what, size_t first) {
  if (const Status there = CheckDevice(device); !there.ok()) {
    std::fprintf(stderr, "%s\n", Message(there).c_str());
    return there.code() == StatusCode::kFailedPrecondition ? kSkipped : 2;
  }
  // The CPU is held against itself.
  const bool small = device == "cpu" || what.ends_with("-small");
  if (what == "facts") {
    const auto backend = MakeOne(device, kernels::WeightType::kF32);
    const Json facts = {{"device", device},
                        {"architecture", backend->info().isa},
                        {"memory_for_kv", backend->info().available_memory}};
    std::printf("%s\n", facts.dump().c_str());
  } else if (what == "bandwidth") {
    std::printf("%s\n", BandwidthOf(device).dump().c_str());
  } else if (what == "peaks") {
    return Look(PeakCases(device), first) ? 0 : 1;
  } else if (what == "check" || what == "check-small") {
    return Look(CheckCases(device, small), first) ? 0 : 1;
  } else if (what == "check-fast" || what == "check-fast-small") {
    return Look(CheckFastCases(device, CheckedShapes(small, /*fast=*/true),
                               LargeRowBits().types),
                first)
               ? 0
               : 1;
  } else if (what == "check-groups") {
    return Look(CheckFastCases(device, ShapesInGroups(),
                               {kernels::WeightType::kBf16}),
                first)
               ? 0
               : 1;
  } else if (what == "time") {
    Look(TimeCases(device, Large, "canonical"), first);
  } else if (what == "time-fast") {
    Look(TimeCases(device, Large, "fast"), first);
  } else if (what == "try-time") {
    Look(TimeCases(device, Boundaries, "canonical"), first);
  } else {
    std::fprintf(stderr, "no such part: '%s'\n", what.c_str());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(
        stderr,
        "usage: device_check DEVICE facts | bandwidth\n"
        "       device_check DEVICE peaks | check | check-fast | check-small | "
        "check-fast-small | check-groups | time | time-fast | try-time "
        "[FIRST]\n"
        "FIRST: the number of the case to begin with\n"
        "Exit code: 0; 1, a case is not as it must be; 2, it cannot be "
        "asked so; 77, no such device\n");
    return 2;
  }
  const size_t first = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
  return sluice::testing::Main(argv[1], argv[2], first);
}
