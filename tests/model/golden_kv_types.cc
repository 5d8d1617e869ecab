// golden_kv_types [NAME|SMOLLM2.gguf...]: what keys and values in BF16 cost the
// goldens whose weights are quantised, and all of them in F32. Each prompt is
// run with the reference's greedy ids behind it, so that the greatest logit at
// every position is the id of that step; equal ids at all of them are the ids
// of a free run, too. A line of JSON for each golden and form, and the sums at
// the end. See KV_TYPES.md.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/weights_mode.h"
#include "tests/model/golden_families.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"

namespace sluice::testing {
namespace {

using kernels::BlockActivations;
using kernels::WeightType;

struct Form {
  const char* name;
  WeightsMode weights;
  BlockActivations activations;
  // What is compared with F32; auto: goldens where it means F32 are left out.
  KvChoice kv_type = std::nullopt;
};

constexpr auto kEight = BlockActivations::kEightBits;
constexpr auto kWide = BlockActivations::kF32;
// Of models in F32 and BF16. Weights in F32 show keys and values alone.
constexpr Form kForms[] = {
    {"f32", WeightsMode::kF32, kEight, WeightType::kBf16},
    {"q8_0", WeightsMode::kQ8_0, kEight},
    {"q8_0, f32 activations", WeightsMode::kQ8_0, kWide},
    {"q4_0", WeightsMode::kQ4_0, kEight},
    {"q4_0, f32 activations", WeightsMode::kQ4_0, kWide}};
// Of models that are stored quantised.
constexpr Form kStoredForms[] = {
    {"as stored", WeightsMode::kAuto, kEight},
    {"as stored, f32 activations", WeightsMode::kAuto, kWide}};

// What the model says of one prompt's continuation.
struct Path {
  int first_wrong = -1;  // step; -1: the reference's ids
  int right = 0;         // steps whose greatest logit is the reference's id
  std::vector<double> logprobs;  // of the reference's ids
};

Path PathOf(const float* logits, const GoldenPrompt& golden) {
  const auto vocab = static_cast<size_t>(golden.vocab_size);
  Path path;
  for (size_t step = 0; step < golden.greedy_ids.size(); ++step) {
    const float* row = logits + (golden.ids.size() - 1 + step) * vocab;
    const float* const most = std::max_element(row, row + vocab);
    const auto wanted = static_cast<size_t>(golden.greedy_ids[step]);
    const bool right = static_cast<size_t>(most - row) == wanted;
    path.right += right ? 1 : 0;
    if (!right && path.first_wrong < 0) {
      path.first_wrong = static_cast<int>(step);
    }
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v) sum += std::exp(double{row[v]} - *most);
    path.logprobs.push_back(double{row[wanted]} - *most - std::log(sum));
  }
  return path;
}

// A model, and the reference's answers.
struct Model {
  std::string name;
  PipelineOptions options;
  std::vector<GoldenPrompt> prompts;
  bool is_quantised = false;  // as it is stored
};

Model ModelOf(const Family& family) {
  const auto all = ReadGolden(GoldenModel(family.name));
  return {family.Name(),
          family.Cut(1),
          {all.begin() + static_cast<std::ptrdiff_t>(family.first),
           all.begin() + static_cast<std::ptrdiff_t>(family.last)},
          family.name == std::string("gpt_oss-mxfp4")};
}

// The chats with SmolLM2, a GGUF in Q4_1.
StatusOr<Model> ChatsWith(const std::string& path) {
  constexpr int64_t kVocab = 49152;
  Model model;
  model.name = "smollm2, ten chats";
  model.options.stage.model_path = path;
  model.options.stage.kv_blocks = 512;
  model.is_quantised = true;
  SLUICE_ASSIGN_OR_RETURN(const Json chats,
                          ParseJson(ReadFileOrDie(SmolLm2Chats())));
  for (const Json& chat : chats.at("prompts")) {
    GoldenPrompt prompt;
    prompt.ids = chat.at("prompt_ids").get<std::vector<TokenId>>();
    prompt.greedy_ids = chat.at("greedy_ids").get<std::vector<TokenId>>();
    prompt.vocab_size = kVocab;
    model.prompts.push_back(std::move(prompt));
  }
  return model;
}

StatusOr<std::vector<Path>> PathsOf(const Model& model, const Form& form,
                                    KvChoice kv_type) {
  PipelineOptions options = model.options;
  options.stage.weights = form.weights;
  options.stage.activations = form.activations;
  options.stage.kv_type = kv_type;
  SLUICE_ASSIGN_OR_RETURN(const auto pipeline, Pipeline::Load(options));
  std::vector<Path> paths;
  for (const GoldenPrompt& golden : model.prompts) {
    Ask ask;
    ask.prompt = golden.ids;
    ask.prompt.insert(ask.prompt.end(), golden.greedy_ids.begin(),
                      golden.greedy_ids.end() - 1);
    ask.sampling.temperature = 0;
    ask.sampling.return_logits = true;
    ask.max_tokens = 1;
    ask.prompt_logits = true;
    const auto answers = pipeline->Generate({ask}, {.prefill_chunk = 64});
    SLUICE_RETURN_IF_ERROR(answers[0].status);
    paths.push_back(PathOf(answers[0].logits.data(), golden));
  }
  return paths;
}

// Sums over goldens.
struct Sums {
  int goldens = 0;       // whose prompts all give the reference's ids with F32
  int goldens_lost = 0;  // of these, with BF16
  int prompts = 0;
  int right[2] = {};  // prompts with the reference's ids: with F32, with BF16
  int lost = 0;
  int gained = 0;
  int steps = 0;
  int right_steps[2] = {};
  double difference = 0;  // of log probabilities, summed
  double most = 0;

  void Add(const Sums& other) {
    goldens += other.goldens;
    goldens_lost += other.goldens_lost;
    prompts += other.prompts;
    lost += other.lost;
    gained += other.gained;
    steps += other.steps;
    for (int i = 0; i < 2; ++i) {
      right[i] += other.right[i];
      right_steps[i] += other.right_steps[i];
    }
    difference += other.difference;
    most = std::max(most, other.most);
  }
};

// Whether both have the same bits, as the same type has.
bool SameLogprobs(const std::vector<Path>& a, const std::vector<Path>& b) {
  return std::ranges::equal(a, b, {}, &Path::logprobs, &Path::logprobs);
}

Sums Compare(const std::vector<Path>& f32, const std::vector<Path>& bf16) {
  Sums sums;
  for (size_t i = 0; i < f32.size(); ++i) {
    const Path* const both[] = {&f32[i], &bf16[i]};
    ++sums.prompts;
    for (int k = 0; k < 2; ++k) {
      sums.right[k] += both[k]->first_wrong < 0 ? 1 : 0;
      sums.right_steps[k] += both[k]->right;
    }
    sums.lost += both[0]->first_wrong < 0 && both[1]->first_wrong >= 0 ? 1 : 0;
    sums.gained +=
        both[0]->first_wrong >= 0 && both[1]->first_wrong < 0 ? 1 : 0;
    for (size_t step = 0; step < f32[i].logprobs.size(); ++step) {
      const double apart =
          std::abs(f32[i].logprobs[step] - bf16[i].logprobs[step]);
      ++sums.steps;
      sums.difference += apart;
      sums.most = std::max(sums.most, apart);
    }
  }
  sums.goldens = sums.right[0] == sums.prompts ? 1 : 0;
  sums.goldens_lost = sums.goldens == 1 && sums.lost > 0 ? 1 : 0;
  return sums;
}

Json ToJson(const std::string& name, const char* form, const Sums& sums) {
  Json json = {{"golden", name},
               {"form", form},
               {"prompts", sums.prompts},
               {"right_f32", sums.right[0]},
               {"right_bf16", sums.right[1]},
               {"lost", sums.lost},
               {"gained", sums.gained},
               {"steps", sums.steps},
               {"right_steps_f32", sums.right_steps[0]},
               {"right_steps_bf16", sums.right_steps[1]}};
  json["logprobs_differ_by"] = sums.difference / std::max(1, sums.steps);
  json["at_most"] = sums.most;
  return json;
}

// Names of goldens, paths of SmolLM2's GGUF; none: all goldens.
StatusOr<std::vector<Model>> ModelsOf(const std::vector<std::string>& names) {
  std::vector<Family> families = GoldenFamilies();
  for (const char* name :
       {"llama3-tied", "llama2-bf16-sharded", "qwen3", "glm4", "qwen3_moe",
        "glm4_moe-air", "glm4_moe-46", "gpt_oss", "gpt_oss-mxfp4", "stories"}) {
    families.push_back(Family{name});
  }
  const bool all = std::ranges::all_of(
      names, [](const auto& name) { return name.ends_with(".gguf"); });
  std::vector<Model> models;
  for (const Family& family : families) {
    if (!all && std::ranges::count(names, family.name) == 0) continue;
    models.push_back(ModelOf(family));
  }
  for (const std::string& name : names) {
    if (!name.ends_with(".gguf")) continue;
    SLUICE_ASSIGN_OR_RETURN(models.emplace_back(), ChatsWith(name));
  }
  return models;
}

Status Run(const std::vector<std::string>& names) {
  SLUICE_ASSIGN_OR_RETURN(const auto models, ModelsOf(names));
  std::map<std::string, Sums> of_forms;
  for (const Model& model : models) {
    for (const Form& form : model.is_quantised
                                ? std::span<const Form>(kStoredForms)
                                : std::span<const Form>(kForms)) {
      SLUICE_ASSIGN_OR_RETURN(const auto f32,
                              PathsOf(model, form, WeightType::kF32));
      SLUICE_ASSIGN_OR_RETURN(const auto bf16,
                              PathsOf(model, form, form.kv_type));
      if (SameLogprobs(f32, bf16)) continue;
      const Sums sums = Compare(f32, bf16);
      of_forms[form.name].Add(sums);
      std::cout << DumpJson(ToJson(model.name, form.name, sums)) << std::endl;
    }
  }
  for (const auto& [form, sums] : of_forms) {
    Json json = ToJson("all", form.c_str(), sums);
    json["goldens_right_f32"] = sums.goldens;
    json["goldens_lost"] = sums.goldens_lost;
    std::cout << DumpJson(json) << std::endl;
  }
  return OkStatus();
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  const sluice::Status run = sluice::testing::Run({argv + 1, argv + argc});
  if (run.ok()) return 0;
  std::cerr << sluice::Message(run) << "\n";
  return 1;
}
