#include "common/serving/numbers.h"

#include <charconv>
#include <utility>

#include "common/base/json.h"

namespace sluice::serving {

double LogprobNumber(float logprob) {
  if (!(logprob >= -9999.0f)) return -9999.0;
  char text[48];
  const auto end = std::to_chars(text, text + sizeof(text), logprob).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

Json LogprobEntry(const ModelText& text, std::string name,
                  const TokenLogprob& token) {
  Json bytes = Json::array();
  for (const unsigned char byte : text.TokenBytes(token.token)) {
    bytes.push_back(byte);
  }
  return {{"token", std::move(name)},
          {"logprob", LogprobNumber(token.logprob)},
          {"bytes", std::move(bytes)}};
}

Json LogprobEntries(const ModelText& text,
                    std::span<const TokenResult> tokens) {
  Json entries = Json::array();
  for (const TokenResult& token : tokens) {
    if (!token.logprob) continue;
    Json entry =
        LogprobEntry(text, text.TokenText(token.token), *token.logprob);
    Json& tops = entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top_logprobs) {
      tops.push_back(LogprobEntry(text, text.TokenText(top.token), top));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
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
