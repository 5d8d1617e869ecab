#ifndef SLUICE_TESTS_MODEL_LOCAL_RANK_LINK_H_
#define SLUICE_TESTS_MODEL_LOCAL_RANK_LINK_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/stage/rank_follower.h"
#include "common/stage/rank_link.h"

namespace sluice::testing {

// The processes of one stage as threads of a test: what each says reaches the
// others through memory. ends()[0] is the lead's.
class LocalRankLinks {
 public:
  explicit LocalRankLinks(size_t processes) {
    for (size_t p = 0; p < processes; ++p) ends_.emplace_back(this, p);
  }
  RankLink* end(size_t process) { return &ends_[process]; }
  // The follower of a process, which runs the lead's steps from now on.
  void Follow(size_t process, RankStepRunner* runner) {
    MutexLock lock(mutex_);
    ends_[process].runner = runner;
    changed_.NotifyAll();
  }
  // Of the lead.
  uint64_t steps() const { return steps_; }
  // Returns when the lead has dropped the ranks.
  void AwaitDrop() {
    MutexLock lock(mutex_);
    while (!dropped_) changed_.Wait(mutex_);
  }

 private:
  class End final : public RankLink {
   public:
    End(LocalRankLinks* links, size_t process)
        : links_(*links), process_(process) {}
    StatusOr<std::string> Connect(const RankOrder& order,
                                  std::string own) override {
      return links_.Connect(process_, order, std::move(own));
    }
    StatusOr<RankFacts> Agree(const RankFacts& own) override {
      return links_.Agree(own);
    }
    void Begin(const StepInputs& step, const HiddenStates& hidden) override {
      links_.Begin(step, hidden);
    }
    void Drop() override { links_.Drop(); }
    void GiveUp(const Status&) override { links_.Drop(); }

    RankStepRunner* runner = nullptr;

   private:
    LocalRankLinks& links_;
    const size_t process_;
  };

  StatusOr<std::string> Connect(size_t process, const RankOrder& order,
                                std::string own) {
    MutexLock lock(mutex_);
    if (process == 0) {
      id_ = std::move(own);
      order_ = order;
      changed_.NotifyAll();
    }
    while (id_.empty()) changed_.Wait(mutex_);
    SLUICE_CHECK(order == order_);
    return id_;
  }

  StatusOr<RankFacts> Agree(const RankFacts& own) {
    MutexLock lock(mutex_);
    if (said_ == 0) facts_ = own;
    if (said_ > 0) {
      facts_.max_context = std::min(facts_.max_context, own.max_context);
      facts_.kv_blocks = std::min(facts_.kv_blocks, own.kv_blocks);
      facts_.weights_bytes += own.weights_bytes;
      facts_.kv_bytes += own.kv_bytes;
    }
    const uint64_t round = rounds_;
    if (++said_ == ends_.size()) {
      said_ = 0;
      agreed_ = facts_;
      ++rounds_;
      changed_.NotifyAll();
    }
    while (rounds_ == round) changed_.Wait(mutex_);
    return agreed_;
  }

  void Begin(const StepInputs& step, const HiddenStates& hidden) {
    for (size_t p = 1; p < ends_.size(); ++p) {
      RankStepRunner* runner = nullptr;
      {
        MutexLock lock(mutex_);
        while (ends_[p].runner == nullptr) changed_.Wait(mutex_);
        runner = ends_[p].runner;
      }
      RankStep* const to = runner->Free();
      SLUICE_CHECK(to != nullptr);  // ends the stream of true followers
      to->inputs.header = step.header;
      to->inputs.num_tokens = step.num_tokens;
      to->inputs.num_logits_rows = step.num_logits_rows;
      to->inputs.token_ids = step.token_ids;
      to->inputs.positions = step.positions;
      to->inputs.logits_rows = step.logits_rows;
      to->inputs.kv_groups = step.kv_groups;
      SLUICE_CHECK(hidden.rows ==
                   (runner->bounds().hidden_size == 0 ? 0 : step.num_tokens));
      if (hidden.rows > 0) {
        to->hidden = HiddenStates(hidden.rows, hidden.cols);
        std::memcpy(to->hidden.data.data(), hidden.data.data(),
                    hidden.data.size());
      }
      runner->Push();
    }
    ++steps_;
  }

  void Drop() {
    MutexLock lock(mutex_);
    dropped_ = true;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<End> ends_;
  std::string id_ ABSL_GUARDED_BY(mutex_);
  RankOrder order_ ABSL_GUARDED_BY(mutex_);
  RankFacts facts_ ABSL_GUARDED_BY(mutex_);
  RankFacts agreed_ ABSL_GUARDED_BY(mutex_);
  size_t said_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t rounds_ ABSL_GUARDED_BY(mutex_) = 0;
  bool dropped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t steps_ = 0;  // of the lead's thread
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_LOCAL_RANK_LINK_H_
