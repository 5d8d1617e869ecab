// The bridge's functions for grammars, wrapped by the linker: a grammar whose
// text has a mark does what a fault of the bridge would do. The mark stands in
// a schema's title, as `{"title": "fault:crash:mask:50", ..}`:
//   fault:crash:compile     the process ends while the grammar is compiled
//   fault:crash:mask:N      .. at the Nth mask of an answer, from 1 on
//   fault:HOW:WHERE         HOW: crash, overflow (of the stack), loop, memory
#include <sys/resource.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/text/bridge/bridge.h"

namespace {

constexpr std::string_view kMark = "fault:";
constexpr std::string_view kAtCompile = ":compile";
constexpr std::string_view kAtMask = ":mask:";

struct Fault {
  std::string how;
  int mask = 0;  // 0: while it is compiled
};

struct Matching {
  Fault fault;
  int num_masks = 0;
};

std::mutex mutex;
std::map<const SluiceGrammar*, Fault>& Grammars() {
  static auto* const all = new std::map<const SluiceGrammar*, Fault>;
  return *all;
}
std::map<const SluiceMatcher*, Matching>& Matchers() {
  static auto* const all = new std::map<const SluiceMatcher*, Matching>;
  return *all;
}

std::optional<Fault> FaultOf(std::string_view text) {
  const size_t begin = text.find(kMark);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + kMark.size());
  const size_t how = text.find(':');
  if (how == std::string_view::npos) return std::nullopt;
  Fault fault{std::string(text.substr(0, how))};
  text.remove_prefix(how);
  if (text.starts_with(kAtCompile)) return fault;
  if (!text.starts_with(kAtMask)) return std::nullopt;
  text.remove_prefix(kAtMask.size());
  std::from_chars(text.data(), text.data() + text.size(), fault.mask);
  return fault.mask > 0 ? std::optional(fault) : std::nullopt;
}

// What the compiler cannot know.
volatile bool true_for_ever = true;
void* volatile kept = nullptr;

// Uses the whole stack, and a little of it at a time.
int Overflow(int depth) {
  volatile char frame[512];
  frame[0] = static_cast<char>(depth);
  return true_for_ever ? Overflow(depth + 1) + frame[0] : depth;
}

void Happen(const std::string& how) {
  if (how == "overflow") {
    std::exit(Overflow(0));
  } else if (how == "loop") {
    while (true_for_ever) {
    }
  } else if (how == "memory") {
    constexpr size_t kPiece = size_t{16} << 20;
    while (true_for_ever) {
      kept = std::malloc(kPiece);
      if (kept == nullptr) std::abort();
      std::memset(kept, 1, kPiece);
    }
  }
  std::raise(SIGSEGV);
}

}  // namespace

extern "C" {

int __real_sluice_grammar_new(const SluiceGrammarEnv* env, uint32_t kind,
                              const uint8_t* text, size_t text_size,
                              SluiceGrammarLimits limits,
                              SluiceGrammar** grammar, SluiceBuffer* message);
int __wrap_sluice_grammar_new(const SluiceGrammarEnv* env, uint32_t kind,
                              const uint8_t* text, size_t text_size,
                              SluiceGrammarLimits limits,
                              SluiceGrammar** grammar, SluiceBuffer* message) {
  const auto fault = FaultOf({reinterpret_cast<const char*>(text), text_size});
  if (fault && fault->mask == 0) Happen(fault->how);
  const int code = __real_sluice_grammar_new(env, kind, text, text_size, limits,
                                             grammar, message);
  if (code == SLUICE_OK && fault) {
    const std::lock_guard lock(mutex);
    Grammars()[*grammar] = *fault;
  }
  return code;
}

void __real_sluice_grammar_free(SluiceGrammar* grammar);
void __wrap_sluice_grammar_free(SluiceGrammar* grammar) {
  {
    const std::lock_guard lock(mutex);
    Grammars().erase(grammar);
  }
  __real_sluice_grammar_free(grammar);
}

int __real_sluice_matcher_new(const SluiceGrammar* grammar,
                              SluiceMatcher** matcher, SluiceBuffer* message);
int __wrap_sluice_matcher_new(const SluiceGrammar* grammar,
                              SluiceMatcher** matcher, SluiceBuffer* message) {
  const int code = __real_sluice_matcher_new(grammar, matcher, message);
  if (code != SLUICE_OK) return code;
  const std::lock_guard lock(mutex);
  const auto found = Grammars().find(grammar);
  if (found != Grammars().end()) Matchers()[*matcher] = {found->second};
  return code;
}

void __real_sluice_matcher_free(SluiceMatcher* matcher);
void __wrap_sluice_matcher_free(SluiceMatcher* matcher) {
  {
    const std::lock_guard lock(mutex);
    Matchers().erase(matcher);
  }
  __real_sluice_matcher_free(matcher);
}

int __real_sluice_matcher_step(SluiceMatcher* matcher, const uint32_t* tokens,
                               size_t num_tokens, size_t max_forced,
                               SluiceBuffer* step);
int __wrap_sluice_matcher_step(SluiceMatcher* matcher, const uint32_t* tokens,
                               size_t num_tokens, size_t max_forced,
                               SluiceBuffer* step) {
  std::string how;
  {
    const std::lock_guard lock(mutex);
    const auto found = Matchers().find(matcher);
    if (found != Matchers().end()) {
      Matching& matching = found->second;
      matching.num_masks += 1;
      if (matching.num_masks == matching.fault.mask) how = matching.fault.how;
    }
  }
  if (!how.empty()) Happen(how);
  return __real_sluice_matcher_step(matcher, tokens, num_tokens, max_forced,
                                    step);
}

}  // extern "C"
