#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/text_file.h"
#include "common/tools/eval/checks.h"
#include "common/tools/eval/comparison.h"
#include "common/tools/eval/cost_table.h"
#include "common/tools/load/server_queries.h"
#include "services/cli/cluster_file.h"
#include "services/cli/commands.h"
#include "services/cli/eval_plots.h"

namespace sluice::cli {
namespace {

// Many lengths, so that a batch holds different positions.
const char* const kPrompts[] = {
    "Once upon a time",
    "The quick brown fox jumps over the lazy dog and",
    "A",
    ("One day, a little girl named Lily found a needle in her room. She knew "
     "it was difficult to play with it because it was sharp. Lily wanted to "
     "share the needle with her mom, so she could sew a button on her shirt. "
     "She"),
    "1 2 3 4 5 6 7 8 9 10",
    ("There was a big, old tree by the river. Every day the children came to "
     "the tree. They sat down, told each other long stories, and looked at the "
     "water until the sun went down. One of them said"),
    "Tom and his dog",
    ("It was raining. It was raining all day. It was raining all day and all "
     "night, and the rain"),
};

// The command line of `sluice eval`.
struct EvalOptions {
  EndpointOptions endpoint;
  std::string model, reference, other, other_api_key, prompts;
  std::string out, write_reference, plots;
  bool batch = false;
  eval::ReferenceLimits limits;
  int crowd = 16;
  double other_tolerance = 0;
  int64_t max_tokens = 32;
};

// Returns the prompts of --batch and --other, as JSON.
StatusOr<std::vector<std::string>> ChoosePrompts(
    const EvalOptions& options,
    const std::vector<eval::ReferencePrompt>& reference) {
  std::vector<std::string> prompts;
  if (!options.prompts.empty()) {
    SLUICE_ASSIGN_OR_RETURN(prompts, eval::ReadPromptLines(options.prompts));
  } else if (!reference.empty()) {
    for (const eval::ReferencePrompt& prompt : reference) {
      prompts.push_back(eval::PromptJson(prompt.ids));
    }
  } else {
    for (const char* text : kPrompts) {
      prompts.push_back(eval::PromptJson(std::string(text)));
    }
  }
  return prompts;
}

// Returns each prompt as a greedy probe and as a sampled one.
std::vector<eval::Probe> MakeProbes(const std::vector<std::string>& prompts,
                                    int64_t max_tokens) {
  std::vector<eval::Probe> probes;
  for (const double temperature : {0.0, 0.9}) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      eval::Probe probe;
      probe.name = Cat("prompt_", i, temperature > 0 ? ", drawn" : ", greedy");
      probe.prompt_json = prompts[i];
      probe.max_tokens = max_tokens;
      probe.temperature = temperature;
      probe.seed = static_cast<int64_t>(i) + 1;
      probes.push_back(std::move(probe));
    }
  }
  return probes;
}

// Moves the likeliest ids of every position, if the server gives them.
void TakeTop(eval::ProbeAnswer& answer, eval::ReferencePrompt& prompt) {
  for (size_t t = 1; t < answer.top.size(); ++t) {
    if (answer.top[t].empty()) return;
    std::sort(answer.top[t].begin(), answer.top[t].end(),
              [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  prompt.top = std::move(answer.top);
  if (!prompt.top.empty()) prompt.top[0].clear();
}

Status WriteReferenceFile(const eval::EvalApi& api, const EvalOptions& options,
                          const std::vector<std::string>& prompts) {
  std::vector<eval::ReferencePrompt> made;
  for (const std::string& text : prompts) {
    eval::Probe probe{Cat("prompt_", made.size()), text, options.max_tokens, 0,
                      1};
    SLUICE_ASSIGN_OR_RETURN(eval::ProbeAnswer answer,
                            api.Ask(probe, eval::kMostTop));
    const auto split = std::ptrdiff_t(answer.prompt_length);
    eval::ReferencePrompt prompt;
    prompt.name = probe.name;
    prompt.ids.assign(answer.ids.begin(), answer.ids.begin() + split);
    prompt.greedy_ids.assign(answer.ids.begin() + split, answer.ids.end());
    prompt.prompt_logprobs.assign(answer.logprobs.begin(),
                                  answer.logprobs.begin() + split);
    prompt.greedy_logprobs.assign(answer.logprobs.begin() + split,
                                  answer.logprobs.end());
    TakeTop(answer, prompt);
    made.push_back(std::move(prompt));
  }
  SLUICE_RETURN_IF_ERROR(WriteTextFile(
      options.write_reference,
      eval::ReferenceJson(Cat(api.model(), " at ", api.url()), made)));
  std::fprintf(stderr, "wrote %s\n", options.write_reference.c_str());
  return OkStatus();
}

using CheckMaker = std::function<StatusOr<eval::CheckResult>()>;

// Runs a check and prints its result to stderr.
eval::CheckResult RunCheck(const std::string& title, const CheckMaker& check) {
  std::fprintf(stderr, "%s: ", title.c_str());
  std::fflush(stderr);
  StatusOr<eval::CheckResult> result = check();
  eval::CheckResult made = result.ok()
                               ? *std::move(result)
                               : eval::FailedCheck(title, result.status());
  std::fprintf(stderr, "%s: %s\n", made.passed ? "passed" : "FAILED",
               made.summary.c_str());
  return made;
}

StatusOr<eval::CheckResult> RunCut(const EvalOptions& options,
                                   const eval::EvalApi& api,
                                   const std::vector<eval::Probe>& probes) {
  // The first endpoint's key must not reach another host.
  SLUICE_ASSIGN_OR_RETURN(
      const http::BaseUrl base,
      FindGateway({options.other, "", options.other_api_key}));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, load::ServedModelId(base));
  return eval::CheckCut(api, eval::EvalApi(base, model), probes,
                        options.other_tolerance);
}

StatusOr<eval::CheckResult> RunReference(
    const EvalOptions& options, const eval::EvalApi& api,
    const std::vector<eval::ReferencePrompt>& reference) {
  SLUICE_ASSIGN_OR_RETURN(
      const eval::Comparison found,
      eval::CompareWithReference(api, reference, options.limits));
  eval::CheckResult result = eval::ReferenceResult(found, options.limits);
  SLUICE_ASSIGN_OR_RETURN(
      const std::string images,
      WritePlots(options.plots, options.out,
                 {{"errors.svg", eval::ErrorByPosition(found)}}));
  result.body += images;
  return result;
}

// Runs the requested checks, one after the other.
StatusOr<std::vector<eval::CheckResult>> RunChecks(const EvalOptions& options,
                                                   const eval::EvalApi& api) {
  std::vector<eval::ReferencePrompt> reference;
  if (!options.reference.empty()) {
    SLUICE_ASSIGN_OR_RETURN(reference, eval::ReadReference(options.reference));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto prompts,
                          ChoosePrompts(options, reference));
  const auto probes = MakeProbes(prompts, options.max_tokens);
  if (!options.write_reference.empty()) {
    SLUICE_RETURN_IF_ERROR(WriteReferenceFile(api, options, prompts));
  }
  std::vector<eval::CheckResult> results;
  const auto add = [&](bool asked, const char* title, const CheckMaker& check) {
    if (asked) results.push_back(RunCheck(title, check));
  };
  add(!reference.empty(), "Against the reference",
      [&] { return RunReference(options, api, reference); });
  add(options.batch, "Batch invariance",
      [&] { return eval::CheckBatch(api, probes, options.crowd); });
  add(!options.other.empty(), "Cut invariance",
      [&] { return RunCut(options, api, probes); });
  return results;
}

Status RunEval(const EvalOptions& options) {
  if (options.reference.empty() && options.other.empty() &&
      options.write_reference.empty() && !options.batch) {
    return InvalidArgument(
        "no check is asked for; sluice eval --help lists them");
  }
  if (!options.plots.empty() && options.reference.empty()) {
    return InvalidArgument("--plots shows errors against a reference: give ",
                           "--reference, too");
  }
  SLUICE_ASSIGN_OR_RETURN(const http::BaseUrl base,
                          FindGateway(options.endpoint));
  std::string model = options.model;
  if (model.empty()) {
    SLUICE_ASSIGN_OR_RETURN(model, load::ServedModelId(base));
  }
  const eval::EvalApi api(base, model);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<eval::CheckResult> results,
                          RunChecks(options, api));
  if (results.empty()) return OkStatus();
  const std::string report = eval::ReportMarkdown({model, api.url()}, results);
  if (options.out.empty()) {
    std::fputs(report.c_str(), stdout);
  } else {
    SLUICE_RETURN_IF_ERROR(WriteTextFile(options.out, report));
    std::fprintf(stderr, "wrote %s\n", options.out.c_str());
  }
  std::string failed;
  for (const eval::CheckResult& result : results) {
    if (!result.passed) failed += (failed.empty() ? "" : ", ") + result.title;
  }
  if (failed.empty()) return OkStatus();
  return FailedPrecondition("failed: ", failed);
}

void AddChecks(CLI::App& eval, EvalOptions& options) {
  eval.add_option("--reference", options.reference,
                  "logits, log probabilities and greedy ids against a "
                  "reference: a folder with expected.safetensors, or JSON");
  eval.add_option("--tolerance", options.limits.tolerance,
                  "of its logits and log probabilities (1e-3)")
      ->check(Within(0, 1e9));
  eval.add_option("--gap", options.limits.gap,
                  "of its two best logits, where a greedy id may differ (0.01)")
      ->check(Within(0, 1e9));
  eval.add_flag("--batch", options.batch,
                "the same prompts alone and in a crowd: the same ids and bits");
  eval.add_option("--crowd", options.crowd, "requests of it (16)")
      ->check(Within(2, 512));
  eval.add_option("--other", options.other,
                  "the same requests at another endpoint: the same ids, bits");
  eval.add_option("--other-tolerance", options.other_tolerance,
                  "of its log probabilities (0)")
      ->check(Within(0, 1e9));
  eval.add_option("--other-api-key", options.other_api_key,
                  "--api-key is not sent there");
}

}  // namespace

void AddEval(CommandLine& sluice) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App& eval =
      sluice.Add("eval", "is it right? against references, itself, others",
                 [options] { return RunEval(*options); });
  AddChecks(eval, *options);
  AddEndpoint(eval, options->endpoint);
  eval.add_option("--model", options->model,
                  "the first that the endpoint lists");
  eval.add_option("--prompts", options->prompts,
                  "of --batch and --other: JSON lines {\"prompt\": text or "
                  "ids} (the reference's, else our own)");
  eval.add_option("--max-tokens", options->max_tokens, "of their answers (32)")
      ->check(Within(1, 1e6));
  eval.add_option("--out", options->out, "the report, in Markdown (stdout)");
  eval.add_option("--plots", options->plots,
                  "a folder: errors.svg, errors against the reference");
  eval.add_option("--write-reference", options->write_reference,
                  "what this endpoint answers, as a reference for others");
  eval.footer(
      "sluice eval make-reference MODEL makes a reference by transformers, "
      "sluice eval\ncosts MODEL compares forms of weights with one.");
  AddMakeReference(sluice);
  AddEvalCosts(sluice);
}

}  // namespace sluice::cli
