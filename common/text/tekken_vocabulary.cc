#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/text/ranks.h"
#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

constexpr size_t kMaxJsonBytes = size_t{256} << 20;

// The special tokens of files that have no list of them (versions up to v7), by
// id.
constexpr std::string_view kOldSpecials[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

// Returns the whole number `name` of `object`, within [least, most].
StatusOr<size_t> CountIn(const Json& object, const char* name, size_t least,
                         size_t most) {
  const auto found = object.find(name);
  const bool fits = found != object.end() && found->is_number_unsigned() &&
                    found->get<uint64_t>() >= least &&
                    found->get<uint64_t>() <= most;
  if (!fits) {
    return InvalidArgument("tekken.json: ", name, " is ",
                           found == object.end() ? "missing" : DumpJson(*found),
                           ", limits ", least, " and ", most);
  }
  return found->get<size_t>();
}

StatusOr<std::string> TextIn(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_string()) {
    return InvalidArgument("tekken.json: ", name, " is no string");
  }
  return found->get<std::string>();
}

// Puts the special tokens at their ids, the first ones of the vocabulary.
Status AddSpecials(const Json& file, size_t count, VocabularySpec& spec) {
  for (size_t id = 0; id < count; ++id) {
    spec.tokens.push_back(Cat("<SPECIAL_", id, ">"));
    spec.kinds.push_back(TokenKind::kControl);
  }
  const auto listed = file.find("special_tokens");
  if (listed == file.end() || listed->is_null()) {
    for (size_t id = 0; id < std::size(kOldSpecials) && id < count; ++id) {
      spec.tokens[id] = kOldSpecials[id];
    }
    return OkStatus();
  }
  if (!listed->is_array()) {
    return InvalidArgument("tekken.json: special_tokens is no array");
  }
  for (const Json& token : *listed) {
    SLUICE_ASSIGN_OR_RETURN(std::string text, TextIn(token, "token_str"));
    SLUICE_ASSIGN_OR_RETURN(const size_t id,
                            CountIn(token, "rank", 0, count - 1));
    spec.tokens[id] = std::move(text);
  }
  return OkStatus();
}

StatusOr<std::vector<std::string>> RanksIn(const Json& file, size_t count) {
  const auto vocab = file.find("vocab");
  if (vocab == file.end() || !vocab->is_array() || vocab->size() < count) {
    return InvalidArgument("tekken.json: vocab is no array of ", count,
                           " tokens or more");
  }
  std::vector<std::string> ranks(count);
  for (size_t rank = 0; rank < count; ++rank) {
    const Json& token = (*vocab)[rank];
    SLUICE_ASSIGN_OR_RETURN(const std::string text,
                            TextIn(token, "token_bytes"));
    SLUICE_ASSIGN_OR_RETURN(const size_t named,
                            CountIn(token, "rank", rank, rank));
    if (!DecodeBase64(text, ranks[named]) ||
        ranks[named].size() > kMaxRankBytes) {
      return InvalidArgument("tekken.json: token_bytes of rank ", rank,
                             " is no base64 of 1 to ", kMaxRankBytes, " bytes");
    }
  }
  return ranks;
}

}  // namespace

StatusOr<TextSource> FromTekken(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const Json file,
                          ParseJson(text, {.max_bytes = kMaxJsonBytes}));
  const auto config = file.is_object() ? file.find("config") : file.end();
  if (!file.is_object() || config == file.end() || !config->is_object()) {
    return InvalidArgument("tekken.json: has no object config");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string pattern,
                          TextIn(*config, "pattern"));
  SLUICE_ASSIGN_OR_RETURN(
      const size_t num_special,
      CountIn(*config, "default_num_special_tokens", 3, kMaxRanks));
  SLUICE_ASSIGN_OR_RETURN(
      const size_t size,
      CountIn(*config, "default_vocab_size", num_special + 256, kMaxRanks));
  VocabularySpec spec;
  spec.byte_level = true;
  spec.patterns = {pattern};
  spec.ignore_merges = true;  // ranks keep a piece that is a token whole
  SLUICE_RETURN_IF_ERROR(AddSpecials(file, num_special, spec));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> ranks,
                          RanksIn(file, size - num_special));
  for (const std::string& token : ranks) {
    spec.tokens.push_back(ByteLevelText(token));
    spec.kinds.push_back(TokenKind::kNormal);
  }
  spec.merges = MergesFromRanks(ranks);
  spec.unk = std::nullopt;
  spec.bos = 1;
  spec.eos = 2;
  spec.add_bos = true;
  TextSource source;
  source.unk_token = spec.tokens[0];
  source.bos_token = spec.tokens[1];
  source.eos_token = spec.tokens[2];
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json, ToTokenizerJson(spec));
  return source;
}

}  // namespace sluice
