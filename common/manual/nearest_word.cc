#include "common/manual/nearest_word.h"

#include <algorithm>
#include <string_view>

namespace sluice {
namespace {

// Returns the number of letters to insert, remove or exchange.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t above_left = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1,
                         above_left + (a[i - 1] == b[j - 1] ? 0 : 1)});
      above_left = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestWord(const std::string& word,
                        const std::vector<std::string>& known) {
  constexpr size_t kLongest = 64;  // of a word that is looked for
  std::string nearest;
  size_t least = 3;
  for (const std::string& candidate : known) {
    const size_t distance = Distance(word.substr(0, kLongest), candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace sluice
