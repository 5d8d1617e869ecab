#include "common/tools/load/workload.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/tools/load/server_queries.h"

namespace sluice::load {
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
StatusOr<std::vector<int64_t>> TokenizeIfAny(const http::BaseUrl& base,
                                             const Json& body) {
  auto ids = Tokenize(base, body);
  const StatusCode code = ids.status().code();
  const bool none = code == StatusCode::kNotFound ||
                    code == StatusCode::kFailedPrecondition ||
                    code == StatusCode::kInvalidArgument;
  return none ? std::vector<int64_t>() : std::move(ids);
}

int64_t Draw(const LengthRange& range, SeededRandom& random) {
  return range.low + static_cast<int64_t>(random.Below(
                         static_cast<uint64_t>(range.high - range.low + 1)));
}

}  // namespace

StatusOr<PromptMaker> PromptMaker::Learn(const http::BaseUrl& base,
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

StatusOr<LengthRange> LengthRange::Parse(std::string_view text) {
  const auto number = [](std::string_view digits) -> int64_t {
    int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc() && stop == end ? value : 0;
  };
  const size_t colon = text.find(':');
  LengthRange range;
  range.low = number(text.substr(0, colon));
  range.high = colon == std::string_view::npos ? range.low
                                               : number(text.substr(colon + 1));
  if (range.low < 1 || range.high < range.low || range.high > 10'000'000) {
    return InvalidArgument("'", text,
                           "' is neither N nor LOW:HIGH with 1 <= LOW <= HIGH "
                           "<= 10000000");
  }
  return range;
}

StatusOr<Workload> Workload::Prepare(const WorkloadOptions& options,
                                     const http::BaseUrl& base) {
  Workload made;
  made.options_ = options;
  made.fields_ = {{"model", options.model},
                  {"stream", true},
                  {"stream_options", {{"include_usage", true}}},
                  {"temperature", options.temperature}};
  if (options.extensions) {
    made.fields_["ignore_eos"] = true;
    made.fields_["return_token_ids"] = true;
  }
  if (!options.extra.empty()) {
    const StatusOr<Json> extra = ParseJson(options.extra);
    if (!extra.ok()) return Annotate(extra.status(), "--extra");
    if (!extra->is_object()) return InvalidArgument("--extra: no JSON object");
    made.fields_.update(*extra);
  }
  SLUICE_ASSIGN_OR_RETURN(
      made.maker_, PromptMaker::Learn(base, options.model, options.chat));
  return made;
}

LoadRequest Workload::Request(int64_t index) const {
  SeededRandom random(options_.seed * 0x9e3779b97f4a7c15ULL +
                      static_cast<uint64_t>(index));
  const int64_t prompt_tokens = Draw(options_.prompt_tokens, random);
  const int64_t output_tokens = Draw(options_.output_tokens, random);
  Json body = fields_;
  body["max_tokens"] = output_tokens;
  if (options_.chat) {
    body["messages"] = Json::array(
        {{{"role", "user"}, {"content", maker_.Text(prompt_tokens, random)}}});
  } else if (maker_.makes_ids()) {
    body["prompt"] = maker_.Ids(prompt_tokens, random);
  } else {
    body["prompt"] = maker_.Text(prompt_tokens, random);
  }
  return {DumpJson(body), prompt_tokens, output_tokens};
}

}  // namespace sluice::load
