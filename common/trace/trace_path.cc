#include "common/trace/trace_path.h"

#include <algorithm>
#include <span>
#include <utility>

namespace sluice::trace {
namespace {

using Choice = TraceRecord::Choice;
using Delivery = TraceRecord::Delivery;

constexpr TracePlace kGateway = {TracePlace::kGateway, 0};

// Parts that follow each other. Work is taken as measured; a wait that began
// while an earlier part still ran counts from that part's stop. So does a
// write: the kernel has the last token's bytes while the loop makes the end.
// And so does all work of a step that went ahead of the token before.
class Line {
 public:
  explicit Line(std::vector<TracePart>* parts) : parts_(*parts) {}

  void Work(std::string_view name, TracePlace place, TraceSpan span) {
    if (is_ahead_) {
      span.start_ns = std::max(span.start_ns, end_ns_);
      if (span.stop_ns <= span.start_ns) return;
    }
    if (!span.happened()) return;
    parts_.push_back({name, place, span.start_ns, span.stop_ns});
    end_ns_ = span.stop_ns;
  }
  void Wait(std::string_view name, TracePlace place, const TraceSpan& span) {
    const TraceSpan rest = {std::max(span.start_ns, end_ns_), span.stop_ns};
    if (rest.stop_ns > rest.start_ns) Work(name, place, rest);
  }
  void begin_at(int64_t ns) { end_ns_ = ns; }
  void set_ahead(bool is_ahead) { is_ahead_ = is_ahead; }
  int64_t end_ns() const { return end_ns_; }

 private:
  std::vector<TracePart>& parts_;
  int64_t end_ns_ = 0;
  bool is_ahead_ = false;
};

void AddHead(const TraceRecord& record, const Choice& choice, Line& line) {
  line.Work("read", kGateway, record.read);
  line.Wait("prepare_wait", kGateway, record.prepare_wait);
  line.Work("prepare", kGateway, record.prepare);
  line.Wait("start_wait", kGateway, record.start_wait);
  line.Work("submit", kGateway, {choice.submit_ns, choice.inbox.start_ns});
  line.Work("inbox", kGateway, choice.inbox);
}

void AddStage(int index, const StageTrace& stage, Line& line) {
  const TracePlace place = {TracePlace::kStage, index};
  line.Work("receive", place, stage.receive);
  line.Work("wait", place, stage.wait);
  line.Work("compute", place, stage.compute);
  line.Work("sample", place, stage.sample);
  line.Work("serialise", place, stage.serialise);
}

// From one process' last reading to the next one's first, if both are there.
void AddWire(int hop, int64_t sent_ns, int64_t received_ns, Line& line) {
  if (sent_ns == 0) return;
  line.Work("wire", {TracePlace::kHop, hop}, {sent_ns, received_ns});
}

// Whether every part that a step has was measured, on every stage.
bool IsWhole(const StepTrace& step, bool samples, size_t num_stages) {
  for (const TraceSpan* span : {&step.plan, &step.serialise, &step.receive,
                                &step.inbox, &step.commit}) {
    if (!span->happened()) return false;
  }
  for (const StageTrace& stage : step.stages) {
    for (const TraceSpan* span :
         {&stage.receive, &stage.wait, &stage.compute, &stage.serialise}) {
      if (!span->happened()) return false;
    }
  }
  if (step.stages.empty()) return false;
  if (samples && !step.stages.back().sample.happened()) return false;
  return num_stages == 0 || step.stages.size() == num_stages;
}

// From the plan to its result's commit; of a plan that left before the line's
// end, what follows that.
void AddStep(const StepTrace& step, Line& line) {
  line.set_ahead(step.plan.start_ns < line.end_ns());
  line.Work("plan", kGateway, step.plan);
  line.Work("serialise", kGateway, step.serialise);
  int hop = 0;
  int64_t sent_ns = step.serialise.stop_ns;
  for (const StageTrace& stage : step.stages) {
    AddWire(hop, sent_ns, stage.receive.start_ns, line);
    AddStage(hop, stage, line);
    sent_ns = stage.serialise.stop_ns;
    ++hop;
  }
  AddWire(hop, sent_ns, step.receive.start_ns, line);
  line.Work("receive", kGateway, step.receive);
  line.Work("engine_wait", kGateway, step.inbox);
  line.Work("commit", kGateway, step.commit);
  line.set_ahead(false);
}

// The blocks that were queued during the delivery.
std::span<const TraceRecord::Block> BlocksOf(const TraceRecord& record,
                                             const Delivery& delivery) {
  const auto starts = [](const TraceRecord::Block& block) {
    return block.wait.start_ns;
  };
  const auto begin =
      std::ranges::lower_bound(record.blocks, delivery.begin_ns, {}, starts);
  const auto end =
      std::ranges::upper_bound(record.blocks, delivery.sent_ns, {}, starts);
  return {begin, end};
}

// Whether the block was written where it was made.
bool IsWrittenWithin(const Delivery& delivery,
                     const TraceRecord::Block& block) {
  return block.write.stop_ns <= delivery.sent_ns;
}

void AddWrite(const TraceRecord::Block& block, Line& line) {
  line.Wait("write_wait", kGateway, block.wait);
  line.Wait("write", kGateway, block.write);
}

// From the engine's thread to the answer's queue or the socket. An end may come
// later than the token before it, when the sequence was cancelled for a stop
// string. `since_ns`: when that wait began; 0: not known.
void AddDelivery(const TraceRecord& record, const Delivery& delivery,
                 bool is_first, int64_t since_ns, Line& line) {
  if (since_ns != 0) {
    line.Wait(is_first ? "emit" : "end_wait", kGateway,
              {since_ns, delivery.posted_ns});
  }
  line.Wait("loop_wait", kGateway, {delivery.posted_ns, delivery.begin_ns});
  line.Work("detokenise", kGateway, {delivery.begin_ns, delivery.decoded_ns});
  bool all_written = false;
  for (const TraceRecord::Block& block : BlocksOf(record, delivery)) {
    all_written = IsWrittenWithin(delivery, block);
    if (!all_written) break;
    line.Wait("format", kGateway, {delivery.decoded_ns, block.wait.start_ns});
    AddWrite(block, line);
  }
  if (all_written) return;
  line.Wait("format", kGateway, {delivery.decoded_ns, delivery.sent_ns});
}

// Blocks of the delivery that waited for the socket.
void AddBlocks(const TraceRecord& record, const Delivery& delivery,
               Line& line) {
  for (const TraceRecord::Block& block : BlocksOf(record, delivery)) {
    if (!IsWrittenWithin(delivery, block)) AddWrite(block, line);
  }
}

// Which of steps [first, last) follow each other: the last one, the latest
// that was committed before that was planned, and so on. In order.
std::vector<size_t> Chain(const Choice& choice, size_t first, size_t last) {
  std::vector<size_t> chain;
  for (size_t i = last; i-- > first;) {
    const StepTrace& step = *choice.steps[i].trace;
    if (chain.empty() || step.commit.stop_ns <=
                             choice.steps[chain.back()].trace->plan.start_ns) {
      chain.push_back(i);
    }
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

// Whether no step is missing between two consecutive chunks: every position up
// to `after` was computed. Positions may be computed again.
bool Continues(const TracedChunk& before, const TracedChunk& after) {
  return after.start <= before.start + before.count;
}

// Whether the first step of which there is a trace was the first. Unknown, so
// taken for it, where the sequence has not ended.
bool BeginsWhole(const Choice& choice) {
  for (const Delivery& delivery : choice.deliveries) {
    if (!delivery.is_end) continue;
    return choice.steps.front().chunk.start <= delivery.cached_tokens;
  }
  return true;
}

// The wait for step `i`'s plan, if its beginning was measured: since the step
// `before` it in the chain, if there is one.
void AddPlanWait(const Choice& choice, const size_t* before, size_t i,
                 Line& line, TokenPath& token) {
  const int64_t stop_ns = choice.steps[i].trace->plan.start_ns;
  bool whole = before != nullptr || BeginsWhole(choice);
  for (size_t s = before != nullptr ? *before : 0; s < i; ++s) {
    whole &= Continues(choice.steps[s].chunk, choice.steps[s + 1].chunk);
  }
  if (!whole) {
    token.incomplete = true;
  } else if (before == nullptr) {
    line.Wait("queue", kGateway, {choice.inbox.stop_ns, stop_ns});
  } else {
    line.Wait("plan_wait", kGateway,
              {choice.steps[*before].trace->commit.stop_ns, stop_ns});
  }
}

// Steps [first, last), which gave one token.
void AddSteps(const Choice& choice, size_t first, size_t last,
              size_t num_stages, Line& line, TokenPath& token) {
  const std::vector<size_t> chain = Chain(choice, first, last);
  for (size_t i = first, next = 0; i < last; ++i) {
    const StepTrace& step = *choice.steps[i].trace;
    if (!IsWhole(step, choice.steps[i].chunk.samples, num_stages)) {
      token.incomplete = true;
    }
    if (next < chain.size() && chain[next] == i) {
      const size_t before = next > 0 ? chain[next - 1] : first - 1;
      AddPlanWait(choice, next > 0 || first > 0 ? &before : nullptr, i, line,
                  token);
      AddStep(step, line);
      ++next;
    } else {
      Line beside(&token.beside);
      AddStep(step, beside);
    }
  }
}

// Whether a step drew a token for it.
bool IsDrawn(const Delivery& delivery) {
  return delivery.num_tokens > 0 || delivery.has_end_token;
}

// A token behind no new step is one whose step is missing.
bool EndsToken(const std::vector<Delivery>& deliveries, size_t i) {
  return i + 1 == deliveries.size() ||
         deliveries[i + 1].steps > deliveries[i].steps ||
         IsDrawn(deliveries[i + 1]);
}

// When what the delivery tells of was known: its last step's commit. 0 if that
// is not the step that drew it, whose trace is missing.
int64_t KnownSince(const Choice& choice, size_t first_step, size_t end_step,
                   const Delivery& delivery) {
  if (end_step == first_step) return 0;
  const TraceRecord::Step& last = choice.steps[end_step - 1];
  if (IsDrawn(delivery) && !last.chunk.samples) return 0;
  return last.trace->commit.stop_ns;
}

}  // namespace

ChoicePath MakePath(const TraceRecord& record, size_t index) {
  const Choice& choice = record.choices[index];
  ChoicePath path;
  int64_t known_ns = 0;  // when the token before was
  size_t steps = 0;      // that earlier tokens had
  size_t first = 0;      // delivery of the token
  for (size_t i = 0; i < choice.deliveries.size(); ++i) {
    if (!EndsToken(choice.deliveries, i)) continue;
    TokenPath& token = path.tokens.emplace_back();
    Line line(&token.parts);
    if (path.tokens.size() == 1) {
      AddHead(record, choice, line);
    } else {
      line.begin_at(known_ns);
    }
    const size_t end =
        std::min(choice.deliveries[i].steps, choice.steps.size());
    AddSteps(choice, steps, end, record.stages.size(), line, token);
    known_ns = line.end_ns();
    const Delivery& drawn = choice.deliveries[first];
    int64_t since_ns = KnownSince(choice, steps, end, drawn);
    if (since_ns == 0 && IsDrawn(drawn)) token.incomplete = true;
    steps = end;
    token.num_on_path = token.parts.size();
    for (size_t d = first; d <= i; ++d) {
      token.num_tokens += choice.deliveries[d].num_tokens;
      AddDelivery(record, choice.deliveries[d], d == first, since_ns, line);
      since_ns = choice.deliveries[d].sent_ns;
    }
    for (size_t d = first; d <= i; ++d) {
      AddBlocks(record, choice.deliveries[d], line);
    }
    first = i + 1;
  }
  if (!path.tokens.empty()) {
    TokenPath& last = path.tokens.back();
    last.num_on_path = last.parts.size();
  }
  return path;
}

int64_t ChoicePath::sum_ns() const {
  int64_t sum = 0;
  for (const TokenPath& token : tokens) {
    for (size_t i = 0; i < token.num_on_path; ++i) {
      sum += token.parts[i].stop_ns - token.parts[i].start_ns;
    }
  }
  return sum;
}

int64_t ChoicePath::num_incomplete() const {
  return std::count_if(tokens.begin(), tokens.end(),
                       [](const TokenPath& token) { return token.incomplete; });
}

int64_t ChoicePath::wall_ns() const {
  if (tokens.empty() || tokens.front().parts.empty() ||
      tokens.back().parts.empty()) {
    return 0;
  }
  return tokens.back().parts.back().stop_ns -
         tokens.front().parts.front().start_ns;
}

}  // namespace sluice::trace
