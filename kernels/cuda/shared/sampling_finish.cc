#include "kernels/cuda/shared/sampling_finish.h"

#include <cuda_device/launch.h>

#include <cstddef>

#include "kernels/cuda/shared/sampling_candidates.h"

namespace sluice::kernels::cuda {
namespace {

// common/sampling/philox.h's UniformFor.
SLUICE_DEVICE double UniformFor(uint64_t seed, uint32_t choice,
                                uint32_t position) {
  uint32_t c[4] = {position, choice, 0, 0};
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const uint64_t word = (static_cast<uint64_t>(c[1]) << 32) | c[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

SLUICE_DEVICE int64_t RoundedUp(double x) {
  const auto down = static_cast<int64_t>(x);
  return static_cast<double>(down) < x ? down + 1 : down;
}

// One row, by one block. All threads call the methods and get the same results.
class RowFinisher {
 public:
  static constexpr size_t kSharedBytes =
      TokenCandidates::kSharedBytes + sizeof(float) * kSampleWarps +
      sizeof(int64_t) * (kSampleWarps + 2) + sizeof(double) * 2 +
      sizeof(float) * kLogitsPiece;

  SLUICE_DEVICE RowFinisher(Block& block, const SampleTask& task,
                            const SampleRow& row, int64_t vocab)
      : block_(block),
        task_(task),
        row_(row),
        vocab_(vocab),
        pieces_((vocab + kLogitsPiece - 1) / kLogitsPiece),
        drawn_(DrawnOf(task, row)),
        candidates_(block, row.values, row.ids),
        floats_(block.Allocate<float>(kSampleWarps)),
        longs_(block.Allocate<int64_t>(kSampleWarps)),
        places_(block.Allocate<int64_t>(2)),
        total_(block.Allocate<double>(2)),
        weights_(block.Allocate<float>(kLogitsPiece)) {}

  SLUICE_DEVICE void Run(SampleResult& result) {
    if (block_.thread() == 0 && task_.drawn != nullptr) *task_.drawn = 0;
    const float raw_max = RowMax(block_, floats_, row_.raw_maxima, pieces_);
    if (raw_max != raw_max) return Fail(result);
    int32_t token = task_.token;
    if (task_.draws) {
      max_ = task_.edits.any ? RowMax(block_, floats_, row_.maxima, pieces_)
                             : raw_max;
      if (max_ == -Infinity()) {
        if (block_.thread() == 0) {
          result.outcome = SampleResult::Outcome::kAllMasked;
        }
        return;
      }
      token = Draw();
    }
    if (block_.thread() == 0) {
      result.outcome = SampleResult::Outcome::kToken;
      result.token = token;
      if (task_.drawn != nullptr) *task_.drawn = token;
    }
    if (task_.num_top >= 0) Describe(token, raw_max, result);
  }

 private:
  // The sum of the threads' values.
  SLUICE_DEVICE int64_t Sum(int64_t value) {
    for (int mask = 16; mask > 0; mask /= 2) {
      value += block_.ShuffleXor(value, mask);
    }
    if (block_.lane() == 0) longs_.Set(block_.warp(), value);
    block_.Sync();
    value = 0;
    for (int w = 0; w < kSampleWarps; ++w) value += longs_.Get(w);
    block_.Sync();
    return value;
  }
  SLUICE_DEVICE int64_t Least(int64_t value) {
    for (int mask = 16; mask > 0; mask /= 2) {
      const int64_t other = block_.ShuffleXor(value, mask);
      value = other < value ? other : value;
    }
    if (block_.lane() == 0) longs_.Set(block_.warp(), value);
    block_.Sync();
    value = longs_.Get(0);
    for (int w = 1; w < kSampleWarps; ++w) {
      const int64_t other = longs_.Get(w);
      value = other < value ? other : value;
    }
    block_.Sync();
    return value;
  }
  // The sum in F64, by rising place.
  SLUICE_DEVICE double Total(const float* sums, int64_t count) {
    if (block_.thread() == 0) {
      double total = 0;
      for (int64_t i = 0; i < count; ++i) {
        total = total + static_cast<double>(sums[i]);
      }
      total_.Set(0, total);
    }
    block_.Sync();
    const double total = total_.Get(0);
    block_.Sync();
    return total;
  }

  // Tells of the first logit that is no number.
  SLUICE_DEVICE void Fail(SampleResult& result) {
    int64_t bad = vocab_;
    for (int64_t i = block_.thread(); i < vocab_; i += kSampleThreads) {
      if (task_.logits[i] < Infinity()) continue;
      bad = i;
      break;
    }
    bad = Least(bad);
    if (block_.thread() != 0) return;
    result.outcome = SampleResult::Outcome::kNotFinite;
    result.token = static_cast<int32_t>(bad);
    result.logprob = task_.logits[bad];
  }

  SLUICE_DEVICE bool KeepsTopK() const {
    return task_.top_k > 0 && task_.top_k < vocab_;
  }

  SLUICE_DEVICE int32_t Draw() {
    if (task_.greedy) return ArgMax();
    if (KeepsTopK()) {
      candidates_.Collect(
          drawn_, vocab_,
          candidates_.LeastOfLargest(drawn_, vocab_, task_.top_k));
      candidates_.KeepLikeliest(task_.top_k);
    } else if (task_.top_p >= 1.0f && task_.min_p <= 0.0f) {
      return static_cast<int32_t>(DrawOne(drawn_.values, row_.sums, vocab_));
    }
    if (task_.top_p < 1.0f) FilterShare();
    if (task_.min_p > 0.0f) FilterHeavy();
    SumCandidates();
    return row_.ids[DrawOne(row_.values, row_.piece_sums, candidates_.size())];
  }

  // The lowest id with the largest logit.
  SLUICE_DEVICE int32_t ArgMax() {
    int64_t piece = pieces_;
    for (int64_t p = block_.thread(); p < pieces_; p += kSampleThreads) {
      if (drawn_.maxima[p] == max_ && p < piece) piece = p;
    }
    const int64_t i = Least(piece) * kLogitsPiece + block_.thread();
    const bool is = i < vocab_ && drawn_.values[i] == max_;
    return static_cast<int32_t>(Least(is ? i : vocab_));
  }

  // Keeps the shortest run that weighs `weight`; false if all weigh less.
  SLUICE_DEVICE bool KeepShare(double weight) {
    uint64_t last = 0;
    const auto share = [&](float value) {
      return static_cast<int64_t>(
          static_cast<double>(WeightOf(value, max_, task_.scale)) *
          task_.share_unit);
    };
    if (!candidates_.Find(row_.values, row_.ids, candidates_.size(), share,
                          RoundedUp(weight * task_.share_unit), last)) {
      return false;
    }
    candidates_.KeepFrom(last);
    return true;
  }
  // A bound slightly below the logits that weigh Exp(-depth).
  SLUICE_DEVICE float BoundAt(double depth) const {
    const double bound =
        static_cast<double>(max_) - depth / static_cast<double>(task_.scale);
    const auto most = BitCast<float>(0x7F7FFFFFu);
    if (!(bound >= -static_cast<double>(most))) return -Infinity();
    return LogitOf(KeyOf(static_cast<float>(bound)) - 1);
  }
  SLUICE_DEVICE void FilterShare() {
    const auto top_p = static_cast<double>(task_.top_p);
    if (KeepsTopK()) {
      SumCandidates();
      KeepShare(top_p *
                Total(row_.piece_sums,
                      (candidates_.size() + kLogitsPiece - 1) / kLogitsPiece));
      return;
    }
    // Any bound that has the run gives the exact run.
    const double total = Total(row_.sums, pieces_);
    const double left_out = (1 - top_p) * total;
    const float rough =
        BoundAt(Log(static_cast<double>(vocab_) / left_out) + 1e-3);
    candidates_.Collect(drawn_, vocab_, rough);
    if (KeepShare(top_p * total)) return;
    candidates_.Collect(drawn_, vocab_, -Infinity());
    KeepShare(top_p * total);
  }
  SLUICE_DEVICE void FilterHeavy() {
    if (!KeepsTopK() && task_.top_p >= 1.0f) {
      candidates_.Collect(drawn_, vocab_, BoundAt(task_.heavy_depth));
    }
    candidates_.Keep([&](float value, int32_t) {
      return WeightOf(value, max_, task_.scale) >= task_.min_p;
    });
  }
  SLUICE_DEVICE void SumCandidates() {
    for (int64_t p = block_.warp(); p * kLogitsPiece < candidates_.size();
         p += kSampleWarps) {
      const int64_t begin = p * kLogitsPiece;
      const int64_t left = candidates_.size() - begin;
      const float sum = PieceSum(block_, row_.values + begin,
                                 left < kLogitsPiece ? left : kLogitsPiece,
                                 max_, task_.scale);
      if (block_.lane() == 0) row_.piece_sums[p] = sum;
    }
    block_.Sync();
  }

  // The place of the drawn one of `count` logits.
  SLUICE_DEVICE int64_t DrawOne(const float* logits, const float* sums,
                                int64_t count) {
    const int64_t pieces = (count + kLogitsPiece - 1) / kLogitsPiece;
    const double total = Total(sums, pieces);
    double inside = 0;  // thread 0's: how far in the piece, of its sum
    if (block_.thread() == 0) {
      const double target =
          UniformFor(task_.seed, task_.choice, task_.position) * total;
      int64_t piece = 0;
      double before = 0;
      double running = 0;
      for (int64_t p = 0; p < pieces && running <= target; ++p) {
        if (sums[p] == 0) continue;
        piece = p;
        before = running;
        running = running + static_cast<double>(sums[p]);
      }
      inside = (target - before) / static_cast<double>(sums[piece]);
      places_.Set(0, piece);
    }
    block_.Sync();
    const int64_t begin = places_.Get(0) * kLogitsPiece;
    const int64_t left = count - begin;
    const int64_t size = left < kLogitsPiece ? left : kLogitsPiece;
    if (block_.thread() < size) {
      weights_.Set(block_.thread(), WeightOf(logits[begin + block_.thread()],
                                             max_, task_.scale));
    }
    block_.Sync();
    if (block_.thread() == 0) places_.Set(1, DrawInside(inside, size));
    block_.Sync();
    const int64_t place = begin + places_.Get(1);
    block_.Sync();
    return place;
  }
  SLUICE_DEVICE int64_t DrawInside(double inside, int64_t size) const {
    double total = 0;
    for (int64_t i = 0; i < size; ++i) {
      total = total + static_cast<double>(weights_.Get(i));
    }
    const double wanted = inside * total;
    int64_t place = 0;
    double running = 0;
    for (int64_t i = 0; i < size && running <= wanted; ++i) {
      const float weight = weights_.Get(i);
      if (weight == 0) continue;
      place = i;
      running = running + static_cast<double>(weight);
    }
    return place;
  }

  SLUICE_DEVICE void Describe(int32_t token, float max, SampleResult& result) {
    float total = max;
    if (max != -Infinity()) {
      const double sum =
          Total(task_.sums_raw ? row_.raw_sums : row_.sums, pieces_);
      total = static_cast<float>(static_cast<double>(max) + Log(sum));
    }
    const Logits raw = RawOf(task_, row_);
    const int64_t rank = CountBefore(raw, token);
    if (block_.thread() == 0) {
      result.logprob = task_.logits[token] - total;
      result.rank = static_cast<int32_t>(rank);
    }
    int32_t top = 0;
    if (task_.num_top > 0) {
      candidates_.Collect(
          raw, vocab_, candidates_.LeastOfLargest(raw, vocab_, task_.num_top));
      candidates_.KeepLikeliest(task_.num_top);
      top = static_cast<int32_t>(candidates_.size());
      if (block_.thread() < top) StoreTop(total, result);
    }
    if (block_.thread() == 0) result.num_top = top;
  }
  // How many tokens are likelier.
  SLUICE_DEVICE int64_t CountBefore(const Logits& logits, int32_t token) {
    const float own = logits.values[token];
    const uint64_t rank = RankOf(own, token);
    int64_t before = 0;
    for (int64_t p = block_.warp(); p < pieces_; p += kSampleWarps) {
      if (logits.maxima[p] < own) continue;
      for (int64_t i = p * kLogitsPiece + block_.lane();
           i < vocab_ && i < (p + 1) * kLogitsPiece; i += kWarpLanes) {
        before +=
            RankOf(logits.values[i], static_cast<int32_t>(i)) > rank ? 1 : 0;
      }
    }
    return Sum(before);
  }
  // The thread's candidate, at its place among the few.
  SLUICE_DEVICE void StoreTop(float total, SampleResult& result) const {
    const float value = row_.values[block_.thread()];
    const int32_t id = row_.ids[block_.thread()];
    int place = 0;
    for (int64_t i = 0; i < candidates_.size(); ++i) {
      place += RankOf(row_.values[i], row_.ids[i]) > RankOf(value, id) ? 1 : 0;
    }
    result.top_tokens[place] = id;
    result.top_logprobs[place] = value - total;
  }

  Block& block_;
  const SampleTask& task_;
  const SampleRow row_;
  const int64_t vocab_;
  const int64_t pieces_;
  const Logits drawn_;
  float max_ = 0;  // of the drawn logits
  TokenCandidates candidates_;
  const Shared<float> floats_;
  const Shared<int64_t> longs_;
  const Shared<int64_t> places_;
  const Shared<double> total_;
  const Shared<float> weights_;
};

struct FinishRowKernel {
  static constexpr int kThreads = kSampleThreads;
  using Args = SampleArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    RowFinisher(block, a.tasks[block.index()], a.memory.Row(block.index()),
                a.memory.vocab)
        .Run(a.results[block.index()]);
  }
};

}  // namespace

void FinishSampling(Stream stream, const SampleArgs& args, int64_t rows) {
  Launch<FinishRowKernel>(stream, rows, RowFinisher::kSharedBytes, args);
}

}  // namespace sluice::kernels::cuda
