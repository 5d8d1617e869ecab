// What device code hides behind names does what the names say: on the machine
// that stands for a GPU and, built with CUDA, on a GPU, against plain C++.
#include "tests/cuda_machine/probes/primitives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice::kernels::cuda {
namespace {

using Words = std::vector<uint32_t>;
constexpr int kLanes = 32;

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }

// The nearest BF16 number of a finite one, ties to the even one.
uint32_t Bf16Of(double value) {
  const auto rounded = static_cast<float>(value);
  // Products and differences of near exponents are exact in F32.
  EXPECT_EQ(static_cast<double>(rounded), value);
  const uint32_t bits = BitsOf(rounded);
  return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}
float WidenedBf16(uint32_t bits) { return FloatOf(bits << 16); }

// Any bits, finite floats, pairs of finite BF16 numbers.
Words Inputs() {
  Words in;
  uint32_t state = 12345;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return state ^ state >> 15;
  };
  for (int i = 0; i < kPrimitiveWords; ++i) in.push_back(next());
  const auto near = [](uint32_t sign_and_fraction, uint32_t exponent) {
    return sign_and_fraction | (124u + exponent % 8) << 23;
  };
  for (int i = 0; i < kPrimitiveWords; ++i) {
    const uint32_t bits = next();
    in.push_back(near(bits & 0x807FFFFFu, bits >> 23));
  }
  for (int i = 0; i < kPrimitiveWords; ++i) {
    const uint32_t lower = next();
    const uint32_t upper = next();
    in.push_back(near(lower & 0x807F0000u, lower >> 23) >> 16 |
                 (near(upper & 0x807F0000u, upper >> 23) & 0xFFFF0000u));
  }
  return in;
}

class PrimitivesTest : public ::testing::Test {
 protected:
  using Start = void (*)(Stream stream, const uint32_t* in, uint32_t* out);

  void SetUp() override {
    std::string error;
    runtime_ = Runtime::Open(0, &error);
    if (runtime_ == nullptr) GTEST_SKIP() << error;
  }
  uint32_t* Copied(const Words& words) {
    const size_t bytes = words.size() * sizeof(uint32_t);
    auto* const data = static_cast<uint32_t*>(runtime_->Allocate(bytes));
    runtime_->CopyIn(words.data(), data, {bytes});
    runtime_->Sync();
    return data;
  }
  Words Back(const uint32_t* data, size_t count) {
    Words words(count);
    runtime_->CopyOut(data, words.data(), {count * sizeof(uint32_t)});
    runtime_->Sync();
    return words;
  }
  // What a kernel stores, `results` words of each thread.
  Words ResultsOf(Start start, const Words& in, int results) {
    const size_t count = static_cast<size_t>(kPrimitiveThreads) * results;
    uint32_t* const from = Copied(in);
    uint32_t* const to = Copied(Words(count, 0xDEADBEEFu));
    start(runtime_->stream(), from, to);
    const Words out = Back(to, count);
    runtime_->Free(from);
    runtime_->Free(to);
    return out;
  }
  std::unique_ptr<Runtime> runtime_;
};

// Word by word: what thread t's result n is to be.
void ExpectWords(const Words& got, int results,
                 const std::function<uint32_t(int t, int n)>& want) {
  for (int t = 0; t < kPrimitiveThreads; ++t) {
    for (int n = 0; n < results; ++n) {
      EXPECT_EQ(got[static_cast<size_t>(t * results + n)], want(t, n))
          << "thread " << t << ", result " << n;
    }
  }
}

// Bytes of two words by the four lowest nibbles of `places`.
uint32_t Picked(uint32_t a, uint32_t b, uint32_t places) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t place = places >> (4 * i) & 7u;
    const uint32_t from = place < 4 ? a : b;
    word |= (from >> (place % 4 * 8) & 255u) << (8 * i);
  }
  return word;
}

TEST_F(PrimitivesTest, Words) {
  const Words in = Inputs();
  constexpr int kThreads = kPrimitiveThreads;
  const Words got = ResultsOf(StartWords, in, kWordResults);
  ExpectWords(got, kWordResults, [&](int t, int n) -> uint32_t {
    const uint32_t a = in[t];
    const uint32_t b = in[t + kThreads];
    const uint32_t c = in[t + 2 * kThreads];
    const float x = FloatOf(in[kPrimitiveWords + t]);
    const float y = FloatOf(in[kPrimitiveWords + t + kThreads]);
    const float z = FloatOf(in[kPrimitiveWords + t + 2 * kThreads]);
    const uint32_t p = in[2 * kPrimitiveWords + t];
    const uint32_t q = in[2 * kPrimitiveWords + t + kThreads];
    switch (n) {
      case 0: {
        uint32_t sum = c;
        for (int i = 0; i < 4; ++i) {
          sum += (a >> (8 * i) & 255u) *
                 static_cast<uint32_t>(static_cast<int8_t>(b >> (8 * i)));
        }
        return sum;
      }
      case 1:
        return Bf16Of(x) | Bf16Of(y) << 16;
      case 2:
      case 3: {
        uint32_t pair = 0;
        for (int half = 0; half < 2; ++half) {
          const double u = WidenedBf16(p >> (16 * half) & 0xFFFFu);
          const double v = WidenedBf16(q >> (16 * half) & 0xFFFFu);
          pair |= Bf16Of(n == 2 ? u * v : u - v) << (16 * half);
        }
        return pair;
      }
      case 4:
        return (a & 0xFFFFu) | b << 16;
      case 5:
        return a >> 16 | (b & 0xFFFF0000u);
      case 6:
        return Picked(a, b, c);
      case 7:
        return a | (b & 0x00FF00FFu);
      case 8: {
        const uint32_t half = a & 0xBBFFu;
        const auto fraction = static_cast<float>(half & 0x3FFu);
        const auto exponent = static_cast<int>(half >> 10 & 31u);
        const float size = exponent == 0
                               ? std::ldexp(fraction, -24)
                               : std::ldexp(fraction + 1024.0f, exponent - 25);
        return BitsOf(size) | (half & 0x8000u) << 16;
      }
      case 9:
        return BitsOf(std::fma(x, y, z));
      case 10:
        return BitsOf(std::sqrt(std::abs(x)));
      case 11:
        return static_cast<uint32_t>(std::popcount(a));
      case 12:
        return BitsOf(std::max(x, y));
      case 13:
        return in[3 * t];
      default: {
        const float product = x * y;
        return BitsOf(product + z);
      }
    }
  });
}

TEST_F(PrimitivesTest, ValuesOfOtherLanes) {
  const Words in = Inputs();
  const Words got = ResultsOf(StartLanes, in, kLaneResults);
  ExpectWords(got, kLaneResults, [&](int t, int n) -> uint32_t {
    const int warp = t / kLanes * kLanes;
    const auto begin = in.begin() + warp;
    if (n == 0) return in[warp + 5];
    if (n < 6) return in[warp + ((t - warp) ^ 1 << (n - 1))];
    if (n == 6) {
      uint32_t votes = 0;
      for (int i = 0; i < kLanes; ++i) votes |= (begin[i] & 1u) << i;
      return votes;
    }
    if (n == 7) return *std::max_element(begin, begin + kLanes);
    if (n == 8) return *std::min_element(begin, begin + kLanes);
    return in[kPrimitiveWords + warp + ((t - warp) ^ 3)];
  });
}

TEST_F(PrimitivesTest, ProductsOfTiles) {
  const Words got = ResultsOf(StartTiles, Inputs(), kTileResults);
  ExpectWords(got, kTileResults, [&](int t, int n) -> uint32_t {
    const int warp = t / kLanes;
    const int i = n % 4;
    const int row = 16 * warp + t % kLanes / 4 + i / 2 * 8;
    const int column = t % 4 * 2 + i % 2;
    int sum = n % 8 < 4 ? i + 1 : 0;
    if (n < 8) {
      for (int k = 0; k < 16; ++k) {
        sum += TileElementA(row, k) * TileElementB(k, 8 * warp + column);
      }
      return BitsOf(static_cast<float>(sum));
    }
    for (int k = 0; k < 32; ++k) {
      sum += CodeElementA(row, k) * CodeElementB(k, column);
    }
    return static_cast<uint32_t>(sum);
  });
}

TEST_F(PrimitivesTest, AsynchronousCopies) {
  const Words in = Inputs();
  constexpr int kThreads = kPrimitiveThreads;
  const Words got = ResultsOf(StartCopies, in, kCopyResults);
  ExpectWords(got, kCopyResults, [&](int t, int n) -> uint32_t {
    const int next = (t + 1) % kThreads;
    if (n < 4) return in[4 * next + n];
    if (n < 6) return in[4 * kThreads + 2 * next + n - 4];
    if (n == 6) return in[6 * kThreads + next];
    if (n == 7) return in[2 * t + 1];
    return in[kPrimitiveWords + 4 * next + n - 8];
  });
}

TEST_F(PrimitivesTest, CopiesThroughGates) {
  if (!HasGroups(runtime_->stream()))
    GTEST_SKIP() << "not of this architecture";
  const Words in = Inputs();
  const Words got = ResultsOf(StartGates, in, kGateUses);
  constexpr int kBrought = 64;
  ExpectWords(got, kGateUses, [&](int t, int use) {
    return in[use * kBrought + t * 5 % kBrought];
  });
}

// Operand B as GroupProducts has it: of each octet of columns words 0 of all
// lanes, then words 1.
Words OperandB() {
  Words words(kPrimitiveWords);
  for (int octet = 0; octet < kGroupOctets; ++octet) {
    for (int word = 0; word < 2; ++word) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int column = octet * 8 + lane / 4;
        const int k = lane % 4 * 2 + word * 8;
        words[static_cast<size_t>((octet * 2 + word) * kLanes + lane)] =
            Bf16Of(TileElementB(k, column)) |
            Bf16Of(TileElementB(k + 1, column)) << 16;
      }
    }
  }
  return words;
}

TEST_F(PrimitivesTest, ProductsOfFourWarps) {
  if (!HasGroups(runtime_->stream()))
    GTEST_SKIP() << "not of this architecture";
  const Words got = ResultsOf(StartGroups, OperandB(), kGroupResults);
  ExpectWords(got, kGroupResults, [&](int t, int n) {
    const int row = 16 * (t / kLanes) + t % kLanes / 4 + n % 4 / 2 * 8;
    const int column = n / 4 * 8 + t % 4 * 2 + n % 2;
    int sum = column;
    for (int k = 0; k < 16; ++k) {
      sum += 2 * TileElementA(row, k) * TileElementB(k, column);
    }
    return BitsOf(static_cast<float>(sum));
  });
}

// The last block to arrive sees what the others stored; again and again, since
// an order of memory that is wrong shows now and then.
TEST_F(PrimitivesTest, TheLastBlockSeesTheOthersWords) {
  const Words in = Inputs();
  uint32_t* const from = Copied(in);
  uint32_t* const arrived = Copied({0});
  Words want(kLanes);
  for (int i = 0; i < kArrivingBlocks * kLanes; ++i) {
    want[static_cast<size_t>((i + kLanes - 1) % kLanes)] +=
        in[static_cast<size_t>(i % kPrimitiveWords)];
  }
  for (int round = 0; round < 50; ++round) {
    uint32_t* const words =
        Copied(Words(size_t{kArrivingBlocks} * kLanes, 0xDEADBEEFu));
    uint32_t* const out = Copied(Words(kLanes));
    StartArrivals(runtime_->stream(), from, words, out, arrived);
    EXPECT_EQ(Back(out, kLanes), want) << "round " << round;
    EXPECT_EQ(Back(arrived, 1), Words{0});
    runtime_->Free(words);
    runtime_->Free(out);
  }
  runtime_->Free(from);
  runtime_->Free(arrived);
}

}  // namespace
}  // namespace sluice::kernels::cuda
