// Prints a digest of the bits of every kernel's results, one a line: the same
// lines on every machine. Every instruction set of this one must agree,
// otherwise the exit status is 1. The sets' names go to the standard error.

#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/block_fit.h"
#include "kernels/block_store.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/route.h"
#include "kernels/sampling.h"
#include "kernels/wide_matmul.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/block_tester.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

using Floats = std::vector<float>;

// FNV-1a over the bits.
uint64_t DigestOf(const Floats& values) {
  uint64_t digest = 0xCBF29CE484222325u;
  for (const float value : values) {
    for (auto bits = std::bit_cast<uint32_t>(value), i = 0u; i < 4; ++i) {
      digest = (digest ^ (bits >> (8 * i) & 255u)) * 0x100000001B3u;
    }
  }
  return digest;
}

void Append(const OwnedMatrix& from, Floats& to) {
  const Floats values = from.values();
  to.insert(to.end(), values.begin(), values.end());
}

// The instruction sets of this machine, and what they were seen to do.
class Digests {
 public:
  bool equal() const { return equal_; }

  // results(context) on every set.
  template <typename Results>
  void Print(const std::string& name, const Results& results) {
    Begin(name);
    for (const Isa isa : AvailableIsas()) {
      Add(ToString(isa), results(Context{nullptr, isa}));
    }
    std::printf("%016" PRIx64 " %s\n", first_, name_.c_str());
  }
  // The same of products of blocks.
  template <typename Results>
  void PrintBlocks(const std::string& name, const Results& results) {
    Begin(name);
    for (const DotSet& set : AllDotSets()) {
      Add(set.name, results(DotContext{nullptr, set.ops}));
    }
    std::printf("%016" PRIx64 " %s\n", first_, name_.c_str());
  }

 private:
  void Begin(const std::string& name) {
    name_ = name;
    sets_ = 0;
  }
  void Add(const std::string& set, const Floats& results) {
    const uint64_t digest = DigestOf(results);
    if (sets_++ == 0) first_ = digest;
    if (digest == first_) return;
    equal_ = false;
    std::fprintf(stderr,
                 "%s: %s gives %016" PRIx64 ", another set %016" PRIx64 "\n",
                 name_.c_str(), set.c_str(), digest, first_);
  }
  std::string name_;
  int sets_ = 0;
  uint64_t first_ = 0;
  bool equal_ = true;
};

std::string NameOfType(WeightType type) {
  return type == WeightType::kF32 ? "F32" : "BF16";
}

// Five shards, of which one is empty, and two outputs.
const std::vector<int32_t> kCuts = {0, 1, 3, 4, 4, 5};
const std::vector<TreeNode> kNodes = {{0, 4}, {4, 5}};
std::vector<int32_t> Bounds(int32_t unit) {
  std::vector<int32_t> bounds;
  for (const int32_t cut : kCuts) bounds.push_back(cut * unit);
  return bounds;
}

void PrintProducts(Digests& digests) {
  constexpr int64_t kRows = 37, kCols = 5 * 115;
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    const OwnedWeight w(type, kRows, kCols, RandomBf16(1, kRows * kCols));
    const Floats bias = RandomFloats(2, kRows);
    for (const int64_t tokens : {1, 2, 7, 20}) {
      const OwnedMatrix x(tokens, kCols, RandomFloats(3, tokens * kCols));
      const std::string name =
          NameOfType(type) + " " + std::to_string(tokens) + " tokens";
      digests.Print("product " + name, [&](const Context& context) {
        OwnedMatrix y(tokens, kRows);
        MatMul(context, x.view(), w.view(), bias.data(), y.view());
        return y.values();
      });
      digests.Print("shards " + name, [&](const Context& context) {
        OwnedMatrix a(tokens, kRows), b(tokens, kRows);
        const Matrix y[] = {a.view(), b.view()};
        MatMulSharded(context, x.view(), w.view(), {Bounds(115), kNodes}, y);
        Floats results = a.values();
        Append(b, results);
        return results;
      });
    }
  }
}

void PrintRows(Digests& digests) {
  constexpr int64_t kRows = 3, kCols = 4 * 70, kHead = 70;
  const OwnedMatrix x(kRows, kCols, RandomFloats(4, kRows * kCols, 9.0f));
  const Floats weight = RandomFloats(5, kCols);
  digests.Print("norms", [&](const Context& context) {
    OwnedMatrix y(kRows, kCols);
    RmsNorm(context, x.view(), weight.data(), 1e-5f, y.view());
    Floats results = y.values();
    RmsNormHeads(context, y.view(), kHead, weight.data(), 1e-6f);
    Append(y, results);
    return results;
  });
  const std::vector<double> frequencies(kHead / 2, 0.37);
  Floats cos(frequencies.size() * 64), sin(cos.size());
  MakeRopeTable(frequencies, {0, 64}, 1.25, cos.data(), sin.data());
  for (const RopeStyle style :
       {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
    const bool split = style == RopeStyle::kHalfSplit;
    digests.Print(split ? "rope of halves" : "rope of neighbours",
                  [&](const Context& context) {
                    OwnedMatrix y = x;
                    const int32_t positions[kRows] = {0, 5, 63};
                    Rope(context, y.view(), kHead, style,
                         {cos.data(), sin.data(), 64, kHead / 2}, positions);
                    return y.values();
                  });
  }
  digests.Print("activations, sums", [&](const Context& context) {
    OwnedMatrix y(kRows, kCols / 2);
    SiluMul(context, x.view(), y.view());
    Floats results = y.values();
    OwnedMatrix z(kRows, kCols / 2);
    ClampedSwiGlu(context, x.view(), 7.0f, z.view());
    Add(context, y.view(), z.view());
    Append(z, results);
    return results;
  });
  using Score = RouterRule::Score;
  for (const Score score :
       {Score::kSigmoid, Score::kSoftmax, Score::kSoftmaxOfSelected}) {
    digests.Print("route " + std::to_string(static_cast<int>(score)),
                  [&](const Context& context) {
                    std::vector<int32_t> ids(kRows * 6);
                    Floats results(ids.size());
                    Route(context, x.view(),
                          {.score = score,
                           .num_experts = kCols,
                           .per_token = 6,
                           .normalise = true,
                           .scale = 2.5f},
                          nullptr, ids.data(), results.data());
                    results.insert(results.end(), ids.begin(), ids.end());
                    return results;
                  });
  }
}

void PrintLogits(Digests& digests) {
  constexpr int64_t kLogits = 1003;
  const Floats x = RandomFloats(6, kLogits, 20.0f);
  digests.Print("logits", [&](const Context& context) {
    const Isa isa = context.isa;
    Floats results(NumPieces(kLogits)), sums(results), weights(kLogits);
    PieceMaxima(isa, x, results);
    const Softening softening = {.max = 20.0f, .scale = 1.25f};
    WeightSums(isa, x, softening, sums);
    Weights(isa, x, softening, weights);
    Floats values(kLogits + 16);
    std::vector<int32_t> ids(values.size());
    const auto count =
        SelectNotBelow(isa, x, 12.5f, 7, {values.data(), ids.data()});
    results.insert(results.end(), sums.begin(), sums.end());
    results.insert(results.end(), weights.begin(), weights.end());
    results.insert(results.end(), values.begin(), values.begin() + count);
    results.insert(results.end(), ids.begin(), ids.begin() + count);
    results.push_back(static_cast<float>(CountAbove(isa, x, 3.0f)));
    return results;
  });
}

// A prompt of 90 tokens, and the next token behind 700 positions: four heads,
// of which two share keys and values.
void PrintAttention(Digests& digests) {
  constexpr int32_t kPositions = 701, kBlock = 16;
  const std::vector<int32_t> heads = {0, 0, 1, 1};
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    for (const int64_t head_dim : {64, 72}) {
      const int64_t blocks = (kPositions + kBlock - 1) / kBlock;
      const int64_t cols = 2 * head_dim;
      std::vector<float> keys(blocks * kBlock * cols), values(keys);
      KvView kv = {keys.data(), values.data(), blocks, 2,
                   kBlock,      head_dim,      type};
      std::vector<int32_t> table;
      std::vector<int64_t> slots;
      for (int32_t i = 0; i < blocks; ++i) {
        table.push_back(static_cast<int32_t>(blocks) - 1 - i);
      }
      for (int32_t p = 0; p < kPositions; ++p) {
        slots.push_back(table[p / kBlock] * kBlock + p % kBlock);
      }
      const OwnedMatrix k(kPositions, cols, RandomFloats(7, kPositions * cols));
      const OwnedMatrix v(kPositions, cols, RandomFloats(8, kPositions * cols));
      StoreKv({}, k.view(), v.view(), slots.data(), kv);
      for (const int32_t tokens : {1, 90}) {
        const int64_t size = tokens * 2 * cols;
        const OwnedMatrix q(tokens, 2 * cols, RandomFloats(9, size, 2.0f));
        std::vector<int32_t> positions;
        for (int32_t t = 0; t < tokens; ++t) {
          positions.push_back(tokens == 1 ? kPositions - 1 : 200 + t);
        }
        const std::vector<int64_t> offsets(positions.size());
        digests.Print("attention " + NameOfType(type) + " heads of " +
                          std::to_string(head_dim) + " tokens " +
                          std::to_string(tokens),
                      [&](const Context& context) {
                        OwnedMatrix out(tokens, 2 * cols);
                        PagedAttention(context,
                                       {.q = q.view(),
                                        .positions = positions.data(),
                                        .block_tables = table.data(),
                                        .table_offsets = offsets.data(),
                                        .num_heads = 4,
                                        .kv_heads = heads.data(),
                                        .scale = 0.25f},
                                       kv, out.view());
                        return out.values();
                      });
      }
    }
  }
}

void PrintBlocks(BlockFormat format, Digests& digests) {
  constexpr int64_t kRows = 40;
  const auto unit = static_cast<int32_t>(BlockElements(format));
  const int64_t cols = 5 * unit;
  const auto stored = RandomBlockRows(format, 10, kRows, cols);
  const OwnedBlocks w(format, stored, kRows, cols);
  for (const int64_t tokens : {1, 3, 19}) {
    const auto x = SpreadActivations(11, tokens, cols);
    digests.PrintBlocks(
        NameOf(format) + " " + std::to_string(tokens) + " tokens, and shards",
        [&](const DotContext& context) {
          const OwnedRows rows(context, x, tokens, cols, unit);
          OwnedMatrix y(tokens, kRows), a(tokens, kRows), b(tokens, kRows);
          BlockMatMul(context, rows.view(), w.view(), nullptr, y.view());
          const Matrix two[] = {a.view(), b.view()};
          BlockMatMulSharded(context, rows.view(), w.view(),
                             {Bounds(unit), kNodes}, two);
          Floats results = y.values();
          Append(a, results);
          Append(b, results);
          results.insert(results.end(), rows.codes().begin(),
                         rows.codes().end());
          results.insert(results.end(), rows.scales().begin(),
                         rows.scales().end());
          results.insert(results.end(), rows.sums().begin(), rows.sums().end());
          const OwnedMatrix in(tokens, cols, x);
          WideMatMul(context, in.view(), w.view(), nullptr, y.view());
          WideMatMulSharded(context, in.view(), w.view(),
                            {Bounds(unit), kNodes}, two);
          for (const OwnedMatrix* wide : {&y, &a, &b}) Append(*wide, results);
          return results;
        });
  }
  // Of the portable code alone: the elements, and blocks made of floats.
  digests.Print(NameOf(format) + " elements", [&](const Context&) {
    Floats results(cols);
    WidenBlocks(format, stored.data(), 5, results.data());
    std::vector<uint8_t> made(StoredRowBytes(format, cols));
    const int64_t blocks = cols / LayoutOf(format).elements;
    FitBlocks(format, RandomFloats(12, cols).data(), nullptr, blocks,
              made.data());
    results.insert(results.end(), made.begin(), made.end());
    if (!CanStore(format)) return results;
    StoreBlocks(format, RandomFloats(12, cols).data(), 5, made.data());
    results.insert(results.end(), made.begin(), made.end());
    return results;
  });
}

int Main() {
  Digests digests;
  PrintProducts(digests);
  PrintRows(digests);
  PrintLogits(digests);
  PrintAttention(digests);
  for (const BlockFormat format : AllBlockFormats()) {
    PrintBlocks(format, digests);
  }
  for (const Isa isa : AvailableIsas()) {
    std::fprintf(stderr, "vectors: %s\n", ToString(isa));
  }
  for (const DotSet& set : AllDotSets()) {
    std::fprintf(stderr, "blocks: %s\n", set.name.c_str());
  }
  return digests.equal() ? 0 : 1;
}

}  // namespace
}  // namespace sluice::kernels

int main() { return sluice::kernels::Main(); }
