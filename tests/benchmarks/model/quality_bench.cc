// What a format costs in quality: logits of models on a text, beside those of
// a reference on the same tokens. See README.md.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/weights_mode.h"
#include "common/stage/stage.h"
#include "common/text/tokenizer.h"

namespace sluice {
namespace {

struct Flags {
  std::string reference;
  std::string text;
  std::string chats;  // empty: none
  int threads = 2;
  int window = 512;                     // tokens that see each other
  int64_t tokens = int64_t{1} << 40;    // of the text at most
  std::vector<std::string> candidates;  // MODEL or MODEL:WEIGHTS
};

// The difference of one model's logits to the reference's.
struct Difference {
  int64_t rows = 0;
  double error_sum = 0;  // of |logit - reference's|
  double error_max = 0;
  double kl_sum = 0;  // of KL(reference || model), natural logarithm
  int64_t top_agree = 0;
  double nll_sum = 0;  // of the text's next tokens
  int64_t nll_count = 0;
  // Of the next tokens in the second half of whole windows, as llama.cpp's
  // perplexity counts them.
  double late_nll_sum = 0;
  int64_t late_nll_count = 0;
  int64_t chat_tokens =
      0;  // greedy ids of the chats, each after the right ones
  int64_t chat_agree = 0;
  int64_t chats_whole = 0;
};

struct Model {
  std::string name;
  std::unique_ptr<Stage> stage;
  Difference difference;
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// `name`: MODEL or MODEL:WEIGHTS.
StatusOr<Model> LoadModel(const std::string& name, const Flags& flags) {
  const size_t colon = name.rfind(':');
  StageOptions options;
  options.model_path = name.substr(0, colon);
  options.threads = flags.threads;
  options.max_step_tokens = flags.window;
  options.max_context = flags.window;
  options.max_sequences = 1;
  options.kv_blocks = flags.window / kBlockTokens + 1;
  if (colon != std::string::npos) {
    SLUICE_ASSIGN_OR_RETURN(options.weights,
                            ParseWeightsMode(name.substr(colon + 1)));
  }
  Model model;
  model.name = name;
  SLUICE_ASSIGN_OR_RETURN(model.stage, Stage::Load(options));
  return model;
}

// The logits [ids.size(), V] of a sequence that begins with `ids`.
std::vector<float> LogitsOf(Stage& stage, std::span<const TokenId> ids) {
  Stage::SequenceState state;
  state.sampling.temperature = 0;
  state.sampling.return_logits = true;
  state.tokens.assign(ids.begin(), ids.end());
  std::vector<BlockId> blocks;
  for (size_t at = 0; at < ids.size(); at += kBlockTokens) {
    blocks.push_back(BlockId(static_cast<int32_t>(at / kBlockTokens)));
  }
  state.blocks.assign(static_cast<size_t>(stage.info().limits.num_kv_groups),
                      blocks);
  Chunk chunk;
  chunk.sequence = SequenceId(1);
  chunk.tokens = state.tokens;
  chunk.logits = LogitsWanted::kAll;
  HiddenStates out;
  std::vector<SequenceResult> results;
  stage.Run({{&chunk, &state}}, {}, out, results);
  return std::move(results.at(0).logits);
}

size_t ArgMax(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) -
                             logits.begin());
}

// log(sum(exp(logits))).
double LogSum(std::span<const float> logits) {
  const float most = logits[ArgMax(logits)];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

void AddRow(std::span<const float> reference, std::span<const float> logits,
            Difference& to) {
  const double reference_sum = LogSum(reference);
  const double sum = LogSum(logits);
  double error = 0;
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float apart = logits[i] - reference[i];
    error += std::abs(apart);
    to.error_max = std::max(to.error_max, double{std::abs(apart)});
    kl += double{std::exp(reference[i] - static_cast<float>(reference_sum))} *
          (sum - reference_sum - double{apart});
  }
  ++to.rows;
  to.error_sum += error / static_cast<double>(logits.size());
  to.kl_sum += kl;
  if (ArgMax(reference) == ArgMax(logits)) ++to.top_agree;
}

// Adds what one window of the text tells of every model; the first is the
// reference.
void AddWindow(std::vector<Model>& models, std::span<const TokenId> ids,
               size_t window) {
  const std::vector<float> reference = LogitsOf(*models[0].stage, ids);
  const size_t vocab = reference.size() / ids.size();
  for (Model& model : models) {
    const bool is_reference = &model == &models[0];
    const std::vector<float> logits =
        is_reference ? reference : LogitsOf(*model.stage, ids);
    for (size_t t = 0; t < ids.size(); ++t) {
      const auto row = std::span(logits).subspan(t * vocab, vocab);
      AddRow(std::span(reference).subspan(t * vocab, vocab), row,
             model.difference);
      if (t + 1 == ids.size()) continue;
      const double nll =
          LogSum(row) - double{row[static_cast<size_t>(ids[t + 1])]};
      Difference& to = model.difference;
      to.nll_sum += nll;
      ++to.nll_count;
      if (ids.size() < window || t < window / 2) continue;
      to.late_nll_sum += nll;
      ++to.late_nll_count;
    }
  }
}

// Adds how many of a chat's greedy ids every model would choose, too.
void AddChat(std::vector<Model>& models, const Json& chat, size_t window) {
  auto ids = chat.at("prompt_ids").get<std::vector<TokenId>>();
  const size_t prompt = ids.size();
  const auto greedy = chat.at("greedy_ids").get<std::vector<TokenId>>();
  ids.insert(ids.end(), greedy.begin(), greedy.end());
  ids.resize(std::min(ids.size(), window));
  for (Model& model : models) {
    const std::vector<float> logits = LogitsOf(*model.stage, ids);
    const size_t vocab = logits.size() / ids.size();
    int64_t agree = 0;
    for (size_t t = prompt; t < ids.size(); ++t) {
      const auto row = std::span(logits).subspan((t - 1) * vocab, vocab);
      if (ArgMax(row) == static_cast<size_t>(ids[t])) ++agree;
    }
    const auto count = static_cast<int64_t>(ids.size() - prompt);
    model.difference.chat_tokens += count;
    model.difference.chat_agree += agree;
    if (agree == count) ++model.difference.chats_whole;
  }
}

Json ToJson(const Model& model) {
  const Difference& d = model.difference;
  const auto rows = static_cast<double>(d.rows);
  Json json = {
      {"model", model.name},
      {"weights", model.stage->info().weights_dtype},
      {"weights_bytes", model.stage->info().weights_bytes},
      {"tokens", d.rows},
      {"mean_error", d.error_sum / rows},
      {"max_error", d.error_max},
      {"kl", d.kl_sum / rows},
      {"top1_agreement", static_cast<double>(d.top_agree) / rows},
      {"perplexity", std::exp(d.nll_sum / static_cast<double>(d.nll_count))}};
  if (d.late_nll_count > 0) {
    json["late_perplexity"] =
        std::exp(d.late_nll_sum / static_cast<double>(d.late_nll_count));
  }
  if (d.chat_tokens == 0) return json;
  json["chat_agreement"] =
      static_cast<double>(d.chat_agree) / static_cast<double>(d.chat_tokens);
  json["chats_whole"] = d.chats_whole;
  return json;
}

Status Run(const Flags& flags) {
  std::vector<Model> models;
  SLUICE_ASSIGN_OR_RETURN(Model reference, LoadModel(flags.reference, flags));
  models.push_back(std::move(reference));
  for (const std::string& name : flags.candidates) {
    SLUICE_ASSIGN_OR_RETURN(Model model, LoadModel(name, flags));
    models.push_back(std::move(model));
  }
  const std::string path =
      flags.reference.substr(0, flags.reference.rfind(':'));
  SLUICE_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(path));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                          tokenizer->Encode(ReadFile(flags.text), {}));
  const auto window = static_cast<size_t>(flags.window);
  const size_t most = std::min(ids.size(), static_cast<size_t>(flags.tokens));
  for (size_t at = 0; at + 1 < most; at += window) {
    AddWindow(models, std::span(ids).subspan(at, std::min(window, most - at)),
              window);
  }
  if (models[0].difference.rows == 0) {
    return InvalidArgument(flags.text, " has ", ids.size(),
                           " tokens; two are needed");
  }
  if (!flags.chats.empty()) {
    const Json chats = Json::parse(ReadFile(flags.chats));
    for (const Json& chat : chats.at("prompts")) {
      AddChat(models, chat, window);
    }
  }
  for (const Model& model : models) {
    std::printf("%s\n", ToJson(model).dump().c_str());
  }
  return OkStatus();
}

bool ParseFlags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag.substr(0, 2) != "--") {
      if (flags.reference.empty()) {
        flags.reference = flag;
      } else if (flags.text.empty()) {
        flags.text = flag;
      } else {
        flags.candidates.emplace_back(flag);
      }
      continue;
    }
    if (++i == argc) return false;
    if (flag == "--chats") {
      flags.chats = argv[i];
    } else if (flag == "--threads") {
      flags.threads = std::max(1, std::atoi(argv[i]));
    } else if (flag == "--window") {
      flags.window = std::clamp(std::atoi(argv[i]), 16, 512);
    } else if (flag == "--tokens") {
      flags.tokens = std::max(2, std::atoi(argv[i]));
    } else {
      return false;
    }
  }
  return !flags.text.empty();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Flags flags;
  if (!sluice::ParseFlags(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: quality_bench REFERENCE[:WEIGHTS] TEXT "
                 "[MODEL[:WEIGHTS]]... [--chats FILE] [--threads N] "
                 "[--window N] [--tokens N]\n");
    return 2;
  }
  const sluice::Status done = sluice::Run(flags);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", sluice::Message(done).c_str());
  return 1;
}
