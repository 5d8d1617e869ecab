#ifndef SLUICE_TESTS_TRACE_TRACE_RECORDS_H_
#define SLUICE_TESTS_TRACE_TRACE_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/cat.h"
#include "common/trace/trace_record.h"

// Traces from synthetic stamps.
namespace sluice::trace {

// Gives out spans that follow each other, with 1 us between any two.
class Stamps {
 public:
  explicit Stamps(int64_t now_ns) : now_ns_(now_ns) {}
  TraceSpan Next(int64_t micros) {
    now_ns_ += 1000;
    const TraceSpan span = {now_ns_, now_ns_ + 1000 * micros};
    now_ns_ = span.stop_ns;
    return span;
  }
  int64_t now_ns() const { return now_ns_; }
  void set_now(int64_t ns) { now_ns_ = ns; }

 private:
  int64_t now_ns_;
};

inline std::shared_ptr<const StepTrace> Step(int stages, Stamps& stamps) {
  auto step = std::make_shared<StepTrace>();
  step->plan = stamps.Next(5);
  step->serialise = stamps.Next(3);
  for (int i = 0; i < stages; ++i) {
    stamps.Next(40);  // the wire
    StageTrace& stage = step->stages.emplace_back();
    stage.receive = stamps.Next(4);
    stage.wait = stamps.Next(2);
    stage.compute = stamps.Next(100 * (i + 1));
    if (i + 1 == stages) stage.sample = stamps.Next(9);
    stage.serialise = stamps.Next(6);
  }
  stamps.Next(40);
  step->receive = stamps.Next(7);
  step->inbox = stamps.Next(8);
  step->commit = stamps.Next(3);
  return step;
}

// What follows a commit, beside the next step.
inline TraceRecord::Delivery Deliver(size_t steps, int32_t tokens,
                                     Stamps stamps, TraceRecord& record) {
  TraceRecord::Delivery delivery;
  delivery.steps = steps;
  delivery.num_tokens = tokens;
  delivery.is_end = tokens == 0;
  delivery.posted_ns = stamps.Next(2).stop_ns;
  delivery.begin_ns = stamps.Next(10).stop_ns;
  delivery.decoded_ns = stamps.Next(4).stop_ns;
  delivery.sent_ns = stamps.Next(6).stop_ns;
  const int64_t begin = delivery.sent_ns + 5000;
  record.blocks.push_back(
      {{delivery.sent_ns - 500, begin}, {begin, begin + 20000}});
  return delivery;
}

// A streamed answer of `tokens` tokens over `stages` stages.
inline TraceRecord MakeRecord(int stages, int tokens) {
  TraceRecord record;
  record.request_id = "abc";
  Stamps stamps(1000000000);
  record.read = stamps.Next(50);
  record.prepare_wait = {record.read.stop_ns, record.read.stop_ns + 1000};
  record.prepare = stamps.Next(80);
  record.start_wait = {record.prepare.stop_ns, record.prepare.stop_ns + 1000};
  TraceRecord::Choice& choice = record.choices.emplace_back();
  stamps.Next(1);
  choice.submit_ns = stamps.now_ns();
  choice.inbox = stamps.Next(12);
  stamps.Next(30);  // the queue
  for (int t = 0; t < tokens; ++t) {
    choice.steps.push_back({Step(stages, stamps), {SequenceId(1), t, 1, true}});
    choice.deliveries.push_back(
        Deliver(choice.steps.size(), 1, stamps, record));
  }
  stamps.set_now(choice.deliveries.back().sent_ns);
  choice.deliveries.push_back(Deliver(choice.steps.size(), 0, stamps, record));
  for (int i = 0; i < stages; ++i) {
    record.stages.push_back(
        {Cat("127.0.0.1:", i), {i, i + 1}, {true, 5, 50, 100}});
  }
  return record;
}

}  // namespace sluice::trace

#endif  // SLUICE_TESTS_TRACE_TRACE_RECORDS_H_
