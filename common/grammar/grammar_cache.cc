#include "common/grammar/grammar_cache.h"

#include "common/base/cat.h"

namespace sluice {

std::shared_ptr<const Grammar> GrammarCache::Find(const std::string& key) {
  std::list<Entry> dropped;  // freed without the lock
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  if (found->second->second->is_spoilt()) {
    dropped.splice(dropped.begin(), entries_, found->second);
    by_key_.erase(found);
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

void GrammarCache::Add(const std::string& key,
                       std::shared_ptr<const Grammar> grammar) {
  std::list<Entry> dropped;  // freed without the lock
  MutexLock lock(mutex_);
  if (max_grammars_ == 0 || by_key_.contains(key)) return;
  while (entries_.size() >= max_grammars_) {
    by_key_.erase(entries_.back().first);
    dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
  }
  entries_.emplace_front(key, std::move(grammar));
  by_key_.emplace(entries_.front().first, entries_.begin());
}

std::string GrammarCache::KeyOf(const GrammarSpec& spec,
                                std::string_view tenant) {
  return Cat(tenant.size(), ' ', static_cast<int>(spec.kind), ' ', tenant,
             spec.text);
}

std::string GrammarCache::KeyOfRequest(std::string_view request,
                                       std::string_view tenant) {
  return Cat(tenant.size(), " request ", tenant, request);
}

}  // namespace sluice
