#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_CHANNEL_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_CHANNEL_H_

#include "tests/simulation/connection.h"

namespace grpc {

using Channel = sluice::simulation::Channel;

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_CHANNEL_H_
