#ifndef SLUICE_SERVICES_GATEWAY_ANSWER_WRITER_H_
#define SLUICE_SERVICES_GATEWAY_ANSWER_WRITER_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/http/exchange.h"
#include "common/openai/answer.h"
#include "services/gateway/text_work.h"

namespace sluice::gateway {

// Writes the large parts of one request's answer: on text threads, piece by
// piece, the next one when the client has read most of those before. So no
// event loop is held up, and no large answer is in memory as text. Parts go
// out in the order in which they were given.
//
// Its methods are the exchange's loop's. While it is not idle the format is
// its own. What it has under way keeps its owner alive; a client that goes
// away ends that.
class AnswerWriter {
 public:
  // Deltas up to this estimate are no matter for it.
  static constexpr size_t kLargeBytes = size_t{64} << 10;

  struct Output {
    // One piece of the answer. The first of a whole answer begins it.
    std::function<void(std::string bytes)> send;
    // It cannot go on; nothing more is sent.
    std::function<void(const Status& why)> fail;
  };

  // `format` and what `output` refers to are `owner`'s, which owns this.
  AnswerWriter(const TextWorkers& workers,
               std::shared_ptr<http::Exchange> exchange,
               openai::AnswerFormat& format, Output output,
               std::weak_ptr<void> owner);

  bool is_idle() const { return parts_.empty(); }

  // The events that `delta` of choice `index` makes.
  void WriteEvents(int index, openai::Delta delta, const openai::Usage& usage);
  // The whole answer; nothing else comes before it.
  void WriteWhole(std::vector<openai::Delta> choices,
                  const openai::Usage& usage);
  // Runs `work` when all parts so far are out: at once if it is idle. It must
  // not hold the owner.
  void Then(std::function<void()> work);

 private:
  // Something to write, or to do.
  struct Part {
    int index = -1;  // of the choice whose events these are; -1: all of it
    std::vector<openai::Delta> deltas;
    openai::Usage usage;
    std::function<void()> then;
  };

  void Add(Part part);
  void Pump();
  void AskForPiece();
  void AskSafely();            // an exception fails the writing
  void MakePiece(Part& part);  // on a text thread
  void Begin(Part& part);
  void OnPiece(std::string bytes, bool ended);

  const TextWorkers workers_;
  const std::shared_ptr<http::Exchange> exchange_;
  openai::AnswerFormat& format_;
  const Output output_;
  const std::weak_ptr<void> owner_;
  std::deque<Part> parts_;
  bool is_writing_ = false;  // the first part, by a text thread
  // What the text thread uses, one piece at a time.
  std::vector<Json> values_;  // of the first part, from values_[next_] on
  size_t next_ = 0;
  std::unique_ptr<openai::JsonPieces>
      pieces_;  // null: the first part has not begun
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_ANSWER_WRITER_H_
