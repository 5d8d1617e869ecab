#include <array>

#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct NamedRule {
  std::string_view name;
  std::string_view first;  // empty: one pattern only
  std::string_view second;
  bool ignore_merges = false;
  bool add_bos = false;
};

// The names that llama.cpp's converter writes, with its splits.
constexpr std::array<NamedRule, 20> kRules = {{
    {"llama-bpe", "", kLlama3, true, true},
    {"llama3", "", kLlama3, true, true},
    {"llama-v3", "", kLlama3, true, true},
    {"glm4", "", kLlama3},
    {"chatglm-bpe", "", kLlama3},
    {"dbrx", "", kLlama3},
    {"smaug-bpe", "", kLlama3},
    {"qwen2", "", kQwen2},
    {"deepseek-r1-qwen", "", kQwen2},
    {"stablelm2", "", kQwen2},
    {"gpt-4o", "", kO200k},
    {"llama4", "", kO200k},
    {"gpt-2", "", kGpt2},
    {"phi-2", "", kGpt2},
    {"olmo", "", kGpt2},
    {"smollm", R"(\p{N})", kGpt2},
    {"starcoder", R"(\p{N})", kGpt2},
    {"refact", R"(\p{N})", kGpt2},
    {"command-r", R"(\p{N})", kGpt2},
    {"codeshell", R"(\p{N})", kGpt2},
}};

}  // namespace

StatusOr<PreTokenizerRule> PreTokenizerByName(std::string_view pre) {
  PreTokenizerRule rule;
  if (pre == "default") {
    rule.patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)",
                     "[0-9][0-9][0-9]"};
    return rule;
  }
  std::string known = "default";
  for (const NamedRule& named : kRules) {
    if (named.name == pre) {
      if (!named.first.empty()) rule.patterns.emplace_back(named.first);
      rule.patterns.emplace_back(named.second);
      rule.ignore_merges = named.ignore_merges;
      rule.add_bos = named.add_bos;
      return rule;
    }
    known += Cat(", ", named.name);
  }
  return Unimplemented("tokenizer.ggml.pre \"", pre, "\"; known are ", known);
}

StatusOr<std::string> PreTokenizerNameOf(
    const std::vector<std::string>& patterns, bool ignore_merges,
    bool has_bos) {
  // Llama 3's patterns without whole tokens: llama.cpp gives glm4 no bos.
  if (patterns == std::vector<std::string>{kLlama3} && !ignore_merges) {
    return std::string(has_bos ? "smaug-bpe" : "glm4");
  }
  std::string all;
  for (const std::string& pattern : patterns) {
    all += Cat(all.empty() ? "" : ", then ", pattern);
  }
  for (const NamedRule& named : kRules) {
    std::vector<std::string> own;
    if (!named.first.empty()) own.emplace_back(named.first);
    own.emplace_back(named.second);
    if (own == patterns) return std::string(named.name);
  }
  if (all.empty()) all = "nothing";
  return Unimplemented("pre_tokenizer splits by ", all,
                       ", which no tokenizer.ggml.pre is known for; "
                       "--pre-tokenizer names one");
}

}  // namespace sluice
