#include "common/serving/numbers.h"

#include <charconv>

namespace sluice::serving {

double LogprobNumber(float logprob) {
  if (!(logprob >= -9999.0f)) return -9999.0;
  char text[48];
  const auto end = std::to_chars(text, text + sizeof(text), logprob).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

std::string FloatList(std::span<const float> values) {
  std::string text = "[";
  for (const float value : values) {
    if (text.size() > 1) text += ',';
    char digits[kMaxFloatBytes];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    text.append(digits, end);
  }
  return text += ']';
}

}  // namespace sluice::serving
