#ifndef SLUICE_COMMON_GRAMMAR_ANSWER_GRAMMAR_H_
#define SLUICE_COMMON_GRAMMAR_ANSWER_GRAMMAR_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/grammar_texts.h"
#include "common/text/output/output_parser.h"
#include "common/text/vocabulary.h"

namespace sluice {

// A function that an answer may call.
struct GrammarTool {
  std::string name;
  std::string parameters;  // a JSON Schema; empty: any object
  // False: the arguments are any JSON object, where the format can say so.
  bool is_strict = true;
};

// What an answer may be: calls, content, or calls behind content.
struct AnswerRules {
  std::vector<GrammarTool> tools;
  bool requires_call = false;  // no content beside the calls
  bool is_parallel = true;     // false: one call
  // What an answer without calls is; absent: any text, before calls too.
  std::optional<GrammarSpec> content;
};

// The most calls of one answer.
inline constexpr int kMaxCallsPerAnswer = 16;

// Returns the grammar of whole answers in `format`, in the markup that
// NewOutputParser reads. Reasoning in <think> is not part of the grammar (see
// ReasoningMarks); harmony's channels are. INVALID_ARGUMENT names the tool, the
// keyword and its path of a schema that cannot be held to.
StatusOr<GrammarSpec> AnswerGrammar(const OutputFormat& format,
                                    const Vocabulary& vocabulary,
                                    const AnswerRules& rules,
                                    const GrammarTexts& compiler);

// The tokens that begin and end reasoning; empty where the format or the
// vocabulary has none.
struct ReasoningMarks {
  std::vector<TokenId> begin;
  std::vector<TokenId> end;
};
ReasoningMarks ReasoningMarksOf(const OutputFormat& format,
                                const Vocabulary& vocabulary);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_ANSWER_GRAMMAR_H_
