#include "common/tools/chat/answer_view.h"

#include <cstdio>

#include "common/tools/chat/terminal_text.h"

namespace sluice::chat {
namespace {

std::string Decimal(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// Ends that need no word.
bool IsUsual(const std::string& finish) {
  return finish.empty() || finish == "stop" || finish == "end_turn" ||
         finish == "stop_sequence";
}

}  // namespace

std::string AnswerView::Add(const AnswerPart& part, TimePoint at) {
  if (part.prompt_tokens) last_.prompt_tokens = part.prompt_tokens;
  if (part.cached_tokens) last_.cached_tokens = part.cached_tokens;
  if (part.completion_tokens) last_.completion_tokens = part.completion_tokens;
  if (!part.finish.empty()) last_.finish = part.finish;
  if (part.text.empty() && part.thinking.empty()) return "";
  if (!first_token_) first_token_ = at;
  last_token_ = at;
  std::string out;
  if (options_.shows_thinking && !part.thinking.empty()) {
    if (place_ == Place::kText) out += markdown_.Finish() + "\n";
    place_ = Place::kThinking;
    StyledText dim;
    dim.Put(options_.is_styled ? kDim : Style(),
            WithoutControls(part.thinking));
    out += dim.Take();
  }
  if (part.text.empty()) return out;
  if (place_ == Place::kThinking) out += "\n\n";
  place_ = Place::kText;
  text_ += part.text;
  return out + (options_.is_styled ? markdown_.Push(part.text)
                                   : WithoutControls(part.text));
}

std::string AnswerView::Finish() { return markdown_.Finish() + "\n"; }

std::string AnswerView::Figures(TimePoint asked, TimePoint now) const {
  std::string out;
  if (last_.completion_tokens) {
    const int64_t tokens = *last_.completion_tokens;
    out += Cat(tokens, tokens == 1 ? " token, " : " tokens, ");
    // The first token's time is the prompt's.
    const double seconds =
        first_token_ ? Seconds(*last_token_ - *first_token_) : 0;
    if (tokens > 1 && seconds > 0) {
      out +=
          Decimal(static_cast<double>(tokens - 1) / seconds, "%.1f tokens/s, ");
    }
  }
  if (first_token_) {
    out += Decimal(Seconds(*first_token_ - asked), "first after %.2f s, ");
  }
  out += Decimal(Seconds(now - asked), "%.2f s in all");
  if (last_.prompt_tokens) {
    out += Cat("; prompt of ", *last_.prompt_tokens);
    if (last_.cached_tokens) out += Cat(" (", *last_.cached_tokens, " cached)");
  }
  if (!IsUsual(last_.finish)) {
    out += Cat("; ended by ", WithoutControls(last_.finish));
  }
  return out;
}

}  // namespace sluice::chat
