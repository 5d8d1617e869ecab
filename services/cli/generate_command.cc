#include <cstdio>

#include "common/base/json.h"
#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"
#include "services/cli/logits_file.h"
#include "services/cli/sampling_options.h"

namespace sluice::cli {
namespace {

// The text of a completion's streamed event; an error event is an error.
StatusOr<std::string> TextOf(std::string_view event) {
  if (event == "[DONE]") return std::string();
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(event));
  if (!json.is_object()) return Internal("odd event: ", event);
  if (json.contains("error")) {
    return Unavailable(ErrorText(200, std::string(event)));
  }
  if (json.contains("choices") && json["choices"].is_array()) {
    for (const Json& choice : json["choices"]) {
      if (choice.is_object() && choice.contains("text") &&
          choice["text"].is_string()) {
        return choice["text"].get<std::string>();
      }
    }
  }
  return std::string();
}

Status Stream(const BaseUrl& base, Json body) {
  body["stream"] = true;
  const Status done = HttpPostEvents(
      base, "/v1/completions", DumpJson(body),
      [](std::string_view event) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const std::string text, TextOf(event));
        PrintOutput(text);
        return OkStatus();
      });
  PrintOutput("\n");
  return done;
}

StatusOr<LogitsDump> ParseDump(const std::string& text) {
  JsonLimits limits;
  limits.max_bytes = size_t{4} << 30;
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, limits));
  const Status odd = Internal("/debug/logits answered something else");
  if (!json.is_object()) return odd;
  const auto ids = json.find("ids");
  const auto rows = json.find("logits");
  if (ids == json.end() || !ids->is_array() || rows == json.end() ||
      !rows->is_array()) {
    return odd;
  }
  LogitsDump dump;
  for (const Json& id : *ids) {
    if (!id.is_number_integer()) return odd;
    dump.ids.push_back(id.get<int64_t>());
  }
  for (const Json& row : *rows) {
    if (!row.is_array()) return odd;
    dump.vocab_size = static_cast<int64_t>(row.size());
    for (const Json& value : row) {
      if (!value.is_number()) return odd;
      dump.logits.push_back(value.get<float>());
    }
  }
  return dump;
}

Status DumpLogits(const BaseUrl& base, const Json& body,
                  const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse response,
                          HttpPost(base, "/debug/logits", DumpJson(body)));
  if (response.status != 200) {
    return FailedPrecondition(ErrorText(response.status, response.body));
  }
  SLUICE_ASSIGN_OR_RETURN(const LogitsDump dump, ParseDump(response.body));
  SLUICE_RETURN_IF_ERROR(WriteLogitsFile(path, dump));
  std::fprintf(stderr, "%s: %zu positions of %lld logits\n", path.c_str(),
               dump.ids.size(), static_cast<long long>(dump.vocab_size));
  return OkStatus();
}

}  // namespace

Status RunGenerate(const Words& words) {
  std::vector<std::string> options = RequestOptions();
  options.emplace_back("dump-logits");
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          Arguments::Parse(words, options, {"ignore-eos"}));
  if (arguments.words().size() != 1) {
    return InvalidArgument("usage: sluice generate PROMPT [--max-tokens N]");
  }
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, FindGateway(arguments));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, ServedModelId(base));
  Json body = {{"model", model}, {"prompt", arguments.words()[0]}};
  SLUICE_RETURN_IF_ERROR(AddSampling(arguments, body));
  if (arguments.Has("ignore-eos")) body["ignore_eos"] = true;
  if (const auto path = arguments.String("dump-logits")) {
    SLUICE_RETURN_IF_ERROR(DumpLogits(base, body, *path));
  }
  return Stream(base, body);
}

}  // namespace sluice::cli
