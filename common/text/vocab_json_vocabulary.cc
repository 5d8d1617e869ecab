#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

constexpr size_t kMostTokens = size_t{1} << 22;

// The tokenizer classes that have these two files, and GGUF's name of their
// split.
struct Class {
  std::string_view name;  // without "Tokenizer" or "TokenizerFast"
  std::string_view rule;
  bool nfc = false;
};
constexpr Class kClasses[] = {
    {"GPT2", "gpt-2"}, {"Qwen2", "qwen2", true}, {"CodeGen", "gpt-2"}};

StatusOr<Class> FindClass(std::string_view tokenizer_class) {
  std::string_view stem = tokenizer_class;
  for (const std::string_view end : {"Fast", "Tokenizer"}) {
    if (stem.ends_with(end)) stem.remove_suffix(end.size());
  }
  std::string known;
  for (const Class& candidate : kClasses) {
    if (candidate.name == stem) return candidate;
    known += Cat(known.empty() ? "" : ", ", candidate.name, "Tokenizer");
  }
  return Unimplemented("vocab.json and merges.txt of the tokenizer_class '",
                       tokenizer_class, "'; known are ", known,
                       "; a tokenizer.json tells how others split");
}

Status ReadTokens(std::string_view vocab, VocabularySpec& spec) {
  auto parsed = ParseSortedJson(vocab);
  const SortedJson json = parsed.ok() ? *std::move(parsed) : SortedJson();
  if (!json.is_object() || json.empty() || json.size() > kMostTokens) {
    return InvalidArgument("vocab.json is no JSON object of 1 to ", kMostTokens,
                           " tokens");
  }
  spec.tokens.resize(json.size());
  spec.kinds.assign(json.size(), TokenKind::kNormal);
  std::vector<bool> taken(json.size(), false);
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= json.size() ||
        taken[id.get<size_t>()]) {
      return InvalidArgument("vocab.json: the ids of its ", json.size(),
                             " tokens are not those from 0 on");
    }
    taken[id.get<size_t>()] = true;
    spec.tokens[id.get<size_t>()] = token;
  }
  return OkStatus();
}

// A merge in a line; "#version: 0.2" is a comment in the first one.
Status ReadMerges(std::string_view merges, VocabularySpec& spec) {
  for (size_t line = 1; !merges.empty(); ++line) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view text = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty() || (line == 1 && text.starts_with("#version"))) continue;
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size()) {
      return InvalidArgument("merges.txt: line ", line, " is not two tokens");
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return OkStatus();
}

}  // namespace

StatusOr<TextSource> FromVocabJson(std::string_view vocab,
                                   std::string_view merges,
                                   std::string_view tokenizer_class) {
  SLUICE_ASSIGN_OR_RETURN(const Class known, FindClass(tokenizer_class));
  VocabularySpec spec;
  spec.byte_level = true;
  spec.nfc = known.nfc;
  SLUICE_ASSIGN_OR_RETURN(PreTokenizerRule rule,
                          PreTokenizerByName(known.rule));
  spec.patterns = std::move(rule.patterns);
  SLUICE_RETURN_IF_ERROR(ReadTokens(vocab, spec));
  SLUICE_RETURN_IF_ERROR(ReadMerges(merges, spec));
  TextSource source;
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json, ToTokenizerJson(spec));
  return source;
}

}  // namespace sluice
