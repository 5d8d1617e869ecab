// The commands pull, list, show and rm.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/byte_size.h"
#include "common/model_config/layer_files.h"
#include "common/model_config/layer_range.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"
#include "common/placement/layer_split.h"
#include "common/tools/hub/hub_cache.h"
#include "common/tools/hub/hub_model.h"
#include "common/tools/hub/pull.h"
#include "common/weights/packed_store.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/format.h"
#include "services/cli/hub_path.h"

namespace sluice::cli {
namespace {

struct HubOptions {
  std::string model;
  std::string link;
  std::string layers;  // A-B, none, or empty
  std::optional<int32_t> stage_index, num_stages;
  std::vector<uint64_t> stage_memory;
};

// Returns the layers that are asked for, of a model.
StatusOr<LayerRange> RangeOf(const HubOptions& options,
                             const LayerLoads& loads) {
  if (options.layers == "none") return LayerRange{};
  const auto index = static_cast<size_t>(options.stage_index.value_or(0));
  if (options.layers.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        const std::vector<LayerRange> parts,
        SplitLayers(loads, *options.num_stages, options.stage_memory));
    return parts[index];
  }
  const auto listed = ParseLayerRanges(options.layers);
  if (!listed.ok()) {
    return Annotate(listed.status(), "--layers: neither none nor ranges");
  }
  if (listed->size() != static_cast<size_t>(options.num_stages.value_or(1))) {
    return InvalidArgument("--layers has ", listed->size(),
                           " ranges: --num-stages must be as many, got ",
                           options.num_stages.value_or(1));
  }
  const LayerRange range = (*listed)[index];
  if (range.last <= loads.num_layers()) return range;
  return InvalidArgument("--layers: must be within 0-", loads.num_layers() - 1,
                         ", got '", options.layers, "'");
}

// Returns the shards of those layers, by a folder with outlines.
StatusOr<std::vector<std::string>> ShardsFor(const HubOptions& options,
                                             const std::string& folder) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, OpenModel(folder));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  SLUICE_ASSIGN_OR_RETURN(const LayerRange range,
                          RangeOf(options, LoadsOf(config, *model, {})));
  if (range.first < range.last) {
    std::fprintf(stderr, "layers %d-%d of %d\n", range.first, range.last - 1,
                 config.num_layers());
  }
  return FilesOfLayers(config, *model, range);
}

Status CheckStage(const HubOptions& options) {
  if (options.num_stages.has_value() != options.stage_index.has_value()) {
    return InvalidArgument("--num-stages and --stage-index go together");
  }
  if (!options.stage_memory.empty() && !options.num_stages.has_value()) {
    return InvalidArgument("--stage-memory goes with --num-stages");
  }
  if (!options.num_stages.has_value()) return OkStatus();
  if (options.layers == "none" ||
      (!options.layers.empty() && !options.stage_memory.empty())) {
    return InvalidArgument(
        "--layers ", options.layers, " and ",
        options.layers == "none" ? "--num-stages" : "--stage-memory",
        " are both given: take one");
  }
  if (*options.stage_index < *options.num_stages) return OkStatus();
  return InvalidArgument("--stage-index: must be below --num-stages, ",
                         *options.num_stages, ", got ", *options.stage_index);
}

// Makes `link` stand for `path`, and the folders above it.
Status LinkTo(const std::string& path, const std::string& link) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path made = Cat(link, ".link-", ::getpid());
  fs::create_directories(fs::absolute(made).parent_path(), failed);
  fs::remove(made, failed);  // Left by a process of this number.
  fs::create_symlink(fs::absolute(path), made, failed);
  if (!failed) fs::rename(made, link, failed);
  if (failed) return Unavailable("--link ", link, ": ", failed.message());
  return OkStatus();
}

Status RunPull(const HubOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const HubModel model, ParseHubModel(options.model));
  SLUICE_RETURN_IF_ERROR(CheckStage(options));
  ChooseShards choose;
  if (!options.layers.empty() || options.num_stages.has_value()) {
    choose = [&](const std::string& folder) {
      return ShardsFor(options, folder);
    };
  }
  SLUICE_ASSIGN_OR_RETURN(const PulledModel pulled, PullWithBar(model, choose));
  if (!options.link.empty()) {
    SLUICE_RETURN_IF_ERROR(LinkTo(pulled.path, options.link));
  }
  std::printf("%s\n", pulled.path.c_str());
  return OkStatus();
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += Cat(text.empty() ? "" : ", ", word);
  }
  return text;
}

uint64_t PackedBytesIn(const std::vector<std::string>& folders) {
  uint64_t bytes = 0;
  for (const std::string& folder : folders) {
    for (const auto& file : weights::ListPacked(folder)) bytes += file.bytes;
  }
  return bytes;
}

Status RunList() {
  const HubCache cache(HubSettingsOfEnvironment().cache);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CachedModel> models, cache.List());
  std::printf("%-48s %12s %12s %12s  %s\n", "model", "MB", "unfinished",
              "packed", "revisions");
  for (const CachedModel& model : models) {
    std::vector<std::string> revisions;
    uint64_t packed = 0;
    for (const CachedSnapshot& snapshot : model.snapshots) {
      packed += PackedBytesIn(weights::PackedFoldersAt(
          cache.Snapshot(model.repository, snapshot.commit)));
      if (snapshot.revisions.empty()) {
        revisions.push_back(snapshot.commit.substr(0, 10));
      }
      for (const auto& name : snapshot.revisions) revisions.push_back(name);
    }
    std::printf("%-48s %12.1f %12.1f %12.1f  %s\n", model.repository.c_str(),
                InMegabytes(model.bytes), InMegabytes(model.unfinished_bytes),
                InMegabytes(packed), Joined(revisions).c_str());
  }
  const uint64_t elsewhere = PackedBytesIn(weights::UsersPackedFolders());
  if (elsewhere == 0) return OkStatus();
  std::printf("\npacked weights of other models: %.1f MB (sluice packed)\n",
              InMegabytes(elsewhere));
  return OkStatus();
}

Status RunShow(const HubOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const HubModel model, ParseHubModel(options.model));
  const HubCache cache(HubSettingsOfEnvironment().cache);
  SLUICE_ASSIGN_OR_RETURN(const CachedModel found,
                          cache.Find(model.repository));
  std::printf("%s: %.1f MB, unfinished %.1f MB\n", found.repository.c_str(),
              InMegabytes(found.bytes), InMegabytes(found.unfinished_bytes));
  for (const CachedSnapshot& snapshot : found.snapshots) {
    std::printf("\n%s  %s\n%s\n", snapshot.commit.c_str(),
                Joined(snapshot.revisions).c_str(),
                cache.Snapshot(found.repository, snapshot.commit).c_str());
    for (const CachedFile& file : snapshot.files) {
      std::printf("%14.3f MB  %s\n", InMegabytes(file.bytes),
                  file.path.c_str());
    }
  }
  return OkStatus();
}

Status RunRemove(const HubOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const HubModel model, ParseHubModel(options.model));
  if (!model.quant.empty()) {
    return InvalidArgument("'", options.model, "': rm takes a whole model, or ",
                           "one revision as ORG/NAME@REVISION");
  }
  const HubCache cache(HubSettingsOfEnvironment().cache);
  const bool only_revision = options.model.find('@') != std::string::npos;
  SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes,
                          cache.Remove(model, only_revision));
  std::printf("removed %s: %.1f MB\n", options.model.c_str(),
              InMegabytes(bytes));
  return OkStatus();
}

}  // namespace

void AddHub(CommandLine& sluice) {
  const auto options = std::make_shared<HubOptions>();
  CLI::App& pull =
      sluice.Add("pull", "fetches a model of a hub, as far as serving needs it",
                 [options] { return RunPull(*options); });
  pull.add_option("MODEL", options->model,
                  "ORG/NAME[@REVISION][:QUANT]; the path of what came is "
                  "written to stdout. HF_HOME, HF_TOKEN, HF_ENDPOINT and "
                  "HF_HUB_OFFLINE count")
      ->required();
  pull.add_option("--layers", options->layers,
                  "of a model in shards, those of layers A-B (0-7: eight "
                  "layers), or with commas those of every stage, as "
                  "sluice-stage takes it; none: for a gateway");
  pull.add_option("--num-stages", options->num_stages,
                  "likewise, the layers of one stage of N, as sluice-stage "
                  "--layers auto splits them by its defaults")
      ->check(Within(1, 4096));
  pull.add_option("--stage-index", options->stage_index, "which: 0 to N-1")
      ->check(Within(0, 4095));
  AddParsed(pull, "--stage-memory", options->stage_memory, ParseBytesList,
            "BYTES,..: memory of each stage, as sluice-stage takes it");
  pull.add_option("--link", options->link,
                  "makes this path a link to what came");
  sluice.Add("list", "the models in the hub's cache", [] { return RunList(); });
  sluice
      .Add("show", "a cached model's revisions and files",
           [options] { return RunShow(*options); })
      .add_option("MODEL", options->model, "ORG/NAME")
      ->required();
  sluice
      .Add("rm", "removes a model from the hub's cache",
           [options] { return RunRemove(*options); })
      .add_option("MODEL", options->model, "ORG/NAME[@REVISION]")
      ->required();
}

}  // namespace sluice::cli
