#include "common/grammar/matcher.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "common/base/check.h"
#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"
#include "common/text/tokenizer.h"

namespace sluice {
namespace {

// Reads the words of a step one by one.
class StepWords {
 public:
  explicit StepWords(std::string_view bytes) : bytes_(bytes) {}
  uint32_t Next() {
    uint32_t word = 0;
    SLUICE_CHECK(bytes_.size() >= sizeof(word));
    std::memcpy(&word, bytes_.data(), sizeof(word));
    bytes_.remove_prefix(sizeof(word));
    return word;
  }

 private:
  std::string_view bytes_;
};

std::vector<TokenId> Within(std::span<const TokenId> ids, int32_t vocab_size) {
  std::vector<TokenId> within;
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocab_size) within.push_back(id);
  }
  return within;
}

TokenMask AllBut(std::span<const TokenId> ids) {
  std::vector<TokenId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  TokenMask mask;
  mask.excludes = true;
  for (const TokenId id : sorted) {
    if (!mask.runs.empty() && mask.runs.back().end >= id) {
      mask.runs.back().end = id + 1;
    } else {
      mask.runs.push_back({id, id + 1});
    }
  }
  return mask;
}

}  // namespace

StatusOr<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::Make(
    const Tokenizer& tokenizer, int32_t vocab_size,
    std::span<const TokenId> eos_ids) {
  const std::vector<TokenId> ends = Within(eos_ids, vocab_size);
  const std::vector<uint32_t> words(ends.begin(), ends.end());
  SluiceGrammarEnv* handle = nullptr;
  BridgeBuffer message;
  const BridgeCall call;
  const int code = sluice_grammar_env_new(
      tokenizer.handle(), static_cast<uint32_t>(std::max(vocab_size, 0)),
      words.data(), words.size(), &handle, message.out());
  SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  return std::shared_ptr<const GrammarVocabulary>(
      new GrammarVocabulary(handle, AllBut(ends)));
}

StatusOr<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::OfTable(
    std::string_view table, int32_t vocab_size,
    std::span<const TokenId> eos_ids) {
  const std::vector<TokenId> ends = Within(eos_ids, vocab_size);
  const std::vector<uint32_t> words(ends.begin(), ends.end());
  SluiceGrammarEnv* handle = nullptr;
  BridgeBuffer message;
  const BridgeCall call;
  const int code = sluice_grammar_env_of_table(
      BridgeData(table), table.size(),
      static_cast<uint32_t>(std::max(vocab_size, 0)), words.data(),
      words.size(), &handle, message.out());
  SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  return std::shared_ptr<const GrammarVocabulary>(
      new GrammarVocabulary(handle, AllBut(ends)));
}

GrammarVocabulary::~GrammarVocabulary() {
  const BridgeCall call;
  sluice_grammar_env_free(handle_);
}

Grammar::~Grammar() {
  const BridgeCall call;
  sluice_grammar_free(handle_);
}

StatusOr<std::unique_ptr<Matcher>> Matcher::Make(
    std::shared_ptr<const Grammar> grammar) {
  SluiceMatcher* handle = nullptr;
  BridgeBuffer message;
  const BridgeCall call;
  if (grammar->is_spoilt()) throw std::bad_alloc();
  const int code =
      sluice_matcher_new(grammar->handle(), &handle, message.out());
  if (code == SLUICE_OUT_OF_MEMORY) grammar->Spoil();
  SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  return std::unique_ptr<Matcher>(new Matcher(std::move(grammar), handle));
}

Matcher::~Matcher() {
  const BridgeCall call;
  sluice_matcher_free(handle_);
}

ConstraintStep Matcher::Step(std::span<const TokenId> tokens,
                             size_t max_forced) {
  const std::vector<uint32_t> words(tokens.begin(), tokens.end());
  BridgeBuffer buffer;
  const BridgeCall call;
  ConstraintStep step;
  step.status = buffer.ToStatus(sluice_matcher_step(
      handle_, words.data(), words.size(), max_forced, buffer.out()));
  if (!step.status.ok()) return step;
  StepWords in(buffer.bytes());
  step.is_complete = (in.Next() & SLUICE_STEP_COMPLETE) != 0;
  step.forced.resize(in.Next());
  for (TokenId& id : step.forced) id = static_cast<TokenId>(in.Next());
  if (step.is_complete) return step;
  TokenMask& mask = step.mask.emplace();
  mask.runs.resize(in.Next());
  for (TokenRun& run : mask.runs) {
    run.begin = static_cast<TokenId>(in.Next());
    run.end = static_cast<TokenId>(in.Next());
  }
  if (mask.runs.empty()) {
    step.status = InvalidArgument("the grammar allows no token");
  }
  return step;
}

}  // namespace sluice
