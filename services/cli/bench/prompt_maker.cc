#include "services/cli/bench/prompt_maker.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "services/cli/cluster_file.h"

namespace sluice::cli {
namespace {

// Common words, which are single tokens in most vocabularies.
constexpr const char* kWords[] = {
    " the",  " a",    " and",  " to",    " was",  " it",    " in",   " he",
    " she",  " they", " of",   " that",  " with", " his",   " her",  " day",
    " said", " you",  " had",  " very",  " so",   " big",   " is",   " for",
    " on",   " not",  " up",   " play",  " we",   " happy", " new",  " time",
    " all",  " one",  " were", " from",  " as",   " at",    " have", " this",
    " are",  " be",   " but",  " what",  " like", " out",   " them", " can",
    " home", " good", " old",  " water", " way",  " years", " hand", " long",
};

Json ChatBody(const std::string& model, const std::string& text) {
  Json message = {{"role", "user"}, {"content", text}};
  Json body = {{"model", model}, {"add_generation_prompt", true}};
  body["messages"] = Json::array({std::move(message)});
  return body;
}

// Returns no ids if the server has no /tokenize.
StatusOr<std::vector<int64_t>> TokenizeIfAny(const BaseUrl& base,
                                             const Json& body) {
  auto ids = Tokenize(base, body);
  const StatusCode code = ids.status().code();
  const bool none = code == StatusCode::kNotFound ||
                    code == StatusCode::kFailedPrecondition ||
                    code == StatusCode::kInvalidArgument;
  return none ? std::vector<int64_t>() : std::move(ids);
}

}  // namespace

StatusOr<PromptMaker> PromptMaker::Learn(const BaseUrl& base,
                                         const std::string& model, bool chat) {
  PromptMaker maker;
  maker.chat_ = chat;
  // A letter before the word keeps tokenizers from adding or stripping its
  // space.
  const auto encode = [&](const std::string& text) {
    return TokenizeIfAny(
        base,
        {{"model", model}, {"prompt", text}, {"add_special_tokens", false}});
  };
  SLUICE_ASSIGN_OR_RETURN(const auto stem, encode("a"));
  for (const char* word : kWords) {
    if (stem.empty()) break;
    SLUICE_ASSIGN_OR_RETURN(const auto ids, encode(Cat("a", word)));
    if (ids.size() != stem.size() + 1) continue;
    maker.words_.emplace_back(word);
    maker.ids_.push_back(ids.back());
  }
  maker.exact_ = maker.words_.size() >= 4;
  if (!maker.exact_) {
    maker.words_.assign(std::begin(kWords), std::end(kWords));
    return maker;
  }
  if (!chat) return maker;
  // Measures the template's own tokens, and whether words add up within it.
  SeededRandom random(0);
  SLUICE_ASSIGN_OR_RETURN(
      const auto few,
      TokenizeIfAny(base, ChatBody(model, maker.Text(4, random))));
  SLUICE_ASSIGN_OR_RETURN(
      const auto many,
      TokenizeIfAny(base, ChatBody(model, maker.Text(200, random))));
  maker.exact_ = few.size() > 4 && many.size() == few.size() + 196;
  if (maker.exact_) {
    maker.template_tokens_ = static_cast<int64_t>(few.size()) - 4;
  }
  return maker;
}

std::vector<int64_t> PromptMaker::Ids(int64_t tokens,
                                      SeededRandom& random) const {
  std::vector<int64_t> ids(static_cast<size_t>(tokens));
  for (int64_t& id : ids) id = ids_[random.Below(ids_.size())];
  return ids;
}

std::string PromptMaker::Text(int64_t tokens, SeededRandom& random) const {
  std::string text = "a";
  const int64_t words = std::max<int64_t>(tokens - template_tokens_, 1);
  for (int64_t i = 1; i < words; ++i)
    text += words_[random.Below(words_.size())];
  return text;
}

}  // namespace sluice::cli
