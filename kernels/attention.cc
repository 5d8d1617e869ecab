#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "kernels/block_pack.h"
#include "kernels/block_store.h"
#include "kernels/cpu/attention_runner.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

using cpu::AttentionScratch;
using cpu::AttentionUnit;

AttentionScratch& ThisThreadsScratch() {
  thread_local AttentionScratch scratch;
  return scratch;
}

// Sets the chunks that the unit's tokens see; returns its work in
// multiply-adds.
int64_t SetChunks(const AttentionQueries& queries, int64_t head_dim,
                  AttentionUnit& unit) {
  int32_t low = queries.positions[unit.token];
  int32_t high = low;
  for (int64_t t = unit.token; t < unit.token + unit.num_tokens; ++t) {
    const int32_t position = queries.positions[t];
    low = std::min(low, position);
    high = std::max(high, position);
  }
  const int32_t first =
      queries.window > 0 ? std::max(0, low - queries.window + 1) : 0;
  unit.first_chunk = first / kAttentionChunk;
  unit.end_chunk = high / kAttentionChunk + 1;
  return int64_t{2} * unit.num_queries() * head_dim * (high - first + 1);
}

// Tokens that follow each other in one sequence, times the heads that follow
// each other on one kv head, as many as share a walk.
std::vector<AttentionUnit>& MakeUnits(const AttentionQueries& queries,
                                      int64_t head_dim, int64_t& work) {
  thread_local std::vector<AttentionUnit> units;
  units.clear();
  const int64_t num_tokens = queries.q.rows;
  for (int64_t h = 0; h < queries.num_heads;) {
    int heads = 1;
    while (h + heads < queries.num_heads && heads < cpu::kMaxQueries &&
           queries.kv_heads[h + heads] == queries.kv_heads[h]) {
      ++heads;
    }
    const int most = cpu::kMaxQueries / heads;
    for (int64_t t = 0; t < num_tokens;) {
      int tokens = 1;
      while (t + tokens < num_tokens && tokens < most &&
             queries.table_offsets[t + tokens] == queries.table_offsets[t]) {
        ++tokens;
      }
      units.push_back({t, tokens, h, heads});
      work += SetChunks(queries, head_dim, units.back());
      t += tokens;
    }
    h += heads;
  }
  return units;
}

// Few units over a long context are cut into pieces of 2^n chunks: the n that
// gives every thread about four of them, or less if there are not so many
// chunks; -1 where units are plenty.
int Log2ChunksPerPiece(const std::vector<AttentionUnit>& units, int threads) {
  const auto wanted = static_cast<int64_t>(threads) * 4;
  if (threads == 1 || static_cast<int64_t>(units.size()) >= wanted) return -1;
  int64_t chunks = 0;
  for (const AttentionUnit& unit : units) {
    chunks += unit.end_chunk - unit.first_chunk;
  }
  const auto per_piece =
      static_cast<uint64_t>(std::max<int64_t>(1, chunks / wanted));
  return std::bit_width(per_piece) - 1;
}

void RunInPieces(const Context& context, const cpu::AttentionRunner& runner,
                 const std::vector<AttentionUnit>& units, int log2_chunks,
                 int tasks) {
  struct Piece {
    const AttentionUnit* unit;
    int32_t piece;
  };
  thread_local std::vector<Piece> pieces;
  thread_local std::vector<float> results;
  pieces.clear();
  for (const AttentionUnit& unit : units) {
    for (int32_t p = 0; p << log2_chunks < unit.end_chunk; ++p) {
      pieces.push_back({&unit, p});
    }
  }
  const auto count = static_cast<int64_t>(pieces.size());
  const int64_t size = runner.PieceSize();
  if (static_cast<int64_t>(results.size()) < count * size) {
    results.resize(static_cast<size_t>(count * size));
  }
  const Piece* all = pieces.data();  // the caller's, seen by other threads
  float* to = results.data();
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range mine = cpu::PartOf(count, task, tasks, 1);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      runner.RunPiece(*all[i].unit, all[i].piece, log2_chunks,
                      ThisThreadsScratch(), to + i * size);
    }
  });
  for (int64_t i = 0; i < count;) {
    int64_t end = i + 1;
    while (end < count && all[end].unit == all[i].unit) ++end;
    runner.JoinPieces(*all[i].unit, static_cast<int32_t>(end - i),
                      ThisThreadsScratch(), to + i * size);
    i = end;
  }
}

// BF16's bits: rounded to nearest even; a NaN stays one.
uint16_t ToBf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// To element `place` * head_dim of a head's keys or values `to`.
void StoreRow(const float* row, const KvView& kv, int64_t place, void* to) {
  const auto size = static_cast<size_t>(kv.head_dim);
  void* const at = kv.at(to, place * kv.head_dim);
  if (kv.type == WeightType::kF32) {
    std::memcpy(at, row, size * sizeof(float));
  } else {
    std::transform(row, row + size, static_cast<uint16_t*>(at), ToBf16);
  }
}

// One head's key or value in Q8_0.
class Q8Head {
 public:
  void Quantize(const float* row, const KvView& kv) {
    const auto size = static_cast<size_t>(kv.head_dim);
    codes_.resize(size);
    scales_.resize(size / kShortBlock);
    sums_.resize(size / 16);
    halves_.resize(scales_.size());
    const bool finite =
        kv.blocks->quantize({row, kv.head_dim, kShortBlock, codes_.data(),
                             scales_.data(), sums_.data()});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (size_t b = 0; b < halves_.size(); ++b) {
      halves_[b] = F16Of(finite ? scales_[b] : nan);
    }
  }
  // As row `place` of a packed group, whose codes have 128 added.
  void StoreKey(int64_t place, uint8_t* group) const {
    constexpr int kScales = 2 * kGroupRows;
    for (size_t b = 0; b < halves_.size(); ++b, group += kGroupBytes) {
      std::memcpy(group + 2 * place, &halves_[b], 2);
      for (int four = 0; four < kShortBlock / 4; ++four) {
        uint32_t word = 0;
        std::memcpy(&word, &codes_[b * kShortBlock + 4 * four], 4);
        word ^= 0x80808080u;
        std::memcpy(group + kScales + 4 * (four * kGroupRows + place), &word,
                    4);
      }
    }
  }
  void StoreValue(int64_t place, uint8_t* to) const {
    const size_t size = codes_.size();
    const size_t bytes = 2 * halves_.size();
    std::memcpy(to + place * size, codes_.data(), size);
    std::memcpy(to + kGroupRows * size + place * bytes, halves_.data(), bytes);
  }

 private:
  static constexpr int kGroupBytes = 34 * kGroupRows;  // of a block of 32
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<int16_t> sums_;
  std::vector<uint16_t> halves_;
};

// Whether the kernels read such keys and values.
bool IsKnown(const KvView& kv) {
  if (kv.values == nullptr &&
      (kv.type == WeightType::kQ8_0 || kv.value_dim < 1 ||
       kv.value_dim > kv.head_dim)) {
    return false;
  }
  if (kv.type != WeightType::kQ8_0) {
    return kv.type == WeightType::kF32 || kv.type == WeightType::kBf16;
  }
  return kv.blocks != nullptr && kv.block_tokens == kGroupRows &&
         kv.head_dim % kShortBlock == 0;
}

}  // namespace

void StoreKv(const Context&, ConstMatrix k, ConstMatrix v, const int64_t* slots,
             const KvView& kv) {
  SLUICE_CHECK(k.cols == kv.num_kv_heads * kv.head_dim && IsKnown(kv));
  const bool has_values = kv.values != nullptr;
  SLUICE_CHECK(!has_values || (v.cols == k.cols && v.rows == k.rows));
  thread_local Q8Head q8;
  for (int64_t t = 0; t < k.rows; ++t) {
    const int64_t block = slots[t] / kv.block_tokens;
    const int64_t place = slots[t] % kv.block_tokens;
    SLUICE_CHECK(slots[t] >= 0 && block < kv.num_blocks);
    for (int64_t h = 0; h < kv.num_kv_heads; ++h) {
      const int64_t head =
          (block * kv.num_kv_heads + h) * kv.block_tokens * kv.head_dim;
      const float* key = k.row(t) + h * kv.head_dim;
      void* const keys = kv.at(kv.keys, head);
      if (!has_values) {
        StoreRow(key, kv, place, keys);
        continue;
      }
      const float* value = v.row(t) + h * kv.head_dim;
      void* const values = kv.at(kv.values, head);
      if (kv.type == WeightType::kQ8_0) {
        q8.Quantize(key, kv);
        q8.StoreKey(place, static_cast<uint8_t*>(keys));
        q8.Quantize(value, kv);
        q8.StoreValue(place, static_cast<uint8_t*>(values));
      } else {
        StoreRow(key, kv, place, keys);
        StoreRow(value, kv, place, values);
      }
    }
  }
}

void PagedAttention(const Context& context, const AttentionQueries& queries,
                    const KvView& kv, Matrix out) {
  SLUICE_CHECK(queries.q.cols == queries.num_heads * kv.head_dim);
  SLUICE_CHECK(out.rows == queries.q.rows &&
               out.cols == queries.num_heads * kv.value_size());
  SLUICE_CHECK(kv.block_tokens > 0 && kAttentionChunk % kv.block_tokens == 0);
  SLUICE_CHECK(IsKnown(kv));
  int64_t work = 0;
  const std::vector<AttentionUnit>& units =
      MakeUnits(queries, kv.head_dim, work);
  const cpu::AttentionRunner runner(cpu::OpsFor(context.isa), queries, kv, out);
  const int tasks = cpu::NumTasks(context, work);
  const int log2_chunks = Log2ChunksPerPiece(units, tasks);
  if (log2_chunks >= 0) {
    return RunInPieces(context, runner, units, log2_chunks, tasks);
  }
  const auto count = static_cast<int>(units.size());
  ParallelFor(context, tasks, [&](int task) {
    // Neighbouring units cost about the same: deal them out.
    for (int i = task; i < count; i += tasks) {
      runner.Run(units[static_cast<size_t>(i)], ThisThreadsScratch());
    }
  });
}

}  // namespace sluice::kernels
