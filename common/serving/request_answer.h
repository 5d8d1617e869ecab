#ifndef SLUICE_COMMON_SERVING_REQUEST_ANSWER_H_
#define SLUICE_COMMON_SERVING_REQUEST_ANSWER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/event_stream.h"
#include "common/http/exchange.h"
#include "common/serving/answer_format.h"
#include "common/serving/answer_writer.h"
#include "common/serving/best_choices.h"
#include "common/serving/context.h"
#include "common/serving/delta_cut.h"
#include "common/serving/prepared_request.h"

namespace sluice::serving {

// The answer of one request: sends the deltas of its choices as events, or
// collects the deltas and sends the whole, or sends an error. Methods are for
// the exchange's loop.
class RequestAnswer {
 public:
  // Takes the format from `prepared`. `context` outlives the answer.
  RequestAnswer(const ServingContext& context, PreparedRequest& prepared,
                std::shared_ptr<http::Exchange> exchange);

  // Begins the answer's time. `owner` owns the answer and its context. `cancel`
  // cancels the request's sequences; the answer calls it when it fails. `usage`
  // counts the prompt.
  void Begin(std::weak_ptr<void> owner, std::function<void()> cancel,
             const Usage& usage);
  bool is_stream() const { return stream_ != nullptr; }  // any thread
  // Sends the header of a stream, unless the answer is done.
  void Open();
  // Tells the reader of an open stream, by a comment where there are such, that
  // a lost pipeline is built anew.
  void TellRecovery();
  // Adds a delta of choice `index`. `usage` counts the tokens up to it.
  void Add(size_t index, Delta delta, const Usage& usage);
  // Counts the log probabilities of prompt tokens, which later deltas share.
  void CountPrompt(const std::vector<TokenResult>& prompt);
  // Ends the answer after its last delta; no effect if it is done.
  void Finish(const Usage& usage);
  // Ends the answer with an error; no effect if it is done.
  void Fail(const Status& status);
  // Logs an exception and ends the answer with an error.
  void FailThrown(const Status& what);
  // The client is gone: nothing more is sent.
  void Abandon() { is_done_ = true; }
  bool is_done() const { return is_done_; }

 private:
  void SendWhole(const Usage& usage);
  void EndStream(const Usage& usage);
  void SendLast(const std::vector<Event>& events);
  // Returns the bytes of the events, or of a comment for no event.
  std::string Ping();
  // Returns the writer, for deltas too large for the loop.
  AnswerWriter& Writer();
  void SendPiece(std::string bytes);
  void FailWriting(const Status& why);
  void LogFailure(const Status& why) const;
  // Counts collected bytes. Fails an answer that is too large while memory for
  // answers is short.
  void Collect(size_t bytes);

  const ServingContext& context_;
  const std::shared_ptr<http::Exchange> exchange_;
  const std::unique_ptr<AnswerFormat> format_;
  const std::shared_ptr<http::EventStream> stream_;  // null: answered whole
  http::HttpHeaders headers_;                        // of a whole answer
  const std::optional<BestOf> best_of_;
  std::weak_ptr<void> owner_;
  std::function<void()> cancel_;
  // By choice, of a resumed stream: what the client has of its deltas.
  std::vector<DeltaCut> cuts_;
  std::vector<Delta> wholes_;    // without streaming: the choices so far
  bool is_done_ = false;         // the answer is complete, or has no client
  bool whole_begun_ = false;     // a piece of a large whole answer is out
  bool writing_failed_ = false;  // `writer_` sends nothing more
  size_t collected_ = 0;         // unsent bytes
  std::unique_ptr<AnswerWriter> writer_;  // null: not needed yet
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_ANSWER_H_
