#ifndef SLUICE_KERNELS_CUDA_SHARED_EXPERT_PLAN_H_
#define SLUICE_KERNELS_CUDA_SHARED_EXPERT_PLAN_H_

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/shared/expert_groups.h"

namespace sluice::kernels::cuda {

struct PlanArgs {
  const int32_t* ids;  // [pairs]
  int64_t pairs;
  int32_t per_row;
  int32_t first;  // of the experts at hand
  int32_t experts;
  int32_t tile_rows;
  ExpertPlan to;
};

// One block. A warp walks a run of all pairs twice, to count an expert's and to
// place them; between, counts become places.
template <int kBlockThreads>
struct PlanKernel {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / kWarpLanes;
  struct Args {
    PlanArgs plan;
    int32_t walkers;
    int32_t id_bits;
  };
  struct State {
    Shared<int32_t> counts;  // [walkers, experts]; where the next pair goes
    Shared<int32_t> starts;  // [experts + 1]: first slots; counts at first
    Shared<int32_t> groups;  // [experts]: first groups
  };
  static size_t SharedBytes(const Args& a) {
    const auto array = [](int64_t n) {
      return (static_cast<size_t>(n) * sizeof(int32_t) + 15) / 16 * 16;
    };
    const int64_t experts = a.plan.experts;
    return array(a.walkers * experts) + array(experts + 1) + array(experts);
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int32_t experts = a.plan.experts;
    const auto counts = block.Allocate<int32_t>(a.walkers * experts);
    const auto starts = block.Allocate<int32_t>(experts + 1);
    const auto groups = block.Allocate<int32_t>(experts);
    const State at = {counts, starts, groups};
    for (int32_t i = block.thread(); i < a.walkers * experts; i += kThreads) {
      counts.Set(i, 0);
    }
    block.Sync();
    if (block.warp() < a.walkers) Walk<false>(block, a, counts);
    block.Sync();
    for (int32_t e = block.thread(); e < experts; e += kThreads) {
      int32_t sum = 0;
      for (int32_t w = 0; w < a.walkers; ++w) {
        sum += counts.Get(w * experts + e);
      }
      starts.Set(e, sum);
    }
    block.Sync();
    if (block.warp() == 0) SetStarts(block, a.plan, at);
    block.Sync();
    for (int32_t e = block.thread(); e < experts; e += kThreads) {
      int32_t slot = starts.Get(e);
      for (int32_t w = 0; w < a.walkers; ++w) {
        const int32_t count = counts.Get(w * experts + e);
        counts.Set(w * experts + e, slot);
        slot += count;
      }
    }
    block.Sync();
    if (block.warp() < a.walkers) Walk<true>(block, a, counts);
    for (int32_t e = block.warp(); e < experts; e += kWarps) {
      StoreGroups(block, a.plan, at, e);
    }
  }
  // Starts of counts. A warp calls.
  static SLUICE_DEVICE void SetStarts(Block& block, const PlanArgs& a,
                                      const State& at) {
    int32_t slots = 0;
    int32_t groups = 0;
    for (int32_t from = 0; from < a.experts; from += kWarpLanes) {
      const int32_t e = from + block.lane();
      const int32_t count = e < a.experts ? at.starts.Get(e) : 0;
      const int32_t own = (count + a.tile_rows - 1) / a.tile_rows;
      const int32_t to_slot = slots + SumToLane(block, count);
      const int32_t to_group = groups + SumToLane(block, own);
      if (e < a.experts) {
        at.starts.Set(e, to_slot - count);
        at.groups.Set(e, to_group - own);
      }
      slots = block.Shuffle(to_slot, kWarpLanes - 1);
      groups = block.Shuffle(to_group, kWarpLanes - 1);
    }
    if (block.lane() == 0) {
      at.starts.Set(a.experts, slots);
      *a.to.num_groups = groups;
    }
  }
  // The sum of the lanes up to a thread's own.
  static SLUICE_DEVICE int32_t SumToLane(Block& block, int32_t value) {
    for (int step = 1; step < kWarpLanes; step *= 2) {
      const bool adds = block.lane() >= step;
      const int32_t other =
          block.Shuffle(value, adds ? block.lane() - step : block.lane());
      if (adds) value += other;
    }
    return value;
  }
  // A warp's run of pairs: counts an expert's, or gives them their slots.
  template <bool kPlaces>
  static SLUICE_DEVICE void Walk(Block& block, const Args& a,
                                 const Shared<int32_t>& counts) {
    constexpr int kAtOnce = 8;
    const int64_t step = int64_t{kWarpLanes} * a.walkers;
    const int64_t run = (a.plan.pairs + step - 1) / step * kWarpLanes;
    const int64_t begin = block.warp() * run;
    const int64_t end = begin + run < a.plan.pairs ? begin + run : a.plan.pairs;
    for (int64_t from = begin; from < end; from += kAtOnce * kWarpLanes) {
      int32_t own[kAtOnce];
      SLUICE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t i = from + j * kWarpLanes + block.lane();
        own[j] = i < end ? a.plan.ids[i] - a.plan.first : -1;
      }
      SLUICE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t i = from + j * kWarpLanes;
        if (i < end) Take<kPlaces>(block, a, counts, i, end, own[j]);
      }
    }
  }
  // The next 32 pairs from i on, of which `e` is a lane's expert.
  template <bool kPlaces>
  static SLUICE_DEVICE void Take(Block& block, const Args& a,
                                 const Shared<int32_t>& counts, int64_t i,
                                 int64_t end, int32_t e) {
    const bool local = e >= 0 && e < a.plan.experts;
    uint32_t alike = block.Ballot(local);
    for (int32_t bit = 0; bit < a.id_bits; ++bit) {
      const bool set = (e >> bit & 1) != 0;
      const uint32_t votes = block.Ballot(set);
      alike &= set ? votes : ~votes;
    }
    const int before = CountBits(alike & ((1u << block.lane()) - 1u));
    const int32_t at = block.warp() * a.plan.experts + e;
    const int32_t next = local ? counts.Get(at) : 0;
    block.SyncWarp();
    if (local && before == 0) counts.Set(at, next + CountBits(alike));
    block.SyncWarp();
    if constexpr (kPlaces) {
      i += block.lane();
      if (i >= end) return;
      a.plan.to.slots[i] = local ? next + before : -1;
      if (local) {
        a.plan.to.rows[next + before] = static_cast<int32_t>(
            static_cast<uint32_t>(i) / static_cast<uint32_t>(a.plan.per_row));
      }
    }
  }
  // Of expert `e`. A warp calls.
  static SLUICE_DEVICE void StoreGroups(const Block& block, const PlanArgs& a,
                                        const State& at, int32_t e) {
    const int32_t first = at.starts.Get(e);
    const int32_t end = at.starts.Get(e + 1);
    const int32_t group = at.groups.Get(e);
    for (int32_t n = block.lane(); first + n * a.tile_rows < end;
         n += kWarpLanes) {
      const int32_t slot = first + n * a.tile_rows;
      a.to.groups[group + n] = {
          e, slot, end - slot < a.tile_rows ? end - slot : a.tile_rows};
    }
  }
};

// The same of at most 32 pairs: one warp, a lane for each pair.
struct PlanFewKernel {
  static constexpr int kThreads = kWarpLanes;
  using Args = PlanArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto pairs = static_cast<int32_t>(a.pairs);
    const int32_t i = block.lane();
    const int32_t own = i < pairs ? a.ids[i] - a.first : -1;
    const bool local = own >= 0 && own < a.experts;
    int32_t slot = 0;    // pairs of lower experts
    int32_t before = 0;  // pairs of the same expert before this one
    int32_t alike = 0;   // all of these
    for (int32_t j = 0; j < pairs; ++j) {
      const int32_t other = block.Shuffle(own, j);
      if (other < 0 || other >= a.experts) continue;
      slot += other < own ? 1 : 0;
      alike += other == own ? 1 : 0;
      before += other == own && j < i ? 1 : 0;
    }
    const bool leads = local && before == 0;
    const int32_t tiles = leads ? (alike + a.tile_rows - 1) / a.tile_rows : 0;
    int32_t group = 0;  // groups of lower experts
    int32_t all = 0;
    for (int32_t j = 0; j < pairs; ++j) {
      const int32_t other = block.Shuffle(own, j);
      const int32_t others = block.Shuffle(tiles, j);
      group += other < own ? others : 0;
      all += others;
    }
    if (i == 0) *a.to.num_groups = all;
    if (i >= pairs) return;
    a.to.slots[i] = local ? slot + before : -1;
    if (!local) return;
    a.to.rows[slot + before] = i / a.per_row;
    for (int32_t n = 0; n < tiles; ++n) {
      const int32_t left = alike - n * a.tile_rows;
      a.to.groups[group + n] = {own, slot + n * a.tile_rows,
                                left < a.tile_rows ? left : a.tile_rows};
    }
  }
};

template <int kThreads>
void StartPlan(Stream stream, const PlanArgs& plan) {
  constexpr int64_t kMostCounts = 8192;
  using Kernel = PlanKernel<kThreads>;
  const int64_t most = std::clamp<int64_t>(kMostCounts / plan.experts, 1,
                                           int64_t{Kernel::kWarps});
  const int64_t walks = (plan.pairs + kWarpLanes - 1) / kWarpLanes;
  typename Kernel::Args args = {plan, 1, 0};
  args.walkers = static_cast<int32_t>(std::clamp<int64_t>(walks, 1, most));
  while (int64_t{1} << args.id_bits < plan.experts) ++args.id_bits;
  Launch<Kernel>(stream, 1, Kernel::SharedBytes(args), args);
}

inline void PlanExperts(Stream stream, const PlanArgs& plan) {
  constexpr int64_t kFewPairs = 256;
  if (plan.pairs <= kWarpLanes) {
    return Launch<PlanFewKernel>(stream, 1, 0, plan);
  }
  if (plan.pairs <= kFewPairs) return StartPlan<128>(stream, plan);
  StartPlan<1024>(stream, plan);
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_EXPERT_PLAN_H_
