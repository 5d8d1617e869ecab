// A placement by hand: read or refused, and what was read holds together.
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::ModelConfig config;
  config.model_type = "fuzz";
  config.layers.resize(4);
  for (int i = 1; i < 4; ++i) config.layers[i].moe.num_experts = 8;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto placement = sluice::ParseExpertPlacement(text, config);
  if (!placement.ok()) return 0;
  for (int32_t layer = 1; layer < config.num_layers(); ++layer) {
    int32_t next = 0;
    for (const sluice::PlacedExperts& run : placement->layers[layer]) {
      SLUICE_CHECK(run.experts.begin == next && run.experts.end > next);
      next = run.experts.end;
      for (const int32_t host : run.hosts) {
        SLUICE_CHECK(host >= 0 &&
                     host < static_cast<int32_t>(placement->hosts.size()));
      }
    }
    SLUICE_CHECK(next == 8);
  }
  const auto again =
      sluice::ParseExpertPlacement(sluice::ToText(*placement), config);
  SLUICE_CHECK(again.ok() && *again == *placement);
  return 0;
}
