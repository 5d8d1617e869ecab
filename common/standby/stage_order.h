#ifndef SLUICE_COMMON_STANDBY_STAGE_ORDER_H_
#define SLUICE_COMMON_STANDBY_STAGE_ORDER_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice::standby {

// Gateways of the same stages compare their --stages: one sends its own with
// the question who leads, the other one answers. Both by this header.
inline constexpr std::string_view kStagesHeader = "x-sluice-stages";

std::string JoinedStages(const std::vector<std::string>& stages);

// Returns the answer to a gateway that has the stages `asked`: "same", or
// `own` if that has the same stages in another order, or "others". Who does not
// know all addresses learns none.
std::string AnswerToStages(std::string_view asked,
                           const std::vector<std::string>& own);

// Returns what the answer to a gateway with the stages `own` means. OK: the
// same, or no answer, as of an older gateway. FAILED_PRECONDITION names both
// orders. NOT_FOUND: other stages, or other names of them.
Status CheckStagesAnswer(std::string_view answer,
                         const std::vector<std::string>& own);

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_STAGE_ORDER_H_
