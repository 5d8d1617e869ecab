#include "kernels/cuda/shared/row_ops.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/block_matmul.h"
#include "kernels/elementwise.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kPad = 2;
constexpr int64_t kWidths[] = {1, 15, 16, 17, 31, 33, 127, 128, 129, 300, 515};
// Rows of a multiple of 16 bytes, without padding between them.
constexpr int64_t kAlignedWidths[] = {4, 28, 512, 516, 1024};

// Runs op(stream, y) on a marked y both ways; expects op(y) of the CPU.
template <typename OnDevice, typename OnCpu>
void ExpectCpusBits(const OwnedMatrix& before, const OnDevice& on_device,
                    const OnCpu& on_cpu) {
  OwnedMatrix want = before;
  on_cpu(want.view());
  const std::vector<float> got = BothWays([&](Stream stream) {
    OwnedMatrix y = before;
    on_device(stream, y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  });
  EXPECT_TRUE(SameBits(got, want.values()));
}

OwnedMatrix Filled(uint64_t seed, int64_t cols, float scale = 3.0f,
                   int64_t pad = kPad) {
  OwnedMatrix x(kRows, cols, pad);
  const auto values = RandomFloats(seed, kRows * cols, scale);
  for (int64_t t = 0; t < kRows; ++t) {
    std::copy_n(values.data() + t * cols, cols, x.view().row(t));
  }
  return x;
}

// Runs test(cols, pad) for rows that are aligned and rows that are not.
template <typename Test>
void AtEveryWidth(const Test& test) {
  for (const int64_t cols : kWidths) {
    SCOPED_TRACE(cols);
    test(cols, kPad);
  }
  for (const int64_t cols : kAlignedWidths) {
    SCOPED_TRACE(cols);
    test(cols, 0);
  }
}

void ExpectRmsNorm(int64_t cols, int64_t pad) {
  SCOPED_TRACE(cols);
  const OwnedMatrix x = Filled(1, cols, 3.0f, pad);
  const auto weight = RandomFloats(2, cols);
  ExpectCpusBits(
      OwnedMatrix(kRows, cols, pad),
      [&](Stream stream, Matrix y) {
        RmsNorm(stream, x.view(), weight.data(), 1e-5f, y);
      },
      [&](Matrix y) {
        kernels::RmsNorm({}, x.view(), weight.data(), 1e-5f, y);
      });
}

TEST(CudaRowOpsTest, RmsNormHasTheCpusBits) { AtEveryWidth(ExpectRmsNorm); }

TEST(CudaRowOpsTest, RmsNormOfSeveralPiecesHasTheCpusBits) {
  for (const int64_t cols : {4096, 4100, 8192, 8196, 16640}) {
    ExpectRmsNorm(cols, 0);
    ExpectRmsNorm(cols + 1, kPad);
  }
}

TEST(CudaRowOpsTest, RmsNormIsCloseToDouble) {
  const int64_t cols = 2048;
  const OwnedMatrix x(1, cols, RandomFloats(3, cols, 50.0f));
  const auto weight = RandomFloats(4, cols);
  const auto got = BothWays([&](Stream stream) {
    OwnedMatrix y(1, cols);
    RmsNorm(stream, x.view(), weight.data(), 1e-6f, y.view());
    return y.values();
  });
  const auto in = x.values();
  const double mean = DotInDouble(in.data(), in.data(), cols) / cols;
  for (int64_t i = 0; i < cols; ++i) {
    const double want = in[i] / std::sqrt(mean + 1e-6) * weight[i];
    ASSERT_NEAR(got[i], want, std::abs(want) * Gamma((cols / 16 + 4) / 2 + 5));
  }
}

TEST(CudaRowOpsTest, RmsNormOfHeadsInPlaceHasTheCpusBits) {
  const auto weight = RandomFloats(31, 24);
  ExpectCpusBits(
      Filled(30, 5 * 24),
      [&](Stream stream, Matrix x) {
        RmsNormHeads(stream, x, 24, weight.data(), 1e-6f);
      },
      [&](Matrix x) {
        kernels::RmsNormHeads({}, x, 24, weight.data(), 1e-6f);
      });
}

TEST(CudaRowOpsTest, RopeHasTheCpusBits) {
  const int64_t half = 6;
  const int64_t head_dim = 20;  // the last eight do not rotate
  std::vector<double> inv_freq(half);
  for (int64_t i = 0; i < half; ++i) inv_freq[i] = std::pow(10.0, -i / 2.0);
  std::vector<float> cos(40 * half);
  std::vector<float> sin(40 * half);
  MakeRopeTable(inv_freq, {0, 40}, 1.25, cos.data(), sin.data());
  const RopeTable table = {cos.data(), sin.data(), 40, half};
  const int32_t positions[kRows] = {0, 39, 7};
  for (const RopeStyle style :
       {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
    ExpectCpusBits(
        Filled(5, 7 * head_dim),
        [&](Stream stream, Matrix x) {
          Rope(stream, x, head_dim, style, table, positions);
        },
        [&](Matrix x) {
          kernels::Rope({}, x, head_dim, style, table, positions);
        });
  }
}

TEST(CudaRowOpsTest, GatesHaveTheCpusBitsAtEverySize) {
  AtEveryWidth([](int64_t cols, int64_t pad) {
    // Beyond both ends of Exp, too.
    const OwnedMatrix x = Filled(6, 2 * cols, 150.0f, pad);
    ExpectCpusBits(
        OwnedMatrix(kRows, cols, pad),
        [&](Stream stream, Matrix y) { SiluMul(stream, x.view(), y); },
        [&](Matrix y) { kernels::SiluMul({}, x.view(), y); });
    ExpectCpusBits(
        OwnedMatrix(kRows, cols, pad),
        [&](Stream stream, Matrix y) {
          ClampedSwiGlu(stream, x.view(), 7.0f, y);
        },
        [&](Matrix y) { kernels::ClampedSwiGlu({}, x.view(), 7.0f, y); });
  });
}

TEST(CudaRowOpsTest, AddHasTheCpusBits) {
  AtEveryWidth([](int64_t cols, int64_t pad) {
    const OwnedMatrix y = Filled(7, cols, 3.0f, pad);
    ExpectCpusBits(
        Filled(8, cols, 3.0f, pad),
        [&](Stream stream, Matrix x) { Add(stream, y.view(), x); },
        [&](Matrix x) { kernels::Add({}, y.view(), x); });
  });
}

TEST(CudaRowOpsTest, EmbedWidensPlainTypes) {
  const int64_t cols = 640;
  const int32_t ids[kRows] = {6, 0, 3};
  const OwnedWeight f32(WeightType::kF32, 7, cols, RandomFloats(9, 7 * cols));
  const OwnedWeight bf16(WeightType::kBf16, 7, cols, RandomBf16(9, 7 * cols));
  const CodedWeight e4m3(10, 7, cols);
  const CodedWeight wide(WeightType::kE4m3Wide, 10, 7, cols);
  for (const WeightView& table :
       {f32.view(), bf16.view(), e4m3.view(), wide.view()}) {
    for (const int64_t pad : {kPad, int64_t{0}}) {
      ExpectCpusBits(
          OwnedMatrix(kRows, cols, pad),
          [&](Stream stream, Matrix y) { Embed(stream, table, ids, y); },
          [&](Matrix y) { kernels::Embed({}, table, ids, y); });
    }
  }
}

// Heads of `head_dim` elements of which 2 x half rotate.
void ExpectRopeStored(int64_t head_dim, int64_t half, int64_t pad) {
  SCOPED_TRACE(testing::Message() << half << " of " << head_dim);
  std::vector<float> cos(40 * head_dim / 2);
  std::vector<float> sin(cos.size());
  const int32_t positions[kRows] = {0, 39, 7};
  const int64_t slots[kRows] = {31, 0, 18};
  const int64_t q_heads = 30;  // more pairs than a block has
  const int64_t kv_heads = 3;
  OwnedMatrix qkv = Filled(11, (q_heads + 2 * kv_heads) * head_dim, 3.0f, pad);
  qkv.view().data[(q_heads + kv_heads) * head_dim + 1] = NAN;
  const auto columns = [&](Matrix x, int64_t head, int64_t heads) {
    return Matrix{x.data + head * head_dim, x.rows, heads * head_dim, x.stride};
  };
  std::vector<double> inv_freq(half);
  for (int64_t i = 0; i < half; ++i) inv_freq[i] = std::pow(10.0, -i / 2.0);
  MakeRopeTable(inv_freq, {0, 40}, 1.25, cos.data(), sin.data());
  RopeStore rope = {q_heads,
                    RopeStyle::kHalfSplit,
                    {cos.data(), sin.data(), 40, half},
                    positions,
                    slots};
  for (const auto style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
    rope.style = style;
    for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
      // Floats stand for the bytes of either type; qkv's are behind them.
      const int64_t floats = 2 * kv_heads * 16 * head_dim;
      const auto run = [&](const auto& op) {
        OwnedMatrix x = qkv;
        std::vector<float> bytes(2 * floats, 0.5f);
        op(x.view(), KvView{bytes.data(), bytes.data() + floats, 2, kv_heads,
                            16, head_dim, type, nullptr});
        EXPECT_TRUE(x.MarkIntact());
        const auto values = x.values();
        bytes.insert(bytes.end(), values.begin(), values.end());
        return bytes;
      };
      const auto want = run([&](Matrix x, const KvView& kv) {
        kernels::Rope({}, columns(x, 0, q_heads + kv_heads), head_dim, style,
                      rope.table, positions);
        kernels::StoreKv({}, columns(x, q_heads, kv_heads),
                         columns(x, q_heads + kv_heads, kv_heads), slots, kv);
      });
      const auto got = BothWays([&](Stream stream) {
        return run([&](Matrix x, const KvView& kv) {
          RopeStoreKv(stream, x, rope, kv);
        });
      });
      EXPECT_TRUE(SameBits(got, want));
    }
  }
}

TEST(CudaRowOpsTest, RopeStoreKvHasTheCpusBits) {
  // Whole heads and a part of each rotate.
  for (const int64_t half : {10, 6}) ExpectRopeStored(20, half, kPad);
  // Four pairs a thread, where rows and tables are aligned for it.
  for (const int64_t half : {8, 12, 16}) {
    ExpectRopeStored(32, half, 0);
    ExpectRopeStored(32, half, kPad);
  }
  ExpectRopeStored(32, 6, 0);
}

TEST(CudaRowOpsTest, StoreKvInQ8StoresTheCpusBytes) {
  const int64_t slots[kRows] = {31, 0, 18};
  for (const int64_t head_dim : {32, 64, 96, 160}) {
    const int64_t heads = 3;
    const int64_t cols = heads * head_dim;
    // Magnitudes from below 2^-100 to those whose scales F16 lacks.
    OwnedMatrix k(kRows, cols, SpreadActivations(13, kRows, cols));
    OwnedMatrix v(kRows, cols, SpreadActivations(14, kRows, cols));
    k.view().data[1] = NAN;
    v.view().data[cols + head_dim] = INFINITY;
    k.view().data[2 * cols + 1] = 3e38f;
    const int64_t bytes = 2 * heads * 16 * head_dim / 32 * 34;
    const auto store = [&](const auto& op) {
      std::vector<float> stored(static_cast<size_t>(bytes / 2), 0.5f);
      op(KvView{stored.data(), stored.data() + bytes / 4, 2, heads, 16,
                head_dim, WeightType::kQ8_0, &BlockOpsFor(DotIsa::kPortable)});
      return stored;
    };
    const auto want = store([&](const KvView& kv) {
      kernels::StoreKv({}, k.view(), v.view(), slots, kv);
    });
    const auto got = BothWays([&](Stream stream) {
      return store([&](const KvView& kv) {
        StoreKv(stream, k.view(), v.view(), slots, kv);
      });
    });
    EXPECT_TRUE(SameBits(got, want)) << head_dim;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
