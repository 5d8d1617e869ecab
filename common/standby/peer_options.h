#ifndef SLUICE_COMMON_STANDBY_PEER_OPTIONS_H_
#define SLUICE_COMMON_STANDBY_PEER_OPTIONS_H_

#include <chrono>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace sluice::standby {

// The other gateways of the same stages.
struct PeerOptions {
  std::vector<std::string> addresses;  // HOST:PORT of their HTTP; none: alone
  std::vector<std::string> stages;     // --stages: the others have the same
  // PEM file: who signs their certificates; empty: the system's.
  std::string ca;
  // File of the secret that all of them share (PeerSecret); empty: none. With
  // it a leader knows the clients of the others, which copy its streams.
  std::string secret_file;
  Duration lease = std::chrono::seconds(3);  // PipelineOptions'
  std::string certificate;  // of this gateway's HTTP; empty: no TLS to them
  Duration patience = std::chrono::seconds(30);  // of a request, for a leader
  int most_at_once = 0;  // requests that a peer answers; 0: any number
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_PEER_OPTIONS_H_
