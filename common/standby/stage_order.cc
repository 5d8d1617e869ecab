#include "common/standby/stage_order.h"

#include <algorithm>

namespace sluice::standby {
namespace {

constexpr std::string_view kSame = "same";
constexpr std::string_view kOthers = "others";

std::vector<std::string> Sorted(std::vector<std::string> stages) {
  std::sort(stages.begin(), stages.end());
  return stages;
}

std::vector<std::string> Split(std::string_view joined) {
  std::vector<std::string> stages;
  while (true) {
    const size_t comma = std::min(joined.find(','), joined.size());
    stages.emplace_back(joined.substr(0, comma));
    if (comma == joined.size()) return stages;
    joined.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string JoinedStages(const std::vector<std::string>& stages) {
  std::string joined;
  for (const std::string& stage : stages) {
    if (!joined.empty()) joined += ',';
    joined += stage;
  }
  return joined;
}

std::string AnswerToStages(std::string_view asked,
                           const std::vector<std::string>& own) {
  const std::vector<std::string> other = Split(asked);
  if (other == own) return std::string(kSame);
  return Sorted(other) == Sorted(own) ? JoinedStages(own)
                                      : std::string(kOthers);
}

Status CheckStagesAnswer(std::string_view answer,
                         const std::vector<std::string>& own) {
  if (answer.empty() || answer == kSame) return OkStatus();
  if (answer == kOthers) {
    return NotFound("its --stages are others than this gateway's, ",
                    JoinedStages(own), ", or have other names there");
  }
  return FailedPrecondition("its --stages are ", answer, ", this gateway's ",
                            JoinedStages(own),
                            ": all gateways need the same order");
}

}  // namespace sluice::standby
