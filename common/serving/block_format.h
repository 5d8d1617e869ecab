#ifndef SLUICE_COMMON_SERVING_BLOCK_FORMAT_H_
#define SLUICE_COMMON_SERVING_BLOCK_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/serving/answer_format.h"

namespace sluice::serving {

// A part of an answer: what Messages calls a content block, and Responses an
// output item.
struct AnswerBlock {
  using Kind = DeltaRun::Kind;
  Kind kind = Kind::kText;
  int index = 0;     // in the answer
  int call = 0;      // index among the calls, of a call
  std::string id;    // of a call
  std::string name;  // of a call's function
  // So far: reasoning, text, or a call's arguments.
  std::string text;
  // Of a whole answer's text, if requested. A stream tells them once, beside
  // their text.
  std::vector<TokenResult> logprobs;
  // The answer ended within the block: by its limit, or by a failure.
  bool is_cut = false;
};

// How an answer ended.
struct AnswerEnd {
  FinishReason reason = FinishReason::kStop;
  bool called = false;  // it has calls, all of them complete
  // The stop string or the client's stop token at the end.
  std::optional<std::variant<std::string, TokenId>> stop;
};

// Writes the answer of one choice as blocks, which come in the answer's order
// and never overlap: a block opens, grows and closes. The events of a dialect
// are made by the functions below, in that order, streamed or whole. An event
// that is no piece is a mark: marks do not depend on how tokens were batched,
// so a resumed stream goes on behind any event. One thread.
class BlockFormat : public AnswerFormat {
 public:
  std::vector<Event> Begin(const Usage& usage) final;
  std::vector<Event> Ping() final;
  bool takes_told_deltas() const final { return true; }
  std::vector<EventValue> ChunkValues(int index, const Delta& delta,
                                      const Usage& usage,
                                      JsonPieces& pieces) final;
  std::vector<Event> End(const Usage& usage) final;
  std::vector<Event> Fail(const http::ApiError& error) final;
  Json WholeValue(const std::vector<Delta>& choices, const Usage& usage,
                  JsonPieces& pieces) final;

 protected:
  // An event, without its id; `json` null: no event.
  struct Step {
    std::string name;
    Json json;
  };
  using Steps = std::vector<Step>;

  // `info` has one choice.
  explicit BlockFormat(const AnswerInfo& info);

  virtual Steps Opening(const Usage& usage) = 0;
  // Returns the event of a silence; null json: the framing's comment.
  virtual Step Silence() = 0;
  virtual Steps Opened(const AnswerBlock& block) = 0;
  // Returns the event of `piece`, the end of the block's text that is new;
  // `logprobs` are those of the text's new tokens.
  virtual Step Piece(const AnswerBlock& block, std::string_view piece,
                     std::span<const TokenResult> logprobs) = 0;
  virtual Steps Closed(const AnswerBlock& block) = 0;
  virtual Steps Closing(const std::vector<AnswerBlock>& blocks,
                        const AnswerEnd& end, const Usage& usage) = 0;
  // Returns the events that end a stream with an error.
  virtual Steps Failing(const http::ApiError& error,
                        const std::vector<AnswerBlock>& blocks) = 0;
  virtual Json WholeAnswer(const std::vector<AnswerBlock>& blocks,
                           const AnswerEnd& end, const Usage& usage) = 0;
  // Puts the number of an event of a stream, from 0, into it.
  virtual void SetNumber(uint64_t number, Json& event) {}

  bool ShowsTextAlone(int index) const final { return false; }

 private:
  // What the client of a resumed stream has of the open block.
  enum class Told { kNothing, kPart, kAll };

  // Adds the events of `delta` to `out`; null: only the blocks are kept.
  void Take(const Delta& delta, std::vector<EventValue>* out);
  // Makes the block that `run` belongs to the open block.
  void TurnTo(const DeltaRun& run, const Delta& delta,
              std::vector<EventValue>* out);
  void Grow(std::string_view piece, std::span<const TokenResult> logprobs,
            std::vector<EventValue>* out);
  void CloseBlock(std::vector<EventValue>* out);
  // Adds marks; the first of them shows `shown`, too.
  void AddMarks(Steps steps, ChoiceProgress shown,
                std::vector<EventValue>& out);
  void AddEvent(Step step, const ChoiceProgress& shown,
                std::vector<EventValue>& out);
  // Returns how many of the open block's next `bytes` the client has.
  size_t TakeTold(size_t bytes);

  std::vector<AnswerBlock> blocks_;
  bool is_open_ = false;  // the last block
  AnswerEnd end_;
  std::vector<TokenResult> untold_logprobs_;  // of tokens without text so far
  ChoiceProgress told_;              // what the client has of what is to come
  Told told_call_ = Told::kNothing;  // of the latest call
  ChoiceProgress unsent_;            // what no event has shown yet
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_BLOCK_FORMAT_H_
