// Speeds of latent attention's products of heads beside the memory read
// bandwidth of the same minutes. See README.md.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tensor/buffer.h"
#include "common/tensor/weight_format.h"
#include "common/tools/measure/limits.h"
#include "common/tools/measure/machine.h"
#include "kernels/block_pack.h"
#include "kernels/head_matmul.h"
#include "kernels/matmul.h"

namespace sluice::kernels {
namespace {

struct Options {
  int threads = 2;
  int rounds = 7;
};

bool g_cpu_time = false;  // set once in Main

// Seconds of some past moment; of this thread's CPU time if asked for.
double Seconds() {
  timespec time;
  clock_gettime(g_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

// The products of one layer: queries with the keys of heads, sums of rows with
// their values.
struct Shape {
  const char* name;
  int64_t heads;
  int64_t rank;
  int64_t nope_dim;
  int64_t value_dim;
};

// Weights of many layers, so that no cache holds those of a call.
class Bench {
 public:
  Bench(const Options& options, const Shape& shape, WeightType type,
        int64_t tokens)
      : options_(options),
        shape_(shape),
        type_(type),
        tokens_(tokens),
        team_({.num_threads = options.threads, .cpus = Cpus(options.threads)}) {
    const int64_t keys = BytesOf(shape.rank, shape.nope_dim);
    const int64_t values = BytesOf(shape.value_dim, shape.rank);
    layer_bytes_ = shape.heads * (keys + values);
    layers_ = std::clamp<int64_t>(kAllBytes / layer_bytes_, 1, 64);
    memory_ = Buffer(static_cast<size_t>(layers_ * layer_bytes_));
    // Small numbers in any type: bytes of 0x00 to 0x3b.
    auto* const bytes = memory_.as<uint8_t>();
    for (int64_t i = 0; i < layers_ * layer_bytes_; ++i) {
      bytes[i] = static_cast<uint8_t>(i * 7 % 60);
    }
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const uint8_t* at = bytes + layer * layer_bytes_;
      for (int64_t h = 0; h < shape.heads; ++h, at += keys) {
        keys_.push_back(View(at, shape.rank, shape.nope_dim));
      }
      for (int64_t h = 0; h < shape.heads; ++h, at += values) {
        values_.push_back(View(at, shape.value_dim, shape.rank));
      }
    }
    q_.assign(static_cast<size_t>(tokens * shape.heads * shape.nope_dim), 0.5f);
    absorbed_.assign(static_cast<size_t>(tokens * shape.heads * shape.rank),
                     0.5f);
    out_.assign(static_cast<size_t>(tokens * shape.heads * shape.value_dim),
                0.0f);
  }

  void Run() {
    std::vector<double> best;
    std::vector<double> reads;
    for (int round = 0; round < options_.rounds; ++round) {
      reads.push_back(measure::ReadRate(
          {&team_, Seconds}, {memory_.as<uint8_t>(), memory_.size()}));
      const double begin = Seconds();
      for (int64_t layer = 0; layer < layers_; ++layer) Multiply(layer);
      best.push_back((Seconds() - begin) / static_cast<double>(layers_));
    }
    const double seconds = *std::min_element(best.begin(), best.end());
    const double read = *std::max_element(reads.begin(), reads.end());
    const double rate = static_cast<double>(layer_bytes_) / seconds * 1e-9;
    std::printf(
        "%-9s %-5s tokens %3ld %9.3f ms a layer %7.2f GB/s of weights, %3.0f "
        "%% of %5.1f read; %7.1f GFLOP/s\n",
        shape_.name, FormatOf(type_).name.data(), static_cast<long>(tokens_),
        seconds * 1e3, rate, rate / read * 100, read,
        2e-9 *
            static_cast<double>(tokens_ * shape_.heads * shape_.rank *
                                (shape_.nope_dim + shape_.value_dim)) /
            seconds);
    std::fflush(stdout);
  }

 private:
  static constexpr int64_t kAllBytes = int64_t{400} << 20;

  static std::vector<int> Cpus(int threads) {
    std::vector<int> cpus;
    for (int i = 0; i < threads; ++i) cpus.push_back(i);
    return cpus;
  }
  bool is_plain() const { return FormatOf(type_).is_plain(); }
  int64_t BytesOf(int64_t rows, int64_t cols) const {
    return is_plain() ? PlainBytes(type_, rows * cols)
                      : PackedBytes(BlockFormatOf(type_), rows, cols);
  }
  ExpertWeight View(const uint8_t* at, int64_t rows, int64_t cols) const {
    if (is_plain()) return {{at, type_, rows, cols}, {}};
    return {{}, {BlockFormatOf(type_), at, rows, cols}};
  }
  void Multiply(int64_t layer) {
    const Context context = {&team_, DetectIsa()};
    const DotContext dot = {&team_, &BlockOpsFor(DotIsaFor(DetectIsa()))};
    const int64_t heads = shape_.heads;
    const auto first = static_cast<size_t>(layer * heads);
    const auto count = static_cast<size_t>(heads);
    const Matrix q = Rows(q_, heads, shape_.nope_dim);
    const Matrix absorbed = Rows(absorbed_, heads, shape_.rank);
    const Matrix out = Rows(out_, heads, shape_.value_dim);
    HeadMatMul(context, dot,
               {std::span(keys_).subspan(first, count), q, shape_.nope_dim,
                absorbed, shape_.rank});
    HeadMatMul(context, dot,
               {std::span(values_).subspan(first, count), absorbed, shape_.rank,
                out, shape_.value_dim});
  }
  // The columns of head 0.
  Matrix Rows(std::vector<float>& floats, int64_t heads, int64_t cols) const {
    return {floats.data(), tokens_, cols, heads * cols};
  }

  const Options options_;
  const Shape shape_;
  const WeightType type_;
  const int64_t tokens_;
  ThreadTeam team_;
  int64_t layer_bytes_ = 0;
  int64_t layers_ = 0;
  Buffer memory_;
  std::vector<ExpertWeight> keys_;
  std::vector<ExpertWeight> values_;
  std::vector<float> q_;
  std::vector<float> absorbed_;
  std::vector<float> out_;
};

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--cpu-time") {
      g_cpu_time = true;
      options.threads = 1;
    } else if (i + 1 < argc && flag == "--threads") {
      options.threads = std::max(1, std::atoi(argv[++i]));
    } else if (i + 1 < argc && flag == "--rounds") {
      options.rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: head_bench [--threads N] [--rounds N] "
                   "[--cpu-time]\n");
      return 2;
    }
  }
  std::printf("%sisa %s, %d threads\n", measure::DescribeCpu().c_str(),
              ToString(DetectIsa()), options.threads);
  constexpr Shape kShapes[] = {{"latent20", 20, 512, 192, 256},
                               {"latent128", 128, 512, 128, 128}};
  for (const Shape& shape : kShapes) {
    for (const WeightType type :
         {WeightType::kF32, WeightType::kBf16, WeightType::kQ8_0}) {
      for (const int64_t tokens : {1, 8, 256}) {
        Bench(options, shape, type, tokens).Run();
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) { return sluice::kernels::Main(argc, argv); }
