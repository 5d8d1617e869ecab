#include "services/cli/model_tables.h"

#include <cstdio>
#include <vector>

#include "common/placement/layer_split.h"

namespace sluice::cli {

std::string BytesLine(const std::string& what, uint64_t bytes) {
  char line[96];
  std::snprintf(line, sizeof(line), "%-24s %14.2f MB\n", what.c_str(),
                static_cast<double>(bytes) * 1e-6);
  return line;
}

std::string LayerTable(const ModelBytes& bytes, int32_t num_experts) {
  const size_t layers = bytes.layers.size();
  std::string table;
  for (size_t first = 0, last = 0; first < layers; first = last) {
    while (last < layers && bytes.layers[last] == bytes.layers[first] &&
           bytes.experts[last] == bytes.experts[first]) {
      ++last;
    }
    const bool one = last == first + 1;
    table += BytesLine(one ? Cat("layer ", first)
                           : Cat("layers ", first, "-", last - 1, ", each"),
                       bytes.layers[first]);
    const uint64_t experts = bytes.experts[first];
    if (experts == 0 || num_experts < 1) continue;
    table += BytesLine("  its experts", experts);
    table += BytesLine("  one of them",
                       experts / static_cast<uint64_t>(num_experts));
  }
  return table;
}

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
