#ifndef SLUICE_TESTS_SERVING_TOY_TEXT_H_
#define SLUICE_TESTS_SERVING_TOY_TEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "common/serving/loaded_text.h"

namespace sluice::serving {

// A text side that is real but for its vocabulary: a tokenizer of the 256
// bytes and of added tokens. `tool_template`: another template for requests
// with tools; empty: none. Aborts the test if it cannot be made.
struct ToyTokens {
  std::vector<std::string> special;  // special: true; the first ends a turn
  std::vector<std::string> plain;    // one token each, but special: false
};
// The text of the vocabulary's tokenizer.json.
std::string ToyTokenizerJson(const ToyTokens& tokens);
std::unique_ptr<LoadedText> MakeToyText(const std::string& chat_template,
                                        const ToyTokens& tokens,
                                        const FormatNames& formats = {},
                                        const std::string& tool_template = "");

}  // namespace sluice::serving

#endif  // SLUICE_TESTS_SERVING_TOY_TEXT_H_
