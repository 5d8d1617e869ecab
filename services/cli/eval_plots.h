#ifndef SLUICE_SERVICES_CLI_EVAL_PLOTS_H_
#define SLUICE_SERVICES_CLI_EVAL_PLOTS_H_

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/eval/svg_plot.h"

namespace sluice::cli {

// Writes plots as files of `folder`, which is made if it is not there. Returns
// Markdown that shows them in a report at `report`, by relative paths; a report
// that is empty has no place: as `folder` is written. Without a folder nothing
// is written, and the text is empty.
StatusOr<std::string> WritePlots(
    const std::string& folder, const std::string& report,
    const std::vector<std::pair<std::string, eval::Plot>>& plots);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_PLOTS_H_
