#ifndef SLUICE_COMMON_SERVING_READINESS_H_
#define SLUICE_COMMON_SERVING_READINESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace sluice::serving {

// A part of the cluster that requests need.
struct PartReadiness {
  std::string name;  // "stage 1 (127.0.0.1:7001)"
  bool ready = false;
  std::string why;  // empty if ready
  // The same without addresses: "stage 1 (layers 10 to 19)", "lost".
  std::string open_name;
  std::string open_why;
};

struct Readiness {
  bool ready = false;
  std::string why;  // empty if ready
  std::vector<PartReadiness> parts;
  int missing_stages = 0;  // the layers are split over so many fewer
  // Of the pipeline, up or being assigned: the term, and the count within it.
  uint64_t term = 0;
  uint64_t epoch = 0;
  std::string open_why;   // as `why`, without addresses
  bool draining = false;  // this gateway, or a stage of its pipeline
  // When to retry, unless ready: 1 to 30.
  int retry_after_seconds = 1;
  // With other gateways for the same stages: this one's role.
  std::string role;
  std::vector<std::string> stages;  // --stages
  std::string leader;  // of a standby: the leader's address, or empty
  // Of a leader: "up", "recovering", or "lost": without a pipeline for so long
  // that the others may try.
  std::string pipeline;
  // The time without a pipeline; zero: it is up, or a stage loads its layers.
  Duration missing{};
  bool is_up = false;  // the pipeline
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_READINESS_H_
