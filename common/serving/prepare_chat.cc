#include "common/serving/prepare_chat.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "common/serving/token_rules.h"
#include "common/text/output/markup_tags.h"

namespace sluice::serving {
namespace {

// INVALID_ARGUMENT if the request has tools and the model has no format of
// calls.
Status CheckTools(const ServedModel& model, const ChatRequest& request) {
  const bool can_call = model.text->output_format().tools != ToolFormat::kNone;
  if (request.tools.tools.is_null() || can_call) return OkStatus();
  return WithCode(
      FieldError(request.fields.names->tools, "model ", model.name,
                 " has no format of tool calls (the server's --tool-format)"),
      "unsupported_parameter");
}

// A continued message is content, from its first space on, unless the model
// reasons.
bool IsInContent(const ModelText& text, const ChatRequest& request,
                 const std::vector<TokenId>& prompt) {
  return request.chat_template.continue_final_message &&
         !text.EndsInReasoning(prompt);
}

// Returns whether the answer to `prompt` may have more than content, or marks
// around it.
bool IsParsed(const ModelText& text, const ChatRequest& request,
              const std::vector<TokenId>& prompt) {
  const OutputFormat format = text.output_format();
  if (IsInContent(text, request, prompt)) {
    return !TagsOf(format.reasoning).around_content[1].empty();
  }
  return format.reasoning != ReasoningFormat::kNone ||
         (format.tools != ToolFormat::kNone && !request.tools.tools.is_null());
}

// Adds a parser to each choice; `call_ids` begins its calls' ids. Off the loop,
// because large schemas take time.
void AddParsers(const ServedModel& model, const ChatRequest& chat,
                const std::string& call_ids, PreparedRequest& prepared) {
  const ToolFields& fields = chat.tools;
  OutputRequest request;
  const std::vector<TokenId>& prompt =
      prepared.choices.front().generate.prompt_tokens;
  request.in_reasoning = model.text->EndsInReasoning(prompt);
  request.in_content = IsInContent(*model.text, chat, prompt);
  if (prepared.grammar && !prepared.grammar->rules.tools.empty()) {
    request.calls_in_reasoning = false;
    request.calls_or_content = prepared.grammar->rules.content.has_value();
  }
  if (!fields.tools.is_null() && !request.in_content) {
    for (const Json& tool : fields.tools) {
      const Json& function = tool["function"];
      const bool known = function.contains("parameters");
      request.tools.push_back({function["name"].get<std::string>(),
                               known ? DumpJson(function["parameters"]) : ""});
    }
  }
  auto parsers = model.text->NewParsers(request, prepared.choices.size());
  for (size_t i = 0; i < prepared.choices.size(); ++i) {
    ChoiceTextOptions& choice = prepared.choices[i].text;
    choice.parser = std::move(parsers[i]);
    choice.eos_ids = model.eos_ids;
    choice.call_ids = Cat(call_ids, i, "_");
    choice.parallel_calls = fields.parallel;
    choice.hides_reasoning = chat.hides_reasoning;
  }
}

// Returns the engine's request, if its answer is within the limits.
StatusOr<GenerateRequest> MakeBoundedRequest(const ServingContext& context,
                                             const ChatRequest& request,
                                             size_t echo_bytes,
                                             std::vector<TokenId> prompt) {
  const GenerationFields& fields = request.fields;
  AnswerShape shape{/*chat=*/true, request.echo, prompt.size(), echo_bytes};
  SLUICE_ASSIGN_OR_RETURN(
      GenerateRequest made,
      MakeGenerateRequest(context, fields, std::move(prompt),
                          DefaultMaxTokens(fields, shape, context.limits)));
  shape.max_tokens = made.max_tokens;
  SLUICE_RETURN_IF_ERROR(
      CheckAnswer(fields, shape, AnswerBytes(fields, shape), context.limits));
  return made;
}

}  // namespace

StatusOr<std::vector<TokenId>> EncodeChatPrompt(
    const ServingContext& context, const ChatRequest& request, int64_t now,
    std::optional<TimePoint> deadline) {
  const FieldNames& names = *request.fields.names;
  RenderOptions options = request.chat_template;
  options.now = now;
  options.deadline = deadline;
  const int limit = MaxContext(context);
  // The context's limit has an error of its own.
  const size_t fits = MaxTextBytes(context, request.fields);
  const size_t allowed = MaxTokenizeBytes(context);
  options.max_bytes = std::min(fits, allowed);
  auto encoded = context.model.text->EncodeChat(
      request.messages, request.tools.tools, std::move(options));
  switch (encoded.status().code()) {
    case StatusCode::kOk:
      return TruncatePrompt(context, request.fields, *std::move(encoded));
    case StatusCode::kOutOfRange:
      if (allowed < fits) {
        return WithCode(FieldError(names.prompt, Message(encoded.status()),
                                   " (the server's --max-tokenize-bytes)"),
                        "request_too_large");
      }
      return WithTooLong(
          FieldError(names.prompt, "this model's maximum context length is ",
                     limit, " tokens: ", Message(encoded.status())),
          int64_t{limit} + 1, limit);
    case StatusCode::kInvalidArgument:
      return WithParam(encoded.status(), names.prompt);
    default:
      return encoded.status();
  }
}

StatusOr<PreparedRequest> PrepareChat(const ServingContext& context,
                                      const http::HttpRequest& http,
                                      const ChatRequest& request,
                                      const ChatEndpoint& endpoint) {
  const ServedModel& model = context.model;
  const GenerationFields& fields = request.fields;
  SLUICE_RETURN_IF_ERROR(CheckModel(model, "model", fields.model));
  SLUICE_RETURN_IF_ERROR(CheckStops(context, fields));
  SLUICE_RETURN_IF_ERROR(CheckTools(model, request));
  SLUICE_RETURN_IF_ERROR(CheckHistory(*fields.names, request.messages,
                                      request.tools.tools, context.limits));
  PreparedRequest prepared;
  SLUICE_ASSIGN_OR_RETURN(
      prepared.headers,
      CheckTemplateArguments(context, fields.names->template_arguments,
                             request.chat_template.kwargs,
                             request.argument_names));
  SLUICE_ASSIGN_OR_RETURN(AnswerStart start,
                          StartAnswer(http, endpoint.path, fields));
  SLUICE_ASSIGN_OR_RETURN(const RequestTerms terms, ReadTerms(http));
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<TokenId> prompt,
      EncodeChatPrompt(context, request, start.origin.created, terms.deadline));
  PreparedRequest::Choice choice;
  choice.text = MakeTextOptions(fields);
  const Json& last = request.messages.back();
  if (request.echo && last["role"] == "assistant") {
    choice.text.echo_text = last["content"].get<std::string>();
  }
  SLUICE_ASSIGN_OR_RETURN(
      choice.generate,
      MakeBoundedRequest(context, request, choice.text.echo_text.size(),
                         std::move(prompt)));
  choice.generate.sampling.seed = start.SeedOf(fields, 0);
  SLUICE_ASSIGN_OR_RETURN(
      choice.rules,
      MakeTokenRules(context, fields, choice.generate.prompt_tokens));
  SLUICE_ASSIGN_OR_RETURN(
      prepared.grammar,
      ChatGrammar(model, request, choice.generate.prompt_tokens));
  AnswerInfo info = MakeAnswerInfo(model, fields, start, endpoint.id_prefix);
  const bool is_parsed =
      IsParsed(*model.text, request, choice.generate.prompt_tokens);
  info.is_parsed = is_parsed;
  info.as_functions = request.tools.as_functions;
  info.num_choices = static_cast<size_t>(fields.n);
  if (info.return_token_ids) info.prompts = {choice.generate.prompt_tokens};
  prepared.stream = fields.stream;
  prepared.times = StreamTimes(context, fields);
  AddChoices(prepared, std::move(choice), fields.n, terms);
  SLUICE_RETURN_IF_ERROR(
      StartStream(context, http, fields, start, prepared, info));
  prepared.format = endpoint.make_format(*model.text, std::move(info));
  if (is_parsed) {
    AddParsers(model, request, start.CallIds(endpoint.call_id_prefix),
               prepared);
  }
  // The answer has the prompt's logprobs once.
  for (size_t i = 1; i < prepared.choices.size(); ++i) {
    prepared.choices[i].generate.sampling.prompt_logprobs = -1;
  }
  return prepared;
}

}  // namespace sluice::serving
