#include "common/grammar/compile_trial.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/catch_exceptions.h"
#include "common/core/step_plan.h"
#include "common/grammar/compile_text.h"

namespace sluice {
namespace {

// Of answers that are drawn from the masks, and of every answer that is tried.
constexpr int kNumDrawn = 2;
constexpr size_t kMaxTriedTokens = 40;
// Address space of the process' threads and heaps beyond what it may use.
constexpr size_t kSpareAddresses = size_t{192} << 20;
// Of a text's bytes, as in compile_thread.rs, and for a short one.
constexpr size_t kStackPerByte = 1 << 10;
constexpr size_t kMinStack = size_t{32} << 20;
// As the gateway's threads for work on text.
constexpr int kNice = 10;

double CpuMs() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 +
         static_cast<double>(time.tv_nsec) / 1e6;
}

uint64_t MostResident() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) << 10;
}

// Returns the size of the address space; 0 if the system does not tell.
size_t AddressSpace() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void Limit(int resource, rlim_t most) {
  const rlimit limit = {most, most};
  setrlimit(resource, &limit);
}

// Ends the process by SIGXCPU once it has used some more CPU time.
class CpuTimer {
 public:
  CpuTimer() {
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGXCPU;
    made_ = timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer_) == 0;
  }
  CpuTimer(const CpuTimer&) = delete;
  CpuTimer& operator=(const CpuTimer&) = delete;

  // `ms` 0: no end.
  void Set(uint32_t ms) {
    if (!made_) return;
    itimerspec in = {};
    in.it_value.tv_sec = ms / 1000;
    in.it_value.tv_nsec = static_cast<int64_t>(ms % 1000) * 1'000'000;
    timer_settime(timer_, 0, &in, nullptr);
  }

 private:
  timer_t timer_ = {};
  bool made_ = false;
};

// Tries the masks of one grammar, until they have taken `budget_ms`.
class MaskTrial {
 public:
  MaskTrial(std::shared_ptr<const Grammar> grammar, double budget_ms)
      : grammar_(std::move(grammar)), end_ms_(CpuMs() + budget_ms) {}

  // INTERNAL if the bridge panicked. What a grammar cannot go on with ends its
  // own answers later.
  Status Run(const std::vector<std::vector<TokenId>>& answers) {
    for (int i = 0; i < kNumDrawn; ++i) {
      SLUICE_RETURN_IF_ERROR(Follow(
          [this](const ConstraintStep& step, size_t) { return Draw(step); }));
    }
    for (const std::vector<TokenId>& answer : answers) {
      SLUICE_RETURN_IF_ERROR(
          Follow([&answer](const ConstraintStep& step, size_t at) {
            const bool fits = at < answer.size() && Allows(step, answer[at]);
            return fits ? answer[at] : TokenId{-1};
          }));
    }
    return OkStatus();
  }

 private:
  static bool Allows(const ConstraintStep& step, TokenId id) {
    if (!step.forced.empty()) return step.forced.front() == id;
    const auto& runs = step.mask->runs;
    return std::any_of(runs.begin(), runs.end(), [id](const TokenRun& run) {
      return run.begin <= id && id < run.end;
    });
  }

  TokenId Draw(const ConstraintStep& step) {
    if (!step.forced.empty()) return step.forced.front();
    const auto& runs = step.mask->runs;
    const TokenRun& run = runs[Next() % runs.size()];
    return run.begin + static_cast<TokenId>(
                           Next() % static_cast<uint64_t>(run.end - run.begin));
  }

  // A linear congruence: the same draws in every process.
  uint64_t Next() {
    seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
    return seed_ >> 33;
  }

  // Walks along tokens that `next` chooses; below 0: no further.
  template <typename NextToken>
  Status Follow(NextToken next) {
    if (CpuMs() >= end_ms_) return OkStatus();
    auto made = Matcher::Make(grammar_);
    if (!made.ok()) return IfInternal(made.status());
    std::vector<TokenId> taken;
    for (size_t at = 0; at < kMaxTriedTokens && CpuMs() < end_ms_; ++at) {
      const ConstraintStep step = (*made)->Step(taken, kMaxDraftTokens);
      if (!step.status.ok()) return IfInternal(step.status);
      if (step.is_complete) break;
      const TokenId token = next(step, at);
      if (token < 0) break;
      taken = {token};
    }
    return OkStatus();
  }

  static Status IfInternal(const Status& status) {
    return status.code() == StatusCode::kInternal ? status : OkStatus();
  }

  const std::shared_ptr<const Grammar> grammar_;
  const double end_ms_;
  uint64_t seed_ = 1;
};

class Trials {
 public:
  Trials(const CompileSetup& setup,
         const std::shared_ptr<const GrammarVocabulary>& vocabulary)
      : setup_(setup),
        vocabulary_(vocabulary),
        resident_(MostResident()),
        addresses_(AddressSpace()) {}

  TrialAnswer Answer(const TrialQuestion& question) {
    LimitAddresses(question.text.size());
    LimitCpu(question);
    timer_.Set(std::max<uint32_t>(question.compile_ms, 1));
    TrialAnswer answer;
    const double begin = CpuMs();
    Status status;
    const Status caught = CatchExceptions(
        "grammar", [&] { status = Work(question, begin, answer); });
    if (!caught.ok()) status = caught;
    timer_.Set(0);
    answer.code = static_cast<int32_t>(status.code());
    if (!status.ok()) answer.text = Message(status);
    if (answer.cpu_ms == 0) answer.cpu_ms = CpuMs() - begin;
    const uint64_t most = MostResident();
    answer.memory = most > resident_ ? most - resident_ : 0;
    return answer;
  }

 private:
  Status Work(const TrialQuestion& question, double begin,
              TrialAnswer& answer) {
    GrammarLimits limits = setup_.limits;
    limits.max_compile_ms = 0;  // the timer ends it
    if (question.what == TrialQuestion::What::kCheckSchema) {
      SLUICE_ASSIGN_OR_RETURN(
          answer.text, CheckSchemaText(question.text, limits, Trial::kYes));
      return OkStatus();
    }
    if (question.what == TrialQuestion::What::kLarkOfGbnf) {
      SLUICE_ASSIGN_OR_RETURN(
          answer.text, LarkOfGbnfText(question.text, limits, Trial::kYes));
      return OkStatus();
    }
    SLUICE_ASSIGN_OR_RETURN(
        auto grammar, CompileText(vocabulary_, {question.kind, question.text},
                                  limits, Trial::kYes));
    answer.cpu_ms = CpuMs() - begin;
    timer_.Set(std::max<uint32_t>(question.masks_ms, 1));
    // Half of it is no reason to refuse a grammar: the next mask is.
    return TryMasks(std::move(grammar), question.masks_ms / 2.0);
  }

  // On a thread with the stack of a trial, where the grammar is freed, too.
  Status TryMasks(std::shared_ptr<const Grammar> grammar,
                  double budget_ms) const {
    Status status;
    std::thread thread(
        [&status, budget_ms, this, grammar = std::move(grammar)]() mutable {
          status = MaskTrial(std::move(grammar), budget_ms).Run(setup_.answers);
        });
    thread.join();
    return status;
  }

  // For where there is no timer. Above the soft limit: SIGXCPU, as the timer's.
  static void LimitCpu(const TrialQuestion& question) {
    rlimit limit = {};
    getrlimit(RLIMIT_CPU, &limit);
    const auto most = static_cast<rlim_t>(CpuMs() / 1000) + 2 +
                      (question.compile_ms + question.masks_ms) / 1000;
    limit.rlim_cur = std::min<rlim_t>(most, limit.rlim_max);
    setrlimit(RLIMIT_CPU, &limit);
  }

  void LimitAddresses(size_t text_size) const {
    if (!kLimitsAddressSpace || addresses_ == 0) return;
    rlimit limit = {};
    getrlimit(RLIMIT_AS, &limit);
    const size_t most = addresses_ + kMaxTrialBytes + kSpareAddresses +
                        std::max(kMinStack, text_size * kStackPerByte);
    limit.rlim_cur = std::min<rlim_t>(most, limit.rlim_max);
    setrlimit(RLIMIT_AS, &limit);
  }

  const CompileSetup& setup_;
  const std::shared_ptr<const GrammarVocabulary>& vocabulary_;
  const uint64_t resident_;
  const size_t addresses_;
  CpuTimer timer_;
};

// No core file, no file at all.
void LimitProcess() {
  // A pipe of core_pattern ignores a limit of 0, and takes none at 1. /proc
  // hides the memory of a process that is not dumpable where a sandbox hides
  // processes.
  const rlimit core = {1, 1};
  if (setrlimit(RLIMIT_CORE, &core) != 0) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  Limit(RLIMIT_FSIZE, 0);
  setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace

void RunTrial(int fd, const CompileSetup& setup,
              const std::shared_ptr<const GrammarVocabulary>& vocabulary) {
  LimitProcess();
  Trials trials(setup, vocabulary);
  Limit(RLIMIT_NOFILE, 0);
  const size_t most = setup.limits.max_bytes * 8 + (1 << 20);
  std::string bytes;
  while (ReadMessage(fd, most, bytes)) {
    const auto question = DecodeTrialQuestion(bytes);
    if (!question || !WriteMessage(fd, Encode(trials.Answer(*question)))) break;
  }
  _exit(0);
}

}  // namespace sluice
