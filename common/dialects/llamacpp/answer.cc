#include "common/dialects/llamacpp/answer.h"

#include <string_view>
#include <utility>
#include <variant>

#include "common/dialects/llamacpp/errors.h"
#include "common/serving/answer_timings.h"
#include "common/serving/numbers.h"

namespace sluice::llamacpp {
namespace {

Json TokenJson(const serving::ModelText& text, TokenId token, float logprob) {
  Json bytes = Json::array();
  for (const char c : text.TokenBytes(token)) {
    bytes.push_back(static_cast<unsigned char>(c));
  }
  return {{"id", token},
          {"token", text.TokenText(token)},
          {"bytes", std::move(bytes)},
          {"logprob", serving::LogprobNumber(logprob)}};
}

// Returns the members of `answer` that `fields` name: "a/b" is member b of a,
// and becomes b.
Json Selected(const Json& answer, const std::vector<std::string>& fields) {
  if (fields.empty()) return answer;
  Json out = Json::object();
  for (const std::string& field : fields) {
    const Json* value = &answer;
    std::string_view rest = field;
    std::string name;
    while (value != nullptr) {
      const size_t slash = rest.find('/');
      name = rest.substr(0, slash);
      const auto found = value->is_object() ? value->find(name) : value->end();
      value = value->is_object() && found != value->end() ? &*found : nullptr;
      if (slash == rest.npos) break;
      rest.remove_prefix(slash + 1);
    }
    if (value != nullptr) out[name] = *value;
  }
  return out;
}

class CompletionFormat : public serving::AnswerFormat {
 public:
  CompletionFormat(const serving::ModelText& text, serving::AnswerInfo info,
                   CompletionShape shape)
      : AnswerFormat(info),
        text_(text),
        info_(std::move(info)),
        shape_(std::move(shape)),
        has_new_line_(info_.num_choices) {}

  // A delta with the finish gives its rest and the end.
  std::vector<serving::EventValue> ChunkValues(
      int index, const serving::Delta& delta, const serving::Usage&,
      serving::JsonPieces& pieces) override {
    std::vector<serving::EventValue> events;
    const bool tells = !delta.text.empty() || !delta.token_ids.empty() ||
                       (info_.logprobs && delta.num_shown() > 0);
    NoteNewLine(index, delta);
    if (tells) {
      Json chunk = Head(index, delta.text, delta.token_ids);
      chunk["stop"] = false;
      chunk["id_slot"] = kNoSlot;
      AddCounts(index, chunk);
      if (shape_.timings_per_token) chunk["timings"] = Timings(index);
      AddProbabilities(delta, pieces, chunk);
      serving::ChoiceProgress shown;
      shown.content = delta.text.size();
      shown.entries = EntriesOf(delta);
      events.push_back({IdAfter(index, shown), std::move(chunk)});
    }
    if (!delta.finish) return events;
    serving::ChoiceProgress shown;
    shown.ended = true;
    Json end = Head(index, "", {});
    AddEnd(index, delta, end);
    events.push_back(
        {IdAfter(index, shown), Selected(end, shape_.response_fields)});
    return events;
  }

  std::vector<serving::Event> End(const serving::Usage&) override { return {}; }

  std::vector<serving::Event> Fail(const http::ApiError& error) override {
    return {{"", DumpJson(ErrorObject(error))}};
  }

  Json WholeValue(const std::vector<serving::Delta>& choices,
                  const serving::Usage&, serving::JsonPieces& pieces) override {
    const auto choice = [this, &choices, &pieces](size_t i) {
      const int index = static_cast<int>(i);
      const serving::Delta& delta = choices[i];
      NoteNewLine(index, delta);
      Json answer =
          Head(index, delta.text,
               shape_.return_tokens ? delta.token_ids : std::vector<TokenId>());
      AddEnd(index, delta, answer);
      AddProbabilities(delta, pieces, answer);
      return Selected(answer, shape_.response_fields);
    };
    if (!shape_.is_list) return choice(0);
    return pieces.List(choices.size(), choice);
  }

 protected:
  // Every chunk has its tokens.
  bool ShowsTextAlone(int) const override { return false; }

 private:
  // A sequence here has no slot of its own.
  static constexpr int kNoSlot = -1;

  static Json Head(int index, const std::string& content,
                   const std::vector<TokenId>& tokens) {
    return {{"index", index}, {"content", content}, {"tokens", tokens}};
  }

  void NoteNewLine(int index, const serving::Delta& delta) {
    const bool has = delta.text.find('\n') != std::string::npos;
    if (has) has_new_line_.at(static_cast<size_t>(index)) = true;
  }

  serving::ChoiceTimings TimingsOf(int index) const {
    return info_.timings->Of(static_cast<size_t>(index));
  }
  Json Timings(int index) const {
    return serving::TimingsJson(TimingsOf(index));
  }

  void AddCounts(int index, Json& out) const {
    const serving::ChoiceTimings timings = TimingsOf(index);
    out["tokens_predicted"] = timings.completion_tokens;
    out["tokens_evaluated"] = timings.prompt_tokens;
  }

  // `delta` has the finish.
  void AddEnd(int index, const serving::Delta& delta, Json& out) const {
    const serving::ChoiceTimings timings = TimingsOf(index);
    const bool at_limit = *delta.finish == FinishReason::kLength;
    const auto* word = delta.stop_reason
                           ? std::get_if<std::string>(&*delta.stop_reason)
                           : nullptr;
    out["id_slot"] = kNoSlot;
    out["stop"] = true;
    out["model"] = info_.model;
    AddCounts(index, out);
    out["generation_settings"] = shape_.settings;
    const auto prompt = static_cast<size_t>(index / info_.choices_per_prompt);
    out["prompt"] = shape_.prompts.at(prompt);
    out["has_new_line"] = has_new_line_.at(static_cast<size_t>(index)) != 0;
    out["truncated"] =
        at_limit &&
        timings.prompt_tokens + timings.completion_tokens >= shape_.n_ctx;
    out["stop_type"] = at_limit ? "limit" : word != nullptr ? "word" : "eos";
    out["stopping_word"] = word != nullptr ? *word : "";
    out["tokens_cached"] = timings.cached_tokens;
    out["timings"] = Timings(index);
  }

  void AddProbabilities(const serving::Delta& delta,
                        serving::JsonPieces& pieces, Json& out) const {
    if (!info_.logprobs) return;
    out["completion_probabilities"] =
        pieces.List(delta.num_shown(), [this, &delta](size_t i) {
          const serving::ShownLogprob shown = delta.shown(i);
          Json token = TokenJson(
              text_, shown.token,
              shown.logprob != nullptr ? shown.logprob->logprob : 0.0f);
          token["top_logprobs"] = Json::array();
          for (const TokenLogprob& top : shown.tops) {
            token["top_logprobs"].push_back(
                TokenJson(text_, top.token, top.logprob));
          }
          return token;
        });
  }

  const serving::ModelText& text_;
  const serving::AnswerInfo info_;
  const CompletionShape shape_;
  std::vector<char> has_new_line_;  // by choice
};

}  // namespace

std::unique_ptr<serving::AnswerFormat> MakeCompletionFormat(
    const serving::ModelText& text, serving::AnswerInfo info,
    CompletionShape shape) {
  return std::make_unique<CompletionFormat>(text, std::move(info),
                                            std::move(shape));
}

}  // namespace sluice::llamacpp
