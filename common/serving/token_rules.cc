#include "common/serving/token_rules.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/base/log_limit.h"
#include "common/grammar/answer_grammar.h"
#include "common/serving/context.h"
#include "common/serving/error.h"
#include "common/serving/served_model.h"

namespace sluice::serving {
namespace {

using Runs = std::vector<TokenRun>;

// Of a request's allowed ids: a step's masks hold them for each choice, on the
// engine's thread and on the wire.
constexpr size_t kMaxAllowedRuns = 4096;

// Returns the tokens of [0, vocab_size) that are in no run.
Runs Complement(const Runs& runs, int32_t vocab_size) {
  Runs out;
  TokenId next = 0;
  for (const TokenRun& run : runs) {
    if (run.begin > next) out.push_back({next, run.begin});
    next = run.end;
  }
  if (next < vocab_size) out.push_back({next, vocab_size});
  return out;
}

Runs Intersection(const Runs& a, const Runs& b) {
  Runs out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const TokenId begin = std::max(a[i].begin, b[j].begin);
    const TokenId end = std::min(a[i].end, b[j].end);
    if (begin < end) out.push_back({begin, end});
    ++(a[i].end < b[j].end ? i : j);
  }
  return out;
}

// `tokens` rise.
Runs RunsOf(const std::vector<TokenId>& tokens) {
  Runs runs;
  for (const TokenId token : tokens) {
    if (!runs.empty() && runs.back().end == token) {
      ++runs.back().end;
    } else if (runs.empty() || runs.back().end < token) {
      runs.push_back({token, token + 1});
    }
  }
  return runs;
}

// The spellings of a bad word are those of vLLM: as an answer begins with it,
// and behind a space where that is as many tokens with another first one.
Status AddBadWord(const ModelText& text, const std::string& word,
                  std::vector<std::vector<TokenId>>& out) {
  std::string bare = word;
  bare.erase(0, bare.find_first_not_of(' '));
  if (bare.empty()) bare = word;
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> alone, text.EncodePlain(bare));
  if (alone.empty()) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(std::vector<TokenId> behind,
                          text.EncodePlain(" " + bare));
  const bool differs = behind.size() == alone.size() && behind[0] != alone[0];
  out.push_back(std::move(alone));
  if (differs) out.push_back(std::move(behind));
  return OkStatus();
}

Status AddBudget(const ServedModel& model, const GenerationFields& fields,
                 std::span<const TokenId> prompt, TokenRules& rules) {
  const OutputFormat format = model.text->output_format();
  if (format.reasoning == ReasoningFormat::kNone) return OkStatus();
  ReasoningMarks marks;
  if (model.vocabulary != nullptr) {
    marks = ReasoningMarksOf(format, *model.vocabulary);
  }
  if (marks.end.empty() && fields.thinking_budget_is_wish) {
    static LogLimit limit(1, std::chrono::hours(1));
    limit.Write(LogLevel::kWarning, fields.thinking_budget_field,
                " is dropped: no token ends the reasoning of model ",
                model.name);
    return OkStatus();
  }
  if (marks.end.empty()) {
    return WithCode(
        FieldError(fields.thinking_budget_field, "model ", model.name,
                   " reasons, and no token of its vocabulary ends that"),
        "unsupported_parameter");
  }
  rules.reasoning_budget = fields.thinking_budget;
  rules.begins_in_reasoning = model.text->EndsInReasoning(prompt);
  rules.reasoning_begin = std::move(marks.begin);
  rules.reasoning_end = marks.end.front();
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const TokenRules>> MakeTokenRules(
    const ServingContext& context, const GenerationFields& fields,
    std::span<const TokenId> prompt) {
  TokenRules rules;
  rules.allowed = fields.allowed_token_ids;
  std::sort(rules.allowed.begin(), rules.allowed.end());
  rules.allowed.erase(std::unique(rules.allowed.begin(), rules.allowed.end()),
                      rules.allowed.end());
  if (const size_t runs = RunsOf(rules.allowed).size();
      runs > kMaxAllowedRuns) {
    return FieldError("allowed_token_ids", "has ", runs,
                      " runs of ids that follow one another, limit ",
                      kMaxAllowedRuns);
  }
  for (const std::string& word : fields.bad_words) {
    const Status added = AddBadWord(*context.model.text, word, rules.bad_words);
    if (!added.ok()) return WithParam(added, "bad_words");
  }
  if (fields.thinking_budget) {
    SLUICE_RETURN_IF_ERROR(AddBudget(context.model, fields, prompt, rules));
  }
  const bool is_free = rules.allowed.empty() && rules.bad_words.empty() &&
                       !rules.reasoning_budget;
  if (is_free) return std::shared_ptr<const TokenRules>();
  return std::make_shared<const TokenRules>(std::move(rules));
}

RuledConstraint::RuledConstraint(std::shared_ptr<const TokenRules> rules,
                                 std::shared_ptr<TokenConstraint> grammar,
                                 int32_t vocab_size)
    : rules_(std::move(rules)),
      grammar_(std::move(grammar)),
      allowed_(RunsOf(rules_->allowed)),
      vocab_size_(vocab_size),
      in_reasoning_(rules_->begins_in_reasoning) {}

void RuledConstraint::Advance(std::span<const TokenId> appended,
                              std::function<void()> ready) {
  for (const TokenId token : appended) Take(token);
  step_.reset();
  if (grammar_ != nullptr) return grammar_->Advance(appended, std::move(ready));
  step_ = Joined(ConstraintStep());
  ready();
}

void RuledConstraint::Take(TokenId token) {
  const auto& begin = rules_->reasoning_begin;
  if (in_reasoning_) {
    in_reasoning_ = token != rules_->reasoning_end;
    if (in_reasoning_) ++reasoning_tokens_;
  } else if (emitted_.empty()) {
    in_reasoning_ = std::find(begin.begin(), begin.end(), token) != begin.end();
  }
  emitted_.push_back(token);
}

const ConstraintStep* RuledConstraint::Latest() const {
  if (!step_ && grammar_ != nullptr) {
    const ConstraintStep* const of_grammar = grammar_->Latest();
    if (of_grammar == nullptr) return nullptr;
    step_ = Joined(*of_grammar);
  }
  return step_ ? &*step_ : nullptr;
}

std::vector<TokenId> RuledConstraint::Banned() const {
  std::vector<TokenId> banned;
  for (const std::vector<TokenId>& word : rules_->bad_words) {
    const size_t before = word.size() - 1;
    if (before > emitted_.size()) continue;
    const bool follows =
        std::equal(word.begin(), word.end() - 1,
                   emitted_.end() - static_cast<std::ptrdiff_t>(before));
    if (follows) banned.push_back(word.back());
  }
  std::sort(banned.begin(), banned.end());
  return banned;
}

ConstraintStep RuledConstraint::Joined(const ConstraintStep& of_grammar) const {
  if (!of_grammar.status.ok() || of_grammar.is_complete) return of_grammar;
  ConstraintStep step;
  // Forced tokens go one by one: the rules change behind each.
  std::optional<Runs> allowed;
  const auto allow = [&allowed](Runs runs) {
    allowed = allowed ? Intersection(*allowed, runs) : std::move(runs);
  };
  if (!of_grammar.forced.empty()) {
    const TokenId next = of_grammar.forced.front();
    allow({{next, next + 1}});
  } else if (of_grammar.mask) {
    allow(of_grammar.mask->excludes
              ? Complement(of_grammar.mask->runs, vocab_size_)
              : of_grammar.mask->runs);
  }
  const bool ends_reasoning = in_reasoning_ && rules_->reasoning_budget &&
                              reasoning_tokens_ >= *rules_->reasoning_budget;
  if (ends_reasoning) {
    allow({{rules_->reasoning_end, rules_->reasoning_end + 1}});
  } else if (!rules_->allowed.empty()) {
    allow(allowed_);
  }
  const Runs banned = ends_reasoning ? Runs() : RunsOf(Banned());
  if (!banned.empty()) allow(Complement(banned, vocab_size_));
  if (!allowed) return step;
  if (allowed->empty()) {
    step.status =
        InvalidArgument("allowed_token_ids, bad_words and the grammar leave ",
                        "no token behind the first ", emitted_.size());
    return step;
  }
  step.mask = TokenMask{std::move(*allowed), /*excludes=*/false};
  return step;
}

}  // namespace sluice::serving
