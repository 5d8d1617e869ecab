#ifndef SLUICE_SERVICES_CLI_PLAN_SOURCE_H_
#define SLUICE_SERVICES_CLI_PLAN_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/tools/hub/fetch_headers.h"
#include "common/tools/plan/plan_files.h"
#include "services/cli/plan_cluster.h"

namespace sluice::cli {

// Finds what `planned` names: a path that is there, or the headers of a hub's
// model, whose path, commit and GGUFs it then has. The returned object keeps
// these files. Errors of FetchHeaders.
StatusOr<std::optional<ModelHeaders>> FindPlanned(PlannedModel& planned);

// Returns a table of the repository's GGUFs, with those that fit by bytes on
// machines that have `room` for weights; empty for another model.
std::string QuantsText(const PlannedModel& planned, uint64_t room);

// Sets where the processes of the written files read the model: `source`, a
// path or a hub's name, else what was planned. INVALID_ARGUMENT for a plan of
// a config.json alone without `source`: no process could read that.
Status SetSource(const PlannedModel& planned, const std::string& source,
                 plan::FilesRequest& files);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_PLAN_SOURCE_H_
