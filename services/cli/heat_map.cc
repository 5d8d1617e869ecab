#include "services/cli/heat_map.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/json.h"
#include "services/cli/json_member.h"

namespace sluice::cli {
namespace {

using LayerAsks = std::vector<std::optional<uint64_t>>;

constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxLayers = 1 << 16;
constexpr char kShades[] = " .:-=+*#%@";
constexpr int kNumShades = static_cast<int>(sizeof(kShades)) - 1;

StatusOr<int64_t> CountMember(const Json& object, const char* key,
                              int64_t limit) {
  const Json* value = FindMember(object, key);
  if (value == nullptr || !value->is_number_integer()) {
    return InvalidArgument("'", key, "' is not there or no whole number");
  }
  const auto number = value->get<int64_t>();
  if (number >= 0 && number < limit) return number;
  return InvalidArgument("'", key, "' is ", number, ", limit ", limit);
}

StatusOr<std::vector<uint64_t>> CountList(const Json& object, const char* key) {
  const Json* list = FindMember(object, key);
  if (list == nullptr || !list->is_array()) {
    return InvalidArgument("'", key, "' is no list");
  }
  std::vector<uint64_t> numbers;
  for (const Json& value : *list) {
    if (!value.is_number_unsigned()) {
      return InvalidArgument("'", key, "' has more than whole numbers");
    }
    numbers.push_back(value.get<uint64_t>());
  }
  return numbers;
}

Status AddLayer(const Json& layer, bool recent, HeatMap* heat) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t index,
                          CountMember(layer, "layer", kMaxLayers));
  SLUICE_ASSIGN_OR_RETURN(const auto experts, CountList(layer, "experts"));
  SLUICE_ASSIGN_OR_RETURN(const auto asks,
                          CountList(layer, recent ? "recent" : "asks"));
  if (experts.size() != asks.size()) {
    return InvalidArgument("layer ", index, " has ", experts.size(),
                           " experts and ", asks.size(), " counts");
  }
  LayerAsks& row = heat->layers[static_cast<int32_t>(index)];
  row.resize(static_cast<size_t>(heat->num_experts));
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] >= row.size()) {
      return InvalidArgument("layer ", index, " has expert ", experts[i],
                             " of ", row.size());
    }
    row[experts[i]] = asks[i];
  }
  return OkStatus();
}

// Of the experts that are known.
struct RowSummary {
  uint64_t sum = 0;
  uint64_t most = 0;
  int active = 0;
  int known = 0;
  double skew() const {
    return sum == 0
               ? 0
               : static_cast<double>(most) * known / static_cast<double>(sum);
  }
};

RowSummary SummaryOf(const LayerAsks& row) {
  RowSummary summary;
  for (const auto& asks : row) {
    if (!asks.has_value()) continue;
    ++summary.known;
    summary.sum += *asks;
    summary.most = std::max(summary.most, *asks);
    if (*asks > 0) ++summary.active;
  }
  return summary;
}

// 0: never; kNumShades - 1: the hottest.
int ShadeOf(uint64_t asks, uint64_t most) {
  if (asks == 0 || most == 0) return 0;
  const double share = static_cast<double>(asks) / static_cast<double>(most);
  return std::clamp(static_cast<int>(std::ceil(share * (kNumShades - 1))), 1,
                    kNumShades - 1);
}

char HeatCell(const LayerAsks& row, size_t begin, size_t end, uint64_t most) {
  std::optional<uint64_t> hottest;
  for (size_t i = begin; i < end; ++i) {
    if (row[i].has_value()) hottest = std::max(hottest.value_or(0), *row[i]);
  }
  return hottest.has_value() ? kShades[ShadeOf(*hottest, most)] : '?';
}

}  // namespace

StatusOr<HeatMap> ParseHeat(const std::string& json, bool recent) {
  SLUICE_ASSIGN_OR_RETURN(const Json answer, ParseJson(json));
  HeatMap heat;
  SLUICE_ASSIGN_OR_RETURN(const int64_t experts,
                          CountMember(answer, "num_experts", kMaxExperts));
  heat.num_experts = static_cast<int32_t>(experts);
  const Json* layers = FindMember(answer, "layers");
  if (layers == nullptr || !layers->is_array()) {
    return InvalidArgument("'layers' is no list");
  }
  for (const Json& layer : *layers) {
    SLUICE_RETURN_IF_ERROR(AddLayer(layer, recent, &heat));
  }
  return heat;
}

Status AddHeat(const HeatMap& more, HeatMap* heat) {
  if (heat->layers.empty()) heat->num_experts = more.num_experts;
  if (heat->num_experts != more.num_experts) {
    return FailedPrecondition("hosts are of different models: one has ",
                              heat->num_experts, " experts per layer, one ",
                              more.num_experts);
  }
  for (const auto& [layer, asks] : more.layers) {
    LayerAsks& row = heat->layers[layer];
    row.resize(asks.size());
    for (size_t i = 0; i < asks.size(); ++i) {
      if (asks[i].has_value()) row[i] = row[i].value_or(0) + *asks[i];
    }
  }
  return OkStatus();
}

std::string DrawHeat(const HeatMap& heat, int columns) {
  const auto experts = static_cast<size_t>(heat.num_experts);
  const auto wide = static_cast<size_t>(std::max(1, columns));
  const size_t per_cell = std::max<size_t>(1, (experts + wide - 1) / wide);
  std::string text =
      Cat("layer  experts 0 to ", heat.num_experts - 1,
          per_cell > 1 ? Cat(", ", per_cell, " in a column") : "", "\n");
  for (const auto& [layer, row] : heat.layers) {
    const RowSummary summary = SummaryOf(row);
    char number[32];
    std::snprintf(number, sizeof(number), "%5d |", layer);
    text += number;
    for (size_t begin = 0; begin < experts; begin += per_cell) {
      text += HeatCell(row, begin, std::min(experts, begin + per_cell),
                       summary.most);
    }
    char figures[96];
    std::snprintf(figures, sizeof(figures),
                  "| %llu asks, %d of %d active, skew %.2f\n",
                  static_cast<unsigned long long>(summary.sum), summary.active,
                  summary.known, summary.skew());
    text += figures;
  }
  return text;
}

std::string DrawHeatSvg(const HeatMap& heat) {
  constexpr int kCell = 8;
  constexpr int kLeft = 48;
  constexpr int kTop = 24;
  const int width = kLeft + kCell * heat.num_experts + 8;
  const int height = kTop + kCell * static_cast<int>(heat.layers.size()) + 8;
  std::string svg =
      Cat("<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"",
          width, "\" height=\"", height,
          "\" font-family=\"sans-serif\" font-size=\"8\">\n"
          "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
          "<text x=\"",
          kLeft,
          "\" y=\"14\">asks per expert, by layer; dark: the layer's "
          "hottest</text>\n");
  int y = kTop;
  for (const auto& [layer, row] : heat.layers) {
    const RowSummary summary = SummaryOf(row);
    svg += Cat("<text x=\"", kLeft - 6, "\" y=\"", y + kCell - 1,
               "\" text-anchor=\"end\">", layer, "</text>\n");
    for (size_t i = 0; i < row.size(); ++i) {
      if (!row[i].has_value()) continue;
      const int light =
          255 - 255 * ShadeOf(*row[i], summary.most) / (kNumShades - 1);
      svg +=
          Cat("<rect x=\"", kLeft + kCell * static_cast<int>(i), "\" y=\"", y,
              "\" width=\"", kCell, "\" height=\"", kCell, "\" fill=\"rgb(255,",
              light, ",", light / 2, ")\"><title>layer ", layer, " expert ", i,
              ": ", *row[i], "</title></rect>\n");
    }
    y += kCell;
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::cli
