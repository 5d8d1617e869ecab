#ifndef SLUICE_COMMON_TOOLS_DOCTOR_FINDING_H_
#define SLUICE_COMMON_TOOLS_DOCTOR_FINDING_H_

#include <string>
#include <utility>
#include <vector>

namespace sluice::doctor {

// What a check says: a fact, something that costs speed or comfort, or a reason
// why a cluster does not run.
enum class Level { kFine, kNote, kProblem };

// One answer of a check. A value.
struct Finding {
  Level level = Level::kFine;
  std::string area;    // "memory", "port 8080", "stage 1"
  std::string what;    // with figures
  std::string advice;  // what to do; empty for what is fine
};
using Findings = std::vector<Finding>;

inline Finding Fine(std::string area, std::string what) {
  return {Level::kFine, std::move(area), std::move(what), ""};
}
inline Finding Note(std::string area, std::string what, std::string advice) {
  return {Level::kNote, std::move(area), std::move(what), std::move(advice)};
}
inline Finding Problem(std::string area, std::string what, std::string advice) {
  return {Level::kProblem, std::move(area), std::move(what), std::move(advice)};
}

}  // namespace sluice::doctor

#endif  // SLUICE_COMMON_TOOLS_DOCTOR_FINDING_H_
