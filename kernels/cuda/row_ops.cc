#include "kernels/cuda/row_ops.h"

#include "common/base/check.h"
#include "kernels/block_format.h"
#include "kernels/cuda/gate.h"
#include "kernels/cuda/math.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kRowThreads = 128;

// A block per head of a row; a row may be one head. All threads bring a piece
// of it to shared memory, from which half a warp takes the canonical sum.
struct NormKernel {
  static constexpr int kThreads = 256;
  static constexpr int kPiece = 4096;
  struct Args {
    const float* x;
    int64_t x_stride;
    float* y;
    int64_t y_stride;
    int64_t heads;
    int64_t cols;  // of a head
    const float* weight;
    float eps;
  };
  static size_t SharedBytes(int64_t cols) {
    const int64_t piece = cols < kPiece ? cols : kPiece;
    return 16 + static_cast<size_t>((piece + 3) / 4 * 4) * sizeof(float);
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t row = block.index() / a.heads;
    const int64_t at = block.index() % a.heads * a.cols;
    const float* x = a.x + row * a.x_stride + at;
    float* y = a.y + row * a.y_stride + at;
    const auto shared = block.Allocate<float>(1);
    const auto piece = block.Allocate<float>(a.cols < kPiece ? a.cols : kPiece);
    float sum = 0.0f;
    for (int64_t begin = 0; begin < a.cols; begin += kPiece) {
      const auto count =
          static_cast<int>(a.cols - begin < kPiece ? a.cols - begin : kPiece);
      if (begin > 0) block.Sync();
      for (int i = block.thread(); i < count; i += kThreads) {
        piece.Set(i, x[begin + i]);
      }
      block.Sync();
      if (block.thread() < 16) sum = Squares(block, piece, count, sum);
    }
    if (block.warp() == 0) {
      const float square = SumLanes(block, sum);
      const float mean = square / static_cast<float>(a.cols);
      if (block.lane() == 0) shared.Set(0, 1.0f / SquareRoot(mean + a.eps));
    }
    block.Sync();
    const float scale = shared.Get(0);
    for (int64_t i = block.thread(); i < a.cols; i += kThreads) {
      y[i] = x[i] * scale * a.weight[i];
    }
  }
  // A thread's lane of the canonical sum of squares, from `sum` on.
  static SLUICE_DEVICE float Squares(Block& block, const Shared<float>& x,
                                     int count, float sum) {
    constexpr int kAtOnce = 16;
    int k = block.lane();
    for (; k + 16 * (kAtOnce - 1) < count; k += 16 * kAtOnce) {
      float values[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i) values[i] = x.Get(k + 16 * i);
      for (int i = 0; i < kAtOnce; ++i) sum = Fma(values[i], values[i], sum);
    }
    for (; k < count; k += 16) sum = Fma(x.Get(k), x.Get(k), sum);
    return sum;
  }
};

// A block per token.
struct RopeKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    Matrix x;
    int64_t head_dim;
    bool split;
    RopeTable table;
    const int32_t* positions;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t half = a.table.half;
    const int64_t from = a.positions[block.index()] * half;
    float* row = a.x.data + block.index() * a.x.stride;
    const int64_t pairs = a.x.cols / a.head_dim * half;
    for (int64_t p = block.thread(); p < pairs; p += kThreads) {
      const int64_t i = p % half;
      float* head = row + p / half * a.head_dim;
      float* first = head + (a.split ? i : 2 * i);
      float* second = first + (a.split ? half : 1);
      const float cos = a.table.cos[from + i];
      const float sin = a.table.sin[from + i];
      const float av = *first;
      const float bv = *second;
      *first = Fma(av, cos, -(bv * sin));
      *second = Fma(bv, cos, av * sin);
    }
  }
};

// A thread per element of y [T, F]; x [T, 2F].
template <bool kClamped>
struct GateKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    ConstMatrix x;
    Matrix y;
    float limit;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t n = block.index() * kThreads + block.thread();
    if (n >= a.y.rows * a.y.cols) return;
    const int64_t row = n / a.y.cols;
    const int64_t i = n % a.y.cols;
    const float g = a.x.data[row * a.x.stride + i];
    const float u = a.x.data[row * a.x.stride + a.y.cols + i];
    a.y.data[row * a.y.stride + i] =
        kClamped ? ClampedGate(g, u, a.limit) : SiluGate(g, u);
  }
};

struct AddKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    ConstMatrix y;
    Matrix x;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t n = block.index() * kThreads + block.thread();
    if (n >= a.x.rows * a.x.cols) return;
    const int64_t row = n / a.x.cols;
    const int64_t i = n % a.x.cols;
    a.x.data[row * a.x.stride + i] += a.y.data[row * a.y.stride + i];
  }
};

// A block per token.
template <WeightType kType>
struct EmbedKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    const void* table;
    const int32_t* ids;
    Matrix y;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t from = a.ids[block.index()] * a.y.cols;
    float* y = a.y.data + block.index() * a.y.stride;
    for (int64_t i = block.thread(); i < a.y.cols; i += kThreads) {
      y[i] = Element<kType>(a.table, from + i);
    }
  }
};

SLUICE_DEVICE void StoreElement(float x, float* to) { *to = x; }
// Rounded to nearest even; a NaN stays one.
SLUICE_DEVICE void StoreElement(float x, uint16_t* to) {
  const auto bits = BitCast<uint32_t>(x);
  *to = static_cast<uint16_t>(
      x != x ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// A thread per two elements of a head of qkv: a pair that rotates, or two
// neighbours.
template <typename T>
struct RopeStoreKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    Matrix qkv;
    RopeStore rope;
    T* keys;
    T* values;
    int64_t kv_heads;
    int64_t block_tokens;
    int64_t head_dim;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t pairs = a.head_dim / 2;
    const int64_t heads = a.rope.num_heads + 2 * a.kv_heads;
    const int64_t n = block.index() * kThreads + block.thread();
    const int64_t token = n / (heads * pairs);
    if (token >= a.qkv.rows) return;
    const int64_t head = n / pairs % heads;
    const int64_t pair = n % pairs;
    const int64_t half = a.rope.table.half;
    const bool rotates = head < a.rope.num_heads + a.kv_heads && pair < half;
    const bool split = rotates && a.rope.style == RopeStyle::kHalfSplit;
    const int64_t first = split ? pair : 2 * pair;
    const int64_t second = split ? pair + half : first + 1;
    float* const x = a.qkv.data + token * a.qkv.stride + head * a.head_dim;
    float x1 = x[first];
    float x2 = x[second];
    if (rotates) {
      const int64_t from = a.rope.positions[token] * half + pair;
      const float cos = a.rope.table.cos[from];
      const float sin = a.rope.table.sin[from];
      const float turned = Fma(x1, cos, -(x2 * sin));
      x2 = Fma(x2, cos, x1 * sin);
      x1 = turned;
      x[first] = x1;
      x[second] = x2;
    }
    const int64_t kv_head = head - a.rope.num_heads;
    if (kv_head < 0) return;
    const int64_t slot = a.rope.slots[token];
    const int64_t to =
        ((slot / a.block_tokens * a.kv_heads + kv_head % a.kv_heads) *
             a.block_tokens +
         slot % a.block_tokens) *
        a.head_dim;
    T* const cache = (kv_head < a.kv_heads ? a.keys : a.values) + to;
    StoreElement(x1, cache + first);
    StoreElement(x2, cache + second);
  }
};

template <typename T>
void RopeStoreAs(Stream stream, Matrix qkv, const RopeStore& rope,
                 const KvView& kv) {
  const int64_t elements = qkv.rows * (qkv.cols / 2);
  Launch<RopeStoreKernel<T>>(
      stream, (elements + kRowThreads - 1) / kRowThreads, 0,
      {qkv, rope, static_cast<T*>(kv.keys), static_cast<T*>(kv.values),
       kv.num_kv_heads, kv.block_tokens, kv.head_dim});
}

// A block per token and head, a warp per 32 elements; attention.h has the
// layout.
struct StoreKvQ8Kernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr int kWarps = kThreads / kWarpLanes;
  struct Args {
    ConstMatrix k;
    ConstMatrix v;
    const int64_t* slots;
    uint8_t* keys;
    uint8_t* values;
    int64_t heads;
    int64_t head_dim;
  };
  static size_t SharedBytes(int64_t head_dim) {
    const auto blocks = static_cast<size_t>(head_dim / kShortBlock);
    return (2 * blocks * sizeof(float) + 15) / 16 * 16 + 2 * kWarps * 4;
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t token = block.index() / a.heads;
    const int64_t head = block.index() % a.heads;
    const int64_t slot = a.slots[token];
    const int64_t place = slot % kGroupRows;
    const int64_t blocks = a.head_dim / kShortBlock;
    const int64_t base =
        (slot / kGroupRows * a.heads + head) * kGroupRows * blocks * 34;
    uint8_t* const keys = a.keys + base;
    uint8_t* const values = a.values + base;
    const auto scales = block.Allocate<float>(2 * blocks);
    const auto finite = block.Allocate<int32_t>(2 * kWarps);
    bool whole_key = true;
    bool whole_value = true;
    for (int64_t n = block.warp(); n < 2 * blocks; n += kWarps) {
      const int64_t b = n % blocks;
      const bool is_key = n < blocks;
      const ConstMatrix& x = is_key ? a.k : a.v;
      const int64_t d = b * kShortBlock + block.lane();
      const float own = x.data[token * x.stride + head * a.head_dim + d];
      const EightBits bits = EightBitsOf(LargestOf(block, MagnitudeOf(own)));
      const auto code = static_cast<uint8_t>(bits.Code(own) & 255);
      if (is_key) {
        whole_key = whole_key && bits.finite;
        // Four elements of a row are together; codes have 128 added.
        const int64_t four = block.lane() / 4 * kGroupRows + place;
        keys[b * kGroupRows * 34 + 2 * kGroupRows + 4 * four +
             block.lane() % 4] = code ^ 128;
      } else {
        whole_value = whole_value && bits.finite;
        values[place * a.head_dim + d] = code;
      }
      if (block.lane() == 0) scales.Set(n, bits.scale);
    }
    if (block.lane() < 2) {
      finite.Set(block.warp() * 2 + block.lane(),
                 (block.lane() == 0 ? whole_key : whole_value) ? 1 : 0);
    }
    block.Sync();
    for (int64_t n = block.thread(); n < 2 * blocks; n += kThreads) {
      const int side = n < blocks ? 0 : 1;
      bool all = true;
      for (int w = 0; w < kWarps; ++w) {
        all = all && finite.Get(w * 2 + side) != 0;
      }
      const uint32_t half = HalfOf(all ? scales.Get(n) : NotANumber());
      const int64_t b = n % blocks;
      uint8_t* const to = side == 0 ? keys + b * kGroupRows * 34 + 2 * place
                                    : values + kGroupRows * a.head_dim +
                                          2 * (place * blocks + b);
      to[0] = static_cast<uint8_t>(half & 255u);
      to[1] = static_cast<uint8_t>(half >> 8);
    }
  }
};

int64_t BlocksFor(Matrix x) {
  return (x.rows * x.cols + kRowThreads - 1) / kRowThreads;
}

template <WeightType kType>
void EmbedAs(Stream stream, const WeightView& table, const int32_t* ids,
             Matrix y) {
  Launch<EmbedKernel<kType>>(stream, y.rows, 0, {table.data, ids, y});
}

}  // namespace

void RmsNorm(Stream stream, ConstMatrix x, const float* weight, float eps,
             Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  Launch<NormKernel>(
      stream, x.rows, NormKernel::SharedBytes(x.cols),
      {x.data, x.stride, y.data, y.stride, 1, x.cols, weight, eps});
}

void RmsNormHeads(Stream stream, Matrix x, int64_t head_dim,
                  const float* weight, float eps) {
  SLUICE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  const int64_t heads = x.cols / head_dim;
  Launch<NormKernel>(
      stream, x.rows * heads, NormKernel::SharedBytes(head_dim),
      {x.data, x.stride, x.data, x.stride, heads, head_dim, weight, eps});
}

void Rope(Stream stream, Matrix x, int64_t head_dim, RopeStyle style,
          const RopeTable& table, const int32_t* positions) {
  SLUICE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  SLUICE_CHECK(2 * table.half <= head_dim);
  Launch<RopeKernel>(
      stream, x.rows, 0,
      {x, head_dim, style == RopeStyle::kHalfSplit, table, positions});
}

void SiluMul(Stream stream, ConstMatrix x, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == 2 * y.cols);
  Launch<GateKernel<false>>(stream, BlocksFor(y), 0, {x, y, 0.0f});
}

void ClampedSwiGlu(Stream stream, ConstMatrix x, float limit, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == 2 * y.cols);
  Launch<GateKernel<true>>(stream, BlocksFor(y), 0, {x, y, limit});
}

void Add(Stream stream, ConstMatrix y, Matrix x) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  Launch<AddKernel>(stream, BlocksFor(x), 0, {y, x});
}

void Embed(Stream stream, const WeightView& table, const int32_t* ids,
           Matrix y) {
  SLUICE_CHECK(y.cols == table.cols);
  switch (table.type) {
    case WeightType::kF32:
      return EmbedAs<WeightType::kF32>(stream, table, ids, y);
    case WeightType::kBf16:
      return EmbedAs<WeightType::kBf16>(stream, table, ids, y);
    default:
      SLUICE_CHECK(table.type == WeightType::kE4m3);
      return EmbedAs<WeightType::kE4m3>(stream, table, ids, y);
  }
}

void StoreKv(Stream stream, ConstMatrix k, ConstMatrix v, const int64_t* slots,
             const KvView& kv) {
  SLUICE_CHECK(k.cols == kv.num_kv_heads * kv.head_dim && v.cols == k.cols);
  SLUICE_CHECK(k.rows == v.rows);
  SLUICE_CHECK(kv.type == WeightType::kQ8_0);
  SLUICE_CHECK(kv.block_tokens == kGroupRows && kv.head_dim % kShortBlock == 0);
  Launch<StoreKvQ8Kernel>(
      stream, k.rows * kv.num_kv_heads,
      StoreKvQ8Kernel::SharedBytes(kv.head_dim),
      {k, v, slots, static_cast<uint8_t*>(kv.keys),
       static_cast<uint8_t*>(kv.values), kv.num_kv_heads, kv.head_dim});
}

void RopeStoreKv(Stream stream, Matrix qkv, const RopeStore& rope,
                 const KvView& kv) {
  SLUICE_CHECK(qkv.cols ==
               (rope.num_heads + 2 * kv.num_kv_heads) * kv.head_dim);
  SLUICE_CHECK(kv.head_dim % 2 == 0 && 2 * rope.table.half <= kv.head_dim);
  if (kv.type == WeightType::kF32) {
    return RopeStoreAs<float>(stream, qkv, rope, kv);
  }
  SLUICE_CHECK(kv.type == WeightType::kBf16);
  RopeStoreAs<uint16_t>(stream, qkv, rope, kv);
}

}  // namespace sluice::kernels::cuda
