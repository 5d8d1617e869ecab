#include "tests/cuda_machine/probes/primitives.h"

#include <cuda_device/gates.h>
#include <cuda_device/groups.h>
#include <cuda_device/launch.h>

#include "kernels/cuda/runtime/matrix_fragments.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = kPrimitiveThreads / kWarpLanes;

struct InOut {
  const uint32_t* in;
  uint32_t* out;
};

SLUICE_DEVICE uint32_t BitsOf(float value) { return BitCast<uint32_t>(value); }
SLUICE_DEVICE uint32_t PairOf(int lower, int upper) {
  return PackPair(static_cast<float>(lower), static_cast<float>(upper));
}

struct WordsKernel {
  static constexpr int kThreads = kPrimitiveThreads;
  using Args = InOut;
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    const int t = block.thread();
    const uint32_t a = args.in[t];
    const uint32_t b = args.in[t + kThreads];
    const uint32_t c = args.in[t + 2 * kThreads];
    const uint32_t* const floats = args.in + kPrimitiveWords + t;
    const auto x = BitCast<float>(floats[0]);
    const auto y = BitCast<float>(floats[kThreads]);
    const auto z = BitCast<float>(floats[2 * kThreads]);
    const uint32_t* const pairs = args.in + 2 * kPrimitiveWords + t;
    uint32_t* const out = args.out + t * kWordResults;
    out[0] = static_cast<uint32_t>(DotBytes(static_cast<int32_t>(c), a, b));
    out[1] = PackPair(x, y);
    out[2] = MultiplyPairs(pairs[0], pairs[kThreads]);
    out[3] = SubtractPairs(pairs[0], pairs[kThreads]);
    out[4] = LowerHalves(a, b);
    out[5] = UpperHalves(a, b);
    out[6] = PickBytes(a, b, c & 0x7777u);
    out[7] = WithBits<0x00FF00FFu>(a, b);
    out[8] = BitsOf(LowerHalfAsFloat(a & 0xBBFFu));  // finite
    out[9] = BitsOf(Fma(x, y, z));
    out[10] = BitsOf(SquareRoot(x < 0.0f ? -x : x));
    out[11] = static_cast<uint32_t>(CountBits(a));
    out[12] = BitsOf(Larger(x, y));
    out[13] = LoadWord(args.in + 3 * t);
    out[14] = BitsOf(x * y + z);  // two roundings
  }
};

struct LanesKernel {
  static constexpr int kThreads = kPrimitiveThreads;
  using Args = InOut;
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    const int t = block.thread();
    const uint32_t a = args.in[t];
    uint32_t* const out = args.out + t * kLaneResults;
    out[0] = block.Shuffle(a, 5);
    for (int i = 0; i < 5; ++i) out[1 + i] = block.ShuffleXor(a, 1 << i);
    out[6] = block.Ballot((a & 1) != 0);
    out[7] = block.Most(a);
    out[8] = block.Least(a);
    const auto x = BitCast<float>(args.in[kPrimitiveWords + t]);
    out[9] = BitsOf(block.ShuffleXor(x, 3));
  }
};

// Warp w has rows 16 * w to 16 * w + 15 of A, and columns 8 * w on of B.
struct TilesKernel {
  static constexpr int kThreads = kPrimitiveThreads;
  using Args = InOut;
  static SLUICE_DEVICE TileA OperandA(const Block& block) {
    const int row = 16 * block.warp() + block.lane() / 4;
    const int k = block.lane() % 4 * 2;
    const auto pair = [&](int r, int c) {
      return PairOf(TileElementA(r, c), TileElementA(r, c + 1));
    };
    return {{pair(row, k), pair(row + 8, k), pair(row, k + 8),
             pair(row + 8, k + 8)}};
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    const int g = block.lane() / 4;
    const int t = block.lane() % 4;
    const int column = 8 * block.warp() + g;
    const auto pair = [&](int k) {
      return PairOf(TileElementB(k, column), TileElementB(k + 1, column));
    };
    const TileA a = OperandA(block);
    const TileB b = {{pair(2 * t), pair(2 * t + 8)}};
    TileC onto = {{1, 2, 3, 4}};
    block.MultiplyTile(a, b, onto);
    const TileC product = block.TileProduct(a, b);
    const int row = 16 * block.warp() + g;
    const auto codes = [&](auto element, int at) {
      uint32_t word = 0;
      for (int i = 0; i < 4; ++i) {
        word |= static_cast<uint32_t>(element(at + i) & 255) << (8 * i);
      }
      return word;
    };
    const auto of_a = [&](int r, int k) {
      return codes([&](int at) { return CodeElementA(r, at); }, k);
    };
    const auto of_b = [&](int k) {
      return codes([&](int at) { return CodeElementB(at, g); }, k);
    };
    TileI sums = {{1, 2, 3, 4}};
    block.MultiplyCodes({{of_a(row, 4 * t), of_a(row + 8, 4 * t),
                          of_a(row, 4 * t + 16), of_a(row + 8, 4 * t + 16)}},
                        {{of_b(4 * t), of_b(4 * t + 16)}}, sums);
    uint32_t* const out = args.out + block.thread() * kTileResults;
    for (int i = 0; i < 4; ++i) {
      out[i] = BitsOf(onto.values[i]);
      out[4 + i] = BitsOf(product.values[i]);
      out[8 + i] = static_cast<uint32_t>(sums.values[i]);
    }
  }
};

// Three groups of copies, of 16, 8 and 4 bytes; a thread reads what the next
// one copied.
struct CopiesKernel {
  static constexpr int kThreads = kPrimitiveThreads;
  using Args = InOut;
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    const auto quads = block.Allocate<uint32_t>(4 * kThreads);
    const auto halves = block.Allocate<uint32_t>(2 * kThreads);
    const auto words = block.Allocate<uint32_t>(kThreads);
    const auto floats = block.Allocate<float>(4 * kThreads);
    const int t = block.thread();
    const int next = (t + 1) % kThreads;
    block.CopyAsync(quads, 4 * t, args.in + 4 * t);
    block.CommitCopies();
    block.CopyAsync<8>(halves, 2 * t, args.in + 4 * kThreads + 2 * t);
    block.CommitCopies();
    block.CopyAsync<4>(words, t, args.in + 6 * kThreads + t);
    block.CommitCopies();
    const auto* const from = reinterpret_cast<const float*>(args.in);
    StoreQuad(floats, 4 * t, LoadQuad(from + kPrimitiveWords + 4 * t));
    uint32_t* const out = args.out + t * kCopyResults;
    block.WaitCopies<2>();
    block.Sync();
    const TileA quad = LoadTile(quads, 4 * next);
    StoreHalfTile(out, {{quad.words[0], quad.words[1]}});
    StoreHalfTile(out + 2, {{quad.words[2], quad.words[3]}});
    block.WaitCopies<1>();
    block.Sync();
    StoreHalfTile(out + 4, LoadHalfTile(halves, 2 * next));
    block.WaitCopies();
    block.Sync();
    out[6] = words.Get(next);
    out[7] = LoadHalfTile(args.in + 2 * t).words[1];
    StoreQuad(reinterpret_cast<float*>(out + 8), LoadQuad(floats, 4 * next));
  }
};

// Every warp brings sixteen words at a time through one gate.
struct GatesKernel {
  static constexpr int kThreads = kPrimitiveThreads;
  static constexpr int kOwn = 16;
  using Args = InOut;
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    const auto words = block.Allocate<uint32_t>(kOwn * kWarps);
    Gates gates(block, 1, kWarps);
    gates.FenceMemory();
    const int own = block.warp() * kOwn;
    for (int use = 0; use < kGateUses; ++use) {
      gates.Open(block, 0, kOwn * int{sizeof(uint32_t)});
      gates.Copy(block, 0, words, own, args.in + use * kOwn * kWarps + own,
                 kOwn);
      block.Sync();
      gates.Wait(block, 0, use % 2);
      args.out[block.thread() * kGateUses + use] =
          words.Get(block.thread() * 5 % (kOwn * kWarps));
      block.Sync();  // others have read
    }
  }
};

// A [64, 16] B [16, 128], twice, onto the element's column.
struct GroupsKernel {
  static constexpr int kThreads = kPrimitiveThreads;
  static constexpr int kOctetWords = 2 * kWarpLanes;
  using Args = InOut;
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    if constexpr (!GroupProducts::kHere) return GroupProducts::Stop();
    constexpr int kOwn = kPrimitiveWords / kWarps;
    static_assert(kGroupOctets * kOctetWords == kPrimitiveWords);
    const auto b = block.Kept(block.Allocate<uint32_t>(kPrimitiveWords));
    Gates gates(block, 1, kWarps);
    gates.FenceMemory();
    const int own = block.warp() * kOwn;
    gates.Open(block, 0, kOwn * int{sizeof(uint32_t)});
    gates.Copy(block, 0, b, own, args.in + own, kOwn);
    block.Sync();
    gates.Wait(block, 0, 0);
    GroupSums sums;
    SLUICE_UNROLL
    for (int i = 0; i < 4 * kGroupOctets; ++i) {
      sums[i / 4].values[i % 4] =
          static_cast<float>(i / 4 * 8 + block.lane() % 4 * 2 + i % 2);
    }
    const TileA a = TilesKernel::OperandA(block);
    GroupProducts products;
    products.FenceRegisters(sums);
    products.Multiply<kOctetWords>(block, a, b, 0, sums);
    products.Multiply<kOctetWords>(block, a, b, 0, sums);
    products.Commit();
    products.WaitFor(block, sums);
    uint32_t* const out = args.out + block.thread() * kGroupResults;
    SLUICE_UNROLL
    for (int i = 0; i < 4 * kGroupOctets; ++i) {
      out[i] = BitsOf(sums[i / 4].values[i % 4]);
    }
  }
};

struct ArrivalsKernel {
  static constexpr int kThreads = kWarpLanes;
  struct Args {
    const uint32_t* in;
    uint32_t* words;
    uint32_t* out;
    uint32_t* arrived;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    const auto at = static_cast<int>(block.index()) * kThreads + block.lane();
    args.words[at] = args.in[at % kPrimitiveWords];
    if (!block.ArriveLast(args.arrived, static_cast<uint32_t>(block.count()))) {
      return;
    }
    uint32_t sum = 0;
    for (int i = 0; i < kArrivingBlocks; ++i) {
      sum += args.words[i * kThreads + (block.lane() + 1) % kThreads];
    }
    args.out[block.lane()] = sum;
  }
};

template <typename Kernel>
void StartOne(Stream stream, size_t shared, const InOut& args) {
  Launch<Kernel>(stream, 1, shared, args);
}

}  // namespace

void StartWords(Stream stream, const uint32_t* in, uint32_t* out) {
  StartOne<WordsKernel>(stream, 0, {in, out});
}
void StartLanes(Stream stream, const uint32_t* in, uint32_t* out) {
  StartOne<LanesKernel>(stream, 0, {in, out});
}
void StartTiles(Stream stream, const uint32_t* in, uint32_t* out) {
  StartOne<TilesKernel>(stream, 0, {in, out});
}
void StartCopies(Stream stream, const uint32_t* in, uint32_t* out) {
  StartOne<CopiesKernel>(stream, 11 * kPrimitiveThreads * sizeof(uint32_t),
                         {in, out});
}
bool HasGroups(Stream stream) { return LimitsOf(stream).group_products; }
void StartGates(Stream stream, const uint32_t* in, uint32_t* out) {
  StartOne<GatesKernel>(stream, 1024, {in, out});
}
void StartGroups(Stream stream, const uint32_t* in, uint32_t* out) {
  StartOne<GroupsKernel>(stream, kPrimitiveWords * sizeof(uint32_t) + 64,
                         {in, out});
}
void StartArrivals(Stream stream, const uint32_t* in, uint32_t* words,
                   uint32_t* out, uint32_t* arrived) {
  Launch<ArrivalsKernel>(stream, kArrivingBlocks, 0, {in, words, out, arrived});
}

}  // namespace sluice::kernels::cuda
