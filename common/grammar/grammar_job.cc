#include "common/grammar/grammar_job.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/cat.h"
#include "common/base/retry_after.h"
#include "common/grammar/compile_text.h"
#include "common/grammar/compile_trial.h"
#include "common/grammar/grammar_cache.h"

namespace sluice {
namespace {

// The parts of max_compile_ms for trying texts and for the masks of the
// grammar; what is left is for compiling it again.
constexpr double kTrialPart = 0.45;
constexpr double kMasksPart = 0.1;
// A grammar's masks are tried for no longer.
constexpr double kMostMasksMs = 100;
// The time that a limit of 0 stands for.
constexpr int kNoLimitMs = 3'600'000;
// Memory beside what compiling took in the trial.
constexpr size_t kSpareBytes = size_t{8} << 20;
constexpr auto kLook = std::chrono::milliseconds(20);

std::string_view WhatOf(GrammarSpec::Kind kind) {
  const bool is_schema = kind == GrammarSpec::Kind::kJsonSchema ||
                         kind == GrammarSpec::Kind::kJsonObject;
  return is_schema ? "schema" : "grammar";
}

double LimitOf(const GrammarLimits& limits) {
  return limits.max_compile_ms > 0 ? limits.max_compile_ms : kNoLimitMs;
}

double MasksMs(const GrammarLimits& limits) {
  return std::clamp(LimitOf(limits) * kMasksPart, 1.0, kMostMasksMs);
}

// A repetition without memory would fail at its end: what compiling took in the
// trial must be there before.
Status CheckMemory(size_t bytes) {
  void* const got = mmap(nullptr, bytes + kSpareBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) {
    return WithRetryAfter(Unavailable("too little memory for a grammar now"),
                          std::chrono::seconds(1));
  }
  munmap(got, bytes + kSpareBytes);
  return OkStatus();
}

}  // namespace

GrammarJob::GrammarJob(GrammarCompiler& compiler, std::string_view tenant,
                       GrammarPatience patience)
    : compiler_(compiler), tenant_(tenant), patience_(std::move(patience)) {
  if (compiler_.process_ != nullptr) {
    trial_.emplace(*compiler_.process_, patience_);
  }
}

const GrammarLimits& GrammarJob::limits() const { return compiler_.limits(); }

StatusOr<GrammarCompiler::Vocabulary> GrammarJob::AwaitVocabulary() const {
  const auto& vocabulary = compiler_.vocabulary_;
  while (vocabulary.wait_for(kLook) != std::future_status::ready) {
    if (patience_.wanted && !patience_.wanted()) {
      return Cancelled("the client left before the vocabulary was there");
    }
    if (patience_.deadline && *patience_.deadline <= Clock::now()) {
      return WithRetryAfter(Unavailable("the vocabulary is being read"),
                            std::chrono::seconds(1));
    }
  }
  if (!vocabulary.get().ok()) {
    return Internal(Message(vocabulary.get().status()));
  }
  return *vocabulary.get();
}

Status GrammarJob::TooSlow(std::string_view what) const {
  return InvalidArgument(what, ": took more than ",
                         static_cast<int>(LimitOf(limits()) * kTrialPart),
                         " ms of CPU time to compile; the limit is ",
                         limits().max_compile_ms,
                         " for compiling it twice, once to try it");
}

StatusOr<TrialAnswer> GrammarJob::Ask(TrialQuestion question,
                                      std::string_view what) const {
  const double left = LimitOf(limits()) * kTrialPart - spent_ms_;
  if (left < 1) return TooSlow(what);
  question.compile_ms = static_cast<uint32_t>(left);
  question.masks_ms = static_cast<uint32_t>(MasksMs(limits()));
  auto answer = trial_->Ask(question);
  if (!answer.ok()) {
    if (IsOfTheMoment(answer.status())) return answer.status();
    if (trial_->ran_out_of_time()) {
      spent_ms_ += left;
      return TooSlow(what);
    }
    return Annotate(answer.status(), what);
  }
  spent_ms_ += answer->cpu_ms;
  const auto code = static_cast<StatusCode>(answer->code);
  if (code == StatusCode::kOk) return answer;
  // Within its limit the trial got no memory: the text's fault.
  if (code == StatusCode::kUnavailable && kLimitsAddressSpace) {
    ++compiler_.process_->failures().memory;
    return InvalidArgument(what, ": took more than ", kMaxTrialBytes >> 20,
                           " MiB of memory to compile");
  }
  if (code != StatusCode::kInternal) {
    return Status(code, absl::string_view(answer->text));
  }
  ++compiler_.process_->failures().crashed;  // it panicked
  return InvalidArgument(what, ": the compiler crashed");
}

StatusOr<TrialAnswer> GrammarJob::TryText(const GrammarSpec& spec) const {
  TrialQuestion question;
  question.what = TrialQuestion::What::kCompile;
  question.kind = spec.kind;
  question.text = spec.text;
  return Ask(std::move(question), WhatOf(spec.kind));
}

StatusOr<std::shared_ptr<const Grammar>> GrammarJob::Compile(
    const GrammarSpec& spec) {
  const std::string key = GrammarCache::KeyOf(spec, tenant_);
  if (auto cached = compiler_.cache_->Find(key)) return cached;
  SLUICE_ASSIGN_OR_RETURN(const auto vocabulary, AwaitVocabulary());
  GrammarLimits here = limits();
  if (trial_) {
    SLUICE_ASSIGN_OR_RETURN(const TrialAnswer tried, TryText(spec));
    SLUICE_RETURN_IF_ERROR(CheckMemory(tried.memory));
    here.max_compile_ms =
        static_cast<int>(LimitOf(limits()) - spent_ms_ - MasksMs(limits()));
  }
  auto compiled = CompileText(vocabulary, spec, here, Trial::kNo);
  if (trial_ && compiled.status().code() == StatusCode::kInvalidArgument) {
    return TooSlow(WhatOf(spec.kind));  // all else is as in the trial
  }
  if (compiled.ok()) compiler_.cache_->Add(key, *compiled);
  return compiled;
}

Status GrammarJob::Try(const GrammarSpec& spec) {
  if (!trial_) return Compile(spec).status();
  const std::string key = GrammarCache::KeyOf(spec, tenant_);
  if (compiler_.cache_->Find(key) != nullptr) return OkStatus();
  return TryText(spec).status();
}

StatusOr<std::string> GrammarJob::CheckSchema(std::string_view schema) const {
  if (!trial_) return CheckSchemaText(schema, limits(), Trial::kNo);
  return TriedText(TrialQuestion::What::kCheckSchema, schema, "schema");
}

StatusOr<std::string> GrammarJob::LarkOfGbnf(std::string_view gbnf) const {
  if (!trial_) return LarkOfGbnfText(gbnf, limits(), Trial::kNo);
  return TriedText(TrialQuestion::What::kLarkOfGbnf, gbnf, "grammar");
}

StatusOr<std::string> GrammarJob::TriedText(TrialQuestion::What what,
                                            std::string_view text,
                                            std::string_view named) const {
  TrialQuestion question;
  question.what = what;
  question.text = text;
  SLUICE_ASSIGN_OR_RETURN(TrialAnswer answer, Ask(std::move(question), named));
  return std::move(answer.text);
}

std::shared_ptr<const Grammar> GrammarJob::Find(
    std::string_view request) const {
  return compiler_.cache_->Find(GrammarCache::KeyOfRequest(request, tenant_));
}

void GrammarJob::Remember(std::string_view request,
                          std::shared_ptr<const Grammar> grammar) const {
  if (request.size() > limits().max_bytes) return;
  compiler_.cache_->Add(GrammarCache::KeyOfRequest(request, tenant_),
                        std::move(grammar));
}

}  // namespace sluice
