#include <cstdio>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_table.h"
#include "services/cli/commands.h"
#include "services/cli/fetch_logits.h"
#include "services/cli/http_client.h"
#include "services/cli/logits_file.h"
#include "services/cli/sampling_options.h"

namespace sluice::cli {
namespace {

// What one streamed event of a completion adds.
struct Delta {
  std::string text;
  std::vector<int64_t> prompt_ids;  // in the first event
  std::vector<int64_t> ids;
};

void AppendIds(const Json& choice, const char* key, std::vector<int64_t>& ids) {
  const auto found = choice.find(key);
  if (found == choice.end() || !found->is_array()) return;
  for (const Json& id : *found) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
}

// An error event is an error.
StatusOr<Delta> ParseEvent(std::string_view event) {
  Delta delta;
  if (event == "[DONE]") return delta;
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(event));
  if (!json.is_object()) return Internal("odd event: ", event);
  if (json.contains("error")) {
    return Unavailable(ErrorText(200, std::string(event)));
  }
  const auto choices = json.find("choices");
  if (choices == json.end() || !choices->is_array()) return delta;
  for (const Json& choice : *choices) {
    if (!choice.is_object()) continue;
    if (choice.contains("text") && choice["text"].is_string()) {
      delta.text += choice["text"].get<std::string>();
    }
    AppendIds(choice, "prompt_token_ids", delta.prompt_ids);
    AppendIds(choice, "token_ids", delta.ids);
  }
  return delta;
}

// Streams the completion to stdout; returns all ids, the prompt's first.
StatusOr<std::vector<int64_t>> Stream(const BaseUrl& base, Json body) {
  body["stream"] = true;
  body["return_token_ids"] = true;
  std::vector<int64_t> ids;
  const Status done = HttpPostEvents(
      base, "/v1/completions", DumpJson(body),
      [&ids](std::string_view event) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const Delta delta, ParseEvent(event));
        PrintOutput(delta.text);
        ids.insert(ids.end(), delta.prompt_ids.begin(), delta.prompt_ids.end());
        ids.insert(ids.end(), delta.ids.begin(), delta.ids.end());
        return OkStatus();
      });
  PrintOutput("\n");
  SLUICE_RETURN_IF_ERROR(done);
  return ids;
}

// The logits after each of `ids`, as the cluster computes them.
Status DumpLogits(const BaseUrl& base, std::vector<int64_t> ids,
                  const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(LogitRows rows, FetchLogits(base, ids));
  const LogitsDump dump = {std::move(ids), std::move(rows.values),
                           static_cast<int64_t>(rows.columns)};
  SLUICE_RETURN_IF_ERROR(WriteLogitsFile(path, dump));
  std::fprintf(stderr, "%s: %zu positions of %lld logits\n", path.c_str(),
               dump.ids.size(), static_cast<long long>(dump.vocab_size));
  return OkStatus();
}

}  // namespace

Status RunGenerate(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          ParseArguments("generate", words));
  if (arguments.words().size() != 1) {
    return InvalidArgument(
        "usage: sluice generate PROMPT [OPTIONS]; sluice generate --help "
        "lists them");
  }
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, FindGateway(arguments));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, ServedModelId(base));
  Json body = {{"model", model}, {"prompt", arguments.words()[0]}};
  SLUICE_RETURN_IF_ERROR(AddSampling(arguments, body));
  if (arguments.Has("ignore-eos")) body["ignore_eos"] = true;
  SLUICE_ASSIGN_OR_RETURN(std::vector<int64_t> ids, Stream(base, body));
  const auto path = arguments.String("dump-logits");
  if (!path) return OkStatus();
  if (ids.empty()) return Internal("the gateway gave no token ids");
  return DumpLogits(base, std::move(ids), *path);
}

}  // namespace sluice::cli
