#ifndef SLUICE_COMMON_GRAMMAR_GRAMMAR_TEXTS_H_
#define SLUICE_COMMON_GRAMMAR_GRAMMAR_TEXTS_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/grammar/grammar_spec.h"

namespace sluice {

// Checks pieces of a grammar's text that a client wrote.
class GrammarTexts {
 public:
  virtual ~GrammarTexts() = default;

  // Checks a JSON Schema as compiling does. Returns it as a text for `%json` in
  // a Lark grammar. INVALID_ARGUMENT, of less than 2,000 bytes, says what is
  // wrong with it: the keyword and its path.
  virtual StatusOr<std::string> CheckSchema(std::string_view schema) const = 0;

  // Turns a GBNF into the text of a Lark grammar. INVALID_ARGUMENT as above.
  virtual StatusOr<std::string> LarkOfGbnf(std::string_view gbnf) const = 0;

  virtual const GrammarLimits& limits() const = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_GRAMMAR_TEXTS_H_
