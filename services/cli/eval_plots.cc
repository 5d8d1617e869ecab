#include "services/cli/eval_plots.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "common/base/text_file.h"

namespace sluice::cli {

StatusOr<std::string> WritePlots(
    const std::string& folder, const std::string& report,
    const std::vector<std::pair<std::string, eval::Plot>>& plots) {
  namespace fs = std::filesystem;
  if (folder.empty()) return std::string();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Unavailable("--plots ", folder, ": ", error.message());
  fs::path shown = folder;
  if (!report.empty()) {
    shown = fs::proximate(folder, fs::absolute(report).parent_path(), error);
    if (error) shown = fs::absolute(folder);
  }
  std::string images;
  for (const auto& [name, plot] : plots) {
    const fs::path path = fs::path(folder) / name;
    SLUICE_RETURN_IF_ERROR(WriteTextFile(path.string(), PlotSvg(plot)));
    std::fprintf(stderr, "wrote %s\n", path.c_str());
    images += Cat("\n![", plot.title, "](", (shown / name).string(), ")\n");
  }
  return images;
}

}  // namespace sluice::cli
