// Speeds of the CPU kernels on the shapes of a 1B model, beside the memory
// read bandwidth of the same minutes. See README.md.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tools/measure/machine.h"
#include "kernels/attention.h"
#include "kernels/context.h"
#include "kernels/matmul.h"

namespace sluice::kernels {
namespace {

struct Options {
  int threads = 2;
  int rounds = 7;
  Isa isa = DetectIsa();
  std::string csv;
  bool shapes = true;
  std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 64, 512};
};

// Llama 3.2 1B.
constexpr int64_t kHidden = 2048;
constexpr int64_t kKvDim = 512;
constexpr int64_t kIntermediate = 8192;
constexpr int64_t kVocab = 128256;
constexpr int kLayers = 16;
constexpr int kHeadParts = 4;  // the vocabulary is timed in so many pieces
constexpr int64_t kLayerParameters =
    2 * kHidden * kHidden + 2 * kKvDim * kHidden + 3 * kIntermediate * kHidden;
constexpr int64_t kParameters = kLayers * kLayerParameters + kVocab * kHidden;

bool g_cpu_time = false;  // set once in Main

// Seconds of some past moment; of this thread's CPU time if asked for.
double Seconds() {
  timespec time;
  clock_gettime(g_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        team_({.num_threads = options.threads, .cpus = Cpus(options.threads)}),
        context_{.executor = &team_, .isa = options.isa},
        weights_(
            static_cast<uint16_t*>(std::aligned_alloc(4096, kParameters * 2))) {
    // Random BF16 around 0.02 of both signs; a pair is also a valid F32.
    ParallelFor(context_, options_.threads, [&](int part) {
      uint64_t state = static_cast<uint64_t>(part) + 1;
      const int64_t end = kParameters * (part + 1) / options_.threads;
      for (int64_t i = kParameters * part / options_.threads; i < end; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const auto random = static_cast<uint16_t>(state >> 48);
        weights_.get()[i] = static_cast<uint16_t>(0x3C00u | (random & 0x81FFu));
      }
    });
    if (!options_.csv.empty()) {
      csv_.open(options_.csv);
      csv_ << "what,type,tokens,ms,gb_per_s,share,gflop_per_s,probe_gb_per_s\n";
    }
  }

  void Shapes() {
    struct Shape {
      int64_t rows;
      int64_t cols;
    };
    for (WeightType type : {WeightType::kBf16, WeightType::kF32}) {
      for (Shape s : {Shape{2048, 2048}, Shape{512, 2048}, Shape{8192, 2048},
                      Shape{2048, 8192}, Shape{128256, 2048}}) {
        for (int64_t tokens : options_.tokens) {
          Multiply(type, s.rows, s.cols, tokens);
        }
      }
    }
  }

  // Every product of a step, each layer in memory of its own. A layer's
  // memory is read and then multiplied with, in turns; the step is the sum of
  // every layer's best, which other programs on the machine disturb least.
  void Steps() {
    for (int64_t tokens : options_.tokens) {
      Reserve(tokens);
      std::vector<double> read(kLayers + kHeadParts, 1e9);
      std::vector<double> work(read);
      const double begin = Seconds();
      for (int round = 0; round < options_.rounds; ++round) {
        if (round >= 2 && Seconds() - begin > 20) break;
        at_ = 0;
        for (size_t part = 0; part < read.size(); ++part) {
          const int64_t from = at_;
          const bool layer = part < kLayers;
          const int64_t size =
              layer ? kLayerParameters : kVocab * kHidden / kHeadParts;
          read[part] = std::min(read[part], ReadSeconds(from, size));
          const double start = Seconds();
          if (layer) {
            Layer(tokens);
          } else {
            MatMul(context_, Activations(tokens, kHidden),
                   Next(kVocab / kHeadParts, kHidden), nullptr,
                   Out(tokens, kVocab / kHeadParts));
          }
          work[part] = std::min(work[part], Seconds() - start);
        }
      }
      const double bytes = kParameters * 2.0;
      const double probe =
          bytes / std::accumulate(read.begin(), read.end(), 0.0) * 1e-9;
      Report({"1b_step", "bf16", tokens, bytes,
              bytes * static_cast<double>(tokens)},
             std::accumulate(work.begin(), work.end(), 0.0), probe);
    }
  }

  void Attention() {
    constexpr int64_t kContext = 4096;
    constexpr int64_t kHeadDim = 64;
    constexpr int64_t kKvHeads = 8;
    constexpr int64_t kHeads = 32;
    std::vector<float> keys(kContext * kKvHeads * kHeadDim, 0.1f);
    std::vector<float> values(keys.size(), 0.2f);
    std::vector<int32_t> table;
    for (int32_t b = 0; b < kContext / 16; ++b) table.push_back(b);
    std::vector<int32_t> kv_heads;
    for (int32_t h = 0; h < kHeads; ++h) kv_heads.push_back(h / 4);
    for (int64_t tokens : {1, 8, 512}) {
      Reserve(tokens);
      std::vector<int32_t> positions;
      for (int64_t t = 0; t < tokens; ++t) {
        positions.push_back(static_cast<int32_t>(kContext - tokens + t));
      }
      const std::vector<int64_t> offsets(tokens, 0);
      const AttentionQueries queries = {.q = Activations(tokens, kHidden),
                                        .positions = positions.data(),
                                        .block_tables = table.data(),
                                        .table_offsets = offsets.data(),
                                        .num_heads = kHeads,
                                        .kv_heads = kv_heads.data(),
                                        .scale = 0.125f};
      const KvView kv = {keys.data(), values.data(), kContext / 16, kKvHeads,
                         16,          kHeadDim};
      Measure(
          {"attention_4096", "f32", tokens,
           8.0 * kContext * kKvHeads * kHeadDim,
           4.0 * kContext * kHidden * static_cast<double>(tokens)},
          [&] { PagedAttention(context_, queries, kv, Out(tokens, kHidden)); });
    }
  }

 private:
  // What is timed: a call's tokens, its bytes of weights or KV cache and its
  // floating-point operations.
  struct Case {
    const char* what;
    const char* type;
    int64_t tokens;
    double bytes;
    double flop;
  };
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  static std::vector<int> Cpus(int threads) {
    std::vector<int> cpus;
    for (int i = 0; i < threads; ++i) cpus.push_back(i);
    return cpus;
  }

  // Seconds that reading `count` halves from `at` on takes.
  double ReadSeconds(int64_t at, int64_t count) {
    const auto* words = reinterpret_cast<const uint64_t*>(weights_.get() + at);
    const int64_t size = count / 4;
    std::vector<uint64_t> sums(static_cast<size_t>(options_.threads));
    const double begin = Seconds();
    ParallelFor(context_, options_.threads, [&](int part) {
      uint64_t sum[8] = {};
      const int64_t end = size * (part + 1) / options_.threads;
      for (int64_t i = size * part / options_.threads; i + 8 <= end; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += words[i + j];
      }
      for (int j = 0; j < 8; ++j) sums[part] += sum[j];
    });
    const double seconds = Seconds() - begin;
    for (uint64_t sum : sums) sink_ = sink_ + sum;
    return seconds;
  }

  // GB/s of reading 256 MB of the weights, the next ones every time.
  double Probe() {
    constexpr int64_t kHalves = 128 * 1024 * 1024;
    if (probe_at_ + kHalves > kParameters) probe_at_ = 0;
    const double seconds = ReadSeconds(probe_at_, kHalves);
    probe_at_ += kHalves;
    return kHalves * 2 / seconds * 1e-9;
  }

  // Best of interleaved rounds of probe and case.
  void Measure(const Case& timed, const std::function<void()>& run) {
    double probe = 0;
    double best = 1e9;
    const double begin = Seconds();
    run();
    for (int round = 0; round < options_.rounds; ++round) {
      if (round >= 2 && Seconds() - begin > 4) break;
      probe = std::max(probe, Probe());
      // At least 20 ms, so that small products walk through much memory.
      int calls = 0;
      const double start = Seconds();
      double now = start;
      while (now - start < 0.02) {
        run();
        ++calls;
        now = Seconds();
      }
      best = std::min(best, (now - start) / calls);
    }
    Report(timed, best, probe);
  }

  // `best`: seconds of a call; `probe`: GB/s read.
  void Report(const Case& timed, double best, double probe) {
    const double rate = timed.bytes / best * 1e-9;
    const double gflops = timed.flop / best * 1e-9;
    std::printf(
        "%-16s %-4s T %4ld %10.3f ms %7.1f GB/s %4.0f %% of %5.1f "
        "%8.1f GFLOP/s\n",
        timed.what, timed.type, static_cast<long>(timed.tokens), best * 1e3,
        rate, rate / probe * 100, probe, gflops);
    std::fflush(stdout);
    if (csv_.is_open()) {
      csv_ << timed.what << ',' << timed.type << ',' << timed.tokens << ','
           << best * 1e3 << ',' << rate << ',' << rate / probe << ',' << gflops
           << ',' << probe << '\n';
    }
  }

  void Multiply(WeightType type, int64_t rows, int64_t cols, int64_t tokens) {
    const bool bf16 = type == WeightType::kBf16;
    const int64_t halves = rows * cols * (bf16 ? 1 : 2);
    Reserve(tokens);
    char what[32];
    std::snprintf(what, sizeof(what), "%ldx%ld", static_cast<long>(rows),
                  static_cast<long>(cols));
    const double count = static_cast<double>(rows * cols);
    Measure({what, bf16 ? "bf16" : "f32", tokens, count * (bf16 ? 2 : 4),
             2 * count * static_cast<double>(tokens)},
            [&] {
              if (at_ + halves > kParameters) at_ = 0;
              const WeightView w = {weights_.get() + at_, type, rows, cols};
              at_ += halves;
              MatMul(context_, Activations(tokens, cols), w, nullptr,
                     Out(tokens, rows));
            });
  }

  WeightView Next(int64_t rows, int64_t cols) {
    const WeightView w = {weights_.get() + at_, WeightType::kBf16, rows, cols};
    at_ += rows * cols;
    return w;
  }

  void Layer(int64_t tokens) {
    std::vector<int32_t> heads;
    std::vector<int32_t> columns;
    for (int32_t s = 0; s <= 16; ++s) {
      heads.push_back(s * kHidden / 16);
      columns.push_back(s * kIntermediate / 16);
    }
    const std::vector<TreeNode> nodes = AlignedNodes(0, 16, 16);
    const ConstMatrix x = Activations(tokens, kHidden);
    const Matrix out[1] = {Out(tokens, kHidden)};
    const int64_t qkv = kHidden + 2 * kKvDim;
    MatMul(context_, x, Next(qkv, kHidden), nullptr, Out(tokens, qkv));
    MatMulSharded(context_, x, Next(kHidden, kHidden),
                  {.bounds = heads, .nodes = nodes}, out);
    MatMul(context_, x, Next(2 * kIntermediate, kHidden), nullptr,
           Out(tokens, 2 * kIntermediate));
    MatMulSharded(context_, Activations(tokens, kIntermediate),
                  Next(kHidden, kIntermediate),
                  {.bounds = columns, .nodes = nodes}, out);
  }

  void Reserve(int64_t tokens) {
    if (static_cast<int64_t>(x_.size()) < tokens * kIntermediate) {
      x_.assign(tokens * kIntermediate, 0.5f);
      y_.assign(tokens * kVocab, 0.0f);
    }
  }
  ConstMatrix Activations(int64_t tokens, int64_t cols) {
    return {x_.data(), tokens, cols, cols};
  }
  Matrix Out(int64_t tokens, int64_t cols) {
    return {y_.data(), tokens, cols, cols};
  }

  const Options options_;
  ThreadTeam team_;
  const Context context_;
  std::unique_ptr<uint16_t, Free> weights_;
  int64_t at_ = 0;
  int64_t probe_at_ = 0;
  volatile uint64_t sink_ = 0;
  std::vector<float> x_;
  std::vector<float> y_;
  std::ofstream csv_;
};

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--cpu-time") {
      g_cpu_time = true;
      options.threads = 1;
      continue;
    }
    if (flag == "--steps-only") {
      options.shapes = false;
      continue;
    }
    ++i;
    if (flag == "--threads") {
      options.threads = std::max(1, std::atoi(value));
    } else if (flag == "--rounds") {
      options.rounds = std::max(1, std::atoi(value));
    } else if (flag == "--tokens") {
      options.tokens = {std::max(1, std::atoi(value))};
    } else if (flag == "--csv") {
      options.csv = value;
    } else if (flag == "--isa") {
      for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
        if (std::strcmp(value, ToString(isa)) == 0) options.isa = isa;
      }
    } else {
      std::fprintf(
          stderr,
          "usage: kernel_bench [--threads N] [--rounds N] [--tokens T] [--csv "
          "FILE]"
          " [--isa portable|avx2|avx512|neon] [--steps-only] [--cpu-time]\n");
      return 2;
    }
  }
  std::printf("%sisa %s, %d threads\n", measure::DescribeCpu().c_str(),
              ToString(options.isa), options.threads);
  Bench bench(options);
  bench.Steps();
  bench.Attention();
  if (options.shapes) bench.Shapes();
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) { return sluice::kernels::Main(argc, argv); }
