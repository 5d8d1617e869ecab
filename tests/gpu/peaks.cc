#include "tests/gpu/peaks.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "kernels/cuda/runtime/runtime.h"
#include "tests/cuda_machine/probes/matrix_rates.h"
#include "tests/cuda_machine/probes/memory_passes.h"
#include "tests/gpu/gpu_runs.h"

namespace sluice::testing {
namespace {

namespace cuda = kernels::cuda;
using cuda::MatrixUnits;
using Words = std::vector<uint32_t>;

constexpr int kLanes = 32;

// Words of a device's memory, freed at the end.
class DeviceWords {
 public:
  DeviceWords(cuda::Runtime* runtime, size_t count)
      : runtime_(*runtime),
        count_(count),
        data_(static_cast<uint32_t*>(runtime_.Allocate(Bytes()))) {
    SLUICE_CHECK(data_ != nullptr);
  }
  ~DeviceWords() { runtime_.Free(data_); }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;

  uint32_t* data() const { return data_; }
  void Set(const Words& words) {
    runtime_.CopyIn(words.data(), data_, {Bytes()});
    runtime_.Sync();
  }
  Words Get() {
    Words words(count_);
    runtime_.CopyOut(data_, words.data(), {Bytes()});
    runtime_.Sync();
    return words;
  }

 private:
  size_t Bytes() const { return count_ * sizeof(uint32_t); }

  cuda::Runtime& runtime_;
  const size_t count_;
  uint32_t* const data_;
};

// What every block is to store.
Words SumsOf(MatrixUnits units, int32_t times) {
  const int threads = cuda::RateShapeOf(units).threads;
  Words sums;
  for (int i = 0; i < cuda::kRateResults; ++i) {
    for (int t = 0; t < threads; ++t) {
      const int sum = cuda::RateSum(units, cuda::RateRow(units, t, i),
                                    cuda::RateColumn(units, t, i));
      const int32_t whole = sum * times;
      sums.push_back(units == MatrixUnits::kCodes
                         ? std::bit_cast<uint32_t>(whole)
                         : std::bit_cast<uint32_t>(static_cast<float>(whole)));
    }
  }
  return sums;
}

Json MatrixRate(cuda::Runtime& runtime, MatrixUnits units,
                const PeakSizes& sizes) {
  const cuda::Stream stream = runtime.stream();
  if (!cuda::HasMatrixUnits(units, stream)) {
    return {{"left_out", "not of " + runtime.facts().architecture +
                             ", or not asked for (SLUICE_UNCONFIRMED=wgmma)"}};
  }
  const Words operands = cuda::RateOperands(units);
  const Words want = SumsOf(units, sizes.times);
  const int64_t blocks = cuda::RateBlocks(units, stream);
  DeviceWords from(&runtime, operands.size());
  DeviceWords to(&runtime, want.size() * static_cast<size_t>(blocks));
  from.Set(operands);
  const double seconds = BestSeconds(runtime, sizes.rounds, sizes.again, [&] {
    cuda::RateMultiply(units, stream, from.data(), blocks, sizes.times,
                       to.data());
  });
  const Words got = to.Get();
  bool as_computed = true;
  for (size_t i = 0; i < got.size(); i += want.size()) {
    as_computed =
        as_computed && std::equal(want.begin(), want.end(),
                                  got.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const double operations =
      static_cast<double>(blocks) * cuda::RateOperations(units, sizes.times);
  return {{"as_computed", as_computed},
          {"ms", seconds * 1e3},
          {units == MatrixUnits::kCodes ? "tops" : "tflops",
           operations / seconds * 1e-12}};
}

// Launches of so many blocks, each of which adds one to the words of the one
// before.
class Chain {
 public:
  Chain(cuda::Runtime* runtime, int64_t blocks)
      : runtime_(*runtime),
        blocks_(blocks),
        even_(runtime, static_cast<size_t>(blocks) * kLanes),
        odd_(runtime, static_cast<size_t>(blocks) * kLanes) {
    even_.Set(Words(static_cast<size_t>(blocks) * kLanes));
  }
  void Begin(int launches) {
    for (int i = 0; i < launches; ++i) {
      const bool is_odd = i % 2 != 0;
      cuda::PassOn(runtime_.stream(), (is_odd ? odd_ : even_).data(),
                   (is_odd ? even_ : odd_).data(), blocks_);
    }
    runtime_.Submit();
  }
  // Whether so many launches add what they must, from zeros on.
  bool Adds(int launches) {
    even_.Set(Words(static_cast<size_t>(blocks_) * kLanes));
    Begin(launches);
    const Words got = (launches % 2 != 0 ? odd_ : even_).Get();
    return std::all_of(got.begin(), got.end(), [&](uint32_t word) {
      return word == static_cast<uint32_t>(launches);
    });
  }

 private:
  cuda::Runtime& runtime_;
  const int64_t blocks_;
  DeviceWords even_;
  DeviceWords odd_;
};

// Of a list that the device has nothing to do before.
Json ListAlone(cuda::Runtime& runtime, Chain& chain, int launches, int rounds) {
  double host = 1e9;
  double whole = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const int64_t start = MonotonicNanos();
    chain.Begin(launches);
    const int64_t begun = MonotonicNanos();
    runtime.Sync();
    const int64_t end = MonotonicNanos();
    host = std::min(host, static_cast<double>(begun - start) * 1e-3);
    whole = std::min(whole, static_cast<double>(end - start) * 1e-3);
  }
  return {{"host_us", host}, {"us", whole}};
}

Json LaunchCosts(cuda::Runtime& runtime, int64_t blocks,
                 const PeakSizes& sizes) {
  // A graph has at least three launches (launch_graphs.h).
  const int lists[] = {1, 3, sizes.launches};
  Chain chain(&runtime, blocks);
  bool as_computed = true;
  const auto a_launch = [&] {
    const double us = 1e6 / sizes.launches *
                      BestSeconds(runtime, sizes.rounds, sizes.again,
                                  [&] { chain.Begin(sizes.launches); });
    as_computed = as_computed && chain.Adds(sizes.launches);
    return us;
  };
  Json found = {{"blocks", blocks},
                {"launches", sizes.launches},
                {"begin_early", runtime.facts().launches_early}};
  found["eager_us"] = a_launch();
  const cuda::GraphCounts before = runtime.graph_counts();
  runtime.GatherLaunches(true);
  found["graph_us"] = a_launch();
  for (const int launches : lists) {
    found["lists"][std::to_string(launches)] =
        ListAlone(runtime, chain, launches, sizes.rounds);
    as_computed = as_computed && chain.Adds(launches);
  }
  runtime.GatherLaunches(false);
  const cuda::GraphCounts& counts = runtime.graph_counts();
  found["as_computed"] = as_computed && counts.replayed > before.replayed &&
                         counts.captured == before.captured + 2;
  return found;
}

struct Peak {
  const char* name;
  Json (*measure)(cuda::Runtime& runtime, const PeakSizes& sizes);
};
template <MatrixUnits kUnits>
Json RateOf(cuda::Runtime& runtime, const PeakSizes& sizes) {
  return MatrixRate(runtime, kUnits, sizes);
}
constexpr Peak kPeaks[] = {
    {"BF16 products, mma.sync", RateOf<MatrixUnits::kTiles>},
    {"int8 products, mma.sync", RateOf<MatrixUnits::kCodes>},
    {"launches of 1 block",
     [](cuda::Runtime& runtime, const PeakSizes& sizes) {
       return LaunchCosts(runtime, 1, sizes);
     }},
    {"launches of a block per multiprocessor",
     [](cuda::Runtime& runtime, const PeakSizes& sizes) {
       return LaunchCosts(runtime, cuda::Multiprocessors(runtime.stream()),
                          sizes);
     }},
    {"BF16 products, wgmma", RateOf<MatrixUnits::kGroups>},
};

}  // namespace

std::vector<std::string> PeakNames() {
  std::vector<std::string> names;
  for (const Peak& peak : kPeaks) names.emplace_back(peak.name);
  return names;
}

Json PeakOf(cuda::Runtime& runtime, const std::string& name,
            const PeakSizes& sizes) {
  const auto* const peak =
      std::find_if(std::begin(kPeaks), std::end(kPeaks),
                   [&](const Peak& one) { return one.name == name; });
  SLUICE_CHECK(peak != std::end(kPeaks));
  return peak->measure(runtime, sizes);
}

Json GpuPeak(const std::string& gpu, const std::string& name) {
  return PeakOf(*OpenGpu(gpu), name, {});
}

}  // namespace sluice::testing
