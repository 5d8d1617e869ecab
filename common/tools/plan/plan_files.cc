#include "common/tools/plan/plan_files.h"

#include <algorithm>
#include <utility>

#include "common/base/cat.h"
#include "common/tools/plan/plan_parts.h"

namespace sluice::plan {
namespace {

// A starter, the part of a node's memory that it does not give, as a divisor
// (0: none), and how much that is at least.
struct StarterRow {
  Starter starter;
  const char* name;
  StatusOr<std::string> (*write)(const FilesRequest&, const PlannedParts&);
  uint64_t kept_part;
  uint64_t kept_bytes;
};

// Kubelets of large clouds keep up to a tenth of a node of 48 GiB; a kernel
// takes up to a fortieth of the memory before Slurm counts.
constexpr StarterRow kStarters[] = {
    {Starter::kUp, "up", UpFile, 0, 0},
    {Starter::kCompose, "compose", ComposeFile, 0, 0},
    {Starter::kKubernetes, "kubernetes", KubernetesFile, 10, uint64_t{1} << 30},
    {Starter::kSlurm, "slurm", SlurmFile, 32, uint64_t{256} << 20},
    {Starter::kSystemd, "systemd", SystemdFile, 0, 0}};

const StarterRow& RowOf(Starter starter) {
  return *std::ranges::find(kStarters, starter, &StarterRow::starter);
}

}  // namespace

StatusOr<Starter> ParseStarter(const std::string& name) {
  for (const StarterRow& row : kStarters) {
    if (name == row.name) return row.starter;
  }
  return InvalidArgument(
      "must be up, compose, kubernetes, slurm or systemd, got '", name, "'");
}

uint64_t GivenMemory(Starter starter, uint64_t memory) {
  const StarterRow& row = RowOf(starter);
  if (row.kept_part == 0) return memory;
  const uint64_t kept = std::max(memory / row.kept_part, row.kept_bytes);
  return memory > kept ? memory - kept : 0;
}

StatusOr<std::string> PlanFile(Starter starter, const FilesRequest& files) {
  const StarterRow& row = RowOf(starter);
  const auto parts = PartsOf(files);
  if (!parts.ok()) return Annotate(parts.status(), row.name);
  auto text = row.write(files, *parts);
  if (!text.ok()) return Annotate(text.status(), row.name);
  return text;
}

}  // namespace sluice::plan
