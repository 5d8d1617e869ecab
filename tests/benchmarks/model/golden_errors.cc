// How far every golden model's answers are from the reference's, computed as a
// stage is told to: one line of JSON for each. See README.md.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/weights_mode.h"
#include "common/stage/stage.h"
#include "tests/model/golden_families.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

struct Flags {
  PipelineOptions pipeline;
  std::string only;  // a model's name; empty: all
};

// Over a model's prompts, which all stand before the reference's answers.
struct Errors {
  size_t ids = 0;
  size_t equal_ids = 0;  // before a prompt's first other id
  double logprob = 0;    // the largest difference
};

// log(softmax) of one position's logits, [V].
std::vector<double> LogProbs(const float* logits, int64_t vocab_size) {
  const float most = *std::max_element(logits, logits + vocab_size);
  double sum = 0;
  for (int64_t i = 0; i < vocab_size; ++i) sum += std::exp(logits[i] - most);
  std::vector<double> out;
  for (int64_t i = 0; i < vocab_size; ++i) {
    out.push_back(logits[i] - most - std::log(sum));
  }
  return out;
}

void Add(const Answer& answer, const GoldenPrompt& golden, Errors& errors) {
  const std::vector<TokenId> ids = answer.ids();
  errors.ids += golden.greedy_ids.size();
  const auto other = std::ranges::mismatch(ids, golden.greedy_ids);
  errors.equal_ids += static_cast<size_t>(other.in1 - ids.begin());
  const int64_t vocab_size = golden.vocab_size;
  const float* own =
      &answer.logits[static_cast<size_t>(golden.first_position * vocab_size)];
  for (size_t at = 0; at < golden.last_logits.size();
       at += static_cast<size_t>(vocab_size)) {
    const auto a = LogProbs(own + at, vocab_size);
    const auto b = LogProbs(&golden.last_logits[at], vocab_size);
    for (size_t i = 0; i < a.size(); ++i) {
      errors.logprob = std::max(errors.logprob, std::abs(a[i] - b[i]));
    }
  }
}

StatusOr<Errors> ErrorsOf(const Family& family, const PipelineOptions& told) {
  PipelineOptions options = family.Cut(told.stages);
  const StageOptions cut = options.stage;
  options.stage = told.stage;
  options.stage.model_path = cut.model_path;
  options.stage.max_context = cut.max_context;
  options.stage.kv_blocks = cut.kv_blocks;
  SLUICE_ASSIGN_OR_RETURN(const auto pipeline, Pipeline::Load(options));
  const auto goldens = ReadGolden(GoldenModel(family.name));
  std::vector<Ask> asks;
  for (size_t i = family.first; i < family.last; ++i) {
    Ask ask;
    ask.prompt = goldens[i].ids;
    ask.sampling.temperature = 0;
    ask.sampling.return_logits = true;
    ask.max_tokens = static_cast<int32_t>(goldens[i].greedy_ids.size());
    ask.prompt_logits = true;
    asks.push_back(ask);
  }
  Errors errors;
  const std::vector<Answer> answers = pipeline->Generate(asks);
  for (size_t i = 0; i < answers.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(answers[i].status);
    Add(answers[i], goldens[family.first + i], errors);
  }
  return errors;
}

Status ParseFlag(std::string_view flag, const std::string& value,
                 Flags& flags) {
  StageOptions& stage = flags.pipeline.stage;
  if (flag == "--weights") {
    SLUICE_ASSIGN_OR_RETURN(stage.weights, ParseWeightsMode(value));
  } else if (flag == "--activations") {
    SLUICE_ASSIGN_OR_RETURN(stage.activations, ParseActivations(value));
  } else if (flag == "--kv-type") {
    SLUICE_ASSIGN_OR_RETURN(stage.kv_type, ParseKvChoice(value));
  } else if (flag == "--only") {
    flags.only = value;
  } else {
    return InvalidArgument("no such option: ", flag);
  }
  return OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  bool is_parsed = argc % 2 == 1;
  for (int i = 1; is_parsed && i < argc; i += 2) {
    const Status parsed = ParseFlag(argv[i], argv[i + 1], flags);
    is_parsed = parsed.ok();
    if (!is_parsed) std::fprintf(stderr, "%s\n", Message(parsed).c_str());
  }
  if (!is_parsed) {
    std::fprintf(stderr,
                 "usage: golden_errors [--weights auto|f32|q8_0|..] "
                 "[--activations stored|f32] [--kv-type f32|bf16|q8_0|auto] "
                 "[--only MODEL]\n");
    return 2;
  }
  Errors all;
  int models = 0;
  int exact = 0;  // all ids equal
  std::vector<Family> families = FirstGoldenFamilies();
  const auto further = GoldenFamilies();
  families.insert(families.end(), further.begin(), further.end());
  for (const Family& family : families) {
    if (!flags.only.empty() && flags.only != family.name) continue;
    const auto errors = ErrorsOf(family, flags.pipeline);
    if (!errors.ok()) {
      std::printf("{\"model\": \"%s\", \"refused\": \"%s\"}\n",
                  family.Name().c_str(), Message(errors.status()).c_str());
      continue;
    }
    std::printf(
        "{\"model\": \"%s\", \"ids\": %zu, \"equal_ids\": %zu, "
        "\"logprob_error\": %.2g}\n",
        family.Name().c_str(), errors->ids, errors->equal_ids, errors->logprob);
    ++models;
    exact += errors->equal_ids == errors->ids ? 1 : 0;
    all.ids += errors->ids;
    all.equal_ids += errors->equal_ids;
    all.logprob = std::max(all.logprob, errors->logprob);
  }
  std::printf(
      "{\"models\": %d, \"of_equal_ids\": %d, \"ids\": %zu, \"equal_ids\": "
      "%zu, \"logprob_error\": %.2g}\n",
      models, exact, all.ids, all.equal_ids, all.logprob);
  return models > 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  try {
    return sluice::testing::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
