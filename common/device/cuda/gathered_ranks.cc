#include "common/device/cuda/gathered_ranks.h"

#include <algorithm>
#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/end_process.h"

namespace sluice {

using kernels::Matrix;
using kernels::cuda::NodeRows;
using kernels::cuda::TakeRows;

GatheringCommunicator::GatheringCommunicator(
    kernels::cuda::Runtime* runtime, std::shared_ptr<GatheredRankTable> ranks,
    int index, std::unique_ptr<TellingExchange> telling)
    : DeviceCommunicator(runtime, CollectiveClock::kMostSpans),
      runtime_(*runtime),
      ranks_(std::move(ranks)),
      index_(index),
      rank_(ranks_->of().NumberOf(index)),
      send_(runtime),
      receive_(runtime),
      telling_(std::move(telling)) {
  SLUICE_CHECK(ranks_->of().has_others() == (telling_ != nullptr));
}

void GatheringCommunicator::Meet() {
  runtime_.StepAside();
  const int64_t start = MonotonicNanos();
  ranks_->meeting_.Arrive();
  clock_.NoteWait(MonotonicNanos() - start);
}

std::vector<RankTelling> GatheringCommunicator::Tell(const RankTelling& own) {
  std::vector<RankTelling> told;
  if (telling_ != nullptr) {
    Meet();
    runtime_.Sync();  // what is before is no wait for others
    const int64_t start = MonotonicNanos();
    told = telling_->Tell(own, *ranks_->exchange_);
    clock_.NoteWait(MonotonicNanos() - start);
    return told;
  }
  ranks_->slots_[static_cast<size_t>(index_)].told = own;
  Meet();
  for (const auto& slot : ranks_->slots_) told.push_back(slot.told);
  return told;
}

const GatheringCommunicator::Agreement& GatheringCommunicator::Agree(
    const Collective& of, int64_t rows) {
  ranks_->watch_.Begin(index_);
  const size_t turn = turn_++;
  meets_ = learns_ || turn >= agreed_.size() || agreed_[turn].of != of;
  const auto rank = static_cast<size_t>(rank_);
  if (!meets_) {
    if (agreed_[turn].shares[rank] == own_) return agreed_[turn];
    EndToBeReplaced(
        Cat(ranks_->of().TextOf(index_), " brings other parts to collective ",
            turn, " of a step than it told"),
        [this] { ranks_->exchange_->Abort(); });
  }
  BeginTime();
  const auto told = Tell({of, own_, rows, copied_});
  if (turn >= agreed_.size()) agreed_.resize(turn + 1);
  Agreement& all = agreed_[turn];
  all = {of, {}, 0};
  for (const RankTelling& one : told) {
    if (one.of != of || one.rows != rows) {
      EndToBeReplaced(
          Cat(ranks_->of().TextOf(index_), " has come to another collective ",
              turn, " of a step than rank ", all.shares.size()),
          [this] { ranks_->exchange_->Abort(); });
    }
    const RankShare& share = one.share;
    all.shares.push_back(share);
    is_cut_ = is_cut_ || one.copied;
    all.most = std::max({all.most, share.cols, std::ssize(share.nodes)});
  }
  return all;
}

void GatheringCommunicator::Reach(int64_t count) {
  if (count <= count_) return;
  BeginTime();
  // Every rank comes here, and no device of the process waits meanwhile for
  // what another one of it will enqueue.
  runtime_.Sync();
  send_.AtLeast<float>(count);
  receive_.AtLeast<float>(count * ranks_->of().all);
  count_ = count;
  Meet();
}

void GatheringCommunicator::Exchange(int64_t count) {
  BeginTime();
  ranks_->exchange_->AllGather(index_, runtime_, send_.AtLeast<float>(0),
                               receive_.AtLeast<float>(0), count);
  if (!meets_) clock_.End();
}

void GatheringCommunicator::Leave() {
  if (!meets_) return;
  Meet();
  clock_.End();
}

void GatheringCommunicator::BeginTime() {
  if (ranks_->exchange_->joins_lists() && runtime_.gathers_launches()) {
    return clock_.Skip();
  }
  clock_.Begin(kind_);
}

void GatheringCommunicator::ReduceTree(int32_t num_leaves,
                                       std::span<const kernels::TreeNode> nodes,
                                       std::span<const Matrix> parts,
                                       Matrix out) {
  SLUICE_CHECK(nodes.size() == parts.size());
  kind_ = &CollectiveTimes::reduce_ns;
  own_ = {};
  own_.nodes.assign(nodes.begin(), nodes.end());
  const Agreement& all = Agree({num_leaves, out.cols}, out.rows);
  const int64_t each = out.rows * out.cols;
  const int64_t count = each * all.most;
  Reach(count);
  float* to = send_.AtLeast<float>(0);
  for (const Matrix& part : parts) {
    TakeRows(runtime_.stream(), part, nullptr,
             {to, out.rows, out.cols, out.cols});
    to += each;
  }
  Exchange(count);
  parts_.clear();
  const float* from = receive_.AtLeast<float>(0);
  for (const RankShare& share : all.shares) {
    for (size_t i = 0; i < share.nodes.size(); ++i) {
      parts_.push_back({share.nodes[i],
                        {from + each * static_cast<int64_t>(i), out.rows,
                         out.cols, out.cols}});
    }
    from += count;
  }
  // Ranks need not own leaves in the order of their numbers.
  std::sort(parts_.begin(), parts_.end(),
            [](const NodeRows& a, const NodeRows& b) {
              return a.node.begin < b.node.begin;
            });
  SLUICE_CHECK(!parts_.empty() && parts_.back().node.end == num_leaves);
  kernels::cuda::JoinNodes(runtime_.stream(), parts_, 0, out.cols, {&out, 1});
  Leave();
}

void GatheringCommunicator::GatherColumns(kernels::ConstMatrix part,
                                          int64_t col_begin, Matrix out) {
  kind_ = &CollectiveTimes::gather_ns;
  own_ = {{}, part.cols, col_begin};
  const Agreement& all = Agree({}, part.rows);
  const int64_t count = part.rows * all.most;
  Reach(count);
  if (part.cols > 0) {
    TakeRows(runtime_.stream(), part, nullptr,
             {send_.AtLeast<float>(0), part.rows, part.cols, part.cols});
  }
  Exchange(count);
  const float* from = receive_.AtLeast<float>(0);
  for (const RankShare& share : all.shares) {
    if (rank_ == 0 && share.cols > 0) {
      SLUICE_CHECK(share.col_begin + share.cols <= out.cols);
      TakeRows(runtime_.stream(), {from, part.rows, share.cols, share.cols},
               nullptr,
               {out.data + share.col_begin, out.rows, share.cols, out.stride});
    }
    from += count;
  }
  Leave();
}

}  // namespace sluice
