#include "common/experts/host/expert_choice.h"

#include <charconv>
#include <map>
#include <utility>

#include "common/model_config/expert_placement.h"

namespace sluice {
namespace {

// Both ends included.
struct Span {
  int32_t first = 0;
  int32_t last = 0;
};

bool ParseNumber(std::string_view text, int32_t* value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *value);
  return parsed.ec == std::errc() && parsed.ptr == end && *value >= 0;
}

// "3-10", "3" or "all", which is `all`.
StatusOr<Span> ParseSpan(const char* what, std::string_view text, Span all) {
  if (text == "all") return all;
  const size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last =
      dash == std::string_view::npos ? first : text.substr(dash + 1);
  Span span;
  if (!ParseNumber(first, &span.first) || !ParseNumber(last, &span.last) ||
      span.first > span.last) {
    return InvalidArgument("--experts: ", what, " must be first-last, one ",
                           "number or all, got '", text, "'");
  }
  if (span.first < all.first || span.last > all.last) {
    return InvalidArgument("--experts: ", what, " ", text, ": the model has ",
                           all.first, " to ", all.last);
  }
  return span;
}

// The chosen ids of each layer.
class Chosen {
 public:
  explicit Chosen(int32_t num_experts) : num_experts_(num_experts) {}

  Status Add(int32_t layer, Span ids) {
    std::vector<bool>& marks = layers_[layer];
    marks.resize(static_cast<size_t>(num_experts_));
    for (int32_t id = ids.first; id <= ids.last; ++id) {
      if (marks[id]) {
        return InvalidArgument("--experts: expert ", id, " of layer ", layer,
                               " is named twice");
      }
      marks[id] = true;
    }
    return OkStatus();
  }

  std::vector<LayerRanges> Ranges() const {
    std::vector<LayerRanges> out;
    for (const auto& [layer, marks] : layers_) {
      LayerRanges& ranges = out.emplace_back(LayerRanges{layer, {}});
      for (int32_t id = 0; id < num_experts_; ++id) {
        if (!marks[id]) continue;
        if (id > 0 && marks[id - 1]) {
          ranges.ranges.back().end = id + 1;
        } else {
          ranges.ranges.push_back({id, id + 1});
        }
      }
    }
    return out;
  }

 private:
  const int32_t num_experts_;
  std::map<int32_t, std::vector<bool>> layers_;
};

StatusOr<std::vector<LayerRanges>> FromText(std::string_view text,
                                            const ModelConfig& config) {
  const LayerSpan sparse = SparseSpan(config);
  const Span layers = {sparse.first, sparse.last};
  const Span experts = {0, config.moe().num_experts - 1};
  Chosen chosen(config.moe().num_experts);
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos && item != "all") {
      return InvalidArgument("--experts: '", item,
                             "' must be layers:experts or all");
    }
    SLUICE_ASSIGN_OR_RETURN(const Span in,
                            ParseSpan("layers", item.substr(0, colon), layers));
    SLUICE_ASSIGN_OR_RETURN(
        const Span ids,
        ParseSpan("experts",
                  colon == std::string_view::npos ? std::string_view("all")
                                                  : item.substr(colon + 1),
                  experts));
    bool any = false;
    for (int32_t layer = in.first; layer <= in.last; ++layer) {
      if (!config.is_sparse(layer)) continue;
      any = true;
      SLUICE_RETURN_IF_ERROR(chosen.Add(layer, ids));
    }
    if (!any) {
      return InvalidArgument("--experts: layers ", item.substr(0, colon),
                             " have no experts, layers ", SparseLayers(config),
                             " have");
    }
    if (comma == std::string_view::npos) return chosen.Ranges();
    text.remove_prefix(comma + 1);
  }
}

StatusOr<std::vector<LayerRanges>> FromPlacement(const ExpertChoice& choice,
                                                 const ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(const ExpertPlacement placement,
                          ReadExpertPlacement(choice.placement, config));
  SLUICE_ASSIGN_OR_RETURN(const int32_t host, placement.HostIndex(choice.host));
  std::vector<LayerRanges> held;
  for (int32_t layer = 0; layer < config.num_layers(); ++layer) {
    auto ranges = placement.On(host, layer);
    if (!ranges.empty()) held.push_back({layer, std::move(ranges)});
  }
  if (held.empty()) {
    return InvalidArgument(choice.placement, " gives host ", choice.host,
                           " no experts");
  }
  return held;
}

}  // namespace

StatusOr<std::vector<LayerRanges>> ChooseExperts(const ExpertChoice& choice,
                                                 const ModelConfig& config) {
  if (config.moe().num_experts == 0) {
    return InvalidArgument("the model (", config.model_type,
                           ") has no experts to serve");
  }
  if (choice.experts.empty() == choice.placement.empty()) {
    return InvalidArgument(
        "one of --experts and --placement is needed, and not both");
  }
  if (choice.placement.empty()) {
    if (choice.host.empty()) return FromText(choice.experts, config);
    return InvalidArgument("--host ", choice.host, " needs --placement");
  }
  if (choice.host.empty()) {
    return InvalidArgument("--placement needs --host, this host's name in it");
  }
  return FromPlacement(choice, config);
}

}  // namespace sluice
