#include "common/text/stand_ins.h"

#include <algorithm>
#include <random>
#include <utility>

namespace sluice {

StatusOr<std::string> WordNotIn(std::string_view text) {
  constexpr int kTries = 3;
  constexpr int kLetters = 16;
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    std::string word = "sluice";
    for (int k = 0; k < kLetters; ++k) {
      word += static_cast<char>('a' + random() % 16);
    }
    if (text.find(word) == text.npos) return word;
  }
  return Internal("no word of ", kTries, " is free in the prompt");
}

void PutTokens(const StandIns& stand_ins, const Vocabulary& vocabulary,
               std::string& text, std::vector<ControlSpan>& controls) {
  if (stand_ins.word.empty()) return;
  std::string out;
  std::vector<ControlSpan> spans;
  auto next = controls.begin();
  size_t at = 0;
  while (true) {
    const size_t found = text.find(stand_ins.word, at);
    const size_t stop = std::min(found, text.size());
    for (; next != controls.end() && next->begin < stop; ++next) {
      spans.push_back({out.size() + next->begin - at,
                       out.size() + next->end - at, next->id});
    }
    out.append(text, at, stop - at);
    if (found == text.npos) break;
    at = found + stand_ins.word.size();
    const auto token =
        static_cast<size_t>(at < text.size() ? text[at] - '0' : 0);
    if (at < text.size()) ++at;
    if (token >= stand_ins.tokens.size()) continue;
    const std::string& name = stand_ins.tokens[token];
    const auto id = vocabulary.Find(name);
    if (id && vocabulary.IsSpecial(*id)) {
      spans.push_back({out.size(), out.size() + name.size(), *id});
    }
    out += name;
  }
  text = std::move(out);
  controls = std::move(spans);
}

}  // namespace sluice
