// A text split by every named rule, ours against the tokenizers crate's own:
// the ids are the same. The first byte says which rule; of the rest, what is
// not UTF-8 becomes U+FFFD.
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/text/utf8.h"
#include "tests/text/text_fixtures.h"

namespace sluice {
namespace {

// One of each kind of split.
constexpr const char* kRuleNames[] = {"llama-bpe", "qwen2",  "gpt-4o",
                                      "gpt-2",     "smollm", "default"};
constexpr size_t kNumRules = std::size(kRuleNames);
// The crate's engine backtracks, and gives up silently in very long texts.
constexpr size_t kMaxBytes = 2048;

const Tokenizer& TokenizerOf(size_t rule) {
  static auto& made = *new std::array<std::unique_ptr<Tokenizer>, kNumRules>;
  if (made[rule] == nullptr) {
    made[rule] = testing::PairTokenizer(kRuleNames[rule]);
  }
  return *made[rule];
}

void Split(size_t rule, std::string_view bytes) {
  const std::string text = Utf8Lossy(bytes);
  const Tokenizer& tokenizer = TokenizerOf(rule);
  const auto ours = tokenizer.Encode(text, {});
  const auto theirs = tokenizer.EncodeReference(text, {});
  SLUICE_CHECK(ours.ok() && theirs.ok());
  SLUICE_CHECK(*ours == *theirs);
  SLUICE_CHECK(*tokenizer.Decode(*ours, false) == text);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > sluice::kMaxBytes) return 0;
  sluice::Split(
      data[0] % sluice::kNumRules,
      std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
