#ifndef SLUICE_COMMON_GRAMMAR_COMPILE_TRIAL_H_
#define SLUICE_COMMON_GRAMMAR_COMPILE_TRIAL_H_

#include <cstddef>
#include <memory>

#include "common/grammar/compile_wire.h"
#include "common/grammar/matcher.h"

namespace sluice {

// Memory that a trial may take.
inline constexpr size_t kMaxTrialBytes = size_t{256} << 20;

// Whether RLIMIT_AS bounds a process: sanitizers reserve terabytes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kLimitsAddressSpace = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
inline constexpr bool kLimitsAddressSpace = false;
#else
inline constexpr bool kLimitsAddressSpace = true;
#endif
#else
inline constexpr bool kLimitsAddressSpace = true;
#endif

// Answers the questions that come by `fd`, in a process forked for them, until
// `fd` ends. Ends the process: at an answer that takes too much CPU time by
// SIGXCPU.
[[noreturn]] void RunTrial(
    int fd, const CompileSetup& setup,
    const std::shared_ptr<const GrammarVocabulary>& vocabulary);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_COMPILE_TRIAL_H_
