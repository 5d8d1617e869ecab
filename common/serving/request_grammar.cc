#include "common/serving/request_grammar.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/core/token_constraint.h"
#include "common/grammar/grammar_job.h"
#include "common/serving/context.h"
#include "common/serving/error.h"
#include "common/serving/prepared_request.h"
#include "common/serving/request_metrics.h"
#include "common/serving/served_model.h"
#include "common/text/output/markup_tags.h"
#include "common/text/tokenizer.h"

namespace sluice::serving {
namespace {

// The tokens at a prompt's end that show whether reasoning is closed there.
constexpr size_t kGrammarTail = 16;
// Memory of compiling per byte of a grammar's text.
constexpr size_t kCompileMemoryPerByte = 128;

// A grammar that fails while the answer is made is the request's fault: a retry
// fails too, unlike with a full queue.
class FieldConstraint : public TokenConstraint {
 public:
  FieldConstraint(std::shared_ptr<TokenConstraint> constraint,
                  std::string field)
      : constraint_(std::move(constraint)), field_(std::move(field)) {}

  void Advance(std::span<const TokenId> appended,
               std::function<void()> ready) override {
    constraint_->Advance(appended, std::move(ready));
  }

  const ConstraintStep* Latest() const override {
    const ConstraintStep* step = constraint_->Latest();
    if (step == nullptr || step->status.ok()) return step;
    failed_.status = OfAnswer(step->status);
    return &failed_;
  }

 private:
  Status OfAnswer(const Status& status) const {
    switch (status.code()) {
      case StatusCode::kResourceExhausted:
        return WithCode(FieldError(field_, Message(status)),
                        "grammar_too_complex");
      case StatusCode::kInvalidArgument:
        return FieldError(field_, Message(status));
      default:
        return status;
    }
  }

  const std::shared_ptr<TokenConstraint> constraint_;
  const std::string field_;
  mutable ConstraintStep failed_;
};

// Returns an error of the grammar's text as one of the request's field.
Status OfField(const Status& status, std::string_view field) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return FieldError(field, Message(status));
    case StatusCode::kUnimplemented:
      return WithCode(FieldError(field, "not supported: ", Message(status)),
                      "unsupported_parameter");
    default:
      return status;
  }
}

Status NoGrammars(const ServedModel& model, std::string_view field) {
  return WithCode(FieldError(field, "model ", model.name,
                             " has no vocabulary that grammars are built for"),
                  "unsupported_parameter");
}

GrammarKind KindOf(GrammarSpec::Kind kind) {
  switch (kind) {
    case GrammarSpec::Kind::kJsonSchema:
      return GrammarKind::kJsonSchema;
    case GrammarSpec::Kind::kJsonObject:
      return GrammarKind::kJsonObject;
    case GrammarSpec::Kind::kRegex:
      return GrammarKind::kRegex;
    case GrammarSpec::Kind::kChoice:
      return GrammarKind::kChoice;
    default:
      return GrammarKind::kGrammar;
  }
}

bool IsAllowed(const ToolFields& fields, const std::string& name) {
  const auto& allowed = fields.allowed;
  return allowed.empty() ||
         std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

// Adds the tools that may be called. A tool that may not be called has no
// grammar, but the model is told of it.
void AddTools(const ToolFields& fields, RequestGrammar& out) {
  for (size_t i = 0; i < fields.tools.size(); ++i) {
    const Json& function = fields.tools[i]["function"];
    const std::string name = function["name"];
    if (!IsAllowed(fields, name)) continue;
    std::string schema = i < fields.held.size() ? fields.held[i] : "";
    if (schema.empty() && function.contains("parameters")) {
      schema = DumpJson(function["parameters"]);
    }
    out.rules.tools.push_back({name, std::move(schema), false});
    out.strict.push_back(fields.strict[i]);
  }
  out.rules.requires_call = fields.choice == ToolChoice::kRequired;
  out.rules.is_parallel = fields.parallel;
}

// Returns whether only a grammar makes answers obey the tool fields.
bool NeedsGrammar(const ToolFields& fields) {
  if (fields.tools.is_null()) return false;
  const auto& strict = fields.strict;
  return fields.choice == ToolChoice::kRequired || !fields.allowed.empty() ||
         std::find(strict.begin(), strict.end(), true) != strict.end();
}

void AddContent(const GenerationFields& fields, RequestGrammar& out) {
  if (!fields.grammar) return;
  out.rules.content = fields.grammar->spec;
  out.content_field = fields.grammar->name;
}

// Adds how the answer behind `prompt` reasons before the grammar begins.
Status AddReasoning(const ServedModel& model, const ChatRequest& chat,
                    const std::vector<TokenId>& prompt, RequestGrammar& out) {
  const OutputFormat format = model.text->output_format();
  const ReasoningTags& tags = TagsOf(format.reasoning);
  if (tags.open.empty()) return OkStatus();
  ReasoningMarks marks = ReasoningMarksOf(format, *model.vocabulary);
  out.begins_in_reasoning = model.text->EndsInReasoning(prompt);
  if (out.begins_in_reasoning) {
    if (marks.end.empty()) {
      return WithCode(
          FieldError(out.field(), "model ", model.name,
                     " reasons, and no token of its ", "vocabulary ends that"),
          "unsupported_parameter");
    }
    out.reasoning = std::move(marks);
    return OkStatus();
  }
  const std::span<const TokenId> all(prompt);
  SLUICE_ASSIGN_OR_RETURN(
      std::string end,
      model.text->Decode(all.last(std::min(all.size(), kGrammarTail)),
                         /*skip_special=*/false));
  end.erase(end.find_last_not_of(" \t\r\n") + 1);
  const bool is_closed =
      end.ends_with(tags.close) || chat.chat_template.continue_final_message;
  if (!is_closed) out.reasoning = std::move(marks);
  return OkStatus();
}

// Whether a call of one tool can be held to the tool's schema.
using HoldsTool = std::function<Status(const GrammarTool&)>;

// Returns the rules of the answer. Tools that are not strict keep to their
// schemas, too, where `holds` says that a grammar can hold them.
StatusOr<AnswerRules> RulesOf(const RequestGrammar& grammar,
                              const HoldsTool& holds) {
  AnswerRules rules = grammar.rules;
  for (size_t i = 0; i < rules.tools.size(); ++i) {
    GrammarTool& tool = rules.tools[i];
    tool.is_strict = true;
    const Status held = holds(tool);
    if (held.ok()) continue;
    if (IsOfTheMoment(held)) return held;
    tool.is_strict = grammar.strict[i].value_or(false);
    if (tool.is_strict) return OfField(held, grammar.tools_field);
  }
  return rules;
}

// Returns the compiled grammar of whole answers.
class AnswerCompiler {
 public:
  AnswerCompiler(const ServedModel& model, const RequestGrammar& grammar,
                 std::string_view tenant, GrammarPatience patience)
      : model_(model),
        grammar_(grammar),
        job_(*model.grammars, tenant, std::move(patience)) {}

  StatusOr<std::shared_ptr<const Grammar>> Compile() {
    const std::string request = Encoded(grammar_);
    if (auto known = job_.Find(request); known != nullptr) return known;
    auto compiled = CompileAnew();
    if (compiled.ok()) job_.Remember(request, *compiled);
    return compiled;
  }

 private:
  // Returns all of a request that its grammar depends on.
  static std::string Encoded(const RequestGrammar& grammar) {
    std::string out;
    const auto add = [&out](std::string_view text) {
      out += Cat(text.size(), " ", text);
    };
    const AnswerRules& rules = grammar.rules;
    out += Cat(static_cast<int>(grammar.format.tools), " ",
               static_cast<int>(grammar.format.reasoning), " ",
               rules.requires_call, rules.is_parallel, " ");
    if (rules.content) {
      out += Cat(static_cast<int>(rules.content->kind), " ");
      add(rules.content->text);
    }
    for (size_t i = 0; i < rules.tools.size(); ++i) {
      add(rules.tools[i].name);
      add(rules.tools[i].parameters);
      out += grammar.strict[i].value_or(false) ? "s" : "-";
    }
    return out;
  }

  StatusOr<std::shared_ptr<const Grammar>> CompileAnew() {
    SLUICE_ASSIGN_OR_RETURN(const AnswerRules rules,
                            RulesOf(grammar_, [&](const GrammarTool& tool) {
                              return SpecOf(Alone(tool)).status();
                            }));
    auto compiled = CompileRules(rules);
    if (compiled.ok() || rules.tools.empty() ||
        IsOfTheMoment(compiled.status())) {
      return compiled;
    }
    // The compiler, too, refuses schemas, and names no tool.
    SLUICE_ASSIGN_OR_RETURN(const AnswerRules held,
                            RulesOf(grammar_, [&](const GrammarTool& tool) {
                              return CompiledAlone(tool);
                            }));
    auto by_tool = CompileRules(held);
    if (by_tool.ok() || IsOfTheMoment(by_tool.status())) return by_tool;
    // Each can be held, and all of them together are too much.
    job_.BeginAnew();  // the tools alone may have taken all of the time
    auto free = CompileRules(Freed(held));
    return free.ok() ? free : by_tool;
  }

  // Tools that are not strict take any object.
  AnswerRules Freed(const AnswerRules& rules) const {
    AnswerRules freed = rules;
    for (size_t i = 0; i < freed.tools.size(); ++i) {
      if (grammar_.strict[i].value_or(false)) continue;
      freed.tools[i].parameters = "{}";
      freed.tools[i].is_strict = false;
    }
    return freed;
  }

  static AnswerRules Alone(const GrammarTool& tool) {
    AnswerRules rules;
    rules.tools = {tool};
    rules.requires_call = true;
    return rules;
  }

  StatusOr<GrammarSpec> SpecOf(const AnswerRules& rules) const {
    return AnswerGrammar(grammar_.format, *model_.vocabulary, rules, job_);
  }

  Status CompiledAlone(const GrammarTool& tool) {
    SLUICE_ASSIGN_OR_RETURN(const GrammarSpec spec, SpecOf(Alone(tool)));
    const Status status = job_.Try(spec);
    if (status.ok() || tool.parameters.empty() || IsOfTheMoment(status)) {
      return status;
    }
    // The schema by itself: the error has the keyword's path.
    const Status by_itself =
        job_.Try({GrammarSpec::Kind::kJsonSchema, tool.parameters});
    if (IsOfTheMoment(by_itself)) return by_itself;
    return Annotate(by_itself.ok() ? status : by_itself, "tool ", tool.name);
  }

  StatusOr<std::shared_ptr<const Grammar>> CompileRules(
      const AnswerRules& rules) {
    auto spec = SpecOf(rules);
    if (!spec.ok() && IsOfTheMoment(spec.status())) return spec.status();
    if (spec.ok()) {
      auto compiled = job_.Compile(*spec);
      if (compiled.ok()) return compiled;
      return OfField(compiled.status(), grammar_.field());
    }
    if (rules.tools.empty() || !rules.content) {
      return OfField(spec.status(), grammar_.field());
    }
    AnswerRules calls = rules;
    calls.content.reset();
    const Status of_calls = SpecOf(calls).status();
    return of_calls.ok() ? OfField(spec.status(), grammar_.content_field)
                         : OfField(of_calls, grammar_.tools_field);
  }

  const ServedModel& model_;
  const RequestGrammar& grammar_;
  GrammarJob job_;
};

GrammarUse UseOf(const RequestGrammar& grammar,
                 std::shared_ptr<const Grammar> compiled) {
  GrammarUse use;
  use.grammar = std::move(compiled);
  use.free_begin = grammar.reasoning.begin;
  use.free_end = grammar.reasoning.end;
  use.begins_free = grammar.begins_in_reasoning;
  return use;
}

}  // namespace

void AddGrammars(const Tokenizer& tokenizer,
                 const GrammarCompiler::Options& options, ServedModel& model) {
  auto made = GrammarCompiler::Create(tokenizer, model.vocab_size,
                                      model.eos_ids, options);
  if (!made.ok()) {
    LogWarning("no answer can be held to a grammar: ", Message(made.status()));
    return;
  }
  model.grammars = *std::move(made);
  model.vocabulary = &tokenizer.vocabulary();
}

StatusOr<std::optional<RequestGrammar>> ChatGrammar(
    const ServedModel& model, const ChatRequest& request,
    const std::vector<TokenId>& prompt) {
  const bool of_tools = NeedsGrammar(request.tools);
  if (!of_tools && !request.fields.grammar) {
    return std::optional<RequestGrammar>();
  }
  const FieldNames& names = *request.fields.names;
  RequestGrammar out;
  out.tools_field = names.tools;
  AddContent(request.fields, out);
  if (model.grammars == nullptr) return NoGrammars(model, out.field());
  SLUICE_RETURN_IF_ERROR(AddReasoning(model, request, prompt, out));
  // What goes on from a message is content, whatever it spells.
  if (request.chat_template.continue_final_message &&
      !out.begins_in_reasoning) {
    if (!of_tools) return std::optional(std::move(out));
    return FieldError(names.continues_message,
                      "cannot go with a required call, ", names.allowed_tools,
                      " or strict ", names.tools);
  }
  out.format = model.text->output_format();
  if (!request.tools.tools.is_null()) AddTools(request.tools, out);
  return std::optional(std::move(out));
}

StatusOr<std::optional<RequestGrammar>> CompletionGrammar(
    const ServedModel& model, const GenerationFields& fields) {
  if (!fields.grammar) return std::optional<RequestGrammar>();
  RequestGrammar out;
  AddContent(fields, out);
  if (model.grammars == nullptr) return NoGrammars(model, out.content_field);
  return std::optional(std::move(out));
}

Status AddConstraints(const ServingContext& context, PreparedRequest& prepared,
                      GrammarPatience patience) {
  const RequestGrammar& grammar = *prepared.grammar;
  const ServedModel& model = context.model;
  const TimePoint begin = Clock::now();
  const std::string field(grammar.field());
  SLUICE_ASSIGN_OR_RETURN(
      const std::shared_ptr<const Grammar> compiled,
      AnswerCompiler(model, grammar, prepared.choices.front().generate.tenant,
                     std::move(patience))
          .Compile());
  const GrammarKind kind = !grammar.rules.tools.empty()
                               ? GrammarKind::kTools
                               : KindOf(grammar.rules.content->kind);
  context.metrics.OnGrammar(kind, Seconds(Clock::now() - begin));
  const GrammarUse use = UseOf(grammar, compiled);
  for (PreparedRequest::Choice& choice : prepared.choices) {
    choice.generate.constraint = std::make_shared<FieldConstraint>(
        model.grammars->NewConstraint(use), field);
  }
  return OkStatus();
}

size_t GrammarMemory(const RequestGrammar& grammar) {
  size_t bytes = 0;
  if (grammar.rules.content) bytes += grammar.rules.content->text.size();
  for (const GrammarTool& tool : grammar.rules.tools) {
    bytes += tool.parameters.size();
  }
  return bytes * kCompileMemoryPerByte;
}

}  // namespace sluice::serving
