#ifndef SLUICE_COMMON_BASE_FLAG_NAMES_H_
#define SLUICE_COMMON_BASE_FLAG_NAMES_H_

#include <string_view>

namespace sluice {

// Lets flags be spelled as people do, "--kv-blocks 8": turns the dashes
// within each flag's name into underscores, as Abseil's flags are named.
// Values and everything after "--" stay. Call before parsing.
inline void AcceptDashesInFlags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).substr(0, 2) != "--") continue;
    if (argv[i][2] == '\0') return;
    for (char* c = argv[i] + 2; *c != '\0' && *c != '='; ++c) {
      if (*c == '-') *c = '_';
    }
  }
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_FLAG_NAMES_H_
