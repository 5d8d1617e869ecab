#include "services/gateway/request_grammar.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/concurrency/turn_queue.h"
#include "common/core/token_constraint.h"
#include "common/openai/error.h"
#include "common/text/output/markup_tags.h"
#include "common/text/tokenizer.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/prepared_request.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {
namespace {

constexpr std::string_view kToolsField = "tools";
// The tokens at a prompt's end that show whether reasoning is closed there.
constexpr size_t kPromptTail = 16;
// Memory of compiling per byte of a grammar's text.
constexpr size_t kMemoryPerByte = 128;

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
        return openai::WithCode(openai::FieldError(field_, Message(status)),
                                "grammar_too_complex");
      case StatusCode::kInvalidArgument:
        return openai::FieldError(field_, Message(status));
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
      return openai::FieldError(field, Message(status));
    case StatusCode::kUnimplemented:
      return openai::WithCode(
          openai::FieldError(field, "not supported: ", Message(status)),
          "unsupported_parameter");
    default:
      return status;
  }
}

Status NoGrammars(const ServedModel& model, std::string_view field) {
  return openai::WithCode(
      openai::FieldError(field, "model ", model.name,
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

bool IsAllowed(const openai::ToolFields& fields, const std::string& name) {
  const auto& allowed = fields.allowed;
  return allowed.empty() ||
         std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

// Adds the tools that may be called. A tool that may not be called has no
// grammar, but the model is told of it.
void AddTools(const openai::ToolFields& fields, RequestGrammar& out) {
  for (size_t i = 0; i < fields.tools.size(); ++i) {
    const Json& function = fields.tools[i]["function"];
    const std::string name = function["name"];
    if (!IsAllowed(fields, name)) continue;
    const bool known = function.contains("parameters");
    out.rules.tools.push_back(
        {name, known ? DumpJson(function["parameters"]) : "", false});
    out.strict.push_back(fields.strict[i]);
  }
  out.rules.requires_call = fields.choice == openai::ToolChoice::kRequired;
  out.rules.is_parallel = fields.parallel;
}

// Returns whether only a grammar makes answers obey the tool fields.
bool NeedsGrammar(const openai::ToolFields& fields) {
  if (fields.tools.is_null()) return false;
  const auto& strict = fields.strict;
  return fields.choice == openai::ToolChoice::kRequired ||
         !fields.allowed.empty() ||
         std::find(strict.begin(), strict.end(), true) != strict.end();
}

void AddContent(const openai::GenerationFields& fields, RequestGrammar& out) {
  if (!fields.grammar) return;
  out.rules.content = fields.grammar->spec;
  out.content_field = fields.grammar->name;
}

// Adds how the answer behind `prompt` reasons before the grammar begins.
Status AddReasoning(const ServedModel& model, const openai::ChatRequest& chat,
                    const std::vector<TokenId>& prompt, RequestGrammar& out) {
  const OutputFormat format = model.text->output_format();
  if (format.reasoning != ReasoningFormat::kThink) return OkStatus();
  ReasoningMarks marks = ReasoningMarksOf(format, *model.vocabulary);
  out.begins_in_reasoning = model.text->EndsInReasoning(prompt);
  if (out.begins_in_reasoning) {
    if (marks.end.empty()) {
      return openai::WithCode(
          openai::FieldError(
              out.content_field.empty() ? kToolsField : out.content_field,
              "model ", model.name, " reasons, and no token of its ",
              "vocabulary ends that"),
          "unsupported_parameter");
    }
    out.reasoning = std::move(marks);
    return OkStatus();
  }
  const std::span<const TokenId> all(prompt);
  SLUICE_ASSIGN_OR_RETURN(
      std::string end,
      model.text->Decode(all.last(std::min(all.size(), kPromptTail)),
                         /*skip_special=*/false));
  end.erase(end.find_last_not_of(" \t\r\n") + 1);
  const bool is_closed =
      end.ends_with(kThinkEnd) || chat.chat_template.continue_final_message;
  if (!is_closed) out.reasoning = std::move(marks);
  return OkStatus();
}

// Returns the grammar of whole answers. Tools that are not strict keep to their
// schemas, too, where a grammar can hold them.
StatusOr<GrammarSpec> SpecOf(const ServedModel& model,
                             const RequestGrammar& grammar) {
  const auto spec_of = [&](const AnswerRules& rules) {
    return AnswerGrammar(grammar.format, *model.vocabulary, rules,
                         *model.grammars);
  };
  AnswerRules rules = grammar.rules;
  for (size_t i = 0; i < rules.tools.size(); ++i) {
    GrammarTool& tool = rules.tools[i];
    tool.is_strict = grammar.strict[i].value_or(false);
    if (tool.is_strict) continue;
    GrammarTool strict = tool;
    strict.is_strict = true;
    AnswerRules alone;
    alone.tools = {strict};
    alone.requires_call = true;
    tool.is_strict = spec_of(alone).ok();
  }
  auto spec = spec_of(rules);
  if (spec.ok()) return spec;
  if (rules.tools.empty() || !rules.content) {
    return OfField(spec.status(), rules.content ? grammar.content_field
                                                : std::string(kToolsField));
  }
  AnswerRules calls = rules;
  calls.content.reset();
  const Status of_calls = spec_of(calls).status();
  return of_calls.ok() ? OfField(spec.status(), grammar.content_field)
                       : OfField(of_calls, kToolsField);
}

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
    const ServedModel& model, const openai::ChatRequest& request,
    const std::vector<TokenId>& prompt) {
  const bool of_tools = NeedsGrammar(request.tools);
  if (!of_tools && !request.fields.grammar) {
    return std::optional<RequestGrammar>();
  }
  RequestGrammar out;
  AddContent(request.fields, out);
  const std::string_view field =
      out.content_field.empty() ? kToolsField : out.content_field;
  if (model.grammars == nullptr) return NoGrammars(model, field);
  SLUICE_RETURN_IF_ERROR(AddReasoning(model, request, prompt, out));
  // What goes on from a message is content, whatever it spells.
  if (request.chat_template.continue_final_message &&
      !out.begins_in_reasoning) {
    if (!of_tools) return std::optional(std::move(out));
    return openai::FieldError(
        "continue_final_message",
        "cannot go with a required call, allowed_tools or strict tools");
  }
  out.format = model.text->output_format();
  if (!request.tools.tools.is_null()) AddTools(request.tools, out);
  return std::optional(std::move(out));
}

StatusOr<std::optional<RequestGrammar>> CompletionGrammar(
    const ServedModel& model, const openai::GenerationFields& fields) {
  if (!fields.grammar) return std::optional<RequestGrammar>();
  RequestGrammar out;
  AddContent(fields, out);
  if (model.grammars == nullptr) return NoGrammars(model, out.content_field);
  return std::optional(std::move(out));
}

Status AddConstraints(const HandlerContext& context,
                      PreparedRequest& prepared) {
  const RequestGrammar& grammar = *prepared.grammar;
  const ServedModel& model = context.model;
  const TimePoint begin = Clock::now();
  SLUICE_ASSIGN_OR_RETURN(const GrammarSpec spec, SpecOf(model, grammar));
  const std::string field = grammar.content_field.empty()
                                ? std::string(kToolsField)
                                : grammar.content_field;
  const auto compiled =
      model.grammars->Compile(spec, prepared.choices.front().generate.tenant);
  if (!compiled.ok()) return OfField(compiled.status(), field);
  const GrammarKind kind = !grammar.rules.tools.empty()
                               ? GrammarKind::kTools
                               : KindOf(grammar.rules.content->kind);
  context.metrics.OnGrammar(kind, Seconds(Clock::now() - begin));
  const GrammarUse use = UseOf(grammar, *compiled);
  for (PreparedRequest::Choice& choice : prepared.choices) {
    choice.generate.constraint = std::make_shared<FieldConstraint>(
        model.grammars->NewConstraint(use), field);
  }
  return OkStatus();
}

size_t GrammarMemory(const RequestGrammar& grammar) {
  // Any text may take long: none of them counts as small work.
  size_t bytes = 0;
  if (grammar.rules.content) bytes += grammar.rules.content->text.size();
  for (const GrammarTool& tool : grammar.rules.tools) {
    bytes += tool.parameters.size();
  }
  return TurnQueue::kSmallBytes + 1 + bytes * kMemoryPerByte;
}

}  // namespace sluice::gateway
