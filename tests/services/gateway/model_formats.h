#ifndef SLUICE_TESTS_SERVICES_GATEWAY_MODEL_FORMATS_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_MODEL_FORMATS_H_

#include <ostream>
#include <string>

#include "common/serving/served_model.h"
#include "tests/serving/toy_text.h"

namespace sluice::gateway {

// The arguments of the call in every format's output.
inline constexpr char kArguments[] = R"({"city": "Köln", "days": 2})";

// A model's way to say the same thing: reasoning "Need it." and content "Let
// me look." (where it has them), a call of get_weather with kArguments and
// (where it can) one of get_location.
struct Format {
  const char* name;
  const char* file;  // of build/data/templates
  serving::ToyTokens tokens;
  std::string output;
  bool reasons = true;
  bool two_calls = true;
  bool opens_thinking = false;  // the prompt ends with <think>
  // The turn as the template itself wants it, without the calls.
  std::string reference;
};

inline void PrintTo(const Format& format, std::ostream* out) {
  *out << format.name;
}

Format Glm();
// INTELLECT-3's: Qwen3-Coder's calls, and a prompt that opens the reasoning.
Format Intellect();
Format Hermes();
Format Harmony();
Format Llama();

// A served model "toy" with such a text side.
serving::ServedModel MakeToyModel(const std::string& chat_template,
                                  const serving::ToyTokens& tokens,
                                  const serving::FormatNames& formats = {});

// The chat template, of build/data.
std::string TemplateOf(const Format& format);

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_MODEL_FORMATS_H_
