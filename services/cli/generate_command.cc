// The command generate.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/http/http_client.h"
#include "common/tools/eval/logits_file.h"
#include "common/tools/load/server_queries.h"
#include "common/tools/load/stream_chunk.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/conversation.h"

namespace sluice::cli {
namespace {

// Writes the logits after each of `ids`.
Status DumpLogits(const http::BaseUrl& base, const std::vector<int64_t>& ids,
                  const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const eval::LogitRows rows,
                          eval::FetchLogits(base, ids));
  SLUICE_RETURN_IF_ERROR(eval::WriteLogitsFile(path, ids, rows));
  std::fprintf(stderr, "%s: %zu positions of %zu logits\n", path.c_str(),
               ids.size(), rows.columns);
  return OkStatus();
}

struct GenerateOptions {
  EndpointOptions endpoint;
  Json sampling = Json::object();  // fields of a request
  std::string prompt, dump_logits;
  bool ignore_eos = false;
};

Status RunGenerate(const GenerateOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const http::BaseUrl base,
                          FindGateway(options.endpoint));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, load::ServedModelId(base));
  Json body = {{"model", model}, {"prompt", options.prompt}};
  body.update(options.sampling);
  if (options.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = body["return_token_ids"] = true;
  std::vector<int64_t> ids;  // first those of the prompt
  SLUICE_RETURN_IF_ERROR(StreamAnswer(
      base, "/v1/completions", body, nullptr,
      [&ids](const load::StreamChunk& chunk) {
        ids.insert(ids.end(), chunk.prompt_ids.begin(), chunk.prompt_ids.end());
        const std::vector<int64_t> made =
            chunk.ids.value_or(std::vector<int64_t>());
        ids.insert(ids.end(), made.begin(), made.end());
      }));
  if (options.dump_logits.empty()) return OkStatus();
  if (ids.empty()) return Internal("the gateway gave no token ids");
  return DumpLogits(base, ids, options.dump_logits);
}

}  // namespace

void AddGenerate(CommandLine& sluice) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App& generate = sluice.Add("generate", "complete a prompt",
                                  [options] { return RunGenerate(*options); });
  generate.add_option("PROMPT", options->prompt, "what is completed")
      ->required();
  generate.add_flag("--ignore-eos", options->ignore_eos,
                    "go on behind an end token");
  generate.add_option("--dump-logits", options->dump_logits,
                      "the logits of every position, as safetensors");
  AddSampling(generate, options->sampling);
  AddEndpoint(generate, options->endpoint);
}

}  // namespace sluice::cli
