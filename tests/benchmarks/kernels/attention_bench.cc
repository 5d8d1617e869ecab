// Speeds of attention beside the peak of fused multiply-adds and the memory
// read bandwidth of the same minutes. See README.md.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tensor/buffer.h"
#include "common/tools/measure/limits.h"
#include "common/tools/measure/machine.h"
#include "kernels/attention.h"
#include "kernels/block_matmul.h"

namespace sluice::kernels {
namespace {

struct Options {
  int threads = 2;
  int rounds = 9;
  Isa isa = DetectIsa();
  int64_t context = 0;  // 0: all
  WeightType kv_type = WeightType::kF32;
};

constexpr int64_t kBlockTokens = 16;  // of keys and values

bool g_cpu_time = false;  // set once in Main

// Seconds of some past moment; of this thread's CPU time if asked for.
double Seconds() {
  timespec time;
  clock_gettime(g_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

// Heads of a layer.
struct Shape {
  const char* name;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t value_dim = 0;  // above 0: values are parts of the keys
  int64_t value_size() const { return value_dim > 0 ? value_dim : head_dim; }
};

// Of `streams` sequences each `tokens` tokens, the last ones of `context`
// positions.
struct Case {
  Shape shape;
  int64_t streams;
  int64_t tokens;
  int64_t context;
};

// One layer's attention with a cache of random numbers.
class Bench {
 public:
  Bench(const Options& options, const Case& timed)
      : options_(options),
        case_(timed),
        team_({.num_threads = options.threads, .cpus = Cpus(options.threads)}) {
    const int64_t blocks = timed.streams * (timed.context / kBlockTokens + 1);
    const Shape& shape = timed.shape;
    const int64_t size =
        blocks * kBlockTokens * shape.kv_heads * shape.head_dim;
    kv_ = {.num_blocks = blocks,
           .num_kv_heads = shape.kv_heads,
           .block_tokens = kBlockTokens,
           .head_dim = shape.head_dim,
           .type = options.kv_type,
           .blocks = &BlockOpsFor(DotIsaFor(options.isa)),
           .value_dim = shape.value_dim};
    keys_ = Buffer(static_cast<size_t>(kv_.bytes(size)));
    kv_.keys = keys_.data();
    if (shape.value_dim == 0) {
      values_ = Buffer(keys_.size());
      kv_.values = values_.data();
    }
    Fill();
    for (int64_t h = 0; h < shape.heads; ++h) {
      kv_heads_.push_back(
          static_cast<int32_t>(h * shape.kv_heads / shape.heads));
    }
    const int64_t per_stream = blocks / timed.streams;
    for (int64_t s = 0; s < timed.streams; ++s) {
      for (int64_t t = 0; t < timed.tokens; ++t) {
        const int64_t position = timed.context - timed.tokens + t;
        positions_.push_back(static_cast<int32_t>(position));
        offsets_.push_back(s * per_stream);
        flop_ += 2.0 * static_cast<double>(
                           shape.heads * (shape.head_dim + shape.value_size()) *
                           (position + 1));
      }
    }
    for (int64_t b = 0; b < blocks; ++b) {
      table_.push_back(static_cast<int32_t>(b));
    }
    const auto rows = static_cast<int64_t>(positions_.size());
    q_ = Numbers(3, rows * shape.heads * shape.head_dim);
    out_.assign(static_cast<size_t>(rows * shape.heads * shape.value_size()),
                0.0f);
  }

  void Run() {
    Attend();
    double best = 1e9;
    std::vector<double> peaks, shares, reads;
    const double begin = Seconds();
    for (int round = 0; round < options_.rounds; ++round) {
      if (round >= 3 && Seconds() - begin > 8) break;
      peaks.push_back(PeakRate());
      reads.push_back(ReadRate());
      double least = 1e9;
      const double start = Seconds();
      for (double now = start; now - start < 0.02;) {
        const double last = now;
        Attend();
        now = Seconds();
        least = std::min(least, now - last);
      }
      best = std::min(best, least);
      shares.push_back(flop_ / least * 1e-9 / peaks.back());
    }
    std::sort(shares.begin(), shares.end());
    const double bytes = (case_.shape.value_dim > 0 ? 1.0 : 2.0) *
                         static_cast<double>(kv_.bytes(
                             case_.streams * case_.context *
                             case_.shape.kv_heads * case_.shape.head_dim));
    std::printf(
        "%-12s streams %2ld tokens %3ld context %5ld %9.3f ms %7.1f GFLOP/s, "
        "peak %6.0f (median %3.0f %%) %6.1f GB/s, read %5.1f\n",
        case_.shape.name, static_cast<long>(case_.streams),
        static_cast<long>(case_.tokens), static_cast<long>(case_.context),
        best * 1e3, flop_ / best * 1e-9,
        *std::max_element(peaks.begin(), peaks.end()),
        shares[shares.size() / 2] * 100, bytes / best * 1e-9,
        *std::max_element(reads.begin(), reads.end()));
    std::fflush(stdout);
  }

 private:
  static std::vector<int> Cpus(int threads) {
    std::vector<int> cpus;
    for (int i = 0; i < threads; ++i) cpus.push_back(i);
    return cpus;
  }
  // Stores random keys and values, the same ones in every block.
  void Fill() {
    const int64_t cols = kv_.num_kv_heads * kv_.head_dim;
    const std::vector<float> keys = Numbers(1, kBlockTokens * cols);
    const std::vector<float> values = Numbers(2, kBlockTokens * cols);
    for (int64_t block = 0; block < kv_.num_blocks; ++block) {
      int64_t slots[kBlockTokens];
      for (int64_t t = 0; t < kBlockTokens; ++t) {
        slots[t] = block * kBlockTokens + t;
      }
      StoreKv({}, {keys.data(), kBlockTokens, cols, cols},
              {values.data(), kBlockTokens, cols, cols}, slots, kv_);
    }
  }
  static std::vector<float> Numbers(uint32_t state, int64_t n) {
    std::vector<float> numbers(static_cast<size_t>(n));
    for (float& number : numbers) {
      state = state * 1664525u + 1013904223u;
      number = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
    return numbers;
  }

  void Attend() {
    const int64_t cols = case_.shape.heads * case_.shape.head_dim;
    const int64_t out_cols = case_.shape.heads * case_.shape.value_size();
    const auto rows = static_cast<int64_t>(positions_.size());
    PagedAttention({&team_, options_.isa},
                   {.q = {q_.data(), rows, cols, cols},
                    .positions = positions_.data(),
                    .block_tables = table_.data(),
                    .table_offsets = offsets_.data(),
                    .num_heads = case_.shape.heads,
                    .kv_heads = kv_heads_.data(),
                    .scale = 0.125f},
                   kv_, {out_.data(), rows, out_cols, out_cols});
  }

  // GFLOP/s of fused multiply-adds in registers; 1 for the portable set.
  double PeakRate() {
    const double rate =
        measure::PeakRate({&team_, Seconds}, measure::FmaPeakOf(options_.isa));
    return rate == 0 ? 1 : rate;
  }

  // GB/s of reading the keys, each thread a part of its own.
  double ReadRate() {
    return measure::ReadRate({&team_, Seconds},
                             {keys_.as<uint8_t>(), keys_.size()});
  }

  const Options options_;
  const Case case_;
  ThreadTeam team_;
  KvView kv_;
  Buffer keys_;
  Buffer values_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<int32_t> kv_heads_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> table_;
  std::vector<int64_t> offsets_;
  double flop_ = 0;
};

constexpr Shape kOneB = {"llama1b", 32, 8, 64};
constexpr Shape kEight = {"gqa8", 64, 8, 64};
constexpr Shape kSmolLm2 = {"smollm2", 9, 3, 64};
constexpr Shape kWide = {"head_dim128", 32, 8, 128};
// Latent attention: GLM-4.7-Flash's heads, and DeepSeek V3's.
constexpr Shape kLatent20 = {"latent20", 20, 1, 576, 512};
constexpr Shape kLatent128 = {"latent128", 128, 1, 576, 512};

// False if `flag` is not known.
bool Parse(std::string_view flag, const char* value, Options& options) {
  if (flag == "--threads") {
    options.threads = std::max(1, std::atoi(value));
  } else if (flag == "--rounds") {
    options.rounds = std::max(1, std::atoi(value));
  } else if (flag == "--context") {
    options.context = std::atoi(value);
  } else if (flag == "--kv-type") {
    const bool bf16 = std::strcmp(value, "bf16") == 0;
    const bool q8 = std::strcmp(value, "q8_0") == 0;
    options.kv_type = bf16 ? WeightType::kBf16
                      : q8 ? WeightType::kQ8_0
                           : WeightType::kF32;
  } else if (flag == "--isa") {
    for (const Isa isa :
         {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
      if (std::strcmp(value, ToString(isa)) == 0) options.isa = isa;
    }
  } else {
    return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--cpu-time") {
      g_cpu_time = true;
      options.threads = 1;
    } else if (i + 1 >= argc || !Parse(flag, argv[++i], options)) {
      std::fprintf(stderr,
                   "usage: attention_bench [--threads N] [--rounds N]\n"
                   "  [--context N] [--isa portable|avx2|avx512|neon] "
                   "[--kv-type f32|bf16|q8_0] [--cpu-time]\n");
      return 2;
    }
  }
  if (!HasIsa(options.isa)) {
    std::fprintf(stderr, "attention_bench: no %s here\n",
                 ToString(options.isa));
    return 2;
  }
  std::printf("%sisa %s, %d threads\n", measure::DescribeCpu().c_str(),
              ToString(options.isa), options.threads);
  constexpr Case kCases[] = {
      {kOneB, 1, 512, 512},      {kOneB, 1, 512, 4096},
      {kOneB, 1, 512, 16384},    {kSmolLm2, 1, 512, 4096},
      {kWide, 1, 128, 4096},     {kOneB, 1, 1, 4096},
      {kOneB, 1, 1, 16384},      {kOneB, 8, 1, 4096},
      {kOneB, 8, 1, 16384},      {kEight, 8, 1, 4096},
      {kLatent20, 1, 1, 4096},   {kLatent20, 8, 1, 4096},
      {kLatent20, 1, 512, 4096}, {kLatent128, 1, 1, 4096}};
  for (const Case& timed : kCases) {
    if (options.context == 0 || options.context == timed.context) {
      Bench(options, timed).Run();
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) { return sluice::kernels::Main(argc, argv); }
