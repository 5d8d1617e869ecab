#ifndef SLUICE_COMMON_GRAMMAR_STRUCTURAL_TAG_H_
#define SLUICE_COMMON_GRAMMAR_STRUCTURAL_TAG_H_

#include <string_view>

#include "common/base/status.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/grammar_texts.h"
#include "common/text/vocabulary.h"

namespace sluice {

// Returns the grammar of a structural tag, a JSON text that says where an
// answer is free and what stands between tags:
//   {"type": "structural_tag", "format": FORMAT}, or the older
//   {"structures": [{"begin", "schema", "end"}], "triggers": [TEXT]}
// A FORMAT has a type: const_string, json_schema, regex, any_text, sequence,
// or, tag, triggered_tags, tags_with_separator, as xgrammar names them. A text
// that spells a special token of `vocabulary` means the token.
//
// INVALID_ARGUMENT names the path of what is wrong; UNIMPLEMENTED names a type
// of another engine.
StatusOr<GrammarSpec> StructuralTagGrammar(std::string_view tag,
                                           const Vocabulary& vocabulary,
                                           const GrammarTexts& compiler);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_STRUCTURAL_TAG_H_
