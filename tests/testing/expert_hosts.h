#ifndef SLUICE_TESTS_TESTING_EXPERT_HOSTS_H_
#define SLUICE_TESTS_TESTING_EXPERT_HOSTS_H_

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model_config/expert_placement.h"
#include "services/expert/expert_server.h"

namespace sluice::testing {

// What is where in every sparse layer: from and to which eighth of the experts
// (both included), on which hosts ("a", "b", ...; none: on the stage).
struct PlacedEighths {
  int32_t first = 0;
  int32_t last = 7;
  std::vector<std::string> hosts;
};

struct ExpertHostsOptions {
  std::string model;
  std::vector<PlacedEighths> entries;
  int hosts = 1;  // "a" and so on
  WeightsMode weights = WeightsMode::kAuto;
  std::vector<Duration> delays =
      {};  // of each host's computations; may be short
  std::vector<int32_t> max_rows = {};  // of each host; the same
};

// Hosts of experts in this process, on loopback ports, and the file that says
// which has what. All are loaded when Start returns.
class ExpertHosts {
 public:
  static StatusOr<std::unique_ptr<ExpertHosts>> Start(
      ExpertHostsOptions options);
  ~ExpertHosts();

  const std::string& placement_file() const { return file_; }
  const ExpertPlacement& placement() const { return placement_; }
  expert::ExpertServer& host(int index) { return *servers_[index]; }

  // Ends a host as its process's end would, and starts it again on the same
  // port.
  void Stop(int index);
  Status Restart(int index);

 private:
  explicit ExpertHosts(ExpertHostsOptions options);
  Status WritePlacement();
  StatusOr<std::unique_ptr<expert::ExpertServer>> StartHost(
      int index, const std::string& listen);

  const ExpertHostsOptions options_;
  std::string file_;
  ExpertPlacement placement_;
  std::vector<std::unique_ptr<expert::ExpertServer>> servers_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_EXPERT_HOSTS_H_
