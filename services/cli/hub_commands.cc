// The commands pull, list, show and rm.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/hub/hub_cache.h"
#include "common/hub/hub_model.h"
#include "common/hub/pull.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr int kBarWidth = 30;

double InMegabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

// A bar on a terminal, elsewhere a line for every tenth. On stderr.
class PullBar : public PullObserver {
 public:
  void OnNote(const std::string& note) override {
    EndLine();
    std::fprintf(stderr, "%s\n", note.c_str());
  }
  void OnFile(const std::string& path, uint64_t bytes) override {
    file_ = path.substr(path.rfind('/') + 1);
  }
  void OnBytes(uint64_t done, uint64_t total) override {
    if (total == 0) return;
    const auto steps = static_cast<uint64_t>(terminal_ ? 200 : 10);
    const uint64_t step = total < steps ? done : done / (total / steps);
    if (step == told_) return;
    told_ = step;
    const double share = static_cast<double>(done) / static_cast<double>(total);
    if (!terminal_) {
      std::fprintf(stderr, "%3.0f %% of %.1f MB\n", share * 100,
                   InMegabytes(total));
      return;
    }
    const int full = static_cast<int>(share * kBarWidth);
    std::fprintf(
        stderr, "\r[%s%s] %3.0f %% of %.1f MB  %-40.40s",
        std::string(static_cast<size_t>(full), '#').c_str(),
        std::string(static_cast<size_t>(kBarWidth - full), ' ').c_str(),
        share * 100, InMegabytes(total), file_.c_str());
    open_line_ = true;
  }
  void EndLine() {
    if (open_line_) std::fprintf(stderr, "\n");
    open_line_ = false;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  std::string file_;
  uint64_t told_ = UINT64_MAX;
  bool open_line_ = false;
};

struct HubOptions {
  std::string model;
};

Status RunPull(const HubOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const HubModel model, ParseHubModel(options.model));
  PullBar bar;
  auto pulled = PullModel(HubSettingsOfEnvironment(), model, bar);
  bar.EndLine();
  if (!pulled.ok()) return pulled.status();
  std::fprintf(stderr, "%s at %.10s: %.1f MB, %.1f MB of them fetched now\n",
               model.repository.c_str(), pulled->commit.c_str(),
               InMegabytes(pulled->bytes), InMegabytes(pulled->fetched));
  std::printf("%s\n", pulled->path.c_str());
  return OkStatus();
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += Cat(text.empty() ? "" : ", ", word);
  }
  return text;
}

Status RunList() {
  const HubCache cache(HubSettingsOfEnvironment().cache);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CachedModel> models, cache.List());
  std::printf("%-48s %12s %12s  %s\n", "model", "MB", "unfinished",
              "revisions");
  for (const CachedModel& model : models) {
    std::vector<std::string> revisions;
    for (const CachedSnapshot& snapshot : model.snapshots) {
      if (snapshot.revisions.empty()) {
        revisions.push_back(snapshot.commit.substr(0, 10));
      }
      for (const auto& name : snapshot.revisions) revisions.push_back(name);
    }
    std::printf("%-48s %12.1f %12.1f  %s\n", model.repository.c_str(),
                InMegabytes(model.bytes), InMegabytes(model.unfinished_bytes),
                Joined(revisions).c_str());
  }
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
