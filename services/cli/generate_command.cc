#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"
#include "services/cli/logits_file.h"
#include "services/cli/sampling_options.h"
#include "services/cli/stream_chunk.h"

namespace sluice::cli {
namespace {

// Streams the completion to stdout; returns all ids, the prompt's first.
StatusOr<std::vector<int64_t>> Stream(const BaseUrl& base, Json body) {
  body["stream"] = true;
  body["return_token_ids"] = true;
  std::vector<int64_t> ids;
  const Status done = HttpPostEvents(
      base, "/v1/completions", DumpJson(body),
      [&ids](std::string_view event) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const StreamChunk chunk, ParseGoodChunk(event));
        PrintOutput(chunk.text);
        ids.insert(ids.end(), chunk.prompt_ids.begin(), chunk.prompt_ids.end());
        if (chunk.ids)
          ids.insert(ids.end(), chunk.ids->begin(), chunk.ids->end());
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

struct GenerateOptions {
  EndpointOptions endpoint;
  SamplingOptions sampling;
  std::string prompt, dump_logits;
  bool ignore_eos = false;
};

Status RunGenerate(const GenerateOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, FindGateway(options.endpoint));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, ServedModelId(base));
  Json body = {{"model", model}, {"prompt", options.prompt}};
  AddSampling(options.sampling, body);
  if (options.ignore_eos) body["ignore_eos"] = true;
  SLUICE_ASSIGN_OR_RETURN(std::vector<int64_t> ids, Stream(base, body));
  if (options.dump_logits.empty()) return OkStatus();
  if (ids.empty()) return Internal("the gateway gave no token ids");
  return DumpLogits(base, std::move(ids), options.dump_logits);
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
