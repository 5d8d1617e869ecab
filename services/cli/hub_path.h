#ifndef SLUICE_SERVICES_CLI_HUB_PATH_H_
#define SLUICE_SERVICES_CLI_HUB_PATH_H_

#include <string>

#include "common/base/status.h"
#include "common/tools/hub/fetch_headers.h"
#include "common/tools/hub/hub_model.h"
#include "common/tools/hub/pull.h"

namespace sluice::cli {

// Fetches the model into the hub's cache, with a bar on stderr, and says there
// what was fetched. Errors as PullModel.
StatusOr<PulledModel> PullWithBar(const HubModel& model,
                                  const ChooseShards& choose = nullptr);

// Fetches the model's headers (fetch_headers.h); notes are on stderr. Errors as
// FetchHeaders.
StatusOr<ModelHeaders> HeadersOf(const HubModel& model);

// Returns the path of a model that a command is given: `model` itself if it is
// there, or has no form of ORG/NAME[@REVISION][:QUANT], else that of the hub's
// model of this name, which is fetched unless it is in the cache. A path goes
// before a hub's model of that name, as for `up`.
StatusOr<std::string> PathOfModel(const std::string& model);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_HUB_PATH_H_
