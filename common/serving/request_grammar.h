#ifndef SLUICE_COMMON_SERVING_REQUEST_GRAMMAR_H_
#define SLUICE_COMMON_SERVING_REQUEST_GRAMMAR_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/grammar/answer_grammar.h"
#include "common/grammar/compile_process.h"
#include "common/grammar/grammar_compiler.h"
#include "common/serving/request.h"
#include "common/text/output/output_parser.h"

namespace sluice {
class Tokenizer;
}

namespace sluice::serving {

struct ServingContext;
struct PreparedRequest;
struct ServedModel;

// Adds the compiler of grammars for `tokenizer`, which model.text owns; none,
// with a line in the log, for a model without an end token.
void AddGrammars(const Tokenizer& tokenizer,
                 const GrammarCompiler::Options& options, ServedModel& model);

// What the answers of one request keep to, before its grammar is compiled.
struct RequestGrammar {
  AnswerRules rules;
  // Of each of rules.tools: "strict", if the client gave it.
  std::vector<std::optional<bool>> strict;
  std::string_view tools_field;  // as in errors
  std::string content_field;     // likewise; empty: no rules.content
  OutputFormat format;           // of the calls; none: the answer is text alone
  ReasoningMarks reasoning;      // empty: the model does not reason
  bool begins_in_reasoning = false;

  // Returns the field that errors about all of it name.
  std::string_view field() const {
    return content_field.empty() ? tools_field
                                 : std::string_view(content_field);
  }
};

// Returns what the answers to a chat behind `prompt` keep to; nothing if they
// are free. INVALID_ARGUMENT names the field of what this model has no grammars
// for.
StatusOr<std::optional<RequestGrammar>> ChatGrammar(
    const ServedModel& model, const ChatRequest& request,
    const std::vector<TokenId>& prompt);

// The same for completions, whose text is never told apart.
StatusOr<std::optional<RequestGrammar>> CompletionGrammar(
    const ServedModel& model, const GenerationFields& fields);

// Compiles the grammar of `prepared` and gives every choice a constraint of its
// own. May take as long as `patience` lasts: not on an event loop.
// INVALID_ARGUMENT names the field, a schema's keyword and its path; for other
// errors see IsOfTheMoment.
Status AddConstraints(const ServingContext& context, PreparedRequest& prepared,
                      GrammarPatience patience = {});

// Returns an estimate of the memory that AddConstraints takes.
size_t GrammarMemory(const RequestGrammar& grammar);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_GRAMMAR_H_
