#ifndef SLUICE_TESTS_MODEL_PIPELINE_H_
#define SLUICE_TESTS_MODEL_PIPELINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "common/stage/stage.h"
#include "common/stage/stage_loop.h"

namespace sluice::testing {

struct PipelineOptions {
  StageOptions stage;  // layers are set by the pipeline
  int32_t stages = 1;
  std::vector<int32_t> first_layers = {};  // of each stage; empty: even parts
  // Of stage i; where there is none, the stage's own.
  std::vector<BackendFactory> make_backends = {};
  // Of stage i, whose further ranks are of other processes: StageOptions'.
  std::vector<RankLink*> rank_links = {};
  int32_t all_ranks = 0;
};

// What is asked of one sequence, and how it is to be cut into steps.
struct Ask {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  int32_t max_tokens = 0;             // more
  bool prompt_logits = false;         // LogitsWanted::kAll for the prompt
  std::vector<TokenId> sampled = {};  // before, as a lost stage's pipeline did
};

struct Answer {
  Status status;
  std::vector<TokenResult> tokens;
  std::vector<TokenResult> prompt;
  std::vector<float> logits;  // with sampling.return_logits
  std::vector<TokenId> ids() const;
};

struct Drive {
  int32_t prefill_chunk = 1 << 20;  // tokens of one prompt per step
  int32_t max_running = 256;        // sequences per step
  // What is behind a KV group's window is given back, and taken by whoever
  // needs a block next; else every sequence keeps all until its end.
  bool gives_back = true;
};

// Which sequences share a plan, of several in flight.
struct Groups {
  int32_t count = 2;   // ask i is of group i % count
  int32_t places = 1;  // sequences of a group that run at once
  int32_t prefill_chunk = 1 << 20;
  // The groups' plans come to every stage together, and their results before
  // the next ones leave; else all plans leave at once.
  bool in_rounds = false;
  size_t results = SIZE_MAX;  // to await; not in rounds
};

// Stages chained in this process, as the services chain them over gRPC, and
// a driver in place of the gateway: no scheduling beyond what Drive says, one
// plan in flight, blocks in a scattered order.
class Pipeline {
 public:
  static StatusOr<std::unique_ptr<Pipeline>> Load(
      const PipelineOptions& options);
  ~Pipeline();

  // Runs `asks` to their ends: each gives max_tokens tokens, whatever they
  // are.
  std::vector<Answer> Generate(const std::vector<Ask>& asks,
                               const Drive& drive = {});

  // Runs `asks` side by side, one plan for all prompts and one for every token
  // more, which are all sent at once: chunks name the step before, which
  // samples their token. Awaits `results` of the plans, all by default.
  std::vector<Answer> GenerateAhead(const std::vector<Ask>& asks,
                                    size_t results = SIZE_MAX);

  // Runs `asks` in groups: rounds of one plan for each, with a chunk of every
  // sequence that runs. Chunks name the group's plan before, which samples
  // their token. Every end is found late: its sequence has one row more, and
  // ends with the next group's plan, where its blocks may be another's.
  std::vector<Answer> GenerateInGroups(const std::vector<Ask>& asks,
                                       const Groups& groups);

  // Puts a new process in a stage's place, whose KV cache is empty. Restart
  // follows.
  void Lose(int index);

  // Begins an epoch: of what was sent and not awaited nothing is left.
  void Restart(Epoch epoch);

  // Sends one plan to the first stage and waits for its end at the last.
  StatusOr<StepResult> Run(StepPlan plan);
  // Run in two parts.
  Status Send(StepPlan plan);
  // Sends plans in their order, which come to every stage together, and awaits
  // their results.
  StatusOr<std::vector<StepResult>> RunTogether(std::span<StepPlan> plans);
  StatusOr<StepResult> Await();

  int32_t num_stages() const;
  const Stage& stage(int index) const;
  StageLoop& loop(int index);

 private:
  class Link;  // the sink between two stages
  struct Running;

  Pipeline() = default;
  struct Finished {
    Status status;
    StepResult result;
  };
  void Finish(Status status, StepResult result = {});
  static void Take(const StepResult& result, std::deque<Running>& running);
  void GiveBack(Running& sequence, bool all);
  std::vector<std::vector<BlockId>> TakeBlocks(Running& sequence, int32_t end);
  Chunk NextChunk(Running& sequence, const Drive& drive);
  void Start(const Ask& ask, Answer& answer, StepPlan& plan,
             std::deque<Running>& running);
  std::vector<StepPlan> PlanGroups(const std::vector<Ask>& asks,
                                   const Groups& groups,
                                   std::vector<Answer>& answers,
                                   std::deque<Running>& running);

  std::vector<std::unique_ptr<Link>> links_;
  size_t burst_ = 1;   // steps that a link passes on together
  PlanLimits limits_;  // of the first stage
  std::vector<int32_t> free_blocks_;
  uint64_t next_sequence_ = 1;
  uint64_t next_step_ = 0;
  Epoch epoch_;

  Mutex mutex_;
  CondVar done_;
  std::deque<std::unique_ptr<Finished>> finished_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_PIPELINE_H_
