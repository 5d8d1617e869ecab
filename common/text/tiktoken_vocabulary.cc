#include <algorithm>
#include <charconv>
#include <string>

#include "common/text/ranks.h"
#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

constexpr int kLlama3Ranks = 128000;
constexpr int kO200kRanks = 199998;
constexpr int kGpt2Ranks = 50256;
constexpr int kKimiRanks = 163584;

// Returns the tokens by rank.
StatusOr<std::vector<std::string>> ReadRanks(std::string_view text) {
  std::vector<std::string> tokens;
  std::string bytes;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    if (row.empty()) continue;
    const size_t space = row.find(' ');
    size_t rank = kMaxRanks;
    if (space == std::string_view::npos ||
        !DecodeBase64(row.substr(0, space), bytes) ||
        std::from_chars(row.data() + space + 1, row.data() + row.size(), rank)
                .ptr != row.data() + row.size()) {
      return InvalidArgument("tiktoken ranks: line ", line,
                             " is not \"BASE64 RANK\"");
    }
    if (rank >= kMaxRanks || bytes.size() > kMaxRankBytes) {
      return InvalidArgument("tiktoken ranks: line ", line, " has rank ", rank,
                             " (limit ", kMaxRanks, ") and ", bytes.size(),
                             " bytes (limit ", kMaxRankBytes, ")");
    }
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) {
      return InvalidArgument("tiktoken ranks: line ", line, " repeats rank ",
                             rank);
    }
    tokens[rank] = bytes;
  }
  return tokens;
}

void AddControl(std::string name, VocabularySpec& spec) {
  spec.tokens.push_back(std::move(name));
  spec.kinds.push_back(TokenKind::kControl);
}

// Adds 256 special tokens under the names of the released tokenizer.json.
void AddLlama3(VocabularySpec& spec) {
  const std::pair<int, std::string_view> named[] = {
      {0, "begin_of_text"},
      {1, "end_of_text"},
      {4, "finetune_right_pad_id"},
      {6, "start_header_id"},
      {7, "end_header_id"},
      {8, "eom_id"},
      {9, "eot_id"},
      {10, "python_tag"},
  };
  int reserved = 0;
  for (int i = 0; i < 256; ++i) {
    const auto* found =
        std::find_if(std::begin(named), std::end(named),
                     [i](const auto& entry) { return entry.first == i; });
    AddControl(found != std::end(named)
                   ? Cat("<|", found->second, "|>")
                   : Cat("<|reserved_special_token_", reserved++, "|>"),
               spec);
  }
}

// Adds the harmony tokens to o200k_base.
void AddHarmony(VocabularySpec& spec) {
  const std::pair<int, std::string_view> named[] = {
      {199998, "startoftext"}, {199999, "endoftext"}, {200002, "return"},
      {200003, "constrain"},   {200005, "channel"},   {200006, "start"},
      {200007, "end"},         {200008, "message"},   {200012, "call"},
      {200018, "endofprompt"},
  };
  for (int id = kO200kRanks; id < 201088; ++id) {
    const auto* found =
        std::find_if(std::begin(named), std::end(named),
                     [id](const auto& entry) { return entry.first == id; });
    AddControl(found != std::end(named) ? Cat("<|", found->second, "|>")
                                        : Cat("<|reserved_", id, "|>"),
               spec);
  }
}

Status AddFamily(size_t num_ranks, VocabularySpec& spec, TextSource& source) {
  std::string_view pre;
  if (num_ranks == kLlama3Ranks) {
    AddLlama3(spec);
    pre = "llama-bpe";
    source.bos_token = "<|begin_of_text|>";
    source.eos_token = "<|end_of_text|>";
    spec.bos = kLlama3Ranks;
    source.eos_ids = {128001, 128008, 128009};
  } else if (num_ranks == kO200kRanks) {
    AddHarmony(spec);
    pre = "gpt-4o";
    source.bos_token = "<|startoftext|>";
    source.eos_token = "<|return|>";
    source.eos_ids = {200002, 200012};
  } else if (num_ranks == kGpt2Ranks) {
    AddControl("<|endoftext|>", spec);
    pre = "gpt-2";
    source.bos_token = source.eos_token = "<|endoftext|>";
  } else if (num_ranks == kKimiRanks) {
    pre = "kimi-k2";  // tokenizer_config.json names its special tokens
  } else {
    return Unimplemented("tiktoken ranks of ", num_ranks,
                         " tokens; known are Llama 3 (", kLlama3Ranks,
                         "), o200k (", kO200kRanks, "), Kimi K2 (", kKimiRanks,
                         ") and GPT-2 (", kGpt2Ranks, ")");
  }
  SLUICE_ASSIGN_OR_RETURN(PreTokenizerRule rule, PreTokenizerByName(pre));
  spec.patterns = std::move(rule.patterns);
  // Ranks keep a piece that is a token whole; GPT-2's merge list does not.
  spec.ignore_merges = pre != "gpt-2";
  spec.add_bos = rule.add_bos;
  return OkStatus();
}

}  // namespace

bool LooksLikeTiktoken(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t space = line.find(' ');
  std::string bytes;
  return space != std::string_view::npos && line.size() < 2 * kMaxRankBytes &&
         DecodeBase64(line.substr(0, space), bytes);
}

StatusOr<TextSource> FromTiktoken(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> ranks,
                          ReadRanks(text));
  VocabularySpec spec;
  spec.byte_level = true;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].empty()) {
      return InvalidArgument("tiktoken ranks: rank ", rank, " is missing");
    }
    spec.tokens.push_back(ByteLevelText(ranks[rank]));
    spec.kinds.push_back(TokenKind::kNormal);
  }
  spec.merges = MergesFromRanks(ranks);
  TextSource source;
  SLUICE_RETURN_IF_ERROR(AddFamily(ranks.size(), spec, source));
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json, ToTokenizerJson(spec));
  return source;
}

}  // namespace sluice
