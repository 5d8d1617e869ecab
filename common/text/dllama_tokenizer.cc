#include "common/text/dllama_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

constexpr uint32_t kTokenizerMagic = 0x567124;
constexpr std::string_view kTokenizer = "a .t";
// Sentencepiece's unknown, bos and eos stand before its bytes.
constexpr size_t kFirstByte = 3;
constexpr size_t kFirstPiece = kFirstByte + 256;

// Keys of the header that are written.
enum HeaderKey : int32_t {
  kOfVersion = 0,
  kOfVocabSize = 1,
  kOfMaxTokenLength = 2,
  kOfBos = 3,
  kOfTemplate = 7,
  kOfNumEosIds = 9,
  kOfAddBos = 10,
};

std::string ShownToken(const VocabularySpec& spec, size_t id) {
  return Cat("token ", id, ", '", spec.tokens[id].substr(0, 100), "',");
}

// Checks that the tokens before bos, and no others, are of texts.
Status CheckByteLevel(const VocabularySpec& spec) {
  const auto bos = static_cast<size_t>(*spec.bos);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const bool is_text = spec.kinds[id] == TokenKind::kNormal;
    if (is_text == (id < bos)) continue;
    return Unimplemented(
        ShownToken(spec, id), " is ",
        is_text ? "of texts and stands behind" : "added and stands before",
        " bos, token ", bos, ", by which ", kTokenizer, " parts them");
  }
  PreTokenizerRule known;
  const bool is_qwen = *spec.bos == kQwenTokens;
  if (is_qwen || *spec.bos == kLlama3Tokens) {
    SLUICE_ASSIGN_OR_RETURN(
        known, PreTokenizerByName(is_qwen ? "qwen2" : "llama-bpe"));
  }
  // Names are those of patterns, however these are written.
  const auto name = [](const std::vector<std::string>& patterns,
                       bool ignore_merges) {
    const auto found =
        PreTokenizerNameOf(patterns, ignore_merges, /*has_bos=*/true);
    return found.ok() ? *found : Cat("'", patterns.front(), "'");
  };
  const bool has_splits = !spec.patterns.empty();
  const bool is_same =
      has_splits == !known.patterns.empty() &&
      spec.ignore_merges == known.ignore_merges && spec.nfc == is_qwen &&
      (!has_splits || name(spec.patterns, spec.ignore_merges) ==
                          name(known.patterns, known.ignore_merges));
  if (is_same) return OkStatus();
  return Unimplemented(
      "texts are ",
      has_splits ? Cat("split as ", name(spec.patterns, spec.ignore_merges))
                 : std::string("not split"),
      spec.nfc ? " and composed (NFC)" : "", ", which ", kTokenizer, " of ",
      *spec.bos, " tokens before bos does not tell: ", kLlama3Tokens,
      " have Llama 3's splits, ", kQwenTokens, " Qwen's, others none");
}

// Checks that the tokens stand where those of sentencepiece do.
Status CheckSentencePiece(const VocabularySpec& spec) {
  if (!spec.add_space_prefix) {
    return Unimplemented("no space is put before a text, ", kTokenizer,
                         " of sentencepiece has it");
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenKind kind = spec.kinds[id];
    const bool fits = kind == TokenKind::kUnused ||
                      (id < kFirstByte ? kind == TokenKind::kControl ||
                                             kind == TokenKind::kUnknown
                       : id < kFirstPiece ? kind == TokenKind::kByte
                                          : kind == TokenKind::kNormal);
    if (fits) continue;
    return Unimplemented(ShownToken(spec, id), " is not where ", kTokenizer,
                         " of sentencepiece has such: three control tokens, ",
                         "256 bytes, tokens of texts");
  }
  return OkStatus();
}

Status CheckTold(const VocabularySpec& spec) {
  if (!spec.bos) {
    return Unimplemented("has no bos token, by which ", kTokenizer,
                         " parts tokens of texts from others");
  }
  if (spec.add_eos) {
    return Unimplemented("puts eos behind a text, ", kTokenizer, " does not");
  }
  return spec.byte_level ? CheckByteLevel(spec) : CheckSentencePiece(spec);
}

template <typename T>
void Put(T value, std::string& to) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Returns the bytes of all tokens. Ids behind the last token are left out: an
// empty token would be found everywhere in a text.
std::vector<std::string> BytesOfTokens(const VocabularySpec& spec,
                                       const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const bool is_unused = spec.kinds[id] == TokenKind::kUnused;
    tokens.push_back(is_unused
                         ? spec.tokens[id]
                         : tokenizer.TokenBytes(static_cast<TokenId>(id)));
  }
  while (!tokens.empty() &&
         spec.kinds[tokens.size() - 1] == TokenKind::kUnused) {
    tokens.pop_back();
  }
  return tokens;
}

std::string DefaultTemplate(const std::vector<NamedTemplate>& templates) {
  for (const NamedTemplate& each : templates) {
    if (each.name == "default") return each.source;
  }
  return "";
}

std::string FileOf(const ReadVocabulary& read,
                   const std::vector<std::string>& tokens,
                   const std::string& chat_template) {
  size_t longest = 0;
  for (const std::string& token : tokens) {
    longest = std::max(longest, token.size());
  }
  const std::pair<HeaderKey, size_t> pairs[] = {
      {kOfVersion, 1},
      {kOfVocabSize, tokens.size()},
      {kOfMaxTokenLength, longest},
      {kOfBos, static_cast<size_t>(*read.spec.bos)},
      {kOfTemplate, chat_template.size()},
      {kOfNumEosIds, read.eos_ids.size()},
      {kOfAddBos, read.spec.add_bos ? size_t{1} : size_t{0}}};
  std::string file;
  Put(kTokenizerMagic, file);
  Put(static_cast<int32_t>(2 * sizeof(int32_t) +
                           std::size(pairs) * 2 * sizeof(int32_t)),
      file);
  for (const auto& [key, value] : pairs) {
    Put(static_cast<int32_t>(key), file);
    Put(static_cast<int32_t>(value), file);
  }
  file += chat_template;
  for (const TokenId id : read.eos_ids) Put(static_cast<int32_t>(id), file);
  const std::vector<double> scores = ScoresOf(read.spec);
  for (size_t id = 0; id < tokens.size(); ++id) {
    Put(static_cast<float>(scores[id]), file);
    Put(static_cast<int32_t>(tokens[id].size()), file);
    file += tokens[id];
  }
  return file;
}

StatusOr<std::string> Made(const TextSource& source,
                           const std::vector<NamedTemplate>& templates,
                           const VocabularyOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const ReadVocabulary read,
                          ReadVocabularyOf(source, options));
  SLUICE_RETURN_IF_ERROR(CheckTold(read.spec));
  SLUICE_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Make(source));
  std::string file = FileOf(read, BytesOfTokens(read.spec, *tokenizer),
                            DefaultTemplate(templates));
  // What a reader refuses is not written.
  SLUICE_RETURN_IF_ERROR(Annotate(FromDllama(file).status(), kTokenizer));
  return file;
}

}  // namespace

StatusOr<std::string> DllamaTokenizerOf(const std::string& model_path,
                                        VocabularyOptions options) {
  options.format = kTokenizer;
  SLUICE_ASSIGN_OR_RETURN(const TextSource source, ReadTextSource(model_path));
  SLUICE_ASSIGN_OR_RETURN(const auto templates, ReadChatTemplates(model_path));
  auto made = Made(source, templates, options);
  if (!made.ok()) return Annotate(made.status(), source.file);
  return made;
}

}  // namespace sluice
