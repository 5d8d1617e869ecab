#ifndef SLUICE_COMMON_SERVICE_FLAG_NAMES_H_
#define SLUICE_COMMON_SERVICE_FLAG_NAMES_H_

#include <deque>
#include <string>

namespace sluice {

// Allows dashes in flags, "--kv-blocks 8": gives argv copies with underscores
// in each flag's name, as Abseil's flags are named. Values and everything after
// "--" stay, and so does the process's own command line in /proc. Call once,
// before parsing.
inline void AcceptDashesInFlags(int argc, char** argv) {
  static std::deque<std::string> copies;  // argv points into it to the end
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--") return;
    if (word.rfind("--", 0) != 0) continue;
    for (size_t c = 2; c < word.size() && word[c] != '='; ++c) {
      if (word[c] == '-') word[c] = '_';
    }
    argv[i] = copies.emplace_back(std::move(word)).data();
  }
}

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_FLAG_NAMES_H_
