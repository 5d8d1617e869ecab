#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/dialects/openai/answer.h"
#include "common/serving/numbers.h"
#include "common/serving/text_offsets.h"
#include "common/text/utf8.h"

namespace sluice::openai {
namespace {

// Returns "bytes:" and `bytes`, those that are no printable ASCII as "\xf0".
std::string BytesName(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 0x7f && byte != '\\') {
      name += c;
      continue;
    }
    name += "\\x";
    name += kHex[byte >> 4];
    name += kHex[byte & 15];
  }
  return name;
}

class CompletionFormat : public ChunkFormat {
 public:
  CompletionFormat(const serving::ModelText& text, serving::AnswerInfo info)
      : ChunkFormat(info), text_(text), info_(std::move(info)) {
    if (!info_.logprobs) return;
    const serving::TextOffsets alone(text, {}, /*skip_special=*/true);
    for (size_t i = 0; i < info_.num_choices; ++i) {
      offsets_.push_back(
          info_.offsets.empty() ? alone : *info_.offsets.at(PromptIndex(i)));
    }
  }

  std::vector<serving::EventValue> ChunkValues(
      int index, const serving::Delta& delta, const serving::Usage& usage,
      serving::JsonPieces& pieces) override {
    const bool tells = !delta.text.empty() || delta.finish ||
                       (info_.logprobs && delta.num_shown() > 0) ||
                       (info_.return_token_ids && !delta.token_ids.empty());
    if (!tells) return {};
    Json chunk = Head();
    chunk["choices"].push_back(Choice(index, delta, pieces));
    AddTimings(info_, static_cast<size_t>(index), chunk);
    if (info_.include_usage) {
      chunk["usage"] =
          info_.continuous_usage ? UsageJson(usage) : Json(nullptr);
    }
    serving::ChoiceProgress shown;
    shown.content = delta.text.size();
    shown.entries = EntriesOf(delta);
    shown.ended = delta.finish.has_value();
    std::vector<serving::EventValue> events;
    events.push_back({IdAfter(index, shown), std::move(chunk)});
    return events;
  }

  Json WholeValue(const std::vector<serving::Delta>& choices,
                  const serving::Usage& usage,
                  serving::JsonPieces& pieces) override {
    Json answer = Head();
    answer["choices"] =
        pieces.List(choices.size(), [this, &choices, &pieces](size_t i) {
          Json choice = Choice(static_cast<int>(i), choices[i], pieces);
          if (choices.size() > 1) AddTimings(info_, i, choice);
          return choice;
        });
    answer["usage"] = UsageJson(usage);
    if (choices.size() == 1) AddTimings(info_, 0, answer);
    return answer;
  }

 protected:
  Json EmptyChunk() const override { return Head(); }
  bool ShowsTextAlone(int index) const override {
    return !is_first(index) && !info_.logprobs && !info_.prompt_logprobs &&
           !info_.return_token_ids && !info_.continuous_usage &&
           info_.timings == nullptr;
  }

 private:
  Json Head() const { return AnswerHead(info_, "text_completion"); }

  size_t PromptIndex(size_t choice) const {
    return choice / static_cast<size_t>(info_.choices_per_prompt);
  }

  Json Choice(int index, const serving::Delta& delta,
              serving::JsonPieces& pieces) {
    Json choice{{"index", index},
                {"text", delta.text},
                {"logprobs", Logprobs(index, delta, pieces)},
                {"finish_reason", FinishJson(delta)}};
    if (delta.finish) choice["stop_reason"] = StopReasonJson(delta);
    if (info_.prompt_logprobs) {
      choice["prompt_logprobs"] = PromptLogprobsJson(text_, delta, pieces);
    }
    if (!info_.return_token_ids) return choice;
    if (is_first(index)) {
      choice["prompt_token_ids"] =
          info_.prompts.at(PromptIndex(static_cast<size_t>(index)));
    }
    choice["token_ids"] = delta.token_ids;
    return choice;
  }

  // Offsets come first: the count continues from chunk to chunk.
  Json Logprobs(int index, const serving::Delta& delta,
                serving::JsonPieces& pieces) {
    if (!info_.logprobs) return nullptr;
    const size_t size = delta.num_shown();
    serving::TextOffsets& next = offsets_.at(static_cast<size_t>(index));
    for (const TokenId token : delta.cut_tokens) next.Next(token);
    Json offsets = pieces.List(size, [&delta, &next](size_t i) {
      return Json(next.Next(delta.shown(i).token));
    });
    Json logprobs = pieces.List(size, [&delta](size_t i) {
      const TokenLogprob* logprob = delta.shown(i).logprob;
      if (logprob == nullptr) return Json(nullptr);
      return Json(serving::LogprobNumber(logprob->logprob));
    });
    Json tokens = pieces.List(size, [this, &delta](size_t i) {
      return Json(Name(delta.shown(i).token));
    });
    Json tops = pieces.List(size, [this, &delta](size_t i) {
      const serving::ShownLogprob shown = delta.shown(i);
      return shown.logprob == nullptr ? Json(nullptr) : TopLogprobs(shown);
    });
    return {{"text_offset", std::move(offsets)},
            {"token_logprobs", std::move(logprobs)},
            {"tokens", std::move(tokens)},
            {"top_logprobs", std::move(tops)}};
  }

  // Returns OpenAI's name of a token: a text, or bytes that are a part of a
  // character as "bytes:\xf0\x9f".
  std::string Name(TokenId token) const {
    if (info_.tokens_as_token_ids) return TokenName(text_, info_, token);
    const std::string bytes = text_.TokenBytes(token);
    return FirstInvalidUtf8(bytes) == bytes.npos ? bytes : BytesName(bytes);
  }

  // Returns the most likely tokens and the token itself, which has its name for
  // itself. Of other tokens with one name the likeliest one has it, and the
  // others are told by their ids.
  Json TopLogprobs(const serving::ShownLogprob& token) const {
    const std::string own = Name(token.token);
    Json top = Json::object();
    const auto add = [&](const TokenLogprob& entry) {
      std::string name = entry.token == token.token ? own : Name(entry.token);
      const bool is_taken =
          entry.token != token.token && (name == own || top.contains(name));
      if (is_taken) name = Cat("token_id:", entry.token);
      top[name] = serving::LogprobNumber(entry.logprob);
    };
    for (const TokenLogprob& entry : token.tops) add(entry);
    add(*token.logprob);
    return top;
  }

  const serving::ModelText& text_;
  const serving::AnswerInfo info_;
  std::vector<serving::TextOffsets> offsets_;  // by choice; of its next token
};

}  // namespace

std::unique_ptr<serving::AnswerFormat> MakeCompletionFormat(
    const serving::ModelText& text, serving::AnswerInfo info) {
  return std::make_unique<CompletionFormat>(text, std::move(info));
}

}  // namespace sluice::openai
