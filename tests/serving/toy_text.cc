#include "tests/serving/toy_text.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/text/vocabulary_spec.h"

namespace sluice::serving {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  SLUICE_CHECK(out.good());
}

}  // namespace

std::string ToyTokenizerJson(const ToyTokens& tokens) {
  VocabularySpec spec;
  const auto add = [&spec](std::string token, TokenKind kind) {
    spec.tokens.push_back(std::move(token));
    spec.kinds.push_back(kind);
  };
  for (int byte = 0; byte < 256; ++byte) {
    add(ByteLevelText(std::string(1, static_cast<char>(byte))),
        TokenKind::kNormal);
  }
  for (const std::string& name : tokens.special) {
    add(name, TokenKind::kControl);
  }
  for (const std::string& name : tokens.plain) {
    add(name, TokenKind::kUserDefined);
  }
  spec.byte_level = true;
  spec.patterns = PreTokenizerByName("llama-bpe")->patterns;
  return *ToTokenizerJson(spec);
}

std::unique_ptr<LoadedText> MakeToyText(const std::string& chat_template,
                                        const ToyTokens& tokens,
                                        const FormatNames& formats,
                                        const std::string& tool_template) {
  static std::atomic<int> count{0};
  const fs::path folder =
      fs::temp_directory_path() / ("sluice-toy-" + std::to_string(::getpid()) +
                                   "-" + std::to_string(++count));
  fs::create_directories(folder);
  Write(folder / "tokenizer.json", ToyTokenizerJson(tokens));
  Json config = {{"eos_token", tokens.special.at(0)}};
  if (tool_template.empty()) {
    Write(folder / "chat_template.jinja", chat_template);
  } else {
    config["chat_template"] =
        Json::array({{{"name", "default"}, {"template", chat_template}},
                     {{"name", "tool_use"}, {"template", tool_template}}});
  }
  Write(folder / "tokenizer_config.json", DumpJson(config));
  auto text = LoadedText::Load(folder.string(), formats);
  fs::remove_all(folder);
  if (!text.ok()) LogError(Message(text.status()));
  SLUICE_CHECK(text.ok());
  return *std::move(text);
}

}  // namespace sluice::serving
