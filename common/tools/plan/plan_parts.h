#ifndef SLUICE_COMMON_TOOLS_PLAN_PLAN_PARTS_H_
#define SLUICE_COMMON_TOOLS_PLAN_PLAN_PARTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/tools/plan/plan_files.h"

// What the files of all starters are made of.
namespace sluice::plan {

using Options = std::vector<std::pair<std::string, std::string>>;

// A stage or host of experts as it is started.
struct PlannedProcess {
  const placement::Machine* machine = nullptr;
  std::string place;   // the address, else the name, of its machine
  int32_t at = 0;      // its number on that machine, among its kind
  std::string device;  // "cpu", or GPUs of the machine: "cuda:0,1"
  int32_t gpus = 0;
  std::string layers;  // of a stage, "0-14"
  uint64_t bytes = 0;  // that the process takes, of the device's memory
};

// A box: planned machines of one address.
struct PlannedBox {
  std::string place;
  const placement::Machine* machine = nullptr;  // the first one
  std::vector<size_t> stages;                   // indices
  std::vector<size_t> hosts;
  int32_t gpus = 0;      // that its processes use
  uint64_t bytes = 0;    // that its processes on CPUs take
  uint64_t given = 0;    // the memory of its machines
  bool on_gpus = false;  // each of its processes is
  int32_t machines = 0;  // of the request
  std::string name() const { return machine->name; }
};

struct PlannedParts {
  std::vector<PlannedProcess> stages;
  std::vector<PlannedProcess> hosts;
  std::vector<PlannedBox> boxes;  // in the order of the pipeline, then of hosts
  bool on_gpus = false;           // a stage or a host is
  bool mixed = false;             // and another one is on CPUs

  std::string layers() const;  // of every stage: "0-14,15-29"
};

// INVALID_ARGUMENT for a device that no process takes, for GPUs that the
// stages of a machine cannot share out, and for ranks that are not theirs.
StatusOr<PlannedParts> PartsOf(const FilesRequest& files);

// Returns whether stages share one machine's cores: one works at a time.
bool TakeTurns(const PlannedParts& parts);

// Returns the options of every stage: blocks, context, weights, type of keys
// and values, ranks, tokens of a step, numerics.
Options StageOptions(const FilesRequest& files, const PlannedParts& parts);
// Returns those of every host of experts.
Options HostOptions(const FilesRequest& files, const PlannedParts& parts);

// Returns " --name value" of each.
std::string Words(const Options& options);
// Returns `text` for a shell: as it is, or in quotes.
std::string Word(std::string_view text);
// Returns a basic string of TOML and YAML, which are JSON's.
std::string Quoted(const std::string& text);
std::string Indented(const std::string& text, int columns);

// Returns the placement with hosts named `prefix`0, `prefix`1, ... at
// `prefix`0`behind`:`port`.
std::string PlacementText(const FilesRequest& files, const std::string& prefix,
                          const std::string& behind, int port = 7101);

// Returns a container's limit in MiB: `bytes` and a tenth, at least 256 MiB
// (page tables, the heap's holes, pages of files), at most `given`.
uint64_t Mebibytes(uint64_t bytes, uint64_t given);
// Returns whole GiB for `bytes` on a disk, and a tenth.
uint64_t DiskGibibytes(uint64_t bytes);
// Returns the bytes of the model's weights on stages and hosts.
uint64_t WeightBytes(const FilesRequest& files);

// Returns a name of a file for a hub's model: "NAME-REVISION-QUANT".
std::string LinkName(const std::string& model);
// Returns the sluice version that files name images by.
std::string ImageTag();

// The starters.
StatusOr<std::string> UpFile(const FilesRequest& files,
                             const PlannedParts& parts);
StatusOr<std::string> ComposeFile(const FilesRequest& files,
                                  const PlannedParts& parts);
StatusOr<std::string> KubernetesFile(const FilesRequest& files,
                                     const PlannedParts& parts);
StatusOr<std::string> SlurmFile(const FilesRequest& files,
                                const PlannedParts& parts);
StatusOr<std::string> SystemdFile(const FilesRequest& files,
                                  const PlannedParts& parts);

}  // namespace sluice::plan

#endif  // SLUICE_COMMON_TOOLS_PLAN_PLAN_PARTS_H_
