#ifndef SLUICE_COMMON_ENGINE_SEQUENCE_STORE_H_
#define SLUICE_COMMON_ENGINE_SEQUENCE_STORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/core/generate_request.h"
#include "common/core/step_plan.h"
#include "common/engine/block_manager.h"
#include "common/engine/fair_queue.h"
#include "common/engine/sequence.h"

namespace sluice {

// All live sequences of a replica and the KV blocks that they hold. Finds a
// sequence by its id, and moves it between three places: queued, running,
// preempted. Decides nothing. Not thread safe: Scheduler's.
class SequenceStore {
 public:
  SequenceStore() : blocks_(BlockManager::Options()) {}

  // Adds a queued sequence. Needs an `id` above all earlier ones. Changes
  // nothing but `request` if it throws.
  void Add(SequenceId id, GenerateRequest request,
           std::shared_ptr<TokenSink> sink);
  // Returns the live sequence of that id, or null.
  Sequence* Find(SequenceId id);
  // Takes the sequence out of its place and forgets it.
  void Erase(Sequence& sequence);

  // Takes the blocks of all sequences, for a pipeline with an empty KV cache
  // that knows no sequence: running sequences become preempted.
  void Reset(const BlockManager::Options& blocks);

  // Takes the blocks of all sequences of a lost pipeline: running sequences
  // become preempted. What is cached stays so. Those that `go_first` start
  // again first, then those with the fewest tokens. `is_planned`: what is stale
  // is forgotten.
  void Suspend(const std::function<bool(const Sequence&)>& go_first,
               bool is_planned = false);

  // Runs a queued sequence, or the first preempted one. Needs its tables set.
  void Run(Sequence& sequence, TimePoint now);
  // Takes the blocks of the running sequence that started last. It becomes the
  // first of the preempted, so both lists keep the order of first start.
  void Preempt(Sequence& sequence);
  // Takes the blocks of the sequence if it runs. It becomes the first of the
  // preempted, as if it had started last.
  void SetAside(Sequence& sequence);
  // Moves a running or preempted sequence to the head of its client's queue.
  void Requeue(Sequence& sequence);

  // Oldest first; addresses are stable.
  std::map<SequenceId, Sequence>& all() { return sequences_; }
  const std::map<SequenceId, Sequence>& all() const { return sequences_; }
  // In the order of their tickets; the preempted are too, behind the running.
  const std::vector<Sequence*>& running() const { return running_; }
  const std::deque<Sequence*>& preempted() const { return preempted_; }
  FairQueue& queue() { return queue_; }
  const FairQueue& queue() const { return queue_; }
  BlockManager& blocks() { return blocks_; }
  // See BlockPool::TakeVacant. Without `idle` none is vacant.
  std::vector<BlockRange> TakeVacant(TimePoint now, Duration idle) {
    if (idle <= Duration::zero()) return {};
    return blocks_.TakeVacant(now, idle);
  }
  const BlockManager& blocks() const { return blocks_; }
  // Sequences that stopped running, for the next plan to tell the stages.
  std::vector<SequenceId>& stopped() { return stopped_; }
  const std::vector<SequenceId>& stopped() const { return stopped_; }

  size_t num_waiting() const { return preempted_.size() + queue_.size(); }
  int32_t num_decoding() const;
  // Whether sequences of a lost pipeline stand still until the stages that were
  // replaced have replayed them.
  bool await_replays() const;

  // INTERNAL names the first contradiction of places, sequences and blocks.
  Status CheckIntegrity() const;

 private:
  void StopAll();
  uint64_t GroupOf(const Sequence& sequence) const;
  void Stop(Sequence& sequence);
  Status CheckClients() const;

  BlockManager blocks_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<Sequence*> running_;
  std::deque<Sequence*> preempted_;
  FairQueue queue_;
  uint64_t last_ticket_ = 0;
  std::vector<SequenceId> stopped_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SEQUENCE_STORE_H_
