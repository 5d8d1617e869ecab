#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_ANSWER_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_ANSWER_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/serving/block_format.h"

namespace sluice::messages {

// Writes a message and the events of its stream: message_start, for each block
// content_block_start, content_block_delta.. and content_block_stop, then
// message_delta and message_stop. A silence is a "ping".
class MessageFormat : public serving::BlockFormat {
 public:
  struct Options {
    std::string request_id;       // in errors
    bool omits_thinking = false;  // thinking blocks have no text
  };

  // `info.model` is the name that the client asked for.
  MessageFormat(const serving::AnswerInfo& info, Options options);

  // Says that the context ends the answer before the client's max_tokens.
  void set_limit_is_context() { limit_is_context_ = true; }

 protected:
  Steps Opening(const serving::Usage& usage) override;
  Step Silence() override;
  Steps Opened(const serving::AnswerBlock& block) override;
  Step Piece(const serving::AnswerBlock& block, std::string_view piece,
             std::span<const TokenResult> logprobs) override;
  Steps Closed(const serving::AnswerBlock& block) override;
  Steps Closing(const std::vector<serving::AnswerBlock>& blocks,
                const serving::AnswerEnd& end,
                const serving::Usage& usage) override;
  Steps Failing(const http::ApiError& error,
                const std::vector<serving::AnswerBlock>& blocks) override;
  Json WholeAnswer(const std::vector<serving::AnswerBlock>& blocks,
                   const serving::AnswerEnd& end,
                   const serving::Usage& usage) override;

 private:
  Json Message(Json content, const serving::Usage& usage) const;
  Json BlockValue(const serving::AnswerBlock& block) const;
  std::string Signature(const serving::AnswerBlock& block) const;
  // Sets stop_reason and stop_sequence in `out`.
  void AddStop(const serving::AnswerEnd& end, Json& out) const;

  const std::string id_;
  const std::string model_;
  const Options options_;
  bool limit_is_context_ = false;
};

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_ANSWER_H_
