#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/block_format.h"
#include "kernels/cuda/shared/kv_elements.h"
#include "kernels/cuda/shared/row_ops.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kKvThreads = 128;

template <typename T>
struct RopeStoreArgs {
  Matrix qkv;
  int64_t q_heads;
  int64_t half_split;
  RopeTable table;
  const int32_t* positions;
  const int64_t* slots;
  T* keys;
  T* values;
  int64_t kv_heads;
  int64_t block_tokens;
  int64_t head_dim;
  int64_t pieces;  // of a token, a block each
};

// A slot, of fewer than 2^32.
template <typename T>
SLUICE_DEVICE uint32_t SlotOf(const RopeStoreArgs<T>& a, int64_t token) {
  return static_cast<uint32_t>(a.slots[token]);
}
// Where the caches have a slot's head.
template <typename T>
SLUICE_DEVICE int64_t CacheRow(const RopeStoreArgs<T>& a, uint32_t slot,
                               int64_t head) {
  const auto block_tokens = static_cast<uint32_t>(a.block_tokens);
  const int64_t block = slot / block_tokens;
  return ((block * a.kv_heads + head) * a.block_tokens + slot % block_tokens) *
         a.head_dim;
}

// Two elements of a head of qkv: a pair that rotates, or two neighbours. A
// thread has kPairs of them, whose loads are begun together.
template <typename T>
struct RopeStoreKernel {
  static constexpr int kThreads = kKvThreads;
  static constexpr bool kWaitsItself = true;
  static constexpr int kPairs = 2;
  static constexpr int kPiece = kPairs * kThreads;
  using Args = RopeStoreArgs<T>;
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
    const int64_t token = index / static_cast<uint32_t>(a.pieces);
    const uint32_t begin = index % static_cast<uint32_t>(a.pieces) * kPiece;
    // There since the step began.
    const int64_t position = a.positions[token];
    const uint32_t slot = SlotOf(a, token);
    block.WaitForInputs();
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
      const int64_t kv_head = pairs[i].head - a.q_heads;
      if (kv_head < 0) continue;
      const bool is_key = kv_head < a.kv_heads;
      const int64_t own = is_key ? kv_head : kv_head - a.kv_heads;
      T* const to = (is_key ? a.keys : a.values) + CacheRow(a, slot, own);
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
    const int64_t half = a.table.half;
    pair.rotates = pair.head < a.q_heads + a.kv_heads && own < half;
    const bool split = pair.rotates && a.half_split != 0;
    pair.first = split ? own : 2 * own;
    pair.second = split ? own + half : pair.first + 1;
    pair.x = a.qkv.data + token * a.qkv.stride + pair.head * a.head_dim;
    pair.x1 = pair.x[pair.first];
    pair.x2 = pair.x[pair.second];
    if (pair.rotates) {
      pair.cos = a.table.cos[position * half + own];
      pair.sin = a.table.sin[position * half + own];
    }
    return pair;
  }
  static SLUICE_DEVICE void Turn(Pair& pair) {
    if (!pair.rotates) return;
    TurnPair(pair.cos, pair.sin, pair.x1, pair.x2);
    pair.x[pair.first] = pair.x1;
    pair.x[pair.second] = pair.x2;
  }
};

// The same, four pairs of a head a thread: those that rotate, or eight
// neighbours. `half` is a multiple of 4, all begins at multiples of 16 bytes.
template <typename T>
struct RopeStoreQuadsKernel {
  static constexpr int kThreads = kKvThreads;
  static constexpr bool kWaitsItself = true;
  static constexpr int kPiece = 4 * kThreads;  // pairs
  using Args = RopeStoreArgs<T>;
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const int64_t token = index / static_cast<uint32_t>(a.pieces);
    const uint32_t n = index % static_cast<uint32_t>(a.pieces) * kThreads +
                       static_cast<uint32_t>(block.thread());
    // There since the step began.
    const int64_t position = a.positions[token];
    const uint32_t slot = SlotOf(a, token);
    const auto head_dim = static_cast<uint32_t>(a.head_dim);
    const auto half = static_cast<uint32_t>(a.table.half);
    const auto q_heads = static_cast<uint32_t>(a.q_heads);
    const auto kv_heads = static_cast<uint32_t>(a.kv_heads);
    const uint32_t head = n / (head_dim / 8);
    const uint32_t own = n % (head_dim / 8) * 4;  // the first pair
    if (head >= q_heads + 2 * kv_heads) return block.WaitForInputs();
    const bool rotates = head < q_heads + kv_heads && own < half;
    const bool split = rotates && a.half_split != 0;
    const uint32_t first = split ? own : 2 * own;
    const uint32_t second = split ? own + half : first + 4;
    float* const x = a.qkv.data + token * a.qkv.stride + head * head_dim;
    Quad cos = {};
    Quad sin = {};
    if (rotates) {
      const int64_t from = position * half + own;
      cos = LoadQuad(a.table.cos + from);
      sin = LoadQuad(a.table.sin + from);
    }
    block.WaitForInputs();
    Quad x1 = LoadQuad(x + first);
    Quad x2 = LoadQuad(x + second);
    if (rotates) {
      Turn(cos, sin, split, x1, x2);
      StoreQuad(x + first, x1);
      StoreQuad(x + second, x2);
    }
    if (head < q_heads) return;
    const bool is_key = head < q_heads + kv_heads;
    T* const to = (is_key ? a.keys : a.values) +
                  CacheRow(a, slot, head - q_heads - (is_key ? 0 : kv_heads));
    StoreFour(x1, to + first);
    StoreFour(x2, to + second);
  }
  // Pairs are elements of both, or neighbours.
  static SLUICE_DEVICE void Turn(const Quad& cos, const Quad& sin, bool split,
                                 Quad& x1, Quad& x2) {
    Quad a = x1;
    Quad b = x2;
    if (!split) {
      a = {{x1.values[0], x1.values[2], x2.values[0], x2.values[2]}};
      b = {{x1.values[1], x1.values[3], x2.values[1], x2.values[3]}};
    }
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      TurnPair(cos.values[i], sin.values[i], a.values[i], b.values[i]);
    }
    x1 = a;
    x2 = b;
    if (split) return;
    x1 = {{a.values[0], b.values[0], a.values[1], b.values[1]}};
    x2 = {{a.values[2], b.values[2], a.values[3], b.values[3]}};
  }
};

template <typename Kernel, typename T>
void StartRopeStore(Stream stream, RopeStoreArgs<T> args) {
  const int64_t pairs = args.qkv.cols / 2;
  args.pieces = (pairs + Kernel::kPiece - 1) / Kernel::kPiece;
  Launch<Kernel>(stream, args.qkv.rows * args.pieces, 0, args);
}

template <typename T>
void RopeStoreAs(Stream stream, Matrix qkv, const RopeStore& rope,
                 const KvView& kv) {
  const RopeStoreArgs<T> args = {qkv,
                                 rope.num_heads,
                                 rope.style == RopeStyle::kHalfSplit ? 1 : 0,
                                 rope.table,
                                 rope.positions,
                                 rope.slots,
                                 static_cast<T*>(kv.keys),
                                 static_cast<T*>(kv.values),
                                 kv.num_kv_heads,
                                 kv.block_tokens,
                                 kv.head_dim,
                                 0};
  bool quads =
      AreAligned(qkv) && kv.head_dim % 8 == 0 && rope.table.half % 4 == 0;
  for (const void* data : {static_cast<const void*>(rope.table.cos),
                           static_cast<const void*>(rope.table.sin),
                           static_cast<const void*>(kv.keys),
                           static_cast<const void*>(kv.values)}) {
    quads = quads && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  }
  if (quads) return StartRopeStore<RopeStoreQuadsKernel<T>>(stream, args);
  StartRopeStore<RopeStoreKernel<T>>(stream, args);
}

// A block per token and head, a warp per 32 elements.
struct StoreKvQ8Kernel {
  static constexpr int kThreads = kKvThreads;
  using Store = Q8HeadStore<kThreads / kWarpLanes>;
  struct Args {
    ConstMatrix k;
    ConstMatrix v;
    const int64_t* slots;
    uint8_t* keys;
    uint8_t* values;
    int64_t heads;
    int64_t head_dim;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t token = block.index() / a.heads;
    const int64_t head = block.index() % a.heads;
    const int64_t slot = a.slots[token];
    const int64_t base = (slot / kGroupRows * a.heads + head) * kGroupRows *
                         (a.head_dim / kShortBlock) * 34;
    Store::Run(block, Store::MemoryOf(block, a.head_dim),
               {a.keys + base, a.values + base, slot % kGroupRows, a.head_dim},
               [&](bool is_key, int64_t d) {
                 const ConstMatrix& x = is_key ? a.k : a.v;
                 return x.data[token * x.stride + head * a.head_dim + d];
               });
  }
};

}  // namespace

void StoreKv(Stream stream, ConstMatrix k, ConstMatrix v, const int64_t* slots,
             const KvView& kv) {
  SLUICE_CHECK(k.cols == kv.num_kv_heads * kv.head_dim && v.cols == k.cols);
  SLUICE_CHECK(k.rows == v.rows);
  SLUICE_CHECK(kv.type == WeightType::kQ8_0);
  SLUICE_CHECK(kv.block_tokens == kGroupRows && kv.head_dim % kShortBlock == 0);
  Launch<StoreKvQ8Kernel>(
      stream, k.rows * kv.num_kv_heads,
      StoreKvQ8Kernel::Store::SharedBytes(kv.head_dim),
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
