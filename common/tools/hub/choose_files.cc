#include "common/tools/hub/choose_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <string_view>

#include "common/base/json.h"

namespace sluice {
namespace {

constexpr char kUsualQuant[] = "Q4_K_M";
constexpr size_t kMaxNamedSets = 40;  // in a message
constexpr size_t kGgufEnd = 5;        // of ".gguf"
constexpr size_t kSplitEnd = 15;      // of "-00001-of-00003"

// What the readers of configs, tokenizers and templates look for.
constexpr std::array<std::string_view, 14> kSmallFiles = {
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "quant_config.json",
    "quantize_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json"};

std::string Lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// Returns how many parts the set has of which "a-00001-of-00003" is one; 0 for
// another name.
int PartsOf(std::string_view stem) {
  constexpr std::string_view kForm = "-00000-of-00000";
  if (stem.size() <= kForm.size()) return 0;
  stem.remove_prefix(stem.size() - kForm.size());
  int number = 0;  // the last one
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = stem[i] >= '0' && stem[i] <= '9';
    if (kForm[i] == '0' ? !digit : stem[i] != kForm[i]) return 0;
    number = digit ? number * 10 + (stem[i] - '0') : 0;
  }
  return number;
}

// The GGUFs of a listing, a split set under the name of the whole: "a/b" for
// a/b.gguf and for a/b-00001-of-00003.gguf.
std::map<std::string, std::vector<std::string>> GgufSets(
    const HubListing& listing) {
  std::map<std::string, std::vector<std::string>> sets;
  for (const HubFile& file : listing.files()) {
    if (!file.path.ends_with(".gguf")) continue;
    std::string stem = file.path.substr(0, file.path.size() - kGgufEnd);
    const std::string name = stem.substr(stem.rfind('/') + 1);
    // Projectors of images are no models.
    if (Lower(name).starts_with("mmproj")) continue;
    if (PartsOf(stem) > 0) stem.resize(stem.size() - kSplitEnd);
    sets[stem].push_back(file.path);
  }
  for (auto& [stem, files] : sets) std::sort(files.begin(), files.end());
  return sets;
}

// Checks that all parts of a split set are there; `files` ascend.
Status CheckParts(const std::vector<std::string>& files) {
  std::string_view last = files.back();
  last.remove_suffix(kGgufEnd);
  const int parts = PartsOf(last);
  if (parts == 0 || files.size() == static_cast<size_t>(parts)) {
    return OkStatus();
  }
  return NotFound(files.size(), " of the ", parts, " parts of ", files.back(),
                  " are there");
}

// Returns whether a GGUF's name ends with the quantisation, behind a '-', '.'
// or '/', or its folder is named so.
bool HasQuant(const std::string& stem, const std::string& quant) {
  const std::string name = Lower(stem), wanted = Lower(quant);
  if (name == wanted || name.starts_with(wanted + "/")) return true;
  if (name.size() <= wanted.size() || !name.ends_with(wanted)) return false;
  return std::string_view("-./").find(name[name.size() - wanted.size() - 1]) !=
         std::string_view::npos;
}

StatusOr<ChosenFiles> ChooseGguf(const HubListing& listing,
                                 const std::string& quant) {
  const auto sets = GgufSets(listing);
  std::vector<std::vector<std::string>> found;
  std::string names;
  for (const auto& [stem, files] : sets) {
    const bool taken = quant.empty()
                           ? sets.size() == 1 || HasQuant(stem, kUsualQuant)
                           : HasQuant(stem, quant);
    if (taken) found.push_back(files);
  }
  if (found.size() == 1) {
    SLUICE_RETURN_IF_ERROR(CheckParts(found[0]));
    return ChosenFiles{{}, found[0], found[0][0]};
  }
  size_t named = 0;
  for (const auto& [stem, files] : sets) {
    if (++named > kMaxNamedSets) break;
    names += Cat(names.empty() ? "" : ", ", stem);
  }
  if (sets.empty()) {
    return NotFound("has neither ", kSafetensorsFile, " nor ",
                    kSafetensorsIndex,
                    " nor a GGUF: nothing that is read here");
  }
  return NotFound(
      "has ", found.size(), " GGUFs of '", quant.empty() ? kUsualQuant : quant,
      "' where one is expected; ORG/NAME:QUANT names one of: ", names);
}

}  // namespace

std::vector<GgufSet> ListGgufs(const HubListing& listing) {
  std::vector<GgufSet> sets;
  for (auto& [stem, files] : GgufSets(listing)) {
    sets.push_back({stem.substr(stem.rfind('/') + 1), files});
  }
  return sets;
}

StatusOr<ChosenFiles> ChooseFiles(const HubListing& listing,
                                  const std::string& quant) {
  const bool single = listing.Find(kSafetensorsFile) != nullptr;
  const bool sharded = listing.Find(kSafetensorsIndex) != nullptr;
  if (!quant.empty() || (!single && !sharded)) {
    return ChooseGguf(listing, quant);
  }
  ChosenFiles chosen;
  for (const HubFile& file : listing.files()) {
    const bool small = std::find(kSmallFiles.begin(), kSmallFiles.end(),
                                 file.path) != kSmallFiles.end();
    const bool words = file.path.ends_with(".tiktoken") &&
                       file.path.find('/') == std::string::npos;
    if (small || words) chosen.small.push_back(file.path);
  }
  // The reader's own order: the single file goes first.
  if (single) {
    chosen.weights.push_back(kSafetensorsFile);
  } else {
    chosen.small.push_back(kSafetensorsIndex);
  }
  return chosen;
}

StatusOr<std::vector<std::string>> ShardsOf(const std::string& index,
                                            const HubListing& listing) {
  auto parsed = ParseSortedJson(index);
  const SortedJson json = parsed.ok() ? *std::move(parsed) : SortedJson();
  if (!json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object()) {
    return InvalidArgument(kSafetensorsIndex,
                           ": is no JSON object with a weight_map");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (!shards.contains(name) && listing.Find(name) == nullptr) {
      return InvalidArgument(kSafetensorsIndex, ": names the shard '",
                             UrlEncoded(name, Slash::kKeep),
                             "', which the repository does not have");
    }
    shards.insert(name);
  }
  if (shards.empty()) {
    return InvalidArgument(kSafetensorsIndex, ": names no shard");
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

}  // namespace sluice
