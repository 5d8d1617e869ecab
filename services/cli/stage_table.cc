#include "services/cli/stage_table.h"

#include <cstdio>
#include <vector>

#include "common/model_config/layer_split.h"

namespace sluice::cli {

StatusOr<std::string> StageTable(const LayerLoads& loads, int32_t num_stages,
                                 std::span<const uint64_t> memory) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                          SplitLayers(loads, num_stages, memory));
  std::string table;
  char line[160];
  for (size_t i = 0; i < ranges.size(); ++i) {
    const StageBytes bytes = loads.Of(ranges[i]);
    const std::string layers =
        Cat("--layers ", ranges[i].first, "-", ranges[i].last - 1);
    std::snprintf(line, sizeof(line),
                  "stage %zu: %-16s %12.2f MB of weights %12.2f MB of KV", i,
                  layers.c_str(), double(bytes.weights) * 1e-6,
                  double(bytes.kv) * 1e-6);
    table += line;
    if (!memory.empty()) {
      std::snprintf(line, sizeof(line), " %5.1f %% of its memory",
                    100.0 * double(bytes.total()) / double(memory[i]));
      table += line;
    }
    table += "\n";
  }
  return table;
}

}  // namespace sluice::cli
