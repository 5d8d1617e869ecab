#include "common/text/ranks.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace sluice {
namespace {

// Returns -1 for a character that is no base64 digit.
int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

}  // namespace

bool DecodeBase64(std::string_view text, std::string& bytes) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  uint32_t word = 0;
  int bits = 0;
  bytes.clear();
  for (const char c : text) {
    const int digit = Base64Digit(c);
    if (digit < 0) return false;
    word = (word << 6) | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<char>((word >> bits) & 0xFF));
    }
  }
  return !bytes.empty();
}

std::vector<Merge> MergesFromRanks(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, size_t> ranks;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    ranks.emplace(tokens[rank], rank);
  }
  std::vector<Merge> merges;
  std::vector<std::tuple<size_t, size_t, size_t>> cuts;  // left, right, at
  for (const std::string& token : tokens) {
    cuts.clear();
    const std::string_view whole = token;
    for (size_t at = 1; at < whole.size(); ++at) {
      const auto left = ranks.find(whole.substr(0, at));
      if (left == ranks.end()) continue;
      const auto right = ranks.find(whole.substr(at));
      if (right == ranks.end()) continue;
      cuts.emplace_back(left->second, right->second, at);
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& cut : cuts) {
      const size_t at = std::get<2>(cut);
      merges.emplace_back(ByteLevelText(whole.substr(0, at)),
                          ByteLevelText(whole.substr(at)));
    }
  }
  return merges;
}

}  // namespace sluice
