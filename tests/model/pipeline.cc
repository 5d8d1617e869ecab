#include "tests/model/pipeline.h"

#include <algorithm>
#include <random>
#include <utility>

#include "common/base/check.h"
#include "common/core/kv_groups.h"

namespace sluice::testing {

std::vector<TokenId> Answer::ids() const {
  std::vector<TokenId> ids;
  for (const TokenResult& token : tokens) ids.push_back(token.token);
  return ids;
}

class Pipeline::Link final : public StepOutputSink {
 public:
  Link(Pipeline* pipeline, const StageOptions& its, Link* following)
      : options(its), pipeline_(*pipeline), following_(following) {}
  ~Link() override {
    if (loop != nullptr) loop->Stop();
  }
  Status Load() {
    loop.reset();
    SLUICE_ASSIGN_OR_RETURN(stage, Stage::Load(options));
    loop = std::make_unique<StageLoop>(stage.get(), this, 64);
    return OkStatus();
  }

  void OnStep(StepOutput output) override {
    if (following_ == nullptr) {
      Link& first = *pipeline_.links_[0];
      if (&first != this) first.loop->OnSampled(*output.result);
      return pipeline_.Finish(OkStatus(), *std::move(output.result));
    }
    held_.push_back({std::move(output.plan), std::move(output.hidden),
                     std::move(output.failed)});
    if (held_.size() < pipeline_.burst_) return;
    // The oldest last: until it is there none of them begins.
    for (; !held_.empty(); held_.pop_back()) {
      Status pushed = following_->loop->Push(std::move(held_.back()));
      if (!pushed.ok()) pipeline_.Finish(std::move(pushed));
    }
  }
  void OnStepError(Epoch epoch, StepId step, Status why) override {
    pipeline_.Finish(std::move(why));
  }

  const StageOptions options;
  std::unique_ptr<Stage> stage;
  std::unique_ptr<StageLoop> loop;

 private:
  Pipeline& pipeline_;
  Link* const following_;
  std::vector<StepInput> held_;  // the loop's thread's own
};

struct Pipeline::Running {
  SequenceId id;
  const Ask* ask = nullptr;
  Answer* answer = nullptr;
  std::vector<TokenId> tokens;
  int32_t computed = 0;
  // Per KV group: the table, and how much of its front was given back.
  std::vector<std::vector<BlockId>> blocks;
  std::vector<size_t> gone;
  bool done() const {
    return !answer->status.ok() ||
           (computed >= static_cast<int32_t>(ask->prompt.size()) &&
            static_cast<int32_t>(answer->tokens.size()) >= ask->max_tokens);
  }
};

StatusOr<std::unique_ptr<Pipeline>> Pipeline::Load(
    const PipelineOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(auto probe, Stage::Load(options.stage));
  const int32_t layers = probe->info().num_layers;
  auto pipeline = std::unique_ptr<Pipeline>(new Pipeline());
  pipeline->links_.resize(options.stages);
  int32_t blocks = probe->info().limits.num_blocks;
  probe.reset();
  for (int32_t i = options.stages - 1; i >= 0; --i) {
    StageOptions stage = options.stage;
    const auto first = [&](int32_t of) {
      const auto at = static_cast<size_t>(of);
      return of < options.stages && at < options.first_layers.size()
                 ? options.first_layers[at]
                 : layers * of / options.stages;
    };
    stage.first_layer = first(i);
    stage.last_layer = first(i + 1);
    if (i < static_cast<int32_t>(options.make_backends.size())) {
      stage.make_backends = options.make_backends[static_cast<size_t>(i)];
    }
    if (i < static_cast<int32_t>(options.rank_links.size())) {
      stage.rank_link = options.rank_links[static_cast<size_t>(i)];
      stage.all_ranks = options.all_ranks;
    }
    Link* following =
        i + 1 < options.stages ? pipeline->links_[i + 1].get() : nullptr;
    auto& link = pipeline->links_[i] =
        std::make_unique<Link>(pipeline.get(), stage, following);
    SLUICE_RETURN_IF_ERROR(link->Load());
    blocks = std::min(blocks, link->stage->info().limits.num_blocks);
  }
  for (int32_t b = 0; b < blocks; ++b) pipeline->free_blocks_.push_back(b);
  std::shuffle(pipeline->free_blocks_.begin(), pipeline->free_blocks_.end(),
               std::mt19937(1));
  pipeline->limits_ = pipeline->stage(0).info().limits;
  for (auto& link : pipeline->links_) link->loop->Start();
  return pipeline;
}

Pipeline::~Pipeline() {
  // First to last: nobody pushes to a link that is gone.
  for (auto& link : links_) {
    if (link != nullptr && link->loop != nullptr) link->loop->Stop();
  }
}

void Pipeline::Lose(int index) {
  SLUICE_CHECK(links_[index]->Load().ok());
  links_[index]->loop->Start();
}

int32_t Pipeline::num_stages() const {
  return static_cast<int32_t>(links_.size());
}
const Stage& Pipeline::stage(int index) const { return *links_[index]->stage; }
StageLoop& Pipeline::loop(int index) { return *links_[index]->loop; }

void Pipeline::Finish(Status status, StepResult result) {
  MutexLock lock(mutex_);
  finished_.push_back(std::make_unique<Finished>(
      Finished{std::move(status), std::move(result)}));
  done_.NotifyAll();
}

StatusOr<StepResult> Pipeline::Run(StepPlan plan) {
  SLUICE_RETURN_IF_ERROR(Send(std::move(plan)));
  return Await();
}

Status Pipeline::Send(StepPlan plan) {
  plan.step_id = StepId(next_step_++);
  plan.epoch = epoch_;
  return links_[0]->loop->Push({std::move(plan), {}});
}

StatusOr<std::vector<StepResult>> Pipeline::RunTogether(
    std::span<StepPlan> plans) {
  burst_ = plans.size();
  next_step_ += plans.size();
  for (size_t left = plans.size(); left > 0; --left) {
    StepPlan& plan = plans[left - 1];
    plan.step_id = StepId(next_step_ - plans.size() + left - 1);
    plan.epoch = epoch_;
    SLUICE_RETURN_IF_ERROR(links_[0]->loop->Push({plan, {}}));
  }
  std::vector<StepResult> results;
  while (results.size() < plans.size()) {
    SLUICE_ASSIGN_OR_RETURN(results.emplace_back(), Await());
  }
  burst_ = 1;
  return results;
}

StatusOr<StepResult> Pipeline::Await() {
  MutexLock lock(mutex_);
  while (true) {
    while (finished_.empty()) done_.Wait(mutex_);
    const std::unique_ptr<Finished> finished = std::move(finished_.front());
    finished_.pop_front();
    SLUICE_RETURN_IF_ERROR(finished->status);
    if (finished->result.epoch == epoch_) return std::move(finished->result);
  }
}

void Pipeline::Restart(Epoch epoch) {
  for (auto& link : links_) link->loop->Reset(epoch);
  epoch_ = epoch;
  next_step_ = 0;
}

// Those behind the windows, or all.
void Pipeline::GiveBack(Running& sequence, bool all) {
  for (size_t g = 0; g < sequence.blocks.size(); ++g) {
    const std::vector<BlockId>& blocks = sequence.blocks[g];
    const int32_t window = limits_.kv_window(static_cast<int32_t>(g));
    const auto behind =
        static_cast<size_t>(BlocksBehind(window, sequence.computed));
    const size_t end = all ? blocks.size() : std::min(behind, blocks.size());
    for (size_t& gone = sequence.gone[g]; gone < end; ++gone) {
      free_blocks_.push_back(blocks[gone].value());
    }
  }
}

std::vector<std::vector<BlockId>> Pipeline::TakeBlocks(Running& sequence,
                                                       int32_t end) {
  std::vector<std::vector<BlockId>> taken;
  for (std::vector<BlockId>& blocks : sequence.blocks) {
    taken.emplace_back();
    while (static_cast<int32_t>(blocks.size()) * kBlockTokens < end) {
      SLUICE_CHECK(!free_blocks_.empty());
      blocks.push_back(BlockId(free_blocks_.back()));
      taken.back().push_back(blocks.back());
      free_blocks_.pop_back();
    }
  }
  return taken;
}

Chunk Pipeline::NextChunk(Running& sequence, const Drive& drive) {
  const auto known = static_cast<int32_t>(sequence.tokens.size());
  const int32_t end = std::min(known, sequence.computed + drive.prefill_chunk);
  Chunk chunk;
  chunk.sequence = sequence.id;
  chunk.start = sequence.computed;
  chunk.tokens.assign(sequence.tokens.begin() + sequence.computed,
                      sequence.tokens.begin() + end);
  chunk.samples = end == known && sequence.ask->max_tokens > 0;
  const bool is_prompt =
      chunk.start < static_cast<int32_t>(sequence.ask->prompt.size());
  if (sequence.ask->prompt_logits && is_prompt) {
    chunk.logits = LogitsWanted::kAll;
  } else if (chunk.samples) {
    chunk.logits = LogitsWanted::kLast;
  }
  if (drive.gives_back) GiveBack(sequence, /*all=*/false);
  chunk.new_blocks = TakeBlocks(sequence, end);
  sequence.computed = end;
  return chunk;
}

void Pipeline::Start(const Ask& ask, Answer& answer, StepPlan& plan,
                     std::deque<Running>& running) {
  Running sequence;
  sequence.id = SequenceId(next_sequence_++);
  sequence.ask = &ask;
  sequence.answer = &answer;
  sequence.tokens = ask.prompt;
  sequence.tokens.insert(sequence.tokens.end(), ask.sampled.begin(),
                         ask.sampled.end());
  sequence.blocks.resize(limits_.num_kv_groups);
  sequence.gone.resize(limits_.num_kv_groups);
  plan.started.push_back({sequence.id,
                          ask.sampling,
                          static_cast<int32_t>(ask.prompt.size()),
                          sequence.tokens,
                          {}});
  running.push_back(std::move(sequence));
}

void Pipeline::Take(const StepResult& result, std::deque<Running>& running) {
  for (const SequenceResult& outcome : result.sequences) {
    const auto of = std::find_if(
        running.begin(), running.end(),
        [&](const Running& r) { return r.id == outcome.sequence; });
    Answer& answer = *of->answer;
    answer.status = outcome.status;
    for (const auto& token : outcome.sampled) {
      answer.tokens.push_back(token);
      of->tokens.push_back(token.token);
    }
    answer.prompt.insert(answer.prompt.end(), outcome.prompt.begin(),
                         outcome.prompt.end());
    answer.logits.insert(answer.logits.end(), outcome.logits.begin(),
                         outcome.logits.end());
  }
}

std::vector<Answer> Pipeline::GenerateAhead(const std::vector<Ask>& asks,
                                            size_t results) {
  std::vector<Answer> answers(asks.size());
  std::deque<Running> running;
  std::vector<StepPlan> plans(1);
  int32_t most = 0;
  for (size_t i = 0; i < asks.size(); ++i) {
    Start(asks[i], answers[i], plans[0], running);
    plans[0].chunks.push_back(NextChunk(running.back(), {}));
    most = std::max(most, asks[i].max_tokens);
  }
  for (int32_t made = 1; made < most; ++made) {
    StepPlan& plan = plans.emplace_back();
    for (Running& sequence : running) {
      // The step before is the last one that the sequence is in.
      if (sequence.ask->max_tokens == made) plan.ended.push_back(sequence.id);
      if (sequence.ask->max_tokens <= made) continue;
      Chunk& chunk = plan.chunks.emplace_back();
      chunk.sequence = sequence.id;
      chunk.start = sequence.computed++;
      chunk.tokens = {0};
      chunk.logits = LogitsWanted::kLast;
      chunk.samples = true;
      chunk.sampled_by = StepId(next_step_ + plans.size() - 2);
      chunk.new_blocks = TakeBlocks(sequence, sequence.computed);
    }
  }
  for (StepPlan& plan : plans) {
    const Status sent = Send(std::move(plan));
    if (sent.ok()) continue;
    for (Answer& answer : answers) answer.status = sent;
    return answers;
  }
  for (size_t i = 0; i < std::min(results, plans.size()); ++i) {
    const auto result = Await();
    SLUICE_CHECK(result.ok());
    Take(*result, running);
  }
  for (Running& sequence : running) GiveBack(sequence, /*all=*/true);
  return answers;
}

std::vector<StepPlan> Pipeline::PlanGroups(const std::vector<Ask>& asks,
                                           const Groups& groups,
                                           std::vector<Answer>& answers,
                                           std::deque<Running>& running) {
  const auto count = static_cast<size_t>(groups.count);
  const Drive drive = {.prefill_chunk = groups.prefill_chunk};
  std::vector<StepPlan> plans;
  std::vector<std::vector<Running*>> of(count);
  std::vector<size_t> next(count);
  for (size_t g = 0; g < count; ++g) next[g] = g;
  Running* ending = nullptr;
  const auto is_over = [&] {
    for (size_t g = 0; g < count; ++g) {
      if (!of[g].empty() || next[g] < asks.size()) return false;
    }
    return ending == nullptr;
  };
  for (size_t g = 0;; g = (g + 1) % count) {
    if (g == 0 && is_over()) return plans;
    StepPlan& plan = plans.emplace_back();
    if (ending != nullptr) {
      plan.ended.push_back(ending->id);
      GiveBack(*std::exchange(ending, nullptr), /*all=*/true);
    }
    while (std::ssize(of[g]) < groups.places && next[g] < asks.size()) {
      Start(asks[next[g]], answers[next[g]], plan, running);
      of[g].push_back(&running.back());
      next[g] += count;
    }
    for (Running* sequence : of[g]) {
      const bool decodes =
          sequence->computed == static_cast<int32_t>(sequence->tokens.size());
      if (decodes) sequence->tokens.push_back(0);
      Chunk& chunk = plan.chunks.emplace_back(NextChunk(*sequence, drive));
      if (decodes) {
        chunk.sampled_by = StepId(next_step_ + plans.size() - 1 - count);
      }
    }
    // The first one that has a row behind its last token.
    const auto done = std::ranges::find_if(of[g], [](const Running* sequence) {
      const Ask& ask = *sequence->ask;
      return sequence->tokens.size() - ask.prompt.size() >=
             static_cast<size_t>(ask.max_tokens);
    });
    if (done == of[g].end()) continue;
    ending = *done;
    of[g].erase(done);
  }
}

std::vector<Answer> Pipeline::GenerateInGroups(const std::vector<Ask>& asks,
                                               const Groups& groups) {
  std::vector<Answer> answers(asks.size());
  std::deque<Running> running;
  std::vector<StepPlan> plans = PlanGroups(asks, groups, answers, running);
  const auto take = [&](StepResult result) {
    // Of a row behind the last token nothing is told.
    std::erase_if(result.sequences, [&](const SequenceResult& outcome) {
      const auto of =
          std::ranges::find(running, outcome.sequence, &Running::id);
      return of->done();
    });
    Take(result, running);
  };
  const auto count = static_cast<size_t>(groups.count);
  for (size_t begin = 0; groups.in_rounds && begin < plans.size();
       begin += count) {
    auto results = RunTogether(std::span(plans).subspan(begin, count));
    SLUICE_CHECK(results.ok());
    for (StepResult& result : *results) take(std::move(result));
  }
  if (groups.in_rounds) return answers;
  const size_t results = std::min(groups.results, plans.size());
  for (StepPlan& plan : plans) SLUICE_CHECK(Send(std::move(plan)).ok());
  for (size_t i = 0; i < results; ++i) {
    auto result = Await();
    SLUICE_CHECK(result.ok());
    take(*std::move(result));
  }
  return answers;
}

std::vector<Answer> Pipeline::Generate(const std::vector<Ask>& asks,
                                       const Drive& drive) {
  std::vector<Answer> answers(asks.size());
  std::deque<Running> running;
  std::vector<SequenceId> ended;
  size_t next = 0;
  while (next < asks.size() || !running.empty() || !ended.empty()) {
    StepPlan plan;
    plan.ended = std::exchange(ended, {});
    while (next < asks.size() &&
           static_cast<int32_t>(running.size()) < drive.max_running) {
      Start(asks[next], answers[next], plan, running);
      ++next;
    }
    for (Running& sequence : running) {
      plan.chunks.push_back(NextChunk(sequence, drive));
    }
    const auto result = Run(std::move(plan));
    if (!result.ok()) {
      for (Running& left : running) left.answer->status = result.status();
      return answers;
    }
    Take(*result, running);
    for (auto at = running.begin(); at != running.end();) {
      if (!at->done()) {
        ++at;
        continue;
      }
      ended.push_back(at->id);
      GiveBack(*at, /*all=*/true);
      at = running.erase(at);
    }
  }
  return answers;
}

}  // namespace sluice::testing
