#ifndef SLUICE_COMMON_GRAMMAR_COMPILE_TEXT_H_
#define SLUICE_COMMON_GRAMMAR_COMPILE_TEXT_H_

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/matcher.h"

namespace sluice {

// Whether the work is repeated if it passes: a trial has half the stack.
enum class Trial { kNo, kYes };

// The bridge's work on texts, in this process: see GrammarCompiler. INTERNAL:
// the bridge panicked.
StatusOr<std::shared_ptr<const Grammar>> CompileText(
    std::shared_ptr<const GrammarVocabulary> vocabulary,
    const GrammarSpec& spec, const GrammarLimits& limits, Trial trial);
StatusOr<std::string> CheckSchemaText(std::string_view schema,
                                      const GrammarLimits& limits, Trial trial);
StatusOr<std::string> LarkOfGbnfText(std::string_view gbnf,
                                     const GrammarLimits& limits, Trial trial);

// Returns the terminal of a Lark grammar for the bare text of a string: what
// `pattern` and `format` of `schema` let through; empty where neither is there
// or holds strings. `schema` has passed CheckSchemaText. In linear time.
StatusOr<std::string> StringTerminalText(std::string_view schema,
                                         const GrammarLimits& limits);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_COMPILE_TEXT_H_
