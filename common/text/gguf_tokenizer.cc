#include "common/text/gguf_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "common/text/read_vocabulary.h"
#include "common/text/text_source.h"
#include "common/text/vocabulary_spec.h"
#include "common/weights/gguf_ends.h"

namespace sluice {
namespace {

using weights::GgufMetadata;
using weights::GgufType;

class KeyWriter {
 public:
  void Text(std::string_view key, std::string value) {
    Insert(key, {GgufType::kString, GgufType::kUint8, std::move(value)});
  }
  void Bool(std::string_view key, bool value) {
    Insert(key, {GgufType::kBool, GgufType::kUint8, value});
  }
  void Id(std::string_view key, std::optional<TokenId> id) {
    if (!id) return;
    Insert(key,
           {GgufType::kUint32, GgufType::kUint8, static_cast<int64_t>(*id)});
  }
  template <typename T>
  void Array(std::string_view key, GgufType type, std::vector<T> values) {
    Insert(key, {GgufType::kArray, type, std::move(values)});
  }
  void Templates(const std::vector<NamedTemplate>& templates) {
    for (const NamedTemplate& each : templates) {
      const bool is_default = each.name == "default";
      metadata_.Insert(is_default ? "tokenizer.chat_template"
                                  : "tokenizer.chat_template." + each.name,
                       {GgufType::kString, GgufType::kUint8, each.source});
    }
  }
  GgufMetadata& metadata() { return metadata_; }

 private:
  void Insert(std::string_view key, weights::GgufValue value) {
    metadata_.Insert(Cat("tokenizer.ggml.", key), std::move(value));
  }

  GgufMetadata metadata_;
};

// Leaves those ends of an answer that need keys, of which there are three.
Status LimitEnds(ReadVocabulary& to) {
  // A reader knows the common ends of turns by their texts: keys are for the
  // first, and for those that need one.
  for (size_t i = to.eos_ids.size(); i > 1 && to.eos_ids.size() > 3; --i) {
    const TokenId id = to.eos_ids[i - 1];
    if (id >= 0 && static_cast<size_t>(id) < to.spec.tokens.size() &&
        weights::EndsATurn(to.spec.tokens[static_cast<size_t>(id)])) {
      to.eos_ids.erase(to.eos_ids.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
  }
  if (to.eos_ids.size() > 3) {
    return Unimplemented(to.eos_ids.size(),
                         " tokens end an answer, a GGUF has keys for 3");
  }
  return OkStatus();
}

// Returns llama.cpp's name of the splits.
StatusOr<std::string> PreOf(const VocabularySpec& spec,
                            const std::string& named) {
  if (!named.empty() || !spec.byte_level) return named;
  // llama.cpp leaves NFC out, also for families that have it.
  return PreTokenizerNameOf(spec.patterns, spec.ignore_merges,
                            spec.bos.has_value());
}

void WriteByteLevel(const ReadVocabulary& from, std::string pre,
                    KeyWriter& to) {
  to.Text("model", "gpt2");
  to.Text("pre", std::move(pre));
  std::vector<std::string> merges;
  for (const Merge& merge : from.spec.merges) {
    merges.push_back(merge.first + " " + merge.second);
  }
  to.Array("merges", GgufType::kString, std::move(merges));
}

void WriteSentencePiece(const ReadVocabulary& from, KeyWriter& to) {
  to.Text("model", "llama");
  to.Text("pre", "default");
  to.Array("scores", GgufType::kFloat32, ScoresOf(from.spec));
  to.Bool("add_space_prefix", from.spec.add_space_prefix);
}

}  // namespace

StatusOr<GgufMetadata> GgufTokenizerOf(const std::string& model_path,
                                       const GgufTokenizerOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const TextSource source, ReadTextSource(model_path));
  auto read = ReadVocabularyOf(source, {options.vocab_size, options.bos,
                                        options.eos_ids, options.pre.empty()});
  if (!read.ok()) return Annotate(read.status(), source.file);
  SLUICE_RETURN_IF_ERROR(Annotate(LimitEnds(*read), source.file));
  auto pre = PreOf(read->spec, options.pre);
  if (!pre.ok()) return Annotate(pre.status(), source.file);
  SLUICE_ASSIGN_OR_RETURN(const auto templates, ReadChatTemplates(model_path));
  const VocabularySpec& spec = read->spec;
  std::vector<int64_t> kinds;
  for (size_t id = 0; id < spec.kinds.size(); ++id) {
    const bool is_unknown =
        !spec.byte_level && spec.unk == static_cast<TokenId>(id);
    kinds.push_back(static_cast<int64_t>(is_unknown ? TokenKind::kUnknown
                                                    : spec.kinds[id]));
  }
  KeyWriter keys;
  if (spec.byte_level) {
    WriteByteLevel(*read, *std::move(pre), keys);
  } else {
    WriteSentencePiece(*read, keys);
  }
  keys.Array("tokens", GgufType::kString, spec.tokens);
  keys.Array("token_type", GgufType::kInt32, std::move(kinds));
  keys.Bool("add_bos_token", spec.add_bos);
  keys.Bool("add_eos_token", spec.add_eos);
  keys.Id("bos_token_id", spec.bos);
  keys.Id("unknown_token_id", spec.unk);
  keys.Id("padding_token_id", read->pad);
  constexpr std::string_view kEnds[] = {"eos_token_id", "eot_token_id",
                                        "eom_token_id"};
  for (size_t i = 0; i < read->eos_ids.size(); ++i) {
    keys.Id(kEnds[i], read->eos_ids[i]);
  }
  keys.Templates(templates);
  return std::move(keys.metadata());
}

}  // namespace sluice
