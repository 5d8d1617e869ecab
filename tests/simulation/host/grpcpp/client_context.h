#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_CLIENT_CONTEXT_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_CLIENT_CONTEXT_H_

#include <map>
#include <memory>
#include <string>

#include "tests/simulation/call_end.h"

namespace grpc {

class ClientContext {
 public:
  void AddMetadata(const std::string& key, const std::string& value) {
    metadata.emplace(key, value);
  }
  void TryCancel() {
    if (end != nullptr) end->Cancel();
  }

  // The stub's.
  std::multimap<std::string, std::string> metadata;
  std::shared_ptr<sluice::simulation::CallEnd> end;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_CLIENT_CONTEXT_H_
