#include "services/cli/hub_path.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/tools/hub/hub_cache.h"
#include "services/cli/format.h"

namespace sluice::cli {
namespace {

constexpr int kBarWidth = 30;

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

}  // namespace

StatusOr<PulledModel> PullWithBar(const HubModel& model,
                                  const ChooseShards& choose) {
  PullBar bar;
  auto pulled = PullModel(HubSettingsOfEnvironment(), model, bar, choose);
  bar.EndLine();
  if (!pulled.ok()) return pulled.status();
  std::fprintf(stderr, "%s at %.10s: %.1f MB, %.1f MB of them fetched now\n",
               model.repository.c_str(), pulled->commit.c_str(),
               InMegabytes(pulled->bytes), InMegabytes(pulled->fetched));
  return pulled;
}

StatusOr<ModelHeaders> HeadersOf(const HubModel& model) {
  PullBar notes;
  return FetchHeaders(HubSettingsOfEnvironment(), model, notes);
}

StatusOr<std::string> PathOfModel(const std::string& model) {
  std::error_code error;
  if (std::filesystem::exists(model, error)) return model;
  const auto named = ParseHubModel(model);
  if (!named.ok()) return model;
  auto pulled = PullWithBar(*named);
  if (pulled.ok()) return std::move(pulled->path);
  return Annotate(pulled.status(), model,
                  ": there is no such file or folder, and as a hub's model it "
                  "could not be had");
}

}  // namespace sluice::cli
