#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SERVER_CONTEXT_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SERVER_CONTEXT_H_

#include <map>
#include <string>

namespace grpc {

class CallbackServerContext {
 public:
  const std::multimap<std::string, std::string>& client_metadata() const {
    return metadata;
  }
  std::string peer() const { return client; }

  // The network's.
  std::multimap<std::string, std::string> metadata;
  std::string client;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SERVER_CONTEXT_H_
