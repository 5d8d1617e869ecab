#include <utility>

#include "common/base/json.h"
#include "common/openai/answer.h"
#include "common/openai/delta_cut.h"

namespace sluice::openai {
namespace {

class CompletionFormat : public AnswerFormat {
 public:
  CompletionFormat(const ModelText& text, AnswerInfo info)
      : AnswerFormat(info),
        text_(text),
        info_(std::move(info)),
        offsets_(info_.num_choices) {}

  std::vector<EventValue> ChunkValues(int index, const Delta& delta,
                                      const Usage& usage,
                                      JsonPieces& pieces) override {
    const bool tells = !delta.text.empty() || delta.finish ||
                       (info_.logprobs && delta.num_shown() > 0) ||
                       (info_.return_token_ids && !delta.token_ids.empty());
    if (!tells) return {};
    Json chunk = Head();
    chunk["choices"].push_back(Choice(index, delta, pieces));
    if (info_.include_usage) {
      chunk["usage"] =
          info_.continuous_usage ? UsageJson(usage) : Json(nullptr);
    }
    ChoiceProgress shown;
    shown.content = delta.text.size();
    shown.entries = EntriesOf(delta);
    shown.ended = delta.finish.has_value();
    std::vector<EventValue> events;
    events.push_back({IdAfter(index, shown), std::move(chunk)});
    return events;
  }

  Json WholeValue(const std::vector<Delta>& choices, const Usage& usage,
                  JsonPieces& pieces) override {
    Json answer = Head();
    answer["choices"] =
        pieces.List(choices.size(), [this, &choices, &pieces](size_t i) {
          return Choice(static_cast<int>(i), choices[i], pieces);
        });
    answer["usage"] = UsageJson(usage);
    return answer;
  }

 protected:
  Json EmptyChunk() const override { return Head(); }
  bool ShowsTextAlone(int index) const override {
    return !is_first(index) && !info_.logprobs && !info_.prompt_logprobs &&
           !info_.return_token_ids && !info_.continuous_usage;
  }

 private:
  Json Head() const { return AnswerHead(info_, "text_completion"); }

  const std::vector<TokenId>& PromptOf(int index) const {
    return info_.prompts.at(
        static_cast<size_t>(index / info_.choices_per_prompt));
  }

  Json Choice(int index, const Delta& delta, JsonPieces& pieces) {
    Json choice{{"index", index},
                {"text", delta.text},
                {"logprobs", Logprobs(index, delta, pieces)},
                {"finish_reason", FinishJson(delta)}};
    if (delta.finish) choice["stop_reason"] = StopReasonJson(delta);
    if (info_.prompt_logprobs) {
      choice["prompt_logprobs"] = PromptLogprobsJson(text_, delta, pieces);
    }
    if (!info_.return_token_ids) return choice;
    if (is_first(index)) choice["prompt_token_ids"] = PromptOf(index);
    choice["token_ids"] = delta.token_ids;
    return choice;
  }

  // Offsets come first: the count continues from chunk to chunk.
  Json Logprobs(int index, const Delta& delta, JsonPieces& pieces) {
    if (!info_.logprobs) return nullptr;
    const size_t size = delta.num_shown();
    int64_t& next = offsets_.at(static_cast<size_t>(index));
    next += delta.cut_characters;
    Json offsets = pieces.List(size, [this, &delta, &next](size_t i) {
      const int64_t offset = next;
      next += CountCharacters(text_.TokenText(delta.shown(i).token));
      return Json(offset);
    });
    Json logprobs = pieces.List(size, [&delta](size_t i) {
      const TokenLogprob* logprob = delta.shown(i).logprob;
      return logprob == nullptr ? Json(nullptr)
                                : Json(LogprobNumber(logprob->logprob));
    });
    Json tokens = pieces.List(size, [this, &delta](size_t i) {
      return Json(TokenName(text_, info_, delta.shown(i).token));
    });
    Json tops = pieces.List(size, [this, &delta](size_t i) {
      const ShownLogprob shown = delta.shown(i);
      return shown.logprob == nullptr ? Json(nullptr) : TopLogprobs(shown);
    });
    return {{"text_offset", std::move(offsets)},
            {"token_logprobs", std::move(logprobs)},
            {"tokens", std::move(tokens)},
            {"top_logprobs", std::move(tops)}};
  }

  // Returns the most likely tokens and the token itself. Of two tokens with one
  // text the likelier one stands.
  Json TopLogprobs(const ShownLogprob& token) const {
    Json top = Json::object();
    const auto add = [&](const TokenLogprob& entry) {
      const std::string name = TokenName(text_, info_, entry.token);
      const double logprob = LogprobNumber(entry.logprob);
      const auto found = top.find(name);
      if (found == top.end()) {
        top[name] = logprob;
      } else if (found->get<double>() < logprob) {
        *found = logprob;
      }
    };
    for (const TokenLogprob& entry : token.tops) add(entry);
    add(*token.logprob);
    return top;
  }

  const ModelText& text_;
  const AnswerInfo info_;
  // By choice: the characters of the tokens so far.
  std::vector<int64_t> offsets_;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeCompletionFormat(const ModelText& text,
                                                   AnswerInfo info) {
  return std::make_unique<CompletionFormat>(text, std::move(info));
}

}  // namespace sluice::openai
