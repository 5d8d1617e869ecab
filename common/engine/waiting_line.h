#ifndef SLUICE_COMMON_ENGINE_WAITING_LINE_H_
#define SLUICE_COMMON_ENGINE_WAITING_LINE_H_

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
  std::deque<Sequence*> waiting;  // in the order in which they start
  int live = 0;                   // sequences, the waiting included
  int running = 0;                // of them; kept by the scheduler
  int64_t credit = 0;             // tokens
  bool has_less = false;          // than its share; the scheduler's note
  bool is_owed = false;           // see Scheduler::NoteOwed
};

// Whether its prompt need not spare the decodes of larger clients.
inline bool IsOwed(const Sequence& sequence) {
  return sequence.client->is_owed && sequence.remaining() <= kShortPrompt;
}

// The sequences that wait for their turn, and which of them starts next:
// clients in turn by deficit round robin, measured in tokens; within a client
// the order of arrival. Not thread safe: the scheduler's.
//
// A client in turn starts sequences while it has credit, and its credit pays
// for their prompts and, while others wait, for what its running sequences
// generate. When no client with a sequence to start has credit, each is given
// the same. So under contention every client gets the same share of tokens,
// and nobody pays for what was used while nobody else wanted it.
class WaitingLine {
 public:
  using MayStart = std::function<bool(const Sequence&)>;

  // A new sequence, behind those of its client; sets Sequence::client. If it
  // throws nothing has changed.
  void Push(Sequence& sequence);
  // One that ran, before those of its client: it gave its place away.
  void PushBack(Sequence& sequence);
  void Remove(Sequence& sequence);  // nothing if it is not in the line
  // A sequence that was pushed once, and removed, is no more.
  void Ended(const Sequence& sequence);

  // The sequence to start next; nothing if `may_start` holds for none. One
  // that is passed over by `may_start` holds up nobody.
  Sequence* Next(const MayStart& may_start);
  // `sequence`, the latest Next, has no room yet: nobody for whom `may_start`
  // holds as well overtakes it, so that room is made for it.
  void Pledge(Sequence& sequence) { pledged_ = &sequence; }
  // `tokens` were, or will be, computed for the client.
  void Charge(ClientShare& client, int64_t tokens);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::vector<std::unique_ptr<ClientShare>>& clients() const {
    return clients_;
  }

 private:
  ClientShare* Find(const std::string& name);

  std::vector<std::unique_ptr<ClientShare>> clients_;
  size_t turn_ = 0;  // index of the client whose turn it is
  size_t size_ = 0;
  Sequence* pledged_ = nullptr;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_WAITING_LINE_H_
