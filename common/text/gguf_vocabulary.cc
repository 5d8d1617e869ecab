#include <algorithm>
#include <string>
#include <vector>

#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"
#include "common/weights/gguf_file.h"

namespace sluice {
namespace {

using weights::GgufMetadata;

constexpr char kPrefix[] = "tokenizer.ggml.";

// Returns the id of `key`; nullopt if the file has none, and for -1 and other
// numbers of no token.
StatusOr<std::optional<TokenId>> IdOf(const GgufMetadata& metadata,
                                      std::string_view key, size_t size) {
  const std::string name = Cat(kPrefix, key);
  if (!metadata.Has(name)) return std::optional<TokenId>();
  SLUICE_ASSIGN_OR_RETURN(const int64_t id, metadata.Int(name));
  if (id < 0 || static_cast<uint64_t>(id) >= size) {
    return std::optional<TokenId>();
  }
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

StatusOr<bool> FlagOr(const GgufMetadata& metadata, std::string_view key,
                      bool otherwise) {
  const std::string name = Cat(kPrefix, key);
  if (!metadata.Has(name)) return otherwise;
  return metadata.Bool(name);
}

Status ReadTokens(const GgufMetadata& metadata, VocabularySpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(spec.tokens,
                          metadata.Strings("tokenizer.ggml.tokens"));
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  if (!metadata.Has("tokenizer.ggml.token_type")) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                          metadata.Ints("tokenizer.ggml.token_type"));
  if (types.size() != spec.tokens.size()) {
    return InvalidArgument("tokenizer.ggml.token_type has ", types.size(),
                           " entries for ", spec.tokens.size(), " tokens");
  }
  for (size_t id = 0; id < types.size(); ++id) {
    // llama.cpp takes other numbers, 0 for one, as undefined: no kind of token.
    if (types[id] >= 1 && types[id] <= 6) {
      spec.kinds[id] = static_cast<TokenKind>(types[id]);
    }
  }
  return OkStatus();
}

// Names of splits whose vocabularies spell spaces as sentencepiece does, and
// have a list of merges.
constexpr std::string_view kMergedPieces[] = {"gemma4", "sarvam-moe"};

Status ReadMerges(const GgufMetadata& metadata, VocabularySpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> merges,
                          metadata.Strings("tokenizer.ggml.merges"));
  spec.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ', 1);
    if (space == std::string::npos) {
      return InvalidArgument("tokenizer.ggml.merges[", i,
                             "] is not two tokens");
    }
    spec.merges.emplace_back(merges[i].substr(0, space),
                             merges[i].substr(space + 1));
  }
  return OkStatus();
}

Status ReadByteLevel(const GgufMetadata& metadata, std::string_view pre,
                     VocabularySpec& spec) {
  spec.byte_level = true;
  SLUICE_ASSIGN_OR_RETURN(PreTokenizerRule rule, PreTokenizerByName(pre));
  spec.patterns = std::move(rule.patterns);
  spec.ignore_merges = rule.ignore_merges;
  spec.add_bos = rule.add_bos;
  return ReadMerges(metadata, spec);
}

Status ReadMerged(const GgufMetadata& metadata, bool is_gemma4,
                  VocabularySpec& spec) {
  std::string pre = is_gemma4 ? "gemma4" : "default";
  if (!is_gemma4 && metadata.Has("tokenizer.ggml.pre")) {
    SLUICE_ASSIGN_OR_RETURN(pre, metadata.String("tokenizer.ggml.pre"));
  }
  if (std::find(std::begin(kMergedPieces), std::end(kMergedPieces), pre) ==
      std::end(kMergedPieces)) {
    return ReadByteLevel(metadata, pre, spec);
  }
  spec.add_space_prefix = false;
  return ReadMerges(metadata, spec);
}

Status ReadSentencePiece(const GgufMetadata& metadata, VocabularySpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<double> scores,
                          metadata.Floats("tokenizer.ggml.scores"));
  if (scores.size() != spec.tokens.size()) {
    return InvalidArgument("tokenizer.ggml.scores has ", scores.size(),
                           " entries for ", spec.tokens.size(), " tokens");
  }
  spec.merges =
      MergesFromScores(spec.tokens, spec.kinds,
                       std::vector<float>(scores.begin(), scores.end()));
  spec.add_bos = true;
  SLUICE_ASSIGN_OR_RETURN(spec.add_space_prefix,
                          FlagOr(metadata, "add_space_prefix", true));
  SLUICE_ASSIGN_OR_RETURN(spec.collapse_spaces,
                          FlagOr(metadata, "remove_extra_whitespaces", false));
  return OkStatus();
}

Status ReadIds(const GgufMetadata& metadata, VocabularySpec& spec,
               TextSource& source) {
  const size_t size = spec.tokens.size();
  const auto name = [&spec](std::optional<TokenId> id) {
    return id ? spec.tokens[static_cast<size_t>(*id)] : std::string();
  };
  SLUICE_ASSIGN_OR_RETURN(spec.bos, IdOf(metadata, "bos_token_id", size));
  SLUICE_ASSIGN_OR_RETURN(spec.eos, IdOf(metadata, "eos_token_id", size));
  SLUICE_ASSIGN_OR_RETURN(const auto pad,
                          IdOf(metadata, "padding_token_id", size));
  SLUICE_ASSIGN_OR_RETURN(const auto unk,
                          IdOf(metadata, "unknown_token_id", size));
  if (!spec.byte_level) spec.unk = unk ? unk : std::optional<TokenId>(0);
  for (const char* key : {"eot_token_id", "eom_token_id"}) {
    SLUICE_ASSIGN_OR_RETURN(const auto id, IdOf(metadata, key, size));
    if (id) source.eos_ids.push_back(*id);
  }
  source.bos_token = name(spec.bos);
  source.eos_token = name(spec.eos);
  source.pad_token = name(pad);
  source.unk_token = name(unk);
  return OkStatus();
}

}  // namespace

StatusOr<TextSource> FromGguf(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const GgufMetadata metadata,
                          weights::ReadGgufMetadata(path));
  SLUICE_ASSIGN_OR_RETURN(const std::string model,
                          metadata.String("tokenizer.ggml.model"));
  VocabularySpec spec;
  SLUICE_RETURN_IF_ERROR(ReadTokens(metadata, spec));
  if (model == "gpt2" || model == "gemma4") {
    SLUICE_RETURN_IF_ERROR(ReadMerged(metadata, model == "gemma4", spec));
  } else if (model == "llama") {
    SLUICE_RETURN_IF_ERROR(ReadSentencePiece(metadata, spec));
  } else {
    return Unimplemented("tokenizer.ggml.model \"", model,
                         "\"; known are gpt2, gemma4, llama");
  }
  TextSource source;
  SLUICE_RETURN_IF_ERROR(ReadIds(metadata, spec, source));
  SLUICE_ASSIGN_OR_RETURN(spec.add_bos,
                          FlagOr(metadata, "add_bos_token", spec.add_bos));
  SLUICE_ASSIGN_OR_RETURN(spec.add_eos,
                          FlagOr(metadata, "add_eos_token", false));
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json, ToTokenizerJson(spec));
  return source;
}

}  // namespace sluice
