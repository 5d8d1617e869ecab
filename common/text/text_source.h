#ifndef SLUICE_COMMON_TEXT_TEXT_SOURCE_H_
#define SLUICE_COMMON_TEXT_TEXT_SOURCE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice {

// The text part of a model's files, for any format. A value.
struct TextSource {
  std::string file;            // the file with the vocabulary
  std::string tokenizer_json;  // its text, or one made from that file
  // Spellings; empty if the model has none.
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::vector<TokenId> eos_ids;  // beyond eos_token
};

// One chat template of a model, which may have several, by name.
struct NamedTemplate {
  std::string name;  // "default", "tool_use", "rag"
  std::string source;
};

// Reads the tokenizer of the model at `model_path` (a folder or a file, see
// Tokenizer::Load). Every file is untrusted input.
StatusOr<TextSource> ReadTextSource(const std::string& model_path);

// Returns the chat templates of the model at `model_path`: chat_template.jinja,
// else tokenizer_config.json's, GGUF metadata, or a .t file's. Empty without
// one.
StatusOr<std::vector<NamedTemplate>> ReadChatTemplates(
    const std::string& model_path);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_TEXT_SOURCE_H_
