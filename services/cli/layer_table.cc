#include "services/cli/layer_table.h"

#include <cstdio>

#include "common/base/cat.h"

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

}  // namespace sluice::cli
