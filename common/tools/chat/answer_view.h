#ifndef SLUICE_COMMON_TOOLS_CHAT_ANSWER_VIEW_H_
#define SLUICE_COMMON_TOOLS_CHAT_ANSWER_VIEW_H_

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/tools/chat/dialect.h"
#include "common/tools/chat/markdown.h"

namespace sluice::chat {

// How an answer looks.
struct ViewOptions {
  bool is_styled = false;       // Markdown, and thinking dimmed
  bool shows_thinking = false;  // else it is left out
  int columns = 80;
};

// What is shown of one answer while it comes. No control character of the
// answer is in it. Threadless.
class AnswerView {
 public:
  explicit AnswerView(const ViewOptions& options)
      : options_(options), markdown_(options.columns) {}

  // Returns what `part`, which came at `at`, adds.
  std::string Add(const AnswerPart& part, TimePoint at);
  // Returns the rest, and the end of the last line.
  std::string Finish();

  const std::string& text() const { return text_; }  // the answer's

  // Returns tokens, speed and times of an answer that was asked for at `asked`
  // and whose end is now, as "12 tokens, 31.4 tokens/s, ..".
  std::string Figures(TimePoint asked, TimePoint now) const;

 private:
  enum class Place { kBegin, kThinking, kText };

  const ViewOptions options_;
  Markdown markdown_;
  Place place_ = Place::kBegin;
  std::string text_;
  AnswerPart last_;  // the latest counts and reason
  std::optional<TimePoint> first_token_, last_token_;
};

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_ANSWER_VIEW_H_
