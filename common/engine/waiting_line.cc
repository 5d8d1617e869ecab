#include "common/engine/waiting_line.h"

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

// Credit of one round. Small against prompts, so that turns are short.
constexpr int64_t kQuantum = 256;

}  // namespace

WaitingLine::Tenant* WaitingLine::Find(const std::string& name) {
  for (const auto& tenant : tenants_) {
    if (tenant->name == name) return tenant.get();
  }
  return nullptr;
}

void WaitingLine::Push(Sequence& sequence) {
  const std::string& name = sequence.history->request.tenant;
  Tenant* tenant = Find(name);
  if (tenant == nullptr) {
    tenant = tenants_.emplace_back(std::make_unique<Tenant>()).get();
    tenant->name = name;
  }
  tenant->waiting.push_back(&sequence);
  ++tenant->live;
  ++size_;
}

void WaitingLine::Remove(Sequence& sequence) {
  Tenant& tenant = *Find(sequence.history->request.tenant);
  const auto it =
      std::find(tenant.waiting.begin(), tenant.waiting.end(), &sequence);
  if (it == tenant.waiting.end()) return;
  tenant.waiting.erase(it);
  --size_;
  if (pledged_ == &sequence) pledged_ = nullptr;
  // Credit is not saved up for later.
  if (tenant.waiting.empty())
    tenant.credit = std::min<int64_t>(tenant.credit, 0);
}

void WaitingLine::Ended(const Sequence& sequence) {
  const std::string& name = sequence.history->request.tenant;
  Tenant& tenant = *Find(name);
  if (--tenant.live > 0) return;
  const auto it =
      std::find_if(tenants_.begin(), tenants_.end(),
                   [&](const auto& one) { return one.get() == &tenant; });
  const size_t index = static_cast<size_t>(it - tenants_.begin());
  tenants_.erase(it);
  if (turn_ > index) --turn_;
  if (turn_ >= tenants_.size()) turn_ = 0;
}

Sequence* WaitingLine::Next(const MayStart& may_start) {
  if (pledged_ != nullptr) return pledged_;
  struct Candidate {
    size_t index;
    Sequence* first;
  };
  std::vector<Candidate> candidates;  // from the tenant in turn on
  for (size_t k = 0; k < tenants_.size(); ++k) {
    const size_t index = (turn_ + k) % tenants_.size();
    for (Sequence* sequence : tenants_[index]->waiting) {
      if (!may_start(*sequence)) continue;
      candidates.push_back({index, sequence});
      break;
    }
  }
  if (candidates.empty()) return nullptr;
  int64_t most = std::numeric_limits<int64_t>::min();
  for (const Candidate& one : candidates) {
    most = std::max(most, tenants_[one.index]->credit);
  }
  if (most <= 0) {
    const int64_t rounds = (kQuantum - most) / kQuantum;
    for (const Candidate& one : candidates) {
      tenants_[one.index]->credit += rounds * kQuantum;
    }
    // The turn goes on: whoever had it last has used its credit up.
    if (candidates.size() > 1 && candidates[0].index == turn_) {
      std::rotate(candidates.begin(), candidates.begin() + 1, candidates.end());
    }
  }
  const auto chosen = std::find_if(
      candidates.begin(), candidates.end(),
      [&](const Candidate& one) { return tenants_[one.index]->credit > 0; });
  turn_ = chosen->index;
  return chosen->first;
}

void WaitingLine::Charge(const std::string& name, int64_t tokens) {
  bool contended = false;
  for (const auto& tenant : tenants_) {
    contended = contended || (tenant->name != name && !tenant->waiting.empty());
  }
  if (contended) Find(name)->credit -= tokens;
}

}  // namespace sluice
