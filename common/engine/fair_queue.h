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
  bool has_less = false;          // below its share; a note of BatchPolicy
  bool is_owed = false;           // see BatchPolicy::NoteOwed
};

// Whether the sequence's prompt need not spare the decodes of larger clients.
inline bool IsOwed(const Sequence& sequence) {
  return sequence.client->is_owed && sequence.remaining() <= kShortPrompt;
}

// The queued sequences, and which of them starts next: clients take turns by
// deficit round robin, measured in tokens; within a client lower priorities go
// first, and of one priority the first come is served first. A priority passes
// no other client's sequences. Not thread safe: SequenceStore's.
//
// A client in turn starts sequences while it has credit. Credit pays for their
// prompts and, while others wait, for the tokens that its running sequences
// generate. When no client with a sequence to start has credit, each gets the
// same amount. So under contention all clients get equal shares of tokens, and
// the tokens of a client alone cost it nothing.
class FairQueue {
 public:
  using MayStart = std::function<bool(const Sequence&)>;

  // Queues a new sequence behind those of its client that have its priority or
  // a lower one; sets Sequence::client.
  // Changes nothing if it throws.
  void Push(Sequence& sequence);
  // Queues a sequence that was pushed before, ahead of those of its client.
  void PushFront(Sequence& sequence);
  // Takes out a queued sequence; does nothing for one that is not in the queue.
  void Remove(Sequence& sequence);
  // Tells that a sequence, pushed before and removed, has ended.
  void OnEnd(const Sequence& sequence);

  // Returns the sequence to start next; null if `may_start` holds for none.
  // Sequences that `may_start` refuses are overtaken.
  Sequence* Next(const MayStart& may_start);
  // Keeps `sequence`, the latest Next, which has no room yet: Next returns it
  // again as long as `may_start` holds for it, so that room is made for it.
  void Reserve(Sequence& sequence) { reserved_ = &sequence; }
  // Charges the client for `tokens` that were, or will be, computed.
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
