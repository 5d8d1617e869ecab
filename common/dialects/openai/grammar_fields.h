#ifndef SLUICE_COMMON_DIALECTS_OPENAI_GRAMMAR_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_GRAMMAR_FIELDS_H_

#include <optional>
#include <string_view>

#include "common/grammar/grammar_spec.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::openai {

// Reads the fields that hold an answer to a grammar, by the names of OpenAI,
// vLLM, llama.cpp and SGLang. Two of them are refused. Schemas keep the order
// of their members. Errors stay in `in`; the grammar itself is not checked.
std::optional<serving::GrammarField> ReadGrammarFields(
    serving::FieldReader& in);

// Returns kLark for a text with a rule `start:`, kGbnf for one with `::=`, else
// nothing.
std::optional<GrammarSpec::Kind> KindOfGrammar(std::string_view text);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_GRAMMAR_FIELDS_H_
