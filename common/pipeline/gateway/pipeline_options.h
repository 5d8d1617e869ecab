#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_OPTIONS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_OPTIONS_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/gateway/resplit_options.h"
#include "common/rpc/transport_options.h"

namespace sluice {

struct PipelineOptions {
  // The first process of each place: "host:port" or "unix:PATH".
  std::vector<std::string> stages;
  // Processes that may take any place whose own process is lost; they load the
  // layers of the place.
  std::vector<std::string> spares = {};
  // The layers of every place; empty: those that the stages hold.
  std::vector<StagePlace> places = {};
  ReplicaId replica;
  // Whether plans may name tokens that are not known yet: then the first of
  // several stages reads them from the last one.
  bool steps_ahead = false;
  std::string gateway_id;  // of this run, for people; empty: random
  std::string build;       // for people, shown by the stages
  // transport.peer_timeout: silence after which a connection is given up.
  rpc::TransportOptions transport;
  // Silence after which a stage of the pipeline is lost; at most peer_timeout.
  Duration lost_after = std::chrono::milliseconds(2500);
  Duration suspect_after = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::milliseconds(250);
  // Silence of this gateway after which the stages are another gateway's that
  // asks for them; zero: the stages' peer timeout.
  Duration lease{};
  // When the stages that are there split the layers anew.
  ResplitOptions resplit;
  // Whether this gateway speaks for the stages' model; may be empty. A refusal
  // is shown and tried again when a stage has changed.
  std::function<Status(const StageFacts&)> check_model;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_OPTIONS_H_
