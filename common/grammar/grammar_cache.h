#ifndef SLUICE_COMMON_GRAMMAR_GRAMMAR_CACHE_H_
#define SLUICE_COMMON_GRAMMAR_GRAMMAR_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/mutex.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/matcher.h"

namespace sluice {

// Compiled grammars by tenant and text; the one unused longest goes first. Any
// thread may call all methods.
class GrammarCache {
 public:
  explicit GrammarCache(size_t max_grammars) : max_grammars_(max_grammars) {}

  // Returns the grammar of `key`, or null; also null if it is spoilt.
  std::shared_ptr<const Grammar> Find(const std::string& key);
  void Add(const std::string& key, std::shared_ptr<const Grammar> grammar);

  // Tenants share no grammar: the time to compile would tell what others ask.
  static std::string KeyOf(const GrammarSpec& spec, std::string_view tenant);
  // Of all that makes a request's grammar, which has a key of its own, too.
  static std::string KeyOfRequest(std::string_view request,
                                  std::string_view tenant);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Grammar>>;

  const size_t max_grammars_;
  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // used last comes first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_
      ABSL_GUARDED_BY(mutex_);  // views of entries_
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_GRAMMAR_CACHE_H_
