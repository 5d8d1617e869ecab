#include "common/tools/measure/limits.h"

#include <algorithm>
#include <chrono>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace sluice::measure {

using kernels::DotIsa;
using kernels::Isa;

#if defined(__x86_64__)
namespace {

constexpr int kChains = 12;

// Keeps a vector alive without storing it.
#define SLUICE_USE(value) asm volatile("" : : "x"(value))

__attribute__((target("avx512f,avx512vnni"))) void Dot512(int64_t rounds) {
  __m512i sums[kChains];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  const __m512i one = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_dpbusd_epi32(sums[c], one, one);
    }
  }
  for (const __m512i& sum : sums) SLUICE_USE(sum);
}

__attribute__((target("avx2,avxvnni"))) void Dot256(int64_t rounds) {
  __m256i sums[kChains];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  const __m256i one = _mm256_set1_epi8(1);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm256_dpbusd_avx_epi32(sums[c], one, one);
    }
  }
  for (const __m256i& sum : sums) SLUICE_USE(sum);
}

// The sum is a factor of the next step: otherwise the product would be moved
// out of the loop.
__attribute__((target("avx512f,avx512bw"))) void Pairs512(int64_t rounds) {
  __m512i sums[kChains];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  const __m512i one = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_add_epi16(sums[c], _mm512_maddubs_epi16(one, sums[c]));
    }
  }
  for (const __m512i& sum : sums) SLUICE_USE(sum);
}

__attribute__((target("avx2"))) void Pairs256(int64_t rounds) {
  __m256i sums[kChains];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  const __m256i one = _mm256_set1_epi8(1);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm256_add_epi16(sums[c], _mm256_maddubs_epi16(one, sums[c]));
    }
  }
  for (const __m256i& sum : sums) SLUICE_USE(sum);
}

__attribute__((target("avx512f"))) void Fma512(int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_fmadd_ps(one, one, sums[c]);
    }
  }
  for (const __m512& sum : sums) SLUICE_USE(sum);
}

__attribute__((target("avx2,fma"))) void Fma256(int64_t rounds) {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  const __m256 one = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm256_fmadd_ps(one, one, sums[c]);
    }
  }
  for (const __m256& sum : sums) SLUICE_USE(sum);
}

__attribute__((target("avx2"))) void Read256(const uint8_t* from,
                                             int64_t bytes) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t at = 0; at + 256 <= bytes; at += 256) {
    const auto* words = reinterpret_cast<const __m256i*>(from + at);
    for (int c = 0; c < 4; ++c) {
      _mm_prefetch(reinterpret_cast<const char*>(from + at + 8192 + 64 * c),
                   _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      sums[c] = _mm256_add_epi64(sums[c], _mm256_loadu_si256(words + c));
    }
  }
  for (const __m256i& sum : sums) SLUICE_USE(sum);
}

}  // namespace

void ReadBytes(const uint8_t* from, int64_t bytes) {
  if (__builtin_cpu_supports("avx2")) return Read256(from, bytes);
  __m128i sum = _mm_setzero_si128();
  for (int64_t at = 0; at + 16 <= bytes; at += 16) {
    sum = _mm_add_epi64(
        sum, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  SLUICE_USE(sum);
}

PeakWork PeakOf(DotIsa isa) {
  // Two operations per byte of a vector.
  switch (isa) {
    case DotIsa::kAvx512Vnni:
      return {Dot512, kChains * 64 * 2};
    case DotIsa::kAvx512:
      return {Pairs512, kChains * 64 * 2};
    case DotIsa::kAvxVnni:
      return {Dot256, kChains * 32 * 2};
    case DotIsa::kAvx2:
      return {Pairs256, kChains * 32 * 2};
    default:
      return {};
  }
}

PeakWork FmaPeakOf(Isa isa) {
  if (isa == Isa::kAvx512) return {Fma512, kChains * 16 * 2};
  if (isa == Isa::kAvx2) return {Fma256, kChains * 8 * 2};
  return {};
}

#else

void ReadBytes(const uint8_t* from, int64_t bytes) {
  uint64_t sum = 0;
  const auto* words = reinterpret_cast<const uint64_t*>(from);
  for (int64_t i = 0; i < bytes / 8; ++i) sum += words[i];
  asm volatile("" : : "r"(sum));
}

#if defined(__aarch64__)
namespace {

constexpr int kChains = 12;

// As the x86 sets' peaks; `Step` does one step of a chain.
template <typename Sum, typename Step>
void RunChains(int64_t rounds, Sum zero, const Step& step) {
  Sum sums[kChains];
  for (Sum& sum : sums) sum = zero;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) step(sums[c]);
  }
  for (const Sum& sum : sums) asm volatile("" : : "w"(sum));
}

// In assembly: the compiler has it for newer CPUs alone.
void Dot128(int64_t rounds) {
  const int8x16_t one = vdupq_n_s8(1);
  RunChains(rounds, vdupq_n_s32(0), [one](int32x4_t& sum) {
    asm(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %1.16b"
        : "+w"(sum)
        : "w"(one));
  });
}

void Matrix128(int64_t rounds) {
  const int8x16_t one = vdupq_n_s8(1);
  RunChains(rounds, vdupq_n_s32(0), [one](int32x4_t& sum) {
    asm(".arch armv8.2-a+i8mm\n\tsmmla %0.4s, %1.16b, %1.16b"
        : "+w"(sum)
        : "w"(one));
  });
}

void Pairs128(int64_t rounds) {
  const int8x16_t one = vdupq_n_s8(1);
  RunChains(rounds, vdupq_n_s16(0), [one](int16x8_t& sum) {
    const int8x16_t bytes = vreinterpretq_s8_s16(sum);
    const int16x8_t low = vmull_s8(vget_low_s8(one), vget_low_s8(bytes));
    sum = vaddq_s16(sum, vpaddq_s16(low, vmull_high_s8(one, bytes)));
  });
}

void Fma128(int64_t rounds) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  RunChains(rounds, vdupq_n_f32(0.0f),
            [one](float32x4_t& sum) { sum = vfmaq_f32(sum, one, one); });
}

}  // namespace

PeakWork PeakOf(DotIsa isa) {
  if (isa == DotIsa::kNeonI8mm) return {Matrix128, kChains * 32 * 2};
  if (isa == DotIsa::kNeonDot) return {Dot128, kChains * 16 * 2};
  if (isa == DotIsa::kNeon) return {Pairs128, kChains * 16 * 2};
  return {};
}
PeakWork FmaPeakOf(Isa isa) {
  if (isa == Isa::kNeon) return {Fma128, kChains * 4 * 2};
  return {};
}

#else

PeakWork PeakOf(DotIsa) { return {}; }
PeakWork FmaPeakOf(Isa) { return {}; }

#endif
#endif

double SteadySeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double ReadRate(const Measurer& measurer, std::span<const uint8_t> memory) {
  constexpr int64_t kPage = 4096;
  const kernels::Context team{measurer.executor};
  const int threads = kernels::NumThreads(team);
  const auto pages = static_cast<int64_t>(memory.size()) / kPage;
  const double begin = measurer.seconds();
  kernels::ParallelFor(team, threads, [&](int part) {
    const int64_t first = pages * part / threads * kPage;
    const int64_t end = pages * (part + 1) / threads * kPage;
    ReadBytes(memory.data() + first, end - first);
  });
  return static_cast<double>(pages * kPage) / (measurer.seconds() - begin) *
         1e-9;
}

double PeakRate(const Measurer& measurer, const PeakWork& work) {
  constexpr int64_t kRounds = 200000;
  if (work.run == nullptr) return 0;
  const kernels::Context team{measurer.executor};
  const int threads = kernels::NumThreads(team);
  const double begin = measurer.seconds();
  kernels::ParallelFor(team, threads, [&](int) { work.run(kRounds); });
  return static_cast<double>(kRounds * work.operations * threads) /
         (measurer.seconds() - begin) * 1e-9;
}

double JoinSeconds(const Measurer& measurer) {
  constexpr int kRuns = 100;
  constexpr int kJoins = 20;
  const kernels::Context team{measurer.executor};
  const int threads = kernels::NumThreads(team);
  if (threads == 1) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const double begin = measurer.seconds();
    for (int i = 0; i < kJoins; ++i) {
      kernels::ParallelFor(team, threads, [](int) {});
    }
    least = std::min(least, (measurer.seconds() - begin) / kJoins);
  }
  return least;
}

LimitProbe::LimitProbe(const LimitOptions& options)
    : options_(options),
      team_({.num_threads = options.threads, .cpus = {}, .name = "limits"}),
      memory_(size_t{256} << 20, 1) {}

Limits LimitProbe::Measure() {
  constexpr int kPasses = 3;
  const Measurer one;
  const Measurer all{&team_};
  Limits best;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto raise = [](double& to, double rate) { to = std::max(to, rate); };
    raise(best.read_one, ReadRate(one, std::span(memory_).first(64 << 20)));
    raise(best.read_all, ReadRate(all, memory_));
    raise(best.dot_peak, PeakRate(all, PeakOf(options_.dot)));
    raise(best.fma_peak, PeakRate(all, FmaPeakOf(options_.vectors)));
  }
  best.join_seconds = JoinSeconds(all);
  return best;
}

}  // namespace sluice::measure
