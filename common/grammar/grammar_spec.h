#ifndef SLUICE_COMMON_GRAMMAR_GRAMMAR_SPEC_H_
#define SLUICE_COMMON_GRAMMAR_GRAMMAR_SPEC_H_

#include <cstddef>
#include <string>

namespace sluice {

// A grammar's text.
struct GrammarSpec {
  enum class Kind : int {
    // llguidance's dialect: special tokens by name (<|im_end|>), `%json {..}`.
    kLark = 0,
    kJsonSchema = 1,
    kJsonObject = 2,  // any JSON object; no text
    kRegex = 3,       // Rust's syntax; the whole answer fits
    kChoice = 4,      // a JSON array of strings, of which the answer is one
    kGbnf = 5,        // llama.cpp's
    // vLLM's and xgrammar's; AnswerGrammar turns it into kLark.
    kStructuralTag = 6,
  };
  Kind kind = Kind::kJsonSchema;
  std::string text;
  bool operator==(const GrammarSpec&) const = default;
};

// Bounds of a grammar's text.
struct GrammarLimits {
  size_t max_bytes = 256 << 10;
  int max_levels = 64;           // of nested objects and arrays of a schema
  int max_enum_values = 10'000;  // of a schema, all enums together
  int max_compile_ms = 1'000;    // of CPU time; 0: no limit
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_GRAMMAR_SPEC_H_
