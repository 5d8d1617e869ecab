// How long PlanCluster takes for fleets of random machines, and how far its
// plans may be from the best ones.
// Usage: placement_bench [--machines N] [--fleets N] FOLDER...
// FOLDER has a config.json, as those of deploy/plans have.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/model_config/described_model.h"
#include "common/model_config/model_config.h"
#include "common/placement/cluster_plan.h"
#include "tests/placement/random_fleets.h"

namespace sluice::placement {
namespace {

struct Figures {
  double seconds = 0;  // the longest
  double gap = 0;      // the largest, of the bound
  int plans = 0;
  int exact = 0;
};

void Measure(const ModelConfig& config, const weights::ModelFile& model,
             const PlanRequest& request, Figures& figures) {
  const auto before = std::chrono::steady_clock::now();
  const auto plan = PlanCluster(config, model, request);
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - before;
  if (!plan.ok()) return;
  ++figures.plans;
  figures.exact += plan->is_best ? 1 : 0;
  figures.seconds = std::max(figures.seconds, taken.count());
  figures.gap = std::max(figures.gap, plan->seconds / plan->bound - 1);
}

int Run(int machines, int fleets, const std::vector<std::string>& folders) {
  std::printf("%-40s %8s %6s %6s %12s %10s\n", "model", "for", "plans", "exact",
              "longest, s", "gap, %");
  for (const std::string& folder : folders) {
    const auto model = DescribeModel(folder, {});
    if (!model.ok()) {
      std::fprintf(stderr, "%s\n", Message(model.status()).c_str());
      return 1;
    }
    const auto config = ParseModelConfig((*model)->config());
    if (!config.ok()) {
      std::fprintf(stderr, "%s\n", Message(config.status()).c_str());
      return 1;
    }
    for (const PlanAim aim : {PlanAim{1, false}, PlanAim{16, false},
                              PlanAim{64, false}, PlanAim{1, true}}) {
      Figures figures;
      for (int fleet = 0; fleet < fleets; ++fleet) {
        RandomFleets drawn(static_cast<uint32_t>(fleet));
        PlanRequest request = drawn.Next(machines, /*gigabytes=*/64);
        request.aim = aim;
        Measure(*config, **model, request, figures);
      }
      std::printf(
          "%-40s %8s %6d %6d %12.3f %10.2f\n", folder.c_str(),
          aim.is_prompt ? "prompt" : std::to_string(aim.streams).c_str(),
          figures.plans, figures.exact, figures.seconds, 100 * figures.gap);
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice::placement

int main(int argc, char** argv) {
  int machines = 12;
  int fleets = 20;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    int* const option = word == "--machines" ? &machines
                        : word == "--fleets" ? &fleets
                                             : nullptr;
    if (option == nullptr) {
      folders.emplace_back(word);
      continue;
    }
    *option = i + 1 < argc ? std::atoi(argv[++i]) : 0;
    if (*option < 1) folders.clear();
  }
  if (folders.empty() || machines < 1 || fleets < 1) {
    std::fprintf(stderr,
                 "usage: placement_bench [--machines N] [--fleets N] "
                 "FOLDER...\n");
    return 2;
  }
  return sluice::placement::Run(machines, fleets, folders);
}
