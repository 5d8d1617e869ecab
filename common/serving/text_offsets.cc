#include "common/serving/text_offsets.h"

#include <algorithm>
#include <utility>

namespace sluice::serving {
namespace {

// A tokenizer may normalize a text: bytes of the text by which a token may lie
// behind its place, per byte of a token without a place, and at most.
constexpr size_t kWindowPerByte = 4;
constexpr size_t kMaxWindow = 256;

}  // namespace

bool ContinuesCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

int64_t CountCharacters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(),
                       [](char byte) { return !ContinuesCharacter(byte); });
}

TextOffsets::TextOffsets(const ModelText& text, std::span<const TokenId> prompt,
                         bool skip_special, std::optional<Echo> echo)
    : text_(text),
      echo_(echo ? std::make_shared<const Echo>(*std::move(echo)) : nullptr),
      echo_decoder_(text.NewDecoder({}, {.skip_special = skip_special})),
      decoder_(text.NewDecoder(prompt, {.skip_special = skip_special})) {}

int64_t TextOffsets::Next(TokenId token) {
  if (echo_ == nullptr || echoed_ == echo_->num_tokens) {
    return NextOf(decoder_, token);
  }
  const int64_t offset =
      echo_->is_as_given ? NextAsGiven(token) : NextOf(echo_decoder_, token);
  // The completion stands behind the whole echo, wherever its tokens led.
  if (++echoed_ == echo_->num_tokens) {
    characters_ = CountCharacters(echo_->text);
  }
  return offset;
}

int64_t TextOffsets::NextOf(Detokenizer& decoder, TokenId token) {
  const int64_t begin = characters_;
  characters_ += CountCharacters(decoder.Push(token));
  return decoder.broke_off() ? begin + 1 : begin;
}

int64_t TextOffsets::NextAsGiven(TokenId token) {
  const std::string_view rest = std::string_view(echo_->text).substr(at_);
  std::string bytes = text_.TokenBytes(token);
  // A vocabulary may put a space before a text's first word.
  if (at_ == 0 && bytes.starts_with(' ') && !rest.starts_with(bytes)) {
    bytes.erase(0, 1);
  }
  size_t skipped = rest.substr(0, bytes.size() + window_).find(bytes);
  if (skipped == rest.npos) {  // it was added, or the text was normalized
    window_ = std::min(window_ + kWindowPerByte * bytes.size(), kMaxWindow);
    bytes.clear();
    skipped = 0;
  } else if (!bytes.empty()) {
    window_ = 0;
  }
  characters_ += CountCharacters(rest.substr(0, skipped));
  const std::string_view shown = rest.substr(skipped);
  const bool is_within = !shown.empty() && ContinuesCharacter(shown.front());
  const int64_t offset = is_within ? characters_ - 1 : characters_;
  characters_ += CountCharacters(bytes);
  at_ += skipped + bytes.size();
  return offset;
}

}  // namespace sluice::serving
