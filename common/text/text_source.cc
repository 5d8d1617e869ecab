#include "common/text/text_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/text/added_tokens.h"
#include "common/text/vocabulary_formats.h"
#include "common/weights/find_model.h"
#include "common/weights/gguf_file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxVocabularyBytes = uint64_t{512} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;
constexpr char kVocabJson[] = "vocab.json";
constexpr char kMerges[] = "merges.txt";

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool IsGguf(const fs::path& path) { return weights::IsGgufFile(path.string()); }
// A tokenizer of Mistral's own tools.
bool IsTekken(const fs::path& path) {
  return path.extension() == ".json" &&
         path.filename().string().starts_with("tekken");
}
// A tokenizer of distributed-llama.
bool IsDllama(const fs::path& path) { return path.extension() == ".t"; }

StatusOr<std::string> ReadFile(const fs::path& path, uint64_t limit) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return NotFound(path.string(), ": ", error.message());
  if (size > limit) {
    return InvalidArgument(path.string(), " has ", size, " bytes, limit ",
                           limit);
  }
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) return Unavailable(path.string(), ": cannot be read");
  return text;
}

// Returns the JSON object in `path`; an empty one without such a file.
StatusOr<Json> ReadConfig(const fs::path& path) {
  if (!IsFile(path)) return Json::object();
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(path, kMaxConfigBytes));
  auto json = ParseJson(text, {.max_bytes = kMaxConfigBytes});
  if (!json.ok()) return Annotate(json.status(), path.string());
  if (!json->is_object()) {
    return InvalidArgument(path.string(), ": not a JSON object");
  }
  return json;
}

// Returns a token of tokenizer_config.json: "<s>" or {"content": "<s>", ...}.
std::string TokenIn(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object()) {
    const auto content = found->find("content");
    if (content != found->end() && content->is_string()) {
      return content->get<std::string>();
    }
  }
  return "";
}

// Reads spellings in the files beside the vocabulary, which override the
// vocabulary's, and the tokens that only these files name.
Status ReadNames(const fs::path& folder, TextSource& source) {
  SLUICE_ASSIGN_OR_RETURN(const Json config,
                          ReadConfig(folder / "tokenizer_config.json"));
  SLUICE_ASSIGN_OR_RETURN(const Json map,
                          ReadConfig(folder / "special_tokens_map.json"));
  SLUICE_ASSIGN_OR_RETURN(const Json added,
                          ReadConfig(folder / "added_tokens.json"));
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json,
                          WithAddedTokens(std::move(source.tokenizer_json),
                                          AddedTokensIn({config, map, added})));
  const auto take = [&](const char* key, std::string& name) {
    for (const Json* from : {&config, &map}) {
      if (std::string found = TokenIn(*from, key); !found.empty()) {
        name = std::move(found);
        return;
      }
    }
  };
  take("bos_token", source.bos_token);
  take("eos_token", source.eos_token);
  take("pad_token", source.pad_token);
  take("unk_token", source.unk_token);
  return OkStatus();
}

// Reads the merges beside the text of a vocab.json.
StatusOr<TextSource> FromPair(const fs::path& folder,
                              const std::string& vocab) {
  SLUICE_ASSIGN_OR_RETURN(const std::string merges,
                          ReadFile(folder / kMerges, kMaxVocabularyBytes));
  SLUICE_ASSIGN_OR_RETURN(const Json config,
                          ReadConfig(folder / "tokenizer_config.json"));
  return FromVocabJson(vocab, merges, FindText(config, "tokenizer_class"));
}

StatusOr<TextSource> FromVocabularyFile(const fs::path& path) {
  TextSource source;
  if (IsGguf(path)) {
    SLUICE_ASSIGN_OR_RETURN(source, FromGguf(path.string()));
  } else {
    SLUICE_ASSIGN_OR_RETURN(std::string bytes,
                            ReadFile(path, kMaxVocabularyBytes));
    if (path.filename() == kVocabJson) {
      SLUICE_ASSIGN_OR_RETURN(source, FromPair(path.parent_path(), bytes));
    } else if (IsTekken(path)) {
      SLUICE_ASSIGN_OR_RETURN(source, FromTekken(bytes));
    } else if (path.extension() == ".json") {
      source.tokenizer_json = std::move(bytes);
    } else if (IsDllama(path)) {
      SLUICE_ASSIGN_OR_RETURN(source, FromDllama(bytes));
      source.file = path.string();
      return source;
    } else if (LooksLikeTiktoken(bytes)) {
      SLUICE_ASSIGN_OR_RETURN(source, FromTiktoken(bytes));
    } else {
      SLUICE_ASSIGN_OR_RETURN(source, FromSentencePiece(bytes));
    }
    SLUICE_RETURN_IF_ERROR(ReadNames(path.parent_path(), source));
  }
  source.file = path.string();
  return source;
}

// Returns the files in `folder` with `extension`, by name.
std::vector<fs::path> FilesWith(const fs::path& folder,
                                std::string_view extension) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == extension && IsFile(at->path())) {
      found.push_back(at->path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Returns the tokenizer of distributed-llama for its model at `model`: that of
// the same name, or the only one in the folder.
StatusOr<fs::path> FindDllama(const fs::path& model) {
  fs::path same = model;
  same.replace_extension(".t");
  if (IsFile(same)) return same;
  const auto found = FilesWith(fs::absolute(model).parent_path(), ".t");
  if (found.size() == 1) return found.front();
  return NotFound(model.string(), ": no tokenizer ", same.filename().string(),
                  " beside it, and ", found.size(), " other .t files");
}

// Returns the file with the vocabulary of the model at `model_path`.
StatusOr<fs::path> FindVocabulary(const fs::path& model_path) {
  if (IsFile(model_path)) {
    if (model_path.extension() == ".m") return FindDllama(model_path);
    return model_path;
  }
  std::error_code error;
  if (!fs::is_directory(model_path, error)) {
    return NotFound(model_path.string(), ": no such file or folder");
  }
  // The tokenizer of a model in one file is that file's.
  const auto model = weights::FindModelFile(model_path.string());
  const bool has_safetensors =
      IsFile(model_path / "model.safetensors") ||
      IsFile(model_path / "model.safetensors.index.json");
  if (model.ok() && IsGguf(*model) && !has_safetensors) return fs::path(*model);
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model"}) {
    if (IsFile(model_path / name)) return model_path / name;
  }
  if (const auto found = FilesWith(model_path, ".tiktoken"); !found.empty()) {
    return found.front();
  }
  if (IsFile(model_path / kVocabJson) && IsFile(model_path / kMerges)) {
    return model_path / kVocabJson;
  }
  if (model.ok() && IsGguf(*model)) return fs::path(*model);
  if (model.ok()) return FindDllama(*model);
  return NotFound(
      model_path.string(),
      ": no tokenizer.json, tokenizer.model, tekken.json, "
      "tiktoken.model, *.tiktoken, vocab.json with merges.txt, GGUF or *.m");
}

// Returns the templates of additional_chat_templates, by their files' names.
StatusOr<std::vector<NamedTemplate>> AdditionalTemplates(
    const fs::path& folder) {
  std::vector<NamedTemplate> made;
  for (const fs::path& path : FilesWith(folder, ".jinja")) {
    SLUICE_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxConfigBytes));
    made.push_back({path.stem().string(), std::move(text)});
  }
  return made;
}

// Returns chat_template: a string, or a list of {name, template}.
std::vector<NamedTemplate> TemplatesIn(const Json& config) {
  std::vector<NamedTemplate> made;
  const auto found = config.find("chat_template");
  if (found == config.end()) return made;
  if (found->is_string()) {
    made.push_back({"default", found->get<std::string>()});
  } else if (found->is_array()) {
    for (const Json& entry : *found) {
      if (!entry.is_object()) continue;
      NamedTemplate named;
      if (const auto name = entry.find("name");
          name != entry.end() && name->is_string()) {
        named.name = name->get<std::string>();
      }
      if (const auto text = entry.find("template");
          text != entry.end() && text->is_string()) {
        named.source = text->get<std::string>();
      }
      if (!named.source.empty()) made.push_back(std::move(named));
    }
  }
  return made;
}

StatusOr<std::vector<NamedTemplate>> TemplatesOfGguf(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const weights::GgufMetadata metadata,
                          weights::ReadGgufMetadata(path));
  std::vector<NamedTemplate> made;
  constexpr std::string_view kKey = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.entries()) {
    if (!key.starts_with(kKey)) continue;
    const auto* text = std::get_if<std::string>(&value.value);
    if (text == nullptr) continue;
    const std::string_view rest = std::string_view(key).substr(kKey.size());
    if (rest.empty()) {
      made.push_back({"default", *text});
    } else if (rest[0] == '.') {
      made.push_back({std::string(rest.substr(1)), *text});
    }
  }
  return made;
}

StatusOr<std::vector<NamedTemplate>> TemplatesOfDllama(const fs::path& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadFile(path, kMaxVocabularyBytes));
  auto text = ChatTemplateOfDllama(bytes);
  if (!text.ok()) return Annotate(text.status(), path.string());
  std::vector<NamedTemplate> made;
  if (!text->empty()) made.push_back({"default", *std::move(text)});
  return made;
}

}  // namespace

StatusOr<TextSource> ReadTextSource(const std::string& model_path) {
  SLUICE_ASSIGN_OR_RETURN(const fs::path file, FindVocabulary(model_path));
  auto source = FromVocabularyFile(file);
  if (!source.ok()) return Annotate(source.status(), file.string());
  return source;
}

StatusOr<std::vector<NamedTemplate>> ReadChatTemplates(
    const std::string& model_path) {
  SLUICE_ASSIGN_OR_RETURN(const fs::path file, FindVocabulary(model_path));
  if (IsGguf(file)) return TemplatesOfGguf(file.string());
  if (IsDllama(file)) return TemplatesOfDllama(file);
  const fs::path folder = file.parent_path();
  if (IsFile(folder / "chat_template.jinja")) {
    SLUICE_ASSIGN_OR_RETURN(
        std::string text,
        ReadFile(folder / "chat_template.jinja", kMaxConfigBytes));
    SLUICE_ASSIGN_OR_RETURN(
        std::vector<NamedTemplate> found,
        AdditionalTemplates(folder / "additional_chat_templates"));
    found.insert(found.begin(), {"default", std::move(text)});
    return found;
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    SLUICE_ASSIGN_OR_RETURN(const Json config, ReadConfig(folder / name));
    if (auto found = TemplatesIn(config); !found.empty()) return found;
  }
  return std::vector<NamedTemplate>();
}

}  // namespace sluice
