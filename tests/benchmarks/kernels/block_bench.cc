// Speeds of the products of quantised weights beside the limits of the same
// minutes: the memory read bandwidth and the peak of byte products. See
// README.md.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tools/measure/limits.h"
#include "common/tools/measure/machine.h"
#include "kernels/block_matmul.h"
#include "kernels/cpu/block_ops.h"

namespace sluice::kernels {
namespace {

struct Options {
  int threads = 2;
  int rounds = 9;
  DotIsa isa = DotIsaFor(DetectIsa());
  std::string csv;
  std::vector<BlockFormat> formats;
  bool pack = true;
  std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 512};
};

// Llama 3.2 1B.
constexpr int64_t kHidden = 2048;
constexpr int64_t kQkv = 3072;
constexpr int64_t kIntermediate = 8192;
constexpr int kShards = 16;

bool g_cpu_time = false;  // set once in Main

// Seconds of some past moment; of this thread's CPU time if asked for.
double Seconds() {
  timespec time;
  clock_gettime(g_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        team_({.num_threads = options.threads, .cpus = Cpus(options.threads)}),
        context_{.executor = &team_, .ops = &BlockOpsFor(options.isa)},
        memory_(static_cast<uint8_t*>(std::aligned_alloc(4096, kMemory))) {
    // Any bytes are blocks; with bit 6 clear, every F16 number is finite.
    ParallelFor({&team_}, options_.threads, [&](int part) {
      uint64_t state = static_cast<uint64_t>(part) + 1;
      auto* const words = reinterpret_cast<uint64_t*>(memory_.get());
      const int64_t end = kMemory / 8 * (part + 1) / options_.threads;
      for (int64_t i = kMemory / 8 * part / options_.threads; i < end; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = (state ^ state >> 29) & 0xBFBFBFBFBFBFBFBFu;
      }
    });
    if (!options_.csv.empty()) {
      csv_.open(options_.csv);
      csv_ << "what,format,tokens,ms,gb_per_s,read_gb_per_s,read_share,"
              "gop_per_s,peak_gop_per_s,peak_share,roofline\n";
    }
  }

  void Run() {
    for (const BlockFormat format : options_.formats) {
      if (options_.pack) Pack(format);
      for (const int64_t tokens : options_.tokens) {
        Layer(format, tokens);
        Product(format, kIntermediate, kHidden, tokens);
        Product(format, kHidden, kIntermediate, tokens);
      }
    }
  }

 private:
  static constexpr int64_t kMemory = int64_t{640} << 20;

  // Weight bytes and multiply-adds, two operations each, of a call.
  struct Case {
    std::string what;
    BlockFormat format;
    int64_t tokens;
    double bytes;
    double products;
  };
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  static std::vector<int> Cpus(int threads) {
    std::vector<int> cpus;
    for (int i = 0; i < threads; ++i) cpus.push_back(i);
    return cpus;
  }

  // The next `bytes` of memory: no cache holds them.
  const uint8_t* Next(int64_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (at_ + bytes > kMemory) at_ = 0;
    const uint8_t* next = memory_.get() + at_;
    at_ += bytes;
    return next;
  }
  BlockWeight NextWeight(BlockFormat format, int64_t rows, int64_t cols) {
    return {format, Next(PackedBytes(format, rows, cols)), rows, cols};
  }

  // GB/s of reading 48 MiB, each thread a part of its own.
  double ReadRate() {
    constexpr int64_t kBytes = int64_t{48} << 20;
    return measure::ReadRate({&team_, Seconds},
                             {Next(kBytes), static_cast<size_t>(kBytes)});
  }

  // Gop/s of byte products in registers.
  double PeakRate() {
    return measure::PeakRate({&team_, Seconds}, measure::PeakOf(options_.isa));
  }

  // Interleaved rounds of the limits and the case. A share is the median over
  // rounds of the case's rate in parts of the limit measured right before;
  // time and rates are those of the best call.
  void Measure(const Case& timed, const std::function<void()>& run) {
    std::vector<double> reads, peaks, times, read_shares, peak_shares, roofs;
    double best = 1e9;
    run();
    const double begin = Seconds();
    for (int round = 0; round < options_.rounds; ++round) {
      if (round >= 3 && Seconds() - begin > 6) break;
      reads.push_back(ReadRate());
      peaks.push_back(PeakRate());
      int calls = 0;
      const double start = Seconds();
      double now = start;
      while (now - start < 0.01) {
        const double last = now;
        run();
        ++calls;
        now = Seconds();
        best = std::min(best, now - last);
      }
      times.push_back((now - start) / calls);
      const double gb = timed.bytes / times.back() * 1e-9 / reads.back();
      const double op = 2 * timed.products / times.back() * 1e-9;
      const double part = peaks.back() == 0 ? 0 : op / peaks.back();
      read_shares.push_back(gb);
      peak_shares.push_back(part);
      // Both limits kept at once.
      roofs.push_back(std::max(gb, part));
    }
    const double read = *std::max_element(reads.begin(), reads.end());
    const double peak = *std::max_element(peaks.begin(), peaks.end());
    const double rate = timed.bytes / best * 1e-9;
    const double gops = 2 * timed.products / best * 1e-9;
    std::printf(
        "%-10s %-6s T %4ld %9.3f ms %6.1f GB/s, read %5.1f (median %3.0f %%) "
        "%7.1f Gop/s, peak %6.0f (median %3.0f %%) roofline %3.0f %%\n",
        timed.what.c_str(), LayoutOf(timed.format).name,
        static_cast<long>(timed.tokens), best * 1e3, rate, read,
        Median(read_shares) * 100, gops, peak, Median(peak_shares) * 100,
        Median(roofs) * 100);
    std::fflush(stdout);
    if (csv_.is_open()) {
      csv_ << timed.what << ',' << LayoutOf(timed.format).name << ','
           << timed.tokens << ',' << best * 1e3 << ',' << rate << ',' << read
           << ',' << Median(read_shares) << ',' << gops << ',' << peak << ','
           << Median(peak_shares) << ',' << Median(roofs) << '\n';
    }
  }

  // Packs a weight, each thread a part of its own.
  void Pack(BlockFormat format) {
    const int64_t stride = StoredRowBytes(format, kHidden);
    packed_.resize(
        static_cast<size_t>(PackedBytes(format, kIntermediate, kHidden)));
    Measure({"pack", format, 0, static_cast<double>(packed_.size()), 0}, [&] {
      const uint8_t* from = Next(static_cast<int64_t>(packed_.size()));
      const int64_t groups = kIntermediate / kGroupRows;
      ParallelFor({&team_}, options_.threads, [&](int part) {
        const int64_t begin = groups * part / options_.threads * kGroupRows;
        const int64_t end = groups * (part + 1) / options_.threads * kGroupRows;
        PackRows({format, from + begin * stride, end - begin, kHidden, stride},
                 packed_.data() + PackedBytes(format, begin, kHidden));
      });
    });
  }

  void Product(BlockFormat format, int64_t rows, int64_t cols, int64_t tokens) {
    Reserve(tokens);
    const QuantizedRows x = Quantized(format, tokens, cols);
    const auto count = static_cast<double>(rows * cols);
    Measure({std::to_string(rows) + "x" + std::to_string(cols), format, tokens,
             static_cast<double>(PackedBytes(format, rows, cols)),
             count * static_cast<double>(tokens)},
            [&] {
              BlockMatMul(context_, x, NextWeight(format, rows, cols), nullptr,
                          {y_.data(), tokens, rows, rows});
            });
  }

  // A layer's four products with their activations' quantisation.
  void Layer(BlockFormat format, int64_t tokens) {
    Reserve(tokens);
    const int64_t params = kHidden * (kQkv + kHidden + 3 * kIntermediate);
    Measure({"layer", format, tokens,
             static_cast<double>(PackedBytes(format, 16, params / 16)),
             static_cast<double>(params * tokens)},
            [&] {
              Plain(Quantized(format, tokens, kHidden), format, kQkv);
              Sharded(Quantized(format, tokens, kHidden), format);
              Plain(Quantized(format, tokens, kHidden), format,
                    2 * kIntermediate);
              Sharded(Quantized(format, tokens, kIntermediate), format);
            });
  }
  void Plain(const QuantizedRows& x, BlockFormat format, int64_t rows) {
    BlockMatMul(context_, x, NextWeight(format, rows, x.cols), nullptr,
                {y_.data(), x.rows, rows, rows});
  }
  void Sharded(const QuantizedRows& x, BlockFormat format) {
    const int64_t blocks = x.cols / x.block;
    std::vector<int32_t> bounds;
    for (int64_t s = 0; s <= kShards; ++s) {
      bounds.push_back(static_cast<int32_t>(blocks * s / kShards * x.block));
    }
    const std::vector<TreeNode> nodes = {{0, kShards}};
    const Matrix y[] = {{y_.data(), x.rows, kHidden, kHidden}};
    BlockMatMulSharded(context_, x, NextWeight(format, kHidden, x.cols),
                       {.bounds = bounds, .nodes = nodes}, y);
  }

  QuantizedRows Quantized(BlockFormat format, int64_t tokens, int64_t cols) {
    const QuantizedRows to = {.codes = codes_.data(),
                              .scales = scales_.data(),
                              .sums = sums_.data(),
                              .rows = tokens,
                              .cols = cols,
                              .block = ActivationBlock(format)};
    QuantizeRows(context_, {x_.data(), tokens, cols, cols}, to, finite_.get());
    return to;
  }
  void Reserve(int64_t tokens) {
    const auto size = static_cast<size_t>(tokens * kIntermediate);
    if (x_.size() >= size) return;
    x_.resize(size);
    uint32_t state = 1;
    for (float& x : x_) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
    codes_.resize(size);
    scales_.resize(size / kShortBlock);
    sums_.resize(size / 16);
    finite_.reset(new bool[static_cast<size_t>(tokens)]);
    y_.assign(2 * size, 0.0f);
  }

  const Options options_;
  ThreadTeam team_;
  const DotContext context_;
  std::unique_ptr<uint8_t, Free> memory_;
  int64_t at_ = 0;
  std::vector<float> x_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<int16_t> sums_;
  std::unique_ptr<bool[]> finite_;
  std::vector<float> y_;
  std::vector<uint8_t> packed_;
  std::ofstream csv_;
};

// Every format whose name begins with `prefix`.
std::vector<BlockFormat> FormatsOf(std::string_view prefix) {
  std::vector<BlockFormat> formats;
  for (int i = 0; i < kNumBlockFormats; ++i) {
    if (std::string_view(kBlockLayouts[i].name).starts_with(prefix)) {
      formats.push_back(static_cast<BlockFormat>(i));
    }
  }
  return formats;
}

// False if `flag` is not known.
bool Parse(std::string_view flag, const char* value, Options& options) {
  if (flag == "--threads") {
    options.threads = std::max(1, std::atoi(value));
  } else if (flag == "--rounds") {
    options.rounds = std::max(1, std::atoi(value));
  } else if (flag == "--tokens") {
    // 0: packing alone.
    const int tokens = std::max(0, std::atoi(value));
    options.pack = tokens == 0;
    options.tokens.clear();
    if (tokens > 0) options.tokens = {tokens};
  } else if (flag == "--csv") {
    options.csv = value;
  } else if (flag == "--format") {
    options.formats = FormatsOf(value);
  } else if (flag == "--isa") {
    for (int i = 0; i < kNumDotIsas; ++i) {
      const auto isa = static_cast<DotIsa>(i);
      if (std::strcmp(value, ToString(isa)) == 0) options.isa = isa;
    }
  } else {
    return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  Options options;
  options.formats = FormatsOf("");
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--cpu-time") {
      g_cpu_time = true;
      options.threads = 1;
    } else if (i + 1 >= argc || !Parse(flag, argv[++i], options)) {
      std::fprintf(
          stderr,
          "usage: block_bench [--threads N] [--rounds N] [--tokens T]\n"
          "  [--format PREFIX] [--isa portable|avx2|avxvnni|avx512|avx512vnni]"
          "\n  [--csv FILE] [--cpu-time]\n");
      return 2;
    }
  }
  if (!HasDotIsa(options.isa) || options.formats.empty()) {
    std::fprintf(stderr, "block_bench: no such format, or no %s here\n",
                 ToString(options.isa));
    return 2;
  }
  std::printf("%sisa %s, %d threads\n", measure::DescribeCpu().c_str(),
              ToString(options.isa), options.threads);
  Bench(options).Run();
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) { return sluice::kernels::Main(argc, argv); }
