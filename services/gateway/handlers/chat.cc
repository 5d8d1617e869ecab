#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/openai/error.h"
#include "common/openai/parse.h"
#include "common/text/output/markup_tags.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/handlers/prepare.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {
namespace {

StatusOr<std::vector<TokenId>> EncodeMessages(
    const HandlerContext& context, const openai::ChatRequest& request,
    const AnswerStart& start, std::optional<TimePoint> deadline) {
  RenderOptions options = request.chat_template;
  options.now = start.origin.created;  // the same date when it is resumed
  options.deadline = deadline;
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
        return openai::WithCode(
            openai::FieldError("messages", Message(encoded.status()),
                               " (the server's --max-tokenize-bytes)"),
            "request_too_large");
      }
      return openai::WithCode(
          openai::FieldError(
              "messages", "this model's maximum context length is ",
              MaxContext(context), " tokens: ", Message(encoded.status())),
          "context_length_exceeded");
    case StatusCode::kInvalidArgument:
      return openai::WithParam(encoded.status(), "messages");
    default:
      return encoded.status();
  }
}

// INVALID_ARGUMENT if the request has tools and the model has no format of
// calls.
Status CheckTools(const ServedModel& model, const openai::ToolFields& fields) {
  const bool can_call = model.text->output_format().tools != ToolFormat::kNone;
  if (fields.tools.is_null() || can_call) return OkStatus();
  return openai::WithCode(
      openai::FieldError(
          "tools", "model ", model.name,
          " has no format of tool calls (the server's --tool-format)"),
      "unsupported_parameter");
}

// A continued message is content, from its first space on, unless the model
// reasons.
bool IsInContent(const openai::ModelText& text,
                 const openai::ChatRequest& request,
                 const std::vector<TokenId>& prompt) {
  return request.chat_template.continue_final_message &&
         !text.EndsInReasoning(prompt);
}

// Returns whether the answer to `prompt` may have more than content, or marks
// around it.
bool IsParsed(const openai::ModelText& text, const openai::ChatRequest& request,
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
void AddParsers(const ServedModel& model, const openai::ChatRequest& chat,
                const std::string& call_ids, PreparedRequest& prepared) {
  const openai::ToolFields& fields = chat.tools;
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
    openai::ChoiceTextOptions& choice = prepared.choices[i].text;
    choice.parser = std::move(parsers[i]);
    choice.eos_ids = model.eos_ids;
    choice.call_ids = Cat(call_ids, i, "_");
    choice.parallel_calls = fields.parallel;
    choice.hides_reasoning = chat.hides_reasoning;
  }
}

// Returns the engine's request, if its answer is within the limits.
StatusOr<GenerateRequest> MakeBoundedRequest(const HandlerContext& context,
                                             const openai::ChatRequest& request,
                                             size_t echo_bytes,
                                             std::vector<TokenId> prompt) {
  const openai::GenerationFields& fields = request.fields;
  openai::AnswerShape shape{/*chat=*/true, request.echo, prompt.size(),
                            echo_bytes};
  SLUICE_ASSIGN_OR_RETURN(
      GenerateRequest made,
      MakeGenerateRequest(context, fields, std::move(prompt),
                          {"messages", openai::DefaultMaxTokens(
                                           fields, shape, context.limits)}));
  shape.max_tokens = made.max_tokens;
  SLUICE_RETURN_IF_ERROR(openai::CheckAnswer(
      fields, shape, openai::AnswerBytes(fields, shape), context.limits));
  return made;
}

StatusOr<PreparedRequest> PrepareChat(const HandlerContext& context,
                                      const http::HttpRequest& http) {
  const ServedModel& model = context.model;
  SLUICE_ASSIGN_OR_RETURN(const openai::ChatRequest request,
                          openai::ParseChatRequest(http.body, model.vocab_size,
                                                   context.strict_fields));
  const openai::GenerationFields& fields = request.fields;
  SLUICE_RETURN_IF_ERROR(CheckModel(model, fields.model));
  SLUICE_RETURN_IF_ERROR(CheckStops(context, fields));
  SLUICE_RETURN_IF_ERROR(CheckTools(model, request.tools));
  SLUICE_RETURN_IF_ERROR(openai::CheckHistory(
      request.messages, request.tools.tools, context.limits));
  PreparedRequest prepared;
  SLUICE_ASSIGN_OR_RETURN(
      prepared.headers,
      CheckTemplateArguments(context, request.chat_template.kwargs,
                             request.argument_names));
  SLUICE_ASSIGN_OR_RETURN(AnswerStart start,
                          StartAnswer(http, kChatPath, fields));
  SLUICE_ASSIGN_OR_RETURN(const RequestTerms terms, ReadTerms(http));
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<TokenId> prompt,
      EncodeMessages(context, request, start, terms.deadline));
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
      prepared.grammar,
      ChatGrammar(model, request, choice.generate.prompt_tokens));
  openai::AnswerInfo info = MakeAnswerInfo(model, fields, start);
  const bool is_parsed =
      IsParsed(*model.text, request, choice.generate.prompt_tokens);
  info.is_parsed = is_parsed;
  info.as_functions = request.tools.as_functions;
  info.num_choices = static_cast<size_t>(fields.n);
  if (info.return_token_ids) info.prompts = {choice.generate.prompt_tokens};
  prepared.stream = fields.stream;
  prepared.include_usage = fields.include_usage;
  prepared.times = StreamTimes(context, fields);
  AddChoices(prepared, std::move(choice), fields.n, terms);
  SLUICE_RETURN_IF_ERROR(
      StartStream(context, http, fields, start, prepared, info));
  prepared.format = openai::MakeChatFormat(*model.text, std::move(info));
  if (is_parsed) AddParsers(model, request, start.CallIds(), prepared);
  // The answer has the prompt's logprobs once.
  for (size_t i = 1; i < prepared.choices.size(); ++i) {
    prepared.choices[i].generate.sampling.prompt_logprobs = -1;
  }
  return prepared;
}

}  // namespace

void RunChat(const HandlerContext& context,
             std::shared_ptr<http::Exchange> exchange) {
  PrepareAndRun(context, PrepareChat, std::move(exchange));
}

void AddChatHandler(http::Router& router, const HandlerContext& context) {
  router.Add("POST", kChatPath,
             [context](std::shared_ptr<http::Exchange> exchange) {
               RunChat(context, std::move(exchange));
             });
}

}  // namespace sluice::gateway
