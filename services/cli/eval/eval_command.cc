#include "services/cli/eval/eval_command.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_table.h"
#include "services/cli/commands.h"
#include "services/cli/eval/checks.h"
#include "services/cli/eval/prompt_file.h"

namespace sluice::cli {

const char kEvalUsage[] = R"(usage: sluice eval [OPTIONS] CHECK...

Checks, any number of them:
  --reference FILE    logits, log probabilities and greedy ids against a
                      reference: a folder with expected.safetensors, or JSON
                      {"prompts": [{"ids", "greedy_ids", "greedy_logprobs",
                      "prompt_logprobs", "logits", "gaps"}]}, each but ids
                      if there
                      --tolerance X (1e-3), --gap X (0.01)
  --batch             the same prompts alone and in a crowd: the same ids and
                      bits; --crowd N (16)
  --other URL         the same requests at another endpoint: the same ids and
                      bits; --other-tolerance X (0), --other-api-key KEY
                      (--api-key is not sent there)
  --perplexity FILE   of a text; --window N (the context, at most 2048),
                      --stride N (half of it), --max-perplexity X

  --url URL | --run-dir DIR    --api-key KEY    --model NAME
  --prompts FILE      of --batch and --other: JSON lines {"prompt": text or
                      ids} (default: the reference's, else our own)
  --max-tokens N      of their answers (32)
  --out FILE          the report, in Markdown, its plots beside it
                      (default: on stdout, without plots)
  --write-reference FILE   what this endpoint answers to the prompts, as a
                      reference for others

Exit status: 0 every check passed, 1 one failed or could not be made, 2 the
command line was wrong.
)";

namespace {

// Of many lengths, so that a batch holds prompts at different places.
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

// What the command line says.
struct EvalOptions {
  std::string reference, other, perplexity, prompts, out, write_reference;
  bool batch = false;
  ReferenceLimits limits;
  int crowd = 16;
  double other_tolerance = 0;
  int64_t max_tokens = 32;
  PerplexityOptions text;
};

StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read ", path);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// The number of an option within [low, high], else `otherwise`.
StatusOr<double> NumberOr(const Arguments& arguments, const char* name,
                          double low, double high, double otherwise) {
  SLUICE_ASSIGN_OR_RETURN(const auto given, arguments.Number(name));
  const double value = given.value_or(otherwise);
  if (!(value >= low && value <= high)) {
    return InvalidArgument("--", name, ": must be ", low, " to ", high,
                           ", got ", value);
  }
  return value;
}

StatusOr<EvalOptions> ReadOptions(const Arguments& arguments) {
  EvalOptions out;
  out.reference = arguments.String("reference").value_or("");
  out.other = arguments.String("other").value_or("");
  out.perplexity = arguments.String("perplexity").value_or("");
  out.prompts = arguments.String("prompts").value_or("");
  out.out = arguments.String("out").value_or("");
  out.write_reference = arguments.String("write-reference").value_or("");
  out.batch = arguments.Has("batch");
  SLUICE_ASSIGN_OR_RETURN(out.limits.tolerance,
                          NumberOr(arguments, "tolerance", 0, 1e9, 1e-3));
  SLUICE_ASSIGN_OR_RETURN(out.limits.gap,
                          NumberOr(arguments, "gap", 0, 1e9, 0.01));
  SLUICE_ASSIGN_OR_RETURN(out.other_tolerance,
                          NumberOr(arguments, "other-tolerance", 0, 1e9, 0));
  SLUICE_ASSIGN_OR_RETURN(const double crowd,
                          NumberOr(arguments, "crowd", 2, 512, 16));
  SLUICE_ASSIGN_OR_RETURN(const double tokens,
                          NumberOr(arguments, "max-tokens", 1, 1e6, 32));
  SLUICE_ASSIGN_OR_RETURN(const double window,
                          NumberOr(arguments, "window", 0, 1e7, 0));
  SLUICE_ASSIGN_OR_RETURN(const double stride,
                          NumberOr(arguments, "stride", 0, 1e7, 0));
  SLUICE_ASSIGN_OR_RETURN(out.text.max_token_perplexity,
                          NumberOr(arguments, "max-perplexity", 0, 1e30, 0));
  out.crowd = static_cast<int>(crowd);
  out.max_tokens = static_cast<int64_t>(tokens);
  out.text.window = static_cast<int64_t>(window);
  out.text.stride = static_cast<int64_t>(stride);
  if (out.reference.empty() && out.other.empty() && out.perplexity.empty() &&
      out.write_reference.empty() && !out.batch) {
    return InvalidArgument("no check is asked for\n", kEvalUsage);
  }
  return out;
}

// The prompts of --batch and --other, as JSON.
StatusOr<std::vector<std::string>> ChoosePrompts(
    const EvalOptions& options, const std::vector<ReferencePrompt>& reference) {
  std::vector<std::string> prompts;
  if (!options.prompts.empty()) {
    SLUICE_ASSIGN_OR_RETURN(prompts, ReadPromptLines(options.prompts));
  } else if (!reference.empty()) {
    for (const ReferencePrompt& prompt : reference) {
      prompts.push_back(PromptJson(prompt.ids));
    }
  } else {
    for (const char* text : kPrompts) {
      prompts.push_back(PromptJson(std::string(text)));
    }
  }
  return prompts;
}

// Each prompt greedily, and each drawn with a seed.
std::vector<Probe> MakeProbes(const std::vector<std::string>& prompts,
                              int64_t max_tokens) {
  std::vector<Probe> probes;
  for (const double temperature : {0.0, 0.9}) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      Probe probe;
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

Status WriteReferenceFile(const EvalApi& api, const EvalOptions& options,
                          const std::vector<std::string>& prompts) {
  std::vector<ReferencePrompt> made;
  for (const std::string& text : prompts) {
    Probe probe{Cat("prompt_", made.size()), text, options.max_tokens, 0, 1};
    SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer answer, api.Ask(probe));
    const auto split = std::ptrdiff_t(answer.prompt_length);
    ReferencePrompt prompt;
    prompt.ids.assign(answer.ids.begin(), answer.ids.begin() + split);
    prompt.greedy_ids.assign(answer.ids.begin() + split, answer.ids.end());
    prompt.prompt_logprobs.assign(answer.logprobs.begin(),
                                  answer.logprobs.begin() + split);
    prompt.greedy_logprobs.assign(answer.logprobs.begin() + split,
                                  answer.logprobs.end());
    made.push_back(std::move(prompt));
  }
  std::ofstream out(options.write_reference, std::ios::binary);
  out << ReferenceJson(Cat(api.model(), " at ", api.url()), made);
  out.close();
  if (!out) return Unavailable("cannot write ", options.write_reference);
  std::fprintf(stderr, "wrote %s\n", options.write_reference.c_str());
  return OkStatus();
}

// Runs the checks that were asked for, one after the other.
class Evaluation {
 public:
  Evaluation(const Arguments& arguments, const EvalOptions& options,
             const EvalApi& api)
      : arguments_(arguments), options_(options), api_(api) {}

  StatusOr<std::vector<CheckResult>> Run() {
    std::vector<ReferencePrompt> reference;
    if (!options_.reference.empty()) {
      SLUICE_ASSIGN_OR_RETURN(reference, ReadReference(options_.reference));
    }
    SLUICE_ASSIGN_OR_RETURN(const auto prompts,
                            ChoosePrompts(options_, reference));
    const auto probes = MakeProbes(prompts, options_.max_tokens);
    if (!options_.write_reference.empty()) {
      SLUICE_RETURN_IF_ERROR(WriteReferenceFile(api_, options_, prompts));
    }
    if (!reference.empty()) {
      Add("Against the reference",
          [&] { return CheckReference(api_, reference, options_.limits); });
    }
    if (options_.batch) {
      Add("Batch invariance",
          [&] { return CheckBatch(api_, probes, options_.crowd); });
    }
    if (!options_.other.empty()) {
      Add("Cut invariance", [&] { return Cut(probes); });
    }
    if (!options_.perplexity.empty()) {
      Add("Perplexity", [&] { return Perplexity(); });
    }
    return std::move(results_);
  }

 private:
  void Add(const std::string& title,
           const std::function<StatusOr<CheckResult>()>& check) {
    std::fprintf(stderr, "%s: ", title.c_str());
    std::fflush(stderr);
    StatusOr<CheckResult> result = check();
    results_.push_back(result.ok() ? *std::move(result)
                                   : FailedCheck(title, result.status()));
    const CheckResult& made = results_.back();
    std::fprintf(stderr, "%s: %s\n", made.passed ? "passed" : "FAILED",
                 made.summary.c_str());
  }

  StatusOr<CheckResult> Cut(const std::vector<Probe>& probes) {
    SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, OtherEndpoint(arguments_));
    SLUICE_ASSIGN_OR_RETURN(const std::string model, ServedModelId(base));
    return CheckCut(api_, EvalApi(base, model), probes,
                    options_.other_tolerance);
  }

  StatusOr<CheckResult> Perplexity() {
    PerplexityOptions text = options_.text;
    SLUICE_ASSIGN_OR_RETURN(text.text, ReadText(options_.perplexity));
    text.name = options_.perplexity.substr(options_.perplexity.rfind('/') + 1);
    return CheckPerplexity(api_, text);
  }

  const Arguments& arguments_;
  const EvalOptions& options_;
  const EvalApi& api_;
  std::vector<CheckResult> results_;
};

}  // namespace

Status RunEval(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          ParseArguments("eval", words));
  if (!arguments.words().empty()) {
    return InvalidArgument("unexpected '", arguments.words()[0], "'\n",
                           kEvalUsage);
  }
  SLUICE_ASSIGN_OR_RETURN(const EvalOptions options, ReadOptions(arguments));
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, FindGateway(arguments));
  std::string model = arguments.String("model").value_or("");
  if (model.empty()) {
    SLUICE_ASSIGN_OR_RETURN(model, ServedModelId(base));
  }
  const EvalApi api(base, model);
  SLUICE_ASSIGN_OR_RETURN(std::vector<CheckResult> results,
                          Evaluation(arguments, options, api).Run());
  if (results.empty()) return OkStatus();
  const ReportSubject subject{model, api.url()};
  if (options.out.empty()) {
    for (CheckResult& result : results) result.svg_name.clear();
    std::fputs(ReportMarkdown(subject, results, "").c_str(), stdout);
  } else {
    SLUICE_RETURN_IF_ERROR(WriteReport(subject, results, options.out));
    std::fprintf(stderr, "wrote %s\n", options.out.c_str());
  }
  std::string failed;
  for (const CheckResult& result : results) {
    if (!result.passed) failed += (failed.empty() ? "" : ", ") + result.title;
  }
  if (failed.empty()) return OkStatus();
  return FailedPrecondition("failed: ", failed);
}

}  // namespace sluice::cli
