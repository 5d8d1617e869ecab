// Too little memory ends one call of the bridge, and the next one works: the
// process and its tokenizers and templates stay.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "common/text/jinja.h"
#include "common/text/tokenizer.h"
#include "tests/testing/fail_each.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

constexpr uint64_t kLarge = 64 << 10;
constexpr uint64_t kTries = 50;

std::string TextOf(const Ids& ids) {
  std::string text(ids.size() * sizeof(TokenId), '\0');
  std::memcpy(text.data(), ids.data(), text.size());
  return text;
}

std::string LongText(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "Once upon a time, in 1987, it rained. ";
  return text;
}

TEST(TextMemoryTest, EncodingThrowsAndThenWorks) {
  const auto tokenizer = TinyTokenizer();
  const std::string text = LongText(32 << 10);
  ExpectEachFailureThrows("encoding 32 KiB", kLarge, kTries, [&] {
    return TextOf(*tokenizer->Encode(text, kRaw));
  });
  const std::string words = LongText(200);
  ExpectEachFailureThrows("encoding 200 bytes", 1, kTries, [&] {
    return TextOf(*tokenizer->Encode(words, kRaw));
  });
}

TEST(TextMemoryTest, EncodingWithControlsThrowsAndThenWorks) {
  const auto tokenizer = TinyTokenizer();
  const std::string text = LongText(32 << 10);
  const TokenId end = *tokenizer->TokenToId("<|im_end|>");
  const std::vector<ControlSpan> controls = {{10, 20, end}, {5000, 5010, end}};
  ExpectEachFailureThrows("encoding with controls", kLarge, kTries, [&] {
    return TextOf(*tokenizer->EncodeWithControls(text, controls));
  });
}

TEST(TextMemoryTest, RenderingThrowsAndThenWorks) {
  const auto compiled = JinjaTemplate::Compile(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n"
      "{% set ns = namespace(found=m.content) %}{{ ns.found | length }}"
      "{% endfor %}{{ messages | tojson }}");
  ASSERT_TRUE(compiled.ok()) << Message(compiled.status());
  const auto render = [&](size_t bytes) {
    std::string json = "{\"messages\":[";
    for (int i = 0; i < 3; ++i) {
      json += std::string(i == 0 ? "" : ",") +
              "{\"role\":\"user\",\"content\":\" " + LongText(bytes) + "\"}";
    }
    const auto variables = JinjaVariables::Parse(json + "]}");
    EXPECT_TRUE(variables.ok()) << Message(variables.status());
    auto text = (*compiled)->Render("{}", *variables, 0);
    EXPECT_TRUE(text.ok()) << Message(text.status());
    return *std::move(text);
  };
  ExpectEachFailureThrows("rendering 300 KiB", kLarge, kTries,
                          [&] { return render(100 << 10); });
  ExpectEachFailureThrows("rendering 300 bytes", 1, kTries,
                          [&] { return render(100); });
}

TEST(TextMemoryTest, LoadingThrowsAndThenWorks) {
  const std::string some = LongText(200);
  const auto load = [&] {
    return TextOf(*TinyTokenizer()->Encode(some, kRaw));
  };
  ExpectEachFailureThrows("a tokenizer, large", 4 << 10, kTries, load);
  ExpectEachFailureThrows("a tokenizer, any", 1, 50, load);
}

}  // namespace
}  // namespace sluice::testing
