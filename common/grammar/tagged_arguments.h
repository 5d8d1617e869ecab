#ifndef SLUICE_COMMON_GRAMMAR_TAGGED_ARGUMENTS_H_
#define SLUICE_COMMON_GRAMMAR_TAGGED_ARGUMENTS_H_

#include <string>

#include "common/base/status.h"
#include "common/grammar/answer_grammar.h"

namespace sluice {

// Returns the Lark rules of a call of `tool` behind <tool_call>, the rule named
// `rule`, in a format that writes each parameter by itself (CallShape::kTagged
// of GLM and Qwen3-Coder, CallShape::kParameters). Parameters come in the order
// of the schema's properties, each at most once. A value that is a string
// stands without quotes; others are JSON. INVALID_ARGUMENT for a schema that
// such a call cannot be held to.
StatusOr<std::string> TaggedCallRules(ToolFormat format,
                                      const GrammarTool& tool,
                                      const std::string& rule,
                                      const Vocabulary& vocabulary,
                                      const GrammarTexts& compiler);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_TAGGED_ARGUMENTS_H_
