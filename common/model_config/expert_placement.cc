#include "common/model_config/expert_placement.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/base/json.h"
#include "common/model_config/model_config.h"

namespace sluice {
namespace {

constexpr char kLocal[] = "local";
constexpr size_t kMaxHosts = 1024;
constexpr size_t kMaxName = 63;
// Bounds the memory of reading: some bytes per placed id.
constexpr int64_t kMaxPlaced = int64_t{1} << 22;

bool IsName(const std::string& name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kMaxName && name != kLocal &&
         name.find_first_not_of(kLetters) == std::string::npos;
}

// Parses "first-last", both included, or one number, within [low, high]. `what`
// names the entry's key in errors.
StatusOr<ExpertRange> ParseRange(const std::string& what,
                                 const std::string& text, int32_t low,
                                 int32_t high) {
  ExpertRange range;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, range.begin);
  int32_t last = range.begin;
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
    parsed = std::from_chars(parsed.ptr + 1, end, last);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end || range.begin > last) {
    return InvalidArgument(what, " must be first-last or one number, got '",
                           text, "'");
  }
  if (range.begin < low || last > high) {
    return InvalidArgument(what, " must be within ", low, " and ", high,
                           ", got '", text, "'");
  }
  range.end = last + 1;
  return range;
}

// Returns the text of member `key` of `object`; `what` names the entry in
// errors.
StatusOr<std::string> Text(const Json& object, const char* key,
                           const std::string& what) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return InvalidArgument(
        what, ": ", key, " must be a text, got ",
        found == object.end() ? "nothing" : DumpJson(*found));
  }
  return found->get<std::string>();
}

Status CheckKeys(const Json& object, const std::vector<std::string>& keys,
                 const std::string& what) {
  if (!object.is_object()) {
    return InvalidArgument(what, " must be an object, got ", DumpJson(object));
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return InvalidArgument(what, ": unknown key '", key, "'");
    }
  }
  return OkStatus();
}

StatusOr<const Json*> List(const Json& root, const char* key) {
  const auto found = root.find(key);
  if (found == root.end() || !found->is_array()) {
    return InvalidArgument("placement: ", key, " must be a list, got ",
                           found == root.end() ? "nothing" : DumpJson(*found));
  }
  return &*found;
}

std::string NamesOf(const ExpertPlacement& placement,
                    const std::vector<int32_t>& hosts) {
  if (hosts.empty()) return kLocal;
  std::string names;
  for (const int32_t host : hosts) {
    names += Cat(names.empty() ? "" : ", ", placement.hosts[host].name);
  }
  return names;
}

// Reads one text into a placement.
class Parser {
 public:
  explicit Parser(const ModelConfig& config) : config_(config) {
    placement_.layers.resize(config.layers.size());
  }

  StatusOr<ExpertPlacement> Parse(const Json& root) {
    if (config_.moe().num_experts == 0) {
      return InvalidArgument("placement: a model of type ", config_.model_type,
                             " has no experts");
    }
    SLUICE_RETURN_IF_ERROR(CheckSameExperts(config_));
    SLUICE_RETURN_IF_ERROR(CheckKeys(root, {"hosts", "experts"}, "placement"));
    SLUICE_ASSIGN_OR_RETURN(const Json* hosts, List(root, "hosts"));
    if (hosts->size() > kMaxHosts) {
      return InvalidArgument("placement: at most ", kMaxHosts, " hosts, got ",
                             hosts->size());
    }
    for (const Json& host : *hosts) SLUICE_RETURN_IF_ERROR(AddHost(host));
    SLUICE_ASSIGN_OR_RETURN(const Json* entries, List(root, "experts"));
    for (const Json& entry : *entries) {
      SLUICE_RETURN_IF_ERROR(AddEntry(entry));
    }
    for (int32_t i = 0; i < config_.num_layers(); ++i) {
      if (config_.is_sparse(i)) SLUICE_RETURN_IF_ERROR(Finish(i));
    }
    return std::move(placement_);
  }

 private:
  Status AddHost(const Json& json) {
    const std::string what =
        Cat("placement: hosts[", placement_.hosts.size(), "]");
    SLUICE_RETURN_IF_ERROR(CheckKeys(json, {"name", "address"}, what));
    ExpertHost host;
    SLUICE_ASSIGN_OR_RETURN(host.name, Text(json, "name", what));
    if (!IsName(host.name)) {
      return InvalidArgument(what, ": name must be 1 to ", kMaxName,
                             " letters, digits, '.', '_' and '-' and not '",
                             kLocal, "', got '", host.name, "'");
    }
    for (const ExpertHost& other : placement_.hosts) {
      if (other.name == host.name) {
        return InvalidArgument(what, ": name '", host.name, "' stands twice");
      }
    }
    if (json.contains("address")) {
      SLUICE_ASSIGN_OR_RETURN(host.address, Text(json, "address", what));
    }
    placement_.hosts.push_back(std::move(host));
    return OkStatus();
  }

  StatusOr<std::vector<int32_t>> Hosts(const Json& entry,
                                       const std::string& what) const {
    const auto list = entry.find("hosts");
    if (list == entry.end() || !list->is_array() || list->empty()) {
      return InvalidArgument(what, ": hosts must be a list of names, got ",
                             list == entry.end() ? "nothing" : DumpJson(*list));
    }
    std::vector<int32_t> hosts;
    for (const Json& name : *list) {
      if (!name.is_string()) {
        return InvalidArgument(what, ": hosts must be names, got ",
                               DumpJson(name));
      }
      const auto text = name.get<std::string>();
      if (text == kLocal) {
        if (list->size() == 1) return hosts;
        return InvalidArgument(what, ": hosts: '", kLocal,
                               "' stands alone or not at all");
      }
      auto index = placement_.HostIndex(text);
      if (!index.ok()) return Annotate(index.status(), what);
      hosts.push_back(*index);
    }
    std::sort(hosts.begin(), hosts.end());
    const auto twice = std::adjacent_find(hosts.begin(), hosts.end());
    if (twice != hosts.end()) {
      return InvalidArgument(what, ": host '", placement_.hosts[*twice].name,
                             "' stands twice");
    }
    return hosts;
  }

  Status AddEntry(const Json& json) {
    const std::string what = Cat("placement: experts[", entries_++, "]");
    SLUICE_RETURN_IF_ERROR(
        CheckKeys(json, {"layers", "experts", "hosts"}, what));
    SLUICE_ASSIGN_OR_RETURN(const std::string layers,
                            Text(json, "layers", what));
    SLUICE_ASSIGN_OR_RETURN(const std::string experts,
                            Text(json, "experts", what));
    const LayerSpan sparse = SparseSpan(config_);
    SLUICE_ASSIGN_OR_RETURN(
        const ExpertRange among,
        ParseRange(Cat(what, ": layers"), layers, sparse.first, sparse.last));
    SLUICE_ASSIGN_OR_RETURN(const ExpertRange range,
                            ParseRange(Cat(what, ": experts"), experts, 0,
                                       config_.moe().num_experts - 1));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> hosts,
                            Hosts(json, what));
    bool any = false;
    for (int32_t i = among.begin; i < among.end; ++i) {
      if (!config_.is_sparse(i)) continue;
      any = true;
      placement_.layers[i].push_back({range, hosts});
      placed_ += 1 + static_cast<int64_t>(hosts.size());
    }
    if (!any) {
      return InvalidArgument(what, ": layers ", layers,
                             " have no experts, layers ", SparseLayers(config_),
                             " have");
    }
    if (placed_ <= kMaxPlaced) return OkStatus();
    return InvalidArgument(what, ": more than ", kMaxPlaced,
                           " places of ranges");
  }

  Status Finish(int32_t layer) {
    std::vector<PlacedExperts>& placed = placement_.layers[layer];
    std::stable_sort(placed.begin(), placed.end(),
                     [](const PlacedExperts& a, const PlacedExperts& b) {
                       return a.experts.begin < b.experts.begin;
                     });
    std::vector<PlacedExperts> joined;
    int32_t next = 0;
    const auto missing = [&](int32_t until) {
      return InvalidArgument("placement: layer ", layer, ": experts ", next,
                             " to ", until - 1, " are placed nowhere");
    };
    for (PlacedExperts& run : placed) {
      if (run.experts.begin > next) return missing(run.experts.begin);
      if (run.experts.begin < next) {
        return InvalidArgument("placement: layer ", layer, ": expert ",
                               run.experts.begin, " is placed twice, on ",
                               NamesOf(placement_, joined.back().hosts),
                               " and on ", NamesOf(placement_, run.hosts),
                               "; replicas stand in one entry");
      }
      next = run.experts.end;
      if (!joined.empty() && joined.back().hosts == run.hosts) {
        joined.back().experts.end = next;
      } else {
        joined.push_back(std::move(run));
      }
    }
    const int32_t experts = config_.moe().num_experts;
    if (next < experts) return missing(experts);
    placed = std::move(joined);
    return OkStatus();
  }

  const ModelConfig& config_;
  ExpertPlacement placement_;
  int32_t entries_ = 0;
  int64_t placed_ = 0;
};

void Append(ExpertRange range, std::vector<ExpertRange>& to) {
  if (!to.empty() && to.back().end == range.begin) {
    to.back().end = range.end;
  } else {
    to.push_back(range);
  }
}

}  // namespace

std::vector<ExpertRange> ExpertPlacement::Local(int32_t layer,
                                                int32_t num_experts) const {
  if (num_experts == 0) return {};
  if (layers.empty()) return {{0, num_experts}};
  std::vector<ExpertRange> ranges;
  for (const PlacedExperts& run : layers[layer]) {
    if (run.hosts.empty()) Append(run.experts, ranges);
  }
  return ranges;
}

std::vector<ExpertRange> ExpertPlacement::On(int32_t host,
                                             int32_t layer) const {
  std::vector<ExpertRange> ranges;
  if (layers.empty()) return ranges;
  for (const PlacedExperts& run : layers[layer]) {
    if (std::count(run.hosts.begin(), run.hosts.end(), host) > 0) {
      Append(run.experts, ranges);
    }
  }
  return ranges;
}

StatusOr<int32_t> ExpertPlacement::HostIndex(std::string_view name) const {
  std::string known;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].name == name) return static_cast<int32_t>(i);
    known += Cat(i == 0 ? "" : ", ", hosts[i].name);
  }
  return NotFound("host '", name, "' is none of the placement's: ",
                  known.empty() ? "it has none" : known);
}

bool ExpertPlacement::IsRemote(int32_t first_layer, int32_t last_layer) const {
  if (layers.empty()) return false;
  for (int32_t i = first_layer; i < last_layer; ++i) {
    for (const PlacedExperts& run : layers[i]) {
      if (!run.hosts.empty()) return true;
    }
  }
  return false;
}

StatusOr<ExpertPlacement> ParseExpertPlacement(std::string_view text,
                                               const ModelConfig& config) {
  auto root = ParseJson(text);
  if (!root.ok()) return Annotate(root.status(), "placement");
  auto placement = Parser(config).Parse(*root);
  if (placement.ok()) return placement;
  // A host that the file does not list is an error of the file.
  return InvalidArgument(Message(placement.status()));
}

StatusOr<ExpertPlacement> ReadExpertPlacement(const std::string& path,
                                              const ModelConfig& config) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text.exceptions(std::ios::badbit);  // else too little memory cuts it
  text << in.rdbuf();
  if (!in) return NotFound("placement file ", path, " cannot be read");
  auto placement = ParseExpertPlacement(text.str(), config);
  if (placement.ok()) return placement;
  return Annotate(placement.status(), path);
}

std::string ToText(const ExpertPlacement& placement) {
  const auto range = [](int32_t first, int32_t end) {
    return Cat('"', first, '-', end - 1, '"');
  };
  std::string text = "{\"hosts\": [";
  for (size_t i = 0; i < placement.hosts.size(); ++i) {
    const ExpertHost& host = placement.hosts[i];
    text += Cat(i == 0 ? "\n  " : ",\n  ", "{\"name\": \"", host.name,
                "\", \"address\": ", DumpJson(Json(host.address)), "}");
  }
  text += "],\n \"experts\": [";
  bool first = true;
  const auto& layers = placement.layers;
  for (size_t begin = 0; begin < layers.size();) {
    size_t end = begin + 1;
    while (end < layers.size() && layers[end] == layers[begin]) ++end;
    for (const PlacedExperts& run : layers[begin]) {
      text += Cat(first ? "\n  " : ",\n  ", "{\"layers\": ",
                  range(static_cast<int32_t>(begin), static_cast<int32_t>(end)),
                  ", \"experts\": ", range(run.experts.begin, run.experts.end),
                  ", \"hosts\": [");
      first = false;
      if (run.hosts.empty()) text += Cat('"', kLocal, '"');
      for (size_t i = 0; i < run.hosts.size(); ++i) {
        text += Cat(i == 0 ? "\"" : ", \"", placement.hosts[run.hosts[i]].name,
                    '"');
      }
      text += "]}";
    }
    begin = end;
  }
  return text + "]}\n";
}

}  // namespace sluice
