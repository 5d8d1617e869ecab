#include "common/text/read_vocabulary.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/json.h"

namespace sluice {
namespace {

// Returns the member; null if there is none.
const SortedJson& MemberOf(const SortedJson& object, const char* key) {
  static const SortedJson none;
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found != object.end() ? *found : none;
}

std::string TextOf(const SortedJson& object, const char* key) {
  const SortedJson& text = MemberOf(object, key);
  return text.is_string() ? text.get<std::string>() : std::string();
}

bool IsTrue(const SortedJson& object, const char* key) {
  return MemberOf(object, key) == true;
}

// Returns the parts of a Sequence, whose list has the name `key`, else the
// part itself; none of null.
std::vector<SortedJson> PartsOf(const SortedJson& part, const char* key) {
  if (part.is_null()) return {};
  if (TextOf(part, "type") != "Sequence") return {part};
  const SortedJson& list = MemberOf(part, key);
  std::vector<SortedJson> parts;
  if (!list.is_array()) return parts;
  for (const SortedJson& inner : list) {
    for (SortedJson& each : PartsOf(inner, key)) {
      parts.push_back(std::move(each));
    }
  }
  return parts;
}

Status CannotTell(std::string_view what, const SortedJson& part) {
  return Unimplemented(what, " ", part.dump().substr(0, 200), " has no key");
}

StatusOr<SortedJson> ParseTokenizer(const std::string& text) {
  SLUICE_ASSIGN_OR_RETURN(SortedJson json, ParseSortedJson(text));
  if (!json.is_object()) return InvalidArgument("is no JSON object");
  return json;
}

// Puts one token of the vocabulary or of the added tokens at its id.
Status PlaceToken(const std::string& token, const SortedJson& id, int limit,
                  VocabularySpec& spec) {
  if (!id.is_number_integer() || id < 0 || id >= limit) {
    return InvalidArgument("token '", token.substr(0, 100), "' has the id ",
                           id.dump(), ", limits 0 and ", limit - 1,
                           " of the model's vocab_size");
  }
  const auto at = id.get<size_t>();
  if (spec.kinds[at] != TokenKind::kUnused && spec.tokens[at] != token) {
    return InvalidArgument("id ", at, " has the tokens '",
                           spec.tokens[at].substr(0, 100), "' and '",
                           token.substr(0, 100), "'");
  }
  spec.tokens[at] = token;
  spec.kinds[at] = TokenKind::kNormal;
  return OkStatus();
}

bool IsByteToken(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

Status ReadTokens(const SortedJson& json, int vocab_size,
                  VocabularySpec& spec) {
  const SortedJson& model = MemberOf(json, "model");
  const SortedJson& vocab = MemberOf(model, "vocab");
  if (!vocab.is_object()) return InvalidArgument("model has no vocab");
  const auto size = static_cast<size_t>(vocab_size);
  spec.kinds.assign(size, TokenKind::kUnused);
  for (size_t id = 0; id < size; ++id) {
    spec.tokens.push_back(Cat("[PAD", id, "]"));
  }
  for (const auto& [token, id] : vocab.items()) {
    SLUICE_RETURN_IF_ERROR(PlaceToken(token, id, vocab_size, spec));
    if (!spec.byte_level && IsByteToken(token)) {
      spec.kinds[id.get<size_t>()] = TokenKind::kByte;
    }
  }
  const SortedJson& added = MemberOf(json, "added_tokens");
  for (const SortedJson& token : added.is_array() ? added : SortedJson()) {
    const SortedJson& id = MemberOf(token, "id");
    SLUICE_RETURN_IF_ERROR(
        PlaceToken(TextOf(token, "content"), id, vocab_size, spec));
    spec.kinds[id.get<size_t>()] = IsTrue(token, "special")
                                       ? TokenKind::kControl
                                       : TokenKind::kUserDefined;
  }
  return OkStatus();
}

Status ReadMerges(const SortedJson& model, VocabularySpec& spec) {
  const SortedJson& merges = MemberOf(model, "merges");
  if (!merges.is_array()) return InvalidArgument("model has no merges");
  for (const SortedJson& merge : merges) {
    Merge pair;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ', 1);
      if (space != std::string::npos) {
        pair = {text.substr(0, space), text.substr(space + 1)};
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      pair = {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    // A GGUF has a space between the two tokens.
    const bool has_space = pair.first.find(' ') != std::string::npos ||
                           pair.second.find(' ') != std::string::npos;
    if (pair.first.empty() || pair.second.empty() || has_space) {
      return InvalidArgument("model.merges[", spec.merges.size(), "] is ",
                             merge.dump().substr(0, 200),
                             ", expected two tokens without spaces");
    }
    spec.merges.push_back(std::move(pair));
  }
  return OkStatus();
}

// Adds the patterns that split a text, one after the other.
Status ReadPatterns(const SortedJson& json, VocabularySpec& spec) {
  const SortedJson& whole = MemberOf(json, "pre_tokenizer");
  for (const SortedJson& part : PartsOf(whole, "pretokenizers")) {
    const std::string type = TextOf(part, "type");
    if (type == "Split" && TextOf(part, "behavior") == "Isolated" &&
        !IsTrue(part, "invert")) {
      spec.patterns.push_back(TextOf(MemberOf(part, "pattern"), "Regex"));
    } else if (type == "Digits" && IsTrue(part, "individual_digits")) {
      spec.patterns.emplace_back(R"(\p{N})");
    } else if (type == "ByteLevel" && !IsTrue(part, "add_prefix_space")) {
      // The crate splits by GPT-2's pattern unless told not to.
      if (MemberOf(part, "use_regex") != false) {
        SLUICE_ASSIGN_OR_RETURN(const PreTokenizerRule gpt2,
                                PreTokenizerByName("gpt-2"));
        spec.patterns.push_back(gpt2.patterns.front());
      }
    } else {
      return CannotTell("pre_tokenizer", part);
    }
  }
  return OkStatus();
}

Status ReadNormalizer(const SortedJson& json, VocabularySpec& spec) {
  for (const SortedJson& part :
       PartsOf(MemberOf(json, "normalizer"), "normalizers")) {
    if (TextOf(part, "type") != "NFC") return CannotTell("normalizer", part);
    spec.nfc = true;
  }
  return OkStatus();
}

// Reads how sentencepiece marks spaces, from either of two parts.
Status ReadSpaces(const SortedJson& json, VocabularySpec& spec) {
  spec.add_space_prefix = false;
  for (const SortedJson& part :
       PartsOf(MemberOf(json, "normalizer"), "normalizers")) {
    const std::string type = TextOf(part, "type");
    const bool is_mark = type == "Replace" &&
                         TextOf(MemberOf(part, "pattern"), "String") == " " &&
                         TextOf(part, "content") == kSpaceMark;
    const bool is_plain =
        type == "SentencePiece" && !IsTrue(part, "collapses") &&
        !IsTrue(part, "is_suffix") && TextOf(part, "map").empty();
    if (is_plain) {
      spec.add_space_prefix = IsTrue(part, "adds_space");
    } else if (type == "Prepend" && TextOf(part, "prepend") == kSpaceMark) {
      spec.add_space_prefix = true;
    } else if (!is_mark) {
      return CannotTell("normalizer", part);
    }
  }
  for (const SortedJson& part :
       PartsOf(MemberOf(json, "pre_tokenizer"), "pretokenizers")) {
    if (TextOf(part, "type") != "Metaspace" ||
        TextOf(part, "replacement") != kSpaceMark || IsTrue(part, "split")) {
      return CannotTell("pre_tokenizer", part);
    }
    spec.add_space_prefix = TextOf(part, "prepend_scheme") != "never";
  }
  return OkStatus();
}

// Reads which tokens are put around a text: bos in front, eos behind.
Status ReadTokensAround(const SortedJson& json, VocabularySpec& spec) {
  for (const SortedJson& part :
       PartsOf(MemberOf(json, "post_processor"), "processors")) {
    const std::string type = TextOf(part, "type");
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") {
      return CannotTell("post_processor", part);
    }
    bool is_behind = false;
    for (const SortedJson& piece : MemberOf(part, "single")) {
      if (!MemberOf(piece, "Sequence").is_null()) {
        is_behind = true;
        continue;
      }
      const std::string name = TextOf(MemberOf(piece, "SpecialToken"), "id");
      const auto wanted = is_behind ? spec.eos : spec.bos;
      bool& is_added = is_behind ? spec.add_eos : spec.add_bos;
      if (!wanted || spec.tokens[static_cast<size_t>(*wanted)] != name ||
          is_added) {
        return Unimplemented("post_processor puts '", name.substr(0, 100),
                             is_behind ? "' behind" : "' in front of",
                             " a text, keys put bos in front of it and eos "
                             "behind it");
      }
      is_added = true;
    }
  }
  return OkStatus();
}

Status ReadIds(const TextSource& source, const VocabularyOptions& options,
               ReadVocabulary& to) {
  std::unordered_map<std::string_view, TokenId> ids;
  for (size_t id = 0; id < to.spec.tokens.size(); ++id) {
    ids.emplace(to.spec.tokens[id], static_cast<TokenId>(id));
  }
  const auto find = [&](const std::string& name) {
    const auto found = ids.find(name);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  };
  to.spec.bos = find(source.bos_token);
  if (!to.spec.bos) to.spec.bos = options.bos;
  to.spec.eos = find(source.eos_token);
  to.pad = find(source.pad_token);
  if (!to.spec.unk) to.spec.unk = find(source.unk_token);
  std::vector<TokenId> all = source.eos_ids;
  all.insert(all.end(), options.eos_ids.begin(), options.eos_ids.end());
  if (to.spec.eos) all.insert(all.begin(), *to.spec.eos);
  for (const TokenId id : all) {
    if (std::find(to.eos_ids.begin(), to.eos_ids.end(), id) ==
        to.eos_ids.end()) {
      to.eos_ids.push_back(id);
    }
  }
  if (!to.spec.eos && !to.eos_ids.empty()) to.spec.eos = to.eos_ids.front();
  return OkStatus();
}

}  // namespace

StatusOr<ReadVocabulary> ReadVocabularyOf(const TextSource& source,
                                          const VocabularyOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const SortedJson json,
                          ParseTokenizer(source.tokenizer_json));
  const SortedJson& model = MemberOf(json, "model");
  const std::string type = TextOf(model, "type");
  if (type != "BPE" && !MemberOf(model, "merges").is_array()) {
    return Unimplemented("model ", type.empty() ? "without a type" : type, ": ",
                         options.format, " has keys for BPE");
  }
  ReadVocabulary to;
  to.spec.byte_level = !IsTrue(model, "byte_fallback");
  to.spec.ignore_merges = IsTrue(model, "ignore_merges");
  SLUICE_RETURN_IF_ERROR(ReadTokens(json, options.vocab_size, to.spec));
  SLUICE_RETURN_IF_ERROR(ReadMerges(model, to.spec));
  SLUICE_RETURN_IF_ERROR(ReadIds(source, options, to));
  SLUICE_RETURN_IF_ERROR(ReadTokensAround(json, to.spec));
  if (!to.spec.byte_level) {
    SLUICE_RETURN_IF_ERROR(ReadSpaces(json, to.spec));
    return to;
  }
  if (!options.reads_splits) return to;
  SLUICE_RETURN_IF_ERROR(ReadNormalizer(json, to.spec));
  SLUICE_RETURN_IF_ERROR(ReadPatterns(json, to.spec));
  return to;
}

std::vector<double> ScoresOf(const VocabularySpec& spec) {
  std::unordered_map<std::string, size_t> ranks;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    ranks.emplace(spec.merges[i].first + spec.merges[i].second, i);
  }
  std::vector<double> scores;
  for (const std::string& token : spec.tokens) {
    const auto rank = ranks.find(token);
    scores.push_back(rank == ranks.end() ? 0.0
                                         : -static_cast<double>(rank->second));
  }
  return scores;
}

}  // namespace sluice
