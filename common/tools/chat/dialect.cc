#include "common/tools/chat/dialect.h"

#include <iterator>
#include <utility>

#include "common/base/json_member.h"

namespace sluice::chat {
namespace {

constexpr Dialect kDialects[] = {Dialect::kChat, Dialect::kResponses,
                                 Dialect::kMessages, Dialect::kOllama};
constexpr std::string_view kNames[] = {"chat", "responses", "messages",
                                       "ollama"};
constexpr std::string_view kPaths[] = {"/v1/chat/completions", "/v1/responses",
                                       "/v1/messages", "/api/chat"};
constexpr char kAnthropicVersion[] = "2023-06-01";
// /v1/messages needs the field.
constexpr int kMessagesMaxTokens = 4096;

size_t IndexOf(Dialect dialect) { return static_cast<size_t>(dialect); }

// A setting's other place in a body: "reasoning.effort" is within an object.
struct Rename {
  Dialect dialect;
  std::string_view from, to;
};
constexpr Rename kRenames[] = {
    {Dialect::kResponses, "max_tokens", "max_output_tokens"},
    {Dialect::kResponses, "reasoning_effort", "reasoning.effort"},
    {Dialect::kMessages, "stop", "stop_sequences"},
    {Dialect::kMessages, "reasoning_effort", "output_config.effort"},
    {Dialect::kOllama, "max_tokens", "options.num_predict"},
    {Dialect::kOllama, "reasoning_effort", "think"},
    // Ollama's own fields; any other setting is an option.
    {Dialect::kOllama, "model", "model"},
    {Dialect::kOllama, "think", "think"},
    {Dialect::kOllama, "format", "format"},
    {Dialect::kOllama, "keep_alive", "keep_alive"},
};

std::string PlaceOf(Dialect dialect, const std::string& setting) {
  for (const Rename& rename : kRenames) {
    if (rename.dialect == dialect && rename.from == setting) {
      return std::string(rename.to);
    }
  }
  return dialect == Dialect::kOllama ? "options." + setting : setting;
}

// INVALID_ARGUMENT for a member of what another setting made no object.
Status AddSetting(Dialect dialect, const std::string& setting, Json value,
                  Json& body) {
  const std::string place = PlaceOf(dialect, setting);
  if (place == "stop_sequences" && value.is_string()) {
    value = Json::array({std::move(value)});
  }
  const size_t dot = place.find('.');
  if (place == setting || dot == std::string::npos) {
    body[place] = std::move(value);
    return OkStatus();
  }
  const std::string object = place.substr(0, dot);
  Json& outer = body[object];
  if (!outer.is_null() && !outer.is_object()) {
    return InvalidArgument("setting ", setting, " is ", place, " here, and ",
                           object, " is ", DumpJson(outer),
                           ", which has no members");
  }
  outer[place.substr(dot + 1)] = std::move(value);
  return OkStatus();
}

std::string ErrorOf(const Json& error) {
  if (error.is_string()) return error.get<std::string>();
  const std::string message = FindText(error, "message");
  return message.empty() ? DumpJson(error) : message;
}

void AddTo(std::optional<int64_t>& sum, std::optional<int64_t> more) {
  if (more) sum = sum.value_or(0) + *more;
}

void ReadChat(const Json& event, AnswerPart& part) {
  for (const Json& choice : FindList(event, "choices")) {
    if (const Json* delta = FindMember(choice, "delta")) {
      part.text += FindText(*delta, "content") + FindText(*delta, "refusal");
      const std::string thinking = FindText(*delta, "reasoning_content");
      part.thinking +=
          thinking.empty() ? FindText(*delta, "reasoning") : thinking;
    }
    part.finish = FindText(choice, "finish_reason");
    part.is_end = !part.finish.empty();
  }
  if (const Json* usage = FindMember(event, "usage")) {
    part.prompt_tokens = FindInt(*usage, "prompt_tokens");
    part.completion_tokens = FindInt(*usage, "completion_tokens");
    if (const Json* details = FindMember(*usage, "prompt_tokens_details")) {
      part.cached_tokens = FindInt(*details, "cached_tokens");
    }
  }
}

Status ReadResponses(const Json& event, AnswerPart& part) {
  const std::string type = FindText(event, "type");
  if (type == "error") return Unavailable(ErrorOf(event));
  if (type == "response.output_text.delta" ||
      type == "response.refusal.delta") {
    part.text = FindText(event, "delta");
  } else if (type == "response.reasoning_text.delta" ||
             type == "response.reasoning_summary_text.delta") {
    part.thinking = FindText(event, "delta");
  }
  const Json* response = FindMember(event, "response");
  if (response == nullptr) return OkStatus();
  if (type == "response.failed") {
    const Json* error = FindMember(*response, "error");
    return Unavailable(error == nullptr ? type : ErrorOf(*error));
  }
  part.is_end = type == "response.completed" || type == "response.incomplete";
  if (const Json* details = FindMember(*response, "incomplete_details")) {
    part.finish = FindText(*details, "reason");
  }
  if (const Json* usage = FindMember(*response, "usage")) {
    part.prompt_tokens = FindInt(*usage, "input_tokens");
    part.completion_tokens = FindInt(*usage, "output_tokens");
    if (const Json* input = FindMember(*usage, "input_tokens_details")) {
      part.cached_tokens = FindInt(*input, "cached_tokens");
    }
  }
  return OkStatus();
}

void ReadMessagesUsage(const Json& usage, AnswerPart& part) {
  part.completion_tokens = FindInt(usage, "output_tokens");
  part.prompt_tokens = FindInt(usage, "input_tokens");
  part.cached_tokens = FindInt(usage, "cache_read_input_tokens");
  // input_tokens are those that no cache had a part in.
  if (part.prompt_tokens) {
    AddTo(part.prompt_tokens, part.cached_tokens);
    AddTo(part.prompt_tokens, FindInt(usage, "cache_creation_input_tokens"));
  }
}

void ReadMessages(const Json& event, AnswerPart& part) {
  part.is_end = FindText(event, "type") == "message_stop";
  if (const Json* delta = FindMember(event, "delta")) {
    part.text = FindText(*delta, "text");
    part.thinking = FindText(*delta, "thinking");
    part.finish = FindText(*delta, "stop_reason");
  }
  const Json* message = FindMember(event, "message");
  const Json* usage =
      FindMember(message == nullptr ? event : *message, "usage");
  if (usage != nullptr) ReadMessagesUsage(*usage, part);
}

void ReadOllama(const Json& event, AnswerPart& part) {
  if (const Json* message = FindMember(event, "message")) {
    part.text = FindText(*message, "content");
    part.thinking = FindText(*message, "thinking");
  }
  const Json* done = FindMember(event, "done");
  part.is_end = done != nullptr && *done == true;
  part.finish = FindText(event, "done_reason");
  part.prompt_tokens = FindInt(event, "prompt_eval_count");
  part.completion_tokens = FindInt(event, "eval_count");
}

// Returns the id of the first model of /v1/models or, `key` "name", /api/tags.
StatusOr<std::string> FirstModel(const Json& json, const char* list,
                                 const char* key) {
  const Json::array_t& models = FindList(json, list);
  const std::string name = models.empty() ? "" : FindText(models[0], key);
  if (!name.empty()) return name;
  return FailedPrecondition("the server lists no model: ", DumpJson(json));
}

// Returns whether the server says that it has no such path.
bool IsAbsent(const http::BaseUrl& base, Dialect dialect) {
  const auto answer = http::HttpGet(base, std::string(PathOf(dialect)));
  return answer.ok() && answer->status == 404;
}

// Returns the dialect of a server that answers /v1/models with `models`.
Dialect DialectOf(const http::BaseUrl& base, const Json& models) {
  const Json::array_t& data = FindList(models, "data");
  // Anthropic's form of the list.
  if (!data.empty() && FindText(data[0], "type") == "model") {
    return Dialect::kMessages;
  }
  for (const Dialect dialect :
       {Dialect::kChat, Dialect::kResponses, Dialect::kMessages}) {
    if (!IsAbsent(base, dialect)) return dialect;
  }
  return Dialect::kChat;  // GET is 404 where POST is not
}

StatusOr<Server> FindOllama(Server server) {
  SLUICE_ASSIGN_OR_RETURN(const Json tags,
                          http::GetJson(server.base, "/api/tags"));
  server.dialect = Dialect::kOllama;
  if (server.model.empty()) {
    SLUICE_ASSIGN_OR_RETURN(server.model, FirstModel(tags, "models", "name"));
  }
  return server;
}

}  // namespace

std::string_view NameOf(Dialect dialect) { return kNames[IndexOf(dialect)]; }
std::string_view PathOf(Dialect dialect) { return kPaths[IndexOf(dialect)]; }

StatusOr<Dialect> ParseDialect(std::string_view name) {
  for (const Dialect dialect : kDialects) {
    if (NameOf(dialect) == name) return dialect;
  }
  return InvalidArgument("there is no dialect '", name,
                         "': chat, responses, messages, ollama");
}

StatusOr<Server> FindServer(const http::BaseUrl& base,
                            std::optional<Dialect> dialect,
                            const std::string& model) {
  Server server{base, dialect.value_or(Dialect::kChat), model};
  if (dialect == Dialect::kMessages) {
    server.base.headers.emplace_back("anthropic-version", kAnthropicVersion);
    if (!base.api_key.empty()) {
      server.base.headers.emplace_back("x-api-key", base.api_key);
    }
  }
  if (dialect == Dialect::kOllama) return FindOllama(std::move(server));
  if (dialect && !model.empty()) return server;
  const StatusOr<Json> models = http::GetJson(server.base, "/v1/models");
  if (!models.ok()) {
    const bool is_absent = models.status().code() == StatusCode::kNotFound;
    if (is_absent && !dialect && http::GetJson(base, "/api/version").ok()) {
      return FindOllama(std::move(server));
    }
    return models.status();
  }
  if (!dialect) {
    const Dialect found = DialectOf(base, *models);
    // Chat alone needs no more than what is known.
    if (found != Dialect::kChat) return FindServer(base, found, model);
  }
  if (server.model.empty()) {
    SLUICE_ASSIGN_OR_RETURN(server.model, FirstModel(*models, "data", "id"));
  }
  return server;
}

StatusOr<Json> RequestOf(const Server& server, const Transcript& transcript) {
  const Dialect dialect = server.dialect;
  Json body = {{"model", server.model}, {"stream", true}};
  if (dialect == Dialect::kChat) {
    body["stream_options"] = {{"include_usage", true}};
  } else if (dialect == Dialect::kResponses) {
    body["store"] = false;
  } else if (dialect == Dialect::kMessages) {
    body["max_tokens"] = kMessagesMaxTokens;
  }
  for (const auto& [name, value] : transcript.settings.items()) {
    SLUICE_RETURN_IF_ERROR(AddSetting(dialect, name, value, body));
  }
  if (dialect == Dialect::kChat || dialect == Dialect::kOllama) {
    body["messages"] = MessagesOf(transcript);
    return body;
  }
  const bool is_responses = dialect == Dialect::kResponses;
  if (transcript.system) {
    body[is_responses ? "instructions" : "system"] = *transcript.system;
  }
  body[is_responses ? "input" : "messages"] =
      MessagesOf({std::nullopt, {}, transcript.messages});
  return body;
}

StatusOr<AnswerPart> ReadPart(Dialect dialect, std::string_view data) {
  AnswerPart part;
  if (data == "[DONE]") {
    part.is_end = true;
    return part;
  }
  SLUICE_ASSIGN_OR_RETURN(const Json event, ParseJson(data));
  if (!event.is_object()) {
    return InvalidArgument("an event is no JSON object: ", data);
  }
  const Json* error = FindMember(event, "error");
  if (error != nullptr) return Unavailable(ErrorOf(*error));
  switch (dialect) {
    case Dialect::kChat:
      ReadChat(event, part);
      break;
    case Dialect::kResponses:
      SLUICE_RETURN_IF_ERROR(ReadResponses(event, part));
      break;
    case Dialect::kMessages:
      ReadMessages(event, part);
      break;
    case Dialect::kOllama:
      ReadOllama(event, part);
      break;
  }
  return part;
}

Status StreamAnswer(const Server& server, const Transcript& transcript,
                    const std::function<Status(const AnswerPart&)>& take,
                    int cancel_fd) {
  SLUICE_ASSIGN_OR_RETURN(const Json body, RequestOf(server, transcript));
  bool is_end = false;
  const auto post = server.dialect == Dialect::kOllama ? http::HttpPostLines
                                                       : http::HttpPostEvents;
  SLUICE_RETURN_IF_ERROR(post(
      server.base, std::string(PathOf(server.dialect)), DumpJson(body),
      [&](std::string_view data) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const AnswerPart part,
                                ReadPart(server.dialect, data));
        is_end = is_end || part.is_end;
        return take(part);
      },
      cancel_fd));
  if (is_end) return OkStatus();
  return Unavailable("the answer broke off: its stream has no end");
}

}  // namespace sluice::chat
