#ifndef SLUICE_COMMON_MANUAL_NEAREST_WORD_H_
#define SLUICE_COMMON_MANUAL_NEAREST_WORD_H_

#include <string>
#include <vector>

namespace sluice {

// Returns the first of the known words that are nearest to `word`, at most two
// letters away: inserted, removed or exchanged. Empty if all are farther.
std::string NearestWord(const std::string& word,
                        const std::vector<std::string>& known);

}  // namespace sluice

#endif  // SLUICE_COMMON_MANUAL_NEAREST_WORD_H_
