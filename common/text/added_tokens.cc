#include "common/text/added_tokens.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"

namespace sluice {
namespace {

constexpr int64_t kMostId = 1 << 24;
constexpr const char* kSpecialKeys[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};

// Returns the text of a token: "<s>" or {"content": "<s>", ...}.
std::string ContentOf(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  return token.is_object() ? FindText(token, "content") : std::string();
}

bool FlagAt(const Json& token, const char* key, bool absent) {
  const Json* found = FindMember(token, key);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : absent;
}

AddedToken FromObject(const Json& token) {
  AddedToken added;
  added.content = ContentOf(token);
  added.special = FlagAt(token, "special", false);
  added.lstrip = FlagAt(token, "lstrip", false);
  added.rstrip = FlagAt(token, "rstrip", false);
  added.single_word = FlagAt(token, "single_word", false);
  added.normalized = FlagAt(token, "normalized", !added.special);
  return added;
}

// The special tokens that both files name.
std::vector<AddedToken> SpecialTokens(const TokenizerConfigs& files) {
  std::vector<AddedToken> found;
  const auto take = [&](const Json& token) {
    AddedToken added =
        token.is_object() ? FromObject(token) : AddedToken{ContentOf(token)};
    if (added.content.empty()) return;
    added.special = true;
    added.normalized = false;
    found.push_back(std::move(added));
  };
  for (const Json* file : {&files.config, &files.special_map}) {
    for (const char* key : kSpecialKeys) {
      if (const Json* token = FindMember(*file, key)) take(*token);
    }
    for (const char* key :
         {"additional_special_tokens", "extra_special_tokens"}) {
      const Json* tokens = FindMember(*file, key);
      if (tokens == nullptr || !(tokens->is_array() || tokens->is_object())) {
        continue;
      }
      for (const Json& token : *tokens) take(token);
    }
  }
  return found;
}

// "<|im_start|>": the marks of chats, which texts of users must not make.
bool LooksLikeMark(std::string_view content) {
  return content.size() > 4 && content.starts_with("<|") &&
         content.ends_with("|>");
}

std::optional<TokenId> IdIn(const Json& value) {
  if (!value.is_number_integer() || value < 0 || value > kMostId) {
    return std::nullopt;
  }
  return value.get<TokenId>();
}

// Returns where the list of added tokens stands in the text: from '[' to behind
// its ']'; an empty range without one.
std::pair<size_t, size_t> FindAddedTokens(std::string_view text) {
  constexpr std::string_view kKey = "\"added_tokens\"";
  const auto skip_space = [&](size_t at) {
    return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
  };
  for (size_t at = text.find(kKey); at != std::string_view::npos;
       at = text.find(kKey, at + 1)) {
    size_t next = skip_space(at + kKey.size());
    if (next >= text.size() || text[next] != ':') continue;
    next = skip_space(next + 1);
    if (next >= text.size() || text[next] != '[') continue;
    int depth = 0;
    bool in_string = false;
    for (size_t i = next; i < text.size(); ++i) {
      if (in_string) {
        if (text[i] == '\\')
          ++i;
        else if (text[i] == '"')
          in_string = false;
      } else if (text[i] == '"') {
        in_string = true;
      } else if (text[i] == '[' || text[i] == '{') {
        ++depth;
      } else if ((text[i] == ']' || text[i] == '}') && --depth == 0) {
        return {next, i + 1};
      }
    }
  }
  return {0, 0};
}

// The contents of the tokenizer.json's own added tokens.
std::unordered_set<std::string> AddedAlready(std::string_view text) {
  const auto [begin, end] = FindAddedTokens(text);
  std::unordered_set<std::string> contents;
  const auto list = ParseSortedJson(text.substr(begin, end - begin));
  if (!list.ok() || !list->is_array()) return contents;
  for (const SortedJson& token : *list) {
    const auto content =
        token.is_object() ? token.find("content") : token.end();
    if (token.is_object() && content != token.end() && content->is_string()) {
      contents.insert(content->get<std::string>());
    }
  }
  return contents;
}

// The vocabulary of a parsed tokenizer.json, to which tokens are added.
class Patch {
 public:
  explicit Patch(SortedJson& json) : json_(json) {}

  Status Read() {
    const auto model = json_.is_object() ? json_.find("model") : json_.end();
    const bool has_vocabulary = json_.is_object() && model != json_.end() &&
                                model->is_object() && model->contains("vocab");
    if (!has_vocabulary) {
      return InvalidArgument("tokenizer.json: has no model with a vocab");
    }
    vocab_ = &(*model)["vocab"];
    if (vocab_->is_object()) {
      for (const auto& [token, id] : vocab_->items()) {
        if (id.is_number_integer()) Take(token, id.get<int64_t>());
      }
    } else if (vocab_->is_array()) {
      int64_t id = 0;
      for (const auto& entry : *vocab_) {
        if (entry.is_array() && !entry.empty() && entry[0].is_string()) {
          Take(entry[0].get<std::string>(), id);
        }
        ++id;
      }
    }
    auto& added = json_["added_tokens"];
    if (!added.is_array()) added = SortedJson::array();
    for (const auto& token : added) {
      if (token.is_object() && token.contains("content") &&
          token["content"].is_string() && token.contains("id") &&
          token["id"].is_number_integer()) {
        Take(token["content"].get<std::string>(), token["id"].get<int64_t>());
      }
    }
    return OkStatus();
  }

  Status Add(const AddedToken& token) {
    const auto found = ids_.find(token.content);
    int64_t id = 0;
    if (found != ids_.end()) {
      id = found->second;
    } else if (!token.id.has_value()) {
      return OkStatus();
    } else {
      id = *token.id;
      SLUICE_RETURN_IF_ERROR(AddToVocabulary(token.content, id));
    }
    json_["added_tokens"].push_back({{"id", id},
                                     {"content", token.content},
                                     {"special", token.special},
                                     {"lstrip", token.lstrip},
                                     {"rstrip", token.rstrip},
                                     {"single_word", token.single_word},
                                     {"normalized", token.normalized}});
    return OkStatus();
  }

 private:
  void Take(const std::string& token, int64_t id) {
    ids_.emplace(token, id);
    tokens_.emplace(id, token);
  }
  Status AddToVocabulary(const std::string& content, int64_t id) {
    const auto other = tokens_.find(id);
    if (other != tokens_.end()) {
      return InvalidArgument("token '", content, "' has the id ", id,
                             " by the files beside the vocabulary, where '",
                             other->second, "' has it");
    }
    // A list's tokens have their places as ids: behind them the tokenizer
    // counts on.
    if (vocab_->is_object()) (*vocab_)[content] = id;
    Take(content, id);
    return OkStatus();
  }

  SortedJson& json_;
  SortedJson* vocab_ = nullptr;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<int64_t, std::string> tokens_;
};

}  // namespace

std::vector<AddedToken> AddedTokensIn(const TokenizerConfigs& files) {
  std::vector<AddedToken> specials = SpecialTokens(files);
  std::set<std::string> named;
  for (const AddedToken& token : specials) named.insert(token.content);
  std::vector<AddedToken> found;
  const Json* decoder = FindMember(files.config, "added_tokens_decoder");
  if (decoder != nullptr && decoder->is_object()) {
    for (const auto& [id, token] : decoder->items()) {
      TokenId value = -1;
      const auto parsed =
          std::from_chars(id.data(), id.data() + id.size(), value);
      const bool is_id = parsed.ec == std::errc() && value >= 0 &&
                         parsed.ptr == id.data() + id.size() &&
                         value <= kMostId;
      AddedToken added = FromObject(token);
      if (!is_id || added.content.empty()) continue;
      added.id = value;
      added.special = added.special || named.contains(added.content);
      found.push_back(std::move(added));
    }
  } else if (files.added_tokens.is_object()) {
    for (const auto& [content, id] : files.added_tokens.items()) {
      AddedToken added{content, IdIn(id)};
      if (content.empty() || !added.id.has_value()) continue;
      added.special = named.contains(content) || LooksLikeMark(content);
      found.push_back(std::move(added));
    }
  }
  std::sort(
      found.begin(), found.end(),
      [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (AddedToken& special : specials) found.push_back(std::move(special));
  return found;
}

StatusOr<std::string> WithAddedTokens(std::string tokenizer_json,
                                      const std::vector<AddedToken>& tokens) {
  std::unordered_set<std::string> known = AddedAlready(tokenizer_json);
  std::vector<const AddedToken*> missing;
  for (const AddedToken& token : tokens) {
    if (known.insert(token.content).second) missing.push_back(&token);
  }
  if (missing.empty()) return tokenizer_json;
  auto json = ParseSortedJson(tokenizer_json);
  // The tokenizer's own reader tells what is wrong.
  if (!json.ok()) return tokenizer_json;
  Patch patch(*json);
  SLUICE_RETURN_IF_ERROR(patch.Read());
  for (const AddedToken* token : missing) {
    SLUICE_RETURN_IF_ERROR(patch.Add(*token));
  }
  return json->dump(-1, ' ', false, SortedJson::error_handler_t::replace);
}

}  // namespace sluice
