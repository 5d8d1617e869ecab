#include "services/cli/sampling_options.h"

#include <cstdio>

#include "common/base/json.h"

namespace sluice::cli {

void AddSampling(CLI::App& app, SamplingOptions& options) {
  app.add_option("--max-tokens", options.max_tokens,
                 "tokens of an answer at most");
  app.add_option("--min-tokens", options.min_tokens, "and at least");
  app.add_option("--temperature", options.temperature,
                 "0: always the likeliest token");
  app.add_option("--top-p", options.top_p,
                 "the likeliest tokens that make up P");
  app.add_option("--top-k", options.top_k, "the N likeliest tokens");
  app.add_option("--min-p", options.min_p,
                 "tokens at least P times as likely as the likeliest");
  app.add_option("--seed", options.seed, "the same tokens again");
  app.add_option("--stop", options.stop,
                 "ends the answer where this text comes");
}

void AddSampling(const SamplingOptions& options, Json& body) {
  const auto add = [&](const char* field, const auto& value) {
    if (value) body[field] = *value;
  };
  add("max_tokens", options.max_tokens);
  add("temperature", options.temperature);
  add("top_p", options.top_p);
  add("top_k", options.top_k);
  add("min_p", options.min_p);
  add("seed", options.seed);
  add("min_tokens", options.min_tokens);
  add("stop", options.stop);
}

void PrintOutput(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 32 ? byte != 127 : c == '\n' || c == '\t') std::putchar(c);
  }
  std::fflush(stdout);
}

}  // namespace sluice::cli
