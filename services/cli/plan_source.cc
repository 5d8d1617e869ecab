#include "services/cli/plan_source.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/tools/hub/hub_model.h"
#include "services/cli/hub_path.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// Returns whether `path` is a file of weights, or a folder with some.
bool HasWeights(const fs::path& path) {
  const auto is_weights = [](const fs::path& file) {
    const std::string end = file.extension().string();
    return end == ".safetensors" || end == ".gguf" || end == ".m";
  };
  std::error_code error;
  if (!fs::is_directory(path, error)) return is_weights(path);
  const fs::directory_iterator entries(path, error);
  return std::any_of(begin(entries), end(entries), [&](const auto& entry) {
    return is_weights(entry.path());
  });
}

double Gigabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

}  // namespace

StatusOr<std::optional<ModelHeaders>> FindPlanned(PlannedModel& planned) {
  std::error_code error;
  const auto named = ParseHubModel(planned.path);
  if (fs::exists(planned.path, error) || !named.ok()) {
    return std::optional<ModelHeaders>();
  }
  auto headers = HeadersOf(*named);
  if (!headers.ok()) {
    return Annotate(headers.status(), planned.path,
                    ": there is no such file or folder, and as a hub's model "
                    "it could not be read");
  }
  planned.path = headers->path;
  planned.hub = Cat(named->repository, "@", headers->commit,
                    named->quant.empty() ? "" : ":", named->quant);
  planned.ggufs = headers->ggufs;
  return std::optional<ModelHeaders>(*std::move(headers));
}

std::string QuantsText(const PlannedModel& planned, uint64_t room) {
  if (planned.ggufs.size() < 2) return "";
  const std::string name = planned.hub.substr(0, planned.hub.find('@'));
  char line[256];
  std::snprintf(line, sizeof(line),
                "\n%.3f GB of the machines are for weights, beside one "
                "sequence\n",
                Gigabytes(room));
  std::string text = line;
  for (const HubGguf& gguf : planned.ggufs) {
    std::snprintf(line, sizeof(line), "%10.3f GB  %-9s  %s:%s\n",
                  Gigabytes(gguf.bytes),
                  gguf.bytes <= room ? "fits" : "too large", name.c_str(),
                  gguf.quant.c_str());
    text += line;
  }
  return text;
}

Status SetSource(const PlannedModel& planned, const std::string& source,
                 plan::FilesRequest& files) {
  files.model = source.empty() ? planned.hub : source;
  std::error_code error;
  if (files.model.empty()) {
    if (!HasWeights(planned.path)) {
      return InvalidArgument(
          planned.path,
          " has no weights that a process could read: --source "
          "names a path, or a hub's ORG/NAME, that has");
    }
    files.model = fs::absolute(planned.path).lexically_normal().string();
    return OkStatus();
  }
  if (fs::exists(files.model, error)) {
    files.model = fs::absolute(files.model).lexically_normal().string();
    return OkStatus();
  }
  // What is no path here may be one there.
  files.of_hub = ParseHubModel(files.model).ok();
  return OkStatus();
}

}  // namespace sluice::cli
