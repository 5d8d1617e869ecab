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

// The sequences that never ran yet, and who of them starts next: tenants in
// turn by deficit round robin, measured in tokens; within a tenant the order
// of arrival. Not thread safe: the scheduler's.
//
// A tenant in turn starts sequences while it has credit, and its credit pays
// for their prompts and, while others wait, for what its running sequences
// generate. When no tenant with someone to start has credit, each is given
// the same. So under contention every tenant gets the same share of tokens,
// and nobody pays for what was used while nobody else wanted it.
class WaitingLine {
 public:
  using MayStart = std::function<bool(const Sequence&)>;

  void Push(Sequence& sequence);
  void Remove(Sequence& sequence);  // nothing if it is not in the line
  // A sequence that was pushed once, and removed, is no more.
  void Ended(const Sequence& sequence);

  // The sequence to start next; nothing if `may_start` holds for none. One
  // that is passed over by `may_start` holds up nobody.
  Sequence* Next(const MayStart& may_start);
  // `sequence`, the latest Next, has no room yet: nobody overtakes it, so
  // that room is made for it.
  void Pledge(Sequence& sequence) { pledged_ = &sequence; }
  // `tokens` were, or will be, computed for the tenant.
  void Charge(const std::string& tenant, int64_t tokens);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // A tenant that has live sequences.
  struct Tenant {
    std::string name;
    std::deque<Sequence*> waiting;  // in the order of arrival
    int live = 0;                   // the waiting included
    int64_t credit = 0;             // tokens
  };
  const std::vector<std::unique_ptr<Tenant>>& tenants() const {
    return tenants_;
  }

 private:
  Tenant* Find(const std::string& name);

  std::vector<std::unique_ptr<Tenant>> tenants_;
  size_t turn_ = 0;  // index of the tenant whose turn it is
  size_t size_ = 0;
  Sequence* pledged_ = nullptr;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_WAITING_LINE_H_
