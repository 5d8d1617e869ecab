#include "kernels/cuda/row_ops.h"

#include "common/base/check.h"
#include "kernels/block_format.h"
#include "kernels/cuda/gate.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/own_four.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kRowThreads = 128;
using Own = OwnFour<kRowThreads>;
using Piece = RowPiece<kRowThreads>;

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

// A block per piece of a row of y [T, F]; x [T, 2F].
template <bool kClamped>
struct GateKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    ConstMatrix x;
    Matrix y;
    float limit;
    bool quads;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.y.cols);
    const Own own(block, piece.begin, a.y.cols, a.quads);
    const float* const x = a.x.data + piece.row * a.x.stride;
    const Quad g = own.Load(x);
    const Quad u = own.Load(x + a.y.cols);
    Quad y;
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      y.values[i] = kClamped ? ClampedGate(g.values[i], u.values[i], a.limit)
                             : SiluGate(g.values[i], u.values[i]);
    }
    own.Store(a.y.data + piece.row * a.y.stride, y);
  }
};

// A block per piece of a row.
struct AddKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    ConstMatrix y;
    Matrix x;
    bool quads;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.x.cols);
    const Own own(block, piece.begin, a.x.cols, a.quads);
    float* const row = a.x.data + piece.row * a.x.stride;
    const Quad y = own.Load(a.y.data + piece.row * a.y.stride);
    Quad x = own.Load(row);
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) x.values[i] += y.values[i];
    own.Store(row, x);
  }
};

// A block per piece of a token's row.
template <WeightType kType>
struct EmbedKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    const void* table;
    const int32_t* ids;
    Matrix y;
    bool quads;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.y.cols);
    const Own own(block, piece.begin, a.y.cols, a.quads);
    const int64_t from = a.ids[piece.row] * a.y.cols;
    Quad y = {};
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (!own.Has(i)) continue;
      y.values[i] = Element<kType>(a.table, from + own.Column(i));
    }
    own.Store(a.y.data + piece.row * a.y.stride, y);
  }
};

SLUICE_DEVICE void StoreElement(float x, float* to) { *to = x; }
// Rounded to nearest even; a NaN stays one.
SLUICE_DEVICE void StoreElement(float x, uint16_t* to) {
  const auto bits = BitCast<uint32_t>(x);
  *to = static_cast<uint16_t>(
      x != x ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Two elements of a head of qkv: a pair that rotates, or two neighbours. A
// thread has kPairs of them, whose loads are begun together.
template <typename T>
struct RopeStoreKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr int kPairs = 2;
  static constexpr int kPiece = kPairs * kThreads;
  struct Args {
    Matrix qkv;
    RopeStore rope;
    T* keys;
    T* values;
    int64_t kv_heads;
    int64_t block_tokens;
    int64_t head_dim;
    uint32_t pieces;  // of a token, a block each
  };
  struct Pair {
    bool exists;
    bool rotates;
    int64_t head;
    int64_t first;  // within the head
    int64_t second;
    float* x;  // the head
    float x1;
    float x2;
    float cos;
    float sin;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const int64_t token = index / a.pieces;
    const uint32_t begin = index % a.pieces * kPiece;
    const int64_t position = a.rope.positions[token];
    // Slots are fewer than 2^32.
    const auto slot = static_cast<uint32_t>(a.rope.slots[token]);
    const auto block_tokens = static_cast<uint32_t>(a.block_tokens);
    const int64_t cache_block = slot / block_tokens;
    const int64_t place = slot % block_tokens;
    Pair pairs[kPairs];
    SLUICE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      pairs[i] = Load(a, token, position,
                      begin + static_cast<uint32_t>(block.thread()) +
                          static_cast<uint32_t>(i * kThreads));
    }
    SLUICE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      if (!pairs[i].exists) continue;
      Turn(pairs[i]);
      const int64_t kv_head = pairs[i].head - a.rope.num_heads;
      if (kv_head < 0) continue;
      const bool is_key = kv_head < a.kv_heads;
      const int64_t own = is_key ? kv_head : kv_head - a.kv_heads;
      T* const to =
          (is_key ? a.keys : a.values) +
          ((cache_block * a.kv_heads + own) * a.block_tokens + place) *
              a.head_dim;
      StoreElement(pairs[i].x1, to + pairs[i].first);
      StoreElement(pairs[i].x2, to + pairs[i].second);
    }
  }
  // Pair n of a token.
  static SLUICE_DEVICE Pair Load(const Args& a, int64_t token, int64_t position,
                                 uint32_t n) {
    Pair pair = {};
    pair.exists = n < a.qkv.cols / 2;
    if (!pair.exists) return pair;
    const auto of_head = static_cast<uint32_t>(a.head_dim / 2);
    pair.head = n / of_head;
    const int64_t own = n % of_head;
    const int64_t half = a.rope.table.half;
    pair.rotates = pair.head < a.rope.num_heads + a.kv_heads && own < half;
    const bool split = pair.rotates && a.rope.style == RopeStyle::kHalfSplit;
    pair.first = split ? own : 2 * own;
    pair.second = split ? own + half : pair.first + 1;
    pair.x = a.qkv.data + token * a.qkv.stride + pair.head * a.head_dim;
    pair.x1 = pair.x[pair.first];
    pair.x2 = pair.x[pair.second];
    if (pair.rotates) {
      pair.cos = a.rope.table.cos[position * half + own];
      pair.sin = a.rope.table.sin[position * half + own];
    }
    return pair;
  }
  static SLUICE_DEVICE void Turn(Pair& pair) {
    if (!pair.rotates) return;
    const float turned = Fma(pair.x1, pair.cos, -(pair.x2 * pair.sin));
    pair.x2 = Fma(pair.x2, pair.cos, pair.x1 * pair.sin);
    pair.x1 = turned;
    pair.x[pair.first] = pair.x1;
    pair.x[pair.second] = pair.x2;
  }
};

template <typename T>
void RopeStoreAs(Stream stream, Matrix qkv, const RopeStore& rope,
                 const KvView& kv) {
  using Kernel = RopeStoreKernel<T>;
  const int64_t pieces = (qkv.cols / 2 + Kernel::kPiece - 1) / Kernel::kPiece;
  Launch<Kernel>(stream, qkv.rows * pieces, 0,
                 {qkv, rope, static_cast<T*>(kv.keys),
                  static_cast<T*>(kv.values), kv.num_kv_heads, kv.block_tokens,
                  kv.head_dim, static_cast<uint32_t>(pieces)});
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

int64_t BlocksFor(Matrix x) { return Piece::Blocks(x.rows, x.cols); }

template <WeightType kType>
void EmbedAs(Stream stream, const WeightView& table, const int32_t* ids,
             Matrix y) {
  Launch<EmbedKernel<kType>>(stream, BlocksFor(y), 0,
                             {table.data, ids, y, HasQuads(y)});
}

}  // namespace

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
  Launch<GateKernel<false>>(stream, BlocksFor(y), 0,
                            {x, y, 0.0f, HasQuads(x) && HasQuads(y)});
}

void ClampedSwiGlu(Stream stream, ConstMatrix x, float limit, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == 2 * y.cols);
  Launch<GateKernel<true>>(stream, BlocksFor(y), 0,
                           {x, y, limit, HasQuads(x) && HasQuads(y)});
}

void Add(Stream stream, ConstMatrix y, Matrix x) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  Launch<AddKernel>(stream, BlocksFor(x), 0,
                    {y, x, HasQuads(y) && HasQuads(x)});
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
