#ifndef SLUICE_SERVICES_GATEWAY_GATEWAY_OPTIONS_H_
#define SLUICE_SERVICES_GATEWAY_GATEWAY_OPTIONS_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/option_row.h"
#include "common/base/status.h"
#include "services/gateway/gateway_server.h"

namespace sluice::gateway {

// The variables of the process's options.
struct GatewayFlags {
  // Sets what a gateway does and its parts alone, as in tests, do not.
  GatewayFlags();

  GatewayOptions gateway;
  std::vector<std::string> layers;       // see ParsePlaces
  std::vector<std::string> model_names;  // the old name of the gateway's
  std::string port_file;
  Duration drain_timeout = std::chrono::seconds(120);
};

// Returns the table of the options, bound to `flags`.
OptionRows RowsOf(GatewayFlags& flags);

// Returns the layers of texts like "0-14". INVALID_ARGUMENT for other texts.
StatusOr<std::vector<StagePlace>> ParsePlaces(
    const std::vector<std::string>& texts);

// Returns the server's options after the rows have set `flags`, with what the
// environment has, and zeros resolved. INVALID_ARGUMENT for options that are
// missing or do not go together.
StatusOr<GatewayOptions> Resolve(const GatewayFlags& flags);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_GATEWAY_OPTIONS_H_
