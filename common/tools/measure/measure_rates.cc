#include "common/tools/measure/measure_rates.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "common/base/cat.h"
#include "common/device/cpu/cpu_options.h"
#include "common/device/make_backends.h"
#include "common/device/step_inputs.h"
#include "common/tools/measure/limits.h"
#include "common/tools/measure/machine.h"

namespace sluice::measure {
namespace {

using placement::kRateRows;
using placement::MachineRates;
using placement::ProductRate;

constexpr int32_t kMostRows = kRateRows.back();
// A weight from memory is one of several that no cache holds together.
constexpr MatrixShape kLarge = {8192, 2048};
constexpr size_t kOutOfCaches = size_t{160} << 20;
constexpr MatrixShape kSmall = {1024, 1024};
// One pass over those from a cache has at least so many elements.
constexpr int64_t kCachedElements = int64_t{16} << 20;

double MedianTime(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Any bytes are blocks and finite numbers while bit 6 is clear.
HostWeight MadeUp(kernels::WeightType type, int64_t rows, int64_t cols) {
  HostWeight weight(type, rows, cols);
  uint64_t state = 1;
  auto* const words = weight.data.as<uint64_t>();
  for (size_t i = 0; i < weight.data.size() / 8; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    words[i] = (state ^ state >> 29) & 0xBFBFBFBFBFBFBFBFu;
  }
  return weight;
}

// Times products on one backend.
class ProductTimer {
 public:
  // For weights of at most `most` rows and columns.
  ProductTimer(Backend* device, MatrixShape most)
      : device_(*device),
        inputs_(StepLimits{kMostRows, 1, kMostRows, 1}),
        x_(Matrix(most.cols)),
        y_(Matrix(most.rows)) {
    const std::vector<float> values(kMostRows * static_cast<size_t>(most.cols),
                                    0.5f);
    device_.CopyIn(values.data(), x_);
  }

  // Returns seconds per element of one pass over `weights`, `repeats` times.
  double Pass(const std::vector<std::unique_ptr<Weight>>& weights, int32_t rows,
              int repeats) {
    inputs_.num_tokens = rows;
    double elements = 0;
    device_.BeginStep(inputs_);
    const double begin = SteadySeconds();
    for (int i = 0; i < repeats; ++i) {
      for (const auto& weight : weights) {
        const DeviceMatrix x = {x_.data, rows, weight->cols, weight->cols};
        const DeviceMatrix y = {y_.data, rows, weight->rows, weight->rows};
        device_.Linear(x, NormSpec(), *weight, /*bias=*/nullptr, y);
        elements += static_cast<double>(weight->rows * weight->cols);
      }
    }
    device_.EndStep();
    return (SteadySeconds() - begin) / elements;
  }

  std::vector<std::unique_ptr<Weight>> Weights(kernels::WeightType type,
                                               size_t count,
                                               MatrixShape shape) {
    std::vector<std::unique_ptr<Weight>> weights;
    while (weights.size() < count) {
      std::vector<HostWeight> parts;
      parts.push_back(MadeUp(type, shape.rows, shape.cols));
      weights.push_back(device_.Pack(std::move(parts)));
    }
    return weights;
  }

 private:
  DeviceMatrix Matrix(int64_t cols) {
    memory_.push_back(device_.Allocate(sizeof(float) * kMostRows * cols));
    return {memory_.back().data(), kMostRows, cols, cols};
  }

  Backend& device_;
  std::vector<DeviceMemory> memory_;
  StepInputs inputs_;
  DeviceMatrix x_;
  DeviceMatrix y_;
};

// Returns the shapes that are measured from memory and from a cache: `given`,
// unless it is too large, or another weight of the model has this type.
std::pair<MatrixShape, MatrixShape> ShapesFor(kernels::WeightType type,
                                              MatrixShape given) {
  const WeightFormat& format = FormatOf(type);
  const int64_t elements = given.rows * given.cols;
  const bool fits = elements > 0 && given.cols % format.block_elements == 0;
  return {fits && format.bytes(elements) <= kOutOfCaches ? given : kLarge,
          fits && elements <= kCachedElements ? given : kSmall};
}

ProductRate MeasureProduct(ProductTimer& timer, kernels::WeightType type,
                           const RateOptions& options, double join_seconds) {
  const auto [of_large, of_small] = ShapesFor(type, options.shape);
  const size_t bytes = FormatOf(type).bytes(of_large.rows * of_large.cols);
  const auto large =
      timer.Weights(type, (kOutOfCaches + bytes - 1) / bytes, of_large);
  const auto small = timer.Weights(type, 1, of_small);
  const int64_t elements = of_small.rows * of_small.cols;
  const double join = join_seconds / static_cast<double>(elements);
  const auto repeats =
      static_cast<int>(std::max<int64_t>(1, kCachedElements / elements));
  ProductRate rate;
  rate.type = type;
  timer.Pass(large, 1, 1);  // warm
  for (size_t i = 0; i < kRateRows.size(); ++i) {
    std::vector<double> from_memory;
    std::vector<double> from_cache;
    for (int32_t round = 0; round < options.rounds; ++round) {
      from_memory.push_back(timer.Pass(large, kRateRows[i], 1));
      from_cache.push_back(timer.Pass(small, kRateRows[i], repeats));
    }
    rate.from_memory[i] = MedianTime(from_memory);
    const double cached = MedianTime(from_cache);
    rate.from_cache[i] = std::max(cached - join, cached / 2);
  }
  return rate;
}

// Returns seconds of a fork and join as most steps have them, where limits.h
// has the best: a median over runs.
double UsualJoinSeconds(int32_t threads) {
  constexpr int kRuns = 50;
  constexpr int kJoins = 100;
  if (threads == 1) return 0;
  ThreadTeam team({.num_threads = threads, .cpus = {}, .name = "joins"});
  const kernels::Context context{&team};
  std::vector<double> runs;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = SteadySeconds();
    for (int i = 0; i < kJoins; ++i) {
      kernels::ParallelFor(context, threads, [](int) {});
    }
    runs.push_back((SteadySeconds() - begin) / kJoins);
  }
  return MedianTime(runs);
}

// Returns seconds from a message to another thread, which sleeps, to its
// reading it: half a round trip over a socket.
double WakeSeconds() {
  constexpr int kTrips = 400;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
  std::thread echo([fd = ends[1]] {
    for (char byte; ::read(fd, &byte, 1) == 1;) {
      if (::write(fd, &byte, 1) != 1) break;
    }
  });
  std::vector<double> trips;
  char byte = 0;
  for (int i = 0; i < kTrips; ++i) {
    const double begin = SteadySeconds();
    if (::write(ends[0], &byte, 1) != 1 || ::read(ends[0], &byte, 1) != 1) {
      break;
    }
    trips.push_back(SteadySeconds() - begin);
  }
  ::shutdown(ends[0], SHUT_RDWR);
  echo.join();
  ::close(ends[0]);
  ::close(ends[1]);
  return trips.empty() ? 0 : MedianTime(trips) / 2;
}

// Returns the size of the first CPU's largest cache.
double CacheBytes() {
  double most = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream in(
        Cat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    double kib = 0;  // "32768K"
    if (in >> kib) most = std::max(most, kib * 1024);
  }
  return most;
}

std::string CpuName() {
  std::string text = DescribeCpu();
  text.resize(std::min(text.size(), text.find('\n')));
  return text.substr(std::min(text.size(), sizeof("CPU: ") - 1));
}

auto BackendsOf(const RateOptions& options) {
  BackendOptions of_backend;
  of_backend.threads = options.threads;
  of_backend.isa = options.isa;
  return MakeBackends(of_backend);
}

}  // namespace

StatusOr<placement::MachineRates> MeasureRates(const RateOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const CpuIsa isa, ParseIsa(options.isa));
  SLUICE_ASSIGN_OR_RETURN(const auto backends, BackendsOf(options));
  const BackendInfo& info = backends[0]->info();
  MachineRates rates;
  rates.cpu = CpuName();
  rates.isa = info.isa;
  rates.threads = info.threads;
  rates.cache_bytes = CacheBytes();
  {
    LimitProbe probe({info.threads, isa.dot, isa.vectors});
    std::vector<double> reads;
    for (int32_t round = 0; round < options.rounds; ++round) {
      const Limits limits = probe.Measure();
      reads.push_back(limits.read_all);
      rates.byte_gop_per_s = std::max(rates.byte_gop_per_s, limits.dot_peak);
      rates.f32_gop_per_s = std::max(rates.f32_gop_per_s, limits.fma_peak);
    }
    rates.read_gb_per_s = MedianTime(reads);
  }
  rates.join_seconds = UsualJoinSeconds(info.threads);
  rates.wake_seconds = WakeSeconds();
  const MatrixShape most = {std::max(kLarge.rows, options.shape.rows),
                            std::max(kLarge.cols, options.shape.cols)};
  ProductTimer timer(backends[0].get(), most);
  for (const kernels::WeightType type : options.types) {
    rates.products.push_back(
        MeasureProduct(timer, type, options, rates.join_seconds));
  }
  return rates;
}

StatusOr<bool> AreCurrent(const MachineRates& rates,
                          const RateOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const auto backends, BackendsOf(options));
  const BackendInfo& info = backends[0]->info();
  return rates.cpu == CpuName() && rates.isa == info.isa &&
         rates.threads == info.threads &&
         std::ranges::all_of(options.types, [&](kernels::WeightType type) {
           return std::ranges::count(rates.products, type, &ProductRate::type) >
                  0;
         });
}

}  // namespace sluice::measure
