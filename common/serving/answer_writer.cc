#include "common/serving/answer_writer.h"

#include <utility>

#include "common/base/exception_counts.h"
#include "common/http/event_framing.h"

namespace sluice::serving {
namespace {

// One job of a text thread, a few milliseconds' work.
constexpr size_t kPieceBytes = size_t{64} << 10;
// The memory of a job: elements of lists are values before they are text.
constexpr size_t kPieceMemory = 4 * kPieceBytes;

}  // namespace

AnswerWriter::AnswerWriter(const TextWorkers& workers,
                           std::shared_ptr<http::Exchange> exchange,
                           AnswerFormat& format, Output output,
                           std::weak_ptr<void> owner)
    : workers_{workers.queue, workers.metrics, /*goes_on=*/true},
      exchange_(std::move(exchange)),
      format_(format),
      output_(std::move(output)),
      owner_(std::move(owner)) {}

void AnswerWriter::WriteEvents(int index, Delta delta, const Usage& usage) {
  Part part;
  part.index = index;
  part.deltas.push_back(std::move(delta));
  part.usage = usage;
  Add(std::move(part));
}

void AnswerWriter::WriteWhole(std::vector<Delta> choices, const Usage& usage) {
  Part part;
  part.deltas = std::move(choices);
  part.usage = usage;
  Add(std::move(part));
}

void AnswerWriter::Then(std::function<void()> work) {
  Part part;
  part.then = std::move(work);
  Add(std::move(part));
}

void AnswerWriter::Add(Part part) {
  parts_.push_back(std::move(part));
  Pump();
}

void AnswerWriter::Pump() {
  while (!is_writing_ && !parts_.empty()) {
    if (parts_.front().then) {
      // Taken out first: `work` may add parts.
      const auto work = std::move(parts_.front().then);
      parts_.pop_front();
      work();
    } else {
      is_writing_ = true;
      AskSafely();
    }
  }
}

void AnswerWriter::AskSafely() {
  const Status asked = CatchAndCount("answer", [this] { AskForPiece(); });
  if (!asked.ok()) output_.fail(asked);
}

void AnswerWriter::AskForPiece() {
  const std::shared_ptr<void> owner = owner_.lock();
  // Other parts may follow meanwhile: this one stays in place.
  Part* const part = &parts_.front();
  RunTextWork(
      workers_, exchange_, kPieceMemory,
      [this, owner, part] { MakePiece(*part); },
      [this, owner](const Status& why) { output_.fail(why); });
}

void AnswerWriter::Begin(Part& part) {
  pieces_ = std::make_unique<JsonPieces>();
  next_ = 0;
  values_.clear();
  if (part.index < 0) {
    values_.push_back(
        {"", format_.WholeValue(part.deltas, part.usage, *pieces_)});
  } else {
    values_ = format_.ChunkValues(part.index, part.deltas.front(), part.usage,
                                  *pieces_);
  }
}

// The loop does not touch the part meanwhile.
void AnswerWriter::MakePiece(Part& part) {
  const bool is_event = part.index >= 0;
  const http::EventFraming& framing = format_.framing();
  if (pieces_ == nullptr) Begin(part);
  std::string bytes;
  while (bytes.size() < kPieceBytes &&
         (!pieces_->ended() || next_ < values_.size())) {
    if (pieces_->ended()) {
      pieces_->Write(values_[next_++].json);
      if (is_event) bytes += framing.begin(values_[next_ - 1].name);
    }
    bytes += pieces_->Next(kPieceBytes);
    if (is_event && pieces_->ended()) {
      bytes += framing.end(values_[next_ - 1].id);
    }
  }
  const bool ended = pieces_->ended() && next_ == values_.size();
  if (ended) {
    // A text thread frees the many small pieces.
    pieces_ = nullptr;
    values_.clear();
    part.deltas.clear();
  }
  auto shared = std::make_shared<std::string>(std::move(bytes));
  exchange_->Post([this, owner = owner_.lock(), shared, ended] {
    OnPiece(std::move(*shared), ended);
  });
}

void AnswerWriter::OnPiece(std::string bytes, bool ended) {
  if (!bytes.empty()) output_.send(std::move(bytes));
  if (!ended) {
    exchange_->WhenRead([this, owner = owner_.lock()] { AskSafely(); });
    return;
  }
  is_writing_ = false;
  parts_.pop_front();
  Pump();
}

}  // namespace sluice::serving
