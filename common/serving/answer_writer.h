#ifndef SLUICE_COMMON_SERVING_ANSWER_WRITER_H_
#define SLUICE_COMMON_SERVING_ANSWER_WRITER_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/http/exchange.h"
#include "common/serving/answer_format.h"
#include "common/serving/text_work.h"

namespace sluice::serving {

// Writes the large parts of one request's answer on text threads, piece by
// piece, each when the client has read most of the pieces before. So no event
// loop is held up, and no large answer is in memory as text. Parts go out in
// their order. Methods are for the exchange's loop. While the writer is busy,
// it alone uses the format. A job keeps the writer's owner alive, until the
// client leaves.
class AnswerWriter {
 public:
  // Deltas up to this estimate are written without an AnswerWriter.
  static constexpr size_t kLargeBytes = size_t{64} << 10;

  struct Output {
    // Sends one piece. The first piece of a whole answer begins the answer.
    std::function<void(std::string bytes)> send;
    // Reports that writing failed; no piece follows.
    std::function<void(const Status& why)> fail;
  };

  // `owner` owns the writer, `format` and the objects that `output` uses.
  AnswerWriter(const TextWorkers& workers,
               std::shared_ptr<http::Exchange> exchange, AnswerFormat& format,
               Output output, std::weak_ptr<void> owner);

  bool is_idle() const { return parts_.empty(); }

  // Writes the events of `delta` of choice `index`.
  void WriteEvents(int index, Delta delta, const Usage& usage);
  // Writes the whole answer, as its first and only part.
  void WriteWhole(std::vector<Delta> choices, const Usage& usage);
  // Runs `work` when all parts so far are out, at once if none is left. `work`
  // must not hold the owner.
  void Then(std::function<void()> work);

 private:
  // Deltas to write, or work to run.
  struct Part {
    int index = -1;  // the choice of the events; -1: the whole answer
    std::vector<Delta> deltas;
    Usage usage;
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
  AnswerFormat& format_;
  const Output output_;
  const std::weak_ptr<void> owner_;
  std::deque<Part> parts_;
  bool is_writing_ = false;  // a text thread writes the first part
  // Used by the text thread, one piece at a time.
  // Of the first part, from values_[next_] on; a whole answer has no id.
  std::vector<EventValue> values_;
  size_t next_ = 0;
  std::unique_ptr<JsonPieces> pieces_;  // null: the first part has not begun
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_ANSWER_WRITER_H_
