#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/dialects/openai/answer.h"
#include "common/dialects/openai/handlers.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "common/text/output/markup_tags.h"

namespace sluice::openai {
namespace {

StatusOr<std::vector<TokenId>> EncodeMessages(
    const serving::ServingContext& context, const serving::ChatRequest& request,
    const serving::AnswerStart& start, std::optional<TimePoint> deadline) {
  RenderOptions options = request.chat_template;
  options.now = start.origin.created;  // the same date when it is resumed
  options.deadline = deadline;
  // The context's limit has an error of its own.
  const size_t fits = serving::MaxTextBytes(context, request.fields);
  const size_t allowed = serving::MaxTokenizeBytes(context);
  options.max_bytes = std::min(fits, allowed);
  auto encoded = context.model.text->EncodeChat(
      request.messages, request.tools.tools, std::move(options));
  switch (encoded.status().code()) {
    case StatusCode::kOk:
      return serving::TruncatePrompt(context, request.fields,
                                     *std::move(encoded));
    case StatusCode::kOutOfRange:
      if (allowed < fits) {
        return serving::WithCode(
            serving::FieldError("messages", Message(encoded.status()),
                                " (the server's --max-tokenize-bytes)"),
            "request_too_large");
      }
      return serving::WithCode(
          serving::FieldError("messages",
                              "this model's maximum context length is ",
                              serving::MaxContext(context),
                              " tokens: ", Message(encoded.status())),
          "context_length_exceeded");
    case StatusCode::kInvalidArgument:
      return serving::WithParam(encoded.status(), "messages");
    default:
      return encoded.status();
  }
}

// INVALID_ARGUMENT if the request has tools and the model has no format of
// calls.
Status CheckTools(const serving::ServedModel& model,
                  const serving::ToolFields& fields) {
  const bool can_call = model.text->output_format().tools != ToolFormat::kNone;
  if (fields.tools.is_null() || can_call) return OkStatus();
  return serving::WithCode(
      serving::FieldError(
          "tools", "model ", model.name,
          " has no format of tool calls (the server's --tool-format)"),
      "unsupported_parameter");
}

// A continued message is content, from its first space on, unless the model
// reasons.
bool IsInContent(const serving::ModelText& text,
                 const serving::ChatRequest& request,
                 const std::vector<TokenId>& prompt) {
  return request.chat_template.continue_final_message &&
         !text.EndsInReasoning(prompt);
}

// Returns whether the answer to `prompt` may have more than content, or marks
// around it.
bool IsParsed(const serving::ModelText& text,
              const serving::ChatRequest& request,
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
void AddParsers(const serving::ServedModel& model,
                const serving::ChatRequest& chat, const std::string& call_ids,
                serving::PreparedRequest& prepared) {
  const serving::ToolFields& fields = chat.tools;
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
    serving::ChoiceTextOptions& choice = prepared.choices[i].text;
    choice.parser = std::move(parsers[i]);
    choice.eos_ids = model.eos_ids;
    choice.call_ids = Cat(call_ids, i, "_");
    choice.parallel_calls = fields.parallel;
    choice.hides_reasoning = chat.hides_reasoning;
  }
}

// Returns the engine's request, if its answer is within the limits.
StatusOr<GenerateRequest> MakeBoundedRequest(
    const serving::ServingContext& context, const serving::ChatRequest& request,
    size_t echo_bytes, std::vector<TokenId> prompt) {
  const serving::GenerationFields& fields = request.fields;
  serving::AnswerShape shape{/*chat=*/true, request.echo, prompt.size(),
                             echo_bytes};
  SLUICE_ASSIGN_OR_RETURN(
      GenerateRequest made,
      serving::MakeGenerateRequest(
          context, fields, std::move(prompt),
          serving::DefaultMaxTokens(fields, shape, context.limits)));
  shape.max_tokens = made.max_tokens;
  SLUICE_RETURN_IF_ERROR(serving::CheckAnswer(
      fields, shape, serving::AnswerBytes(fields, shape), context.limits));
  return made;
}

StatusOr<serving::PreparedRequest> PrepareChat(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  const serving::ServedModel& model = context.model;
  SLUICE_ASSIGN_OR_RETURN(
      const serving::ChatRequest request,
      ParseChatRequest(http.body, model.vocab_size, context.strict_fields));
  const serving::GenerationFields& fields = request.fields;
  SLUICE_RETURN_IF_ERROR(serving::CheckModel(model, "model", fields.model));
  SLUICE_RETURN_IF_ERROR(serving::CheckStops(context, fields));
  SLUICE_RETURN_IF_ERROR(CheckTools(model, request.tools));
  SLUICE_RETURN_IF_ERROR(serving::CheckHistory(
      *fields.names, request.messages, request.tools.tools, context.limits));
  serving::PreparedRequest prepared;
  SLUICE_ASSIGN_OR_RETURN(
      prepared.headers,
      serving::CheckTemplateArguments(context, fields.names->template_arguments,
                                      request.chat_template.kwargs,
                                      request.argument_names));
  SLUICE_ASSIGN_OR_RETURN(serving::AnswerStart start,
                          serving::StartAnswer(http, kChatPath, fields));
  SLUICE_ASSIGN_OR_RETURN(const serving::RequestTerms terms,
                          serving::ReadTerms(http));
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<TokenId> prompt,
      EncodeMessages(context, request, start, terms.deadline));
  serving::PreparedRequest::Choice choice;
  choice.text = serving::MakeTextOptions(fields);
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
      serving::ChatGrammar(model, request, choice.generate.prompt_tokens));
  serving::AnswerInfo info =
      serving::MakeAnswerInfo(model, fields, start, "chatcmpl-");
  const bool is_parsed =
      IsParsed(*model.text, request, choice.generate.prompt_tokens);
  info.is_parsed = is_parsed;
  info.as_functions = request.tools.as_functions;
  info.num_choices = static_cast<size_t>(fields.n);
  if (info.return_token_ids) info.prompts = {choice.generate.prompt_tokens};
  prepared.stream = fields.stream;
  prepared.times = serving::StreamTimes(context, fields);
  serving::AddChoices(prepared, std::move(choice), fields.n, terms);
  SLUICE_RETURN_IF_ERROR(
      serving::StartStream(context, http, fields, start, prepared, info));
  prepared.format = MakeChatFormat(*model.text, std::move(info));
  if (is_parsed) AddParsers(model, request, start.CallIds("call_"), prepared);
  // The answer has the prompt's logprobs once.
  for (size_t i = 1; i < prepared.choices.size(); ++i) {
    prepared.choices[i].generate.sampling.prompt_logprobs = -1;
  }
  return prepared;
}

}  // namespace

void RunChat(const serving::ServingContext& context,
             std::shared_ptr<http::Exchange> exchange) {
  serving::PrepareAndRun(context, PrepareChat, std::move(exchange));
}

}  // namespace sluice::openai
