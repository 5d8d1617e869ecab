#ifndef SLUICE_COMMON_ENGINE_FAIR_QUEUE_H_
#define SLUICE_COMMON_ENGINE_FAIR_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/engine/sequence.h"

namespace sluice {

// A client that has live sequences.
struct ClientShare {
  std::string name;
  std::deque<Sequence*> waiting;  // queued ones, in the order of their starts
  int live = 0;                   // sequences, the waiting included
  int running = 0;                // of them; kept by SequenceStore
  int64_t credit = 0;             // tokens
  bool has_less = false;          // than its share; a note of BatchPolicy
  bool is_owed = false;           // see BatchPolicy::NoteOwed
};

// Whether the sequence's prompt need not spare the decodes of larger clients.
inline bool IsOwed(const Sequence& sequence) {
  return sequence.client->is_owed && sequence.remaining() <= kShortPrompt;
}

// The queued sequences, and which of them starts next: clients take turns by
// deficit round robin, measured in tokens; within a client the order is that
// of arrival. Not thread safe: SequenceStore's.
//
// A client in turn starts sequences while it has credit, and its credit pays
// for their prompts and, while others wait, for what its running sequences
// generate. When no client with a sequence to start has credit, each is given
// the same. So under contention every client gets the same share of tokens,
// and what a client used while no other one waited costs it nothing.
class FairQueue {
 public:
  using MayStart = std::function<bool(const Sequence&)>;

  // Queues a new sequence behind those of its client; sets Sequence::client.
  // If it throws nothing has changed.
  void Push(Sequence& sequence);
  // Queues a sequence that was pushed before, ahead of those of its client.
  void PushFront(Sequence& sequence);
  // Takes out a queued sequence; no effect on one that is not in the queue.
  void Remove(Sequence& sequence);
  // A sequence that was pushed once, and removed, has ended.
  void OnEnd(const Sequence& sequence);

  // Returns the sequence to start next; null if `may_start` holds for none. A
  // sequence that `may_start` refuses is overtaken.
  Sequence* Next(const MayStart& may_start);
  // `sequence`, the latest Next, has no room yet: Next returns it again for as
  // long as `may_start` holds for it, so that room is made for it.
  void Reserve(Sequence& sequence) { reserved_ = &sequence; }
  // `tokens` were, or will be, computed for the client.
  void Charge(ClientShare& client, int64_t tokens);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::vector<std::unique_ptr<ClientShare>>& clients() const {
    return clients_;
  }

 private:
  std::vector<std::unique_ptr<ClientShare>> clients_;
  size_t turn_ = 0;  // index of the client whose turn it is
  size_t size_ = 0;
  Sequence* reserved_ = nullptr;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_FAIR_QUEUE_H_
