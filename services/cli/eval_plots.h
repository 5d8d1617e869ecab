#ifndef SLUICE_SERVICES_CLI_EVAL_PLOTS_H_
#define SLUICE_SERVICES_CLI_EVAL_PLOTS_H_

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/tools/eval/svg_plot.h"

namespace sluice::cli {

// Writes plots as files of `folder`, which is made if it is not there. Returns
// Markdown that shows the plots in a report at `report`, by paths relative to
// the report, or by `folder` as it is given where `report` is empty. An empty
// `folder` writes nothing and gives an empty text.
StatusOr<std::string> WritePlots(
    const std::string& folder, const std::string& report,
    const std::vector<std::pair<std::string, eval::Plot>>& plots);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_PLOTS_H_
