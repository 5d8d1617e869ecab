#include "common/text/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"
#include "common/text/detokenizer.h"
#include "common/text/text_source.h"
#include "common/text/utf8.h"

namespace sluice {
namespace {

unsigned FlagsOf(const EncodeOptions& options) {
  unsigned flags = 0;
  if (options.add_special_tokens) flags |= SLUICE_ADD_SPECIAL;
  if (options.parse_special_tokens) flags |= SLUICE_PARSE_SPECIAL;
  return flags;
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(
    const std::string& model_path) {
  SLUICE_ASSIGN_OR_RETURN(const TextSource source, ReadTextSource(model_path));
  auto made = Make(source);
  if (!made.ok()) return Annotate(made.status(), source.file);
  return made;
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Make(const TextSource& source,
                                                     bool keep_reference) {
  SluiceTokenizer* handle = nullptr;
  BridgeBuffer message;
  const int code = sluice_tokenizer_new(
      BridgeData(source.tokenizer_json), source.tokenizer_json.size(),
      keep_reference ? SLUICE_KEEP_REFERENCE : 0, &handle, message.out());
  SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  std::unique_ptr<SluiceTokenizer, void (*)(SluiceTokenizer*)> owned(
      handle, sluice_tokenizer_free);
  BridgeBuffer table;
  SLUICE_RETURN_IF_ERROR(
      table.ToStatus(sluice_tokenizer_vocabulary(handle, table.out())));
  SLUICE_ASSIGN_OR_RETURN(Vocabulary vocabulary,
                          Vocabulary::Parse(table.bytes()));
  std::unique_ptr<Tokenizer> made(
      new Tokenizer(handle, std::move(vocabulary), source));
  owned.release();
  return made;
}

Tokenizer::Tokenizer(SluiceTokenizer* handle, Vocabulary vocabulary,
                     const TextSource& source)
    : handle_(handle),
      vocabulary_(std::move(vocabulary)),
      bos_token_(source.bos_token),
      eos_token_(source.eos_token),
      pad_token_(source.pad_token),
      unk_token_(source.unk_token),
      eos_ids_(source.eos_ids) {
  const SluiceTraits traits = sluice_tokenizer_traits(handle_);
  max_shrinking_ = traits.max_shrinking;
  is_linear_ = traits.is_linear != 0;
  if (const auto id = TokenToId(eos_token_); id && !eos_token_.empty()) {
    eos_ids_.push_back(*id);
  }
  std::sort(eos_ids_.begin(), eos_ids_.end());
  eos_ids_.erase(std::unique(eos_ids_.begin(), eos_ids_.end()), eos_ids_.end());
}

Tokenizer::~Tokenizer() { sluice_tokenizer_free(handle_); }

StatusOr<std::vector<TokenId>> Tokenizer::CallEncode(
    std::string_view text, unsigned flags,
    std::span<const ControlSpan> controls) const {
  if (const size_t bad = FirstInvalidUtf8(text);
      bad != std::string_view::npos) {
    return InvalidArgument("text is not valid UTF-8 at byte ", bad, " of ",
                           text.size());
  }
  std::vector<SluiceSpan> spans;
  spans.reserve(controls.size());
  for (const ControlSpan& span : controls) {
    spans.push_back({span.begin, span.end, static_cast<uint32_t>(span.id)});
  }
  BridgeBuffer ids;
  const int code = [&] {
    const BridgeCall call;
    return sluice_tokenizer_encode(handle_, BridgeData(text), text.size(),
                                   flags, spans.data(), spans.size(),
                                   ids.out());
  }();
  SLUICE_RETURN_IF_ERROR(ids.ToStatus(code));
  std::vector<TokenId> made(ids.bytes().size() / sizeof(TokenId));
  if (!made.empty()) {
    std::memcpy(made.data(), ids.bytes().data(), made.size() * sizeof(TokenId));
  }
  return made;
}

StatusOr<std::vector<TokenId>> Tokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  return CallEncode(text, FlagsOf(options), {});
}

StatusOr<std::vector<TokenId>> Tokenizer::EncodeWithControls(
    std::string_view text, std::span<const ControlSpan> controls) const {
  return CallEncode(text, 0, controls);
}

StatusOr<std::vector<TokenId>> Tokenizer::EncodeReference(
    std::string_view text, const EncodeOptions& options) const {
  return CallEncode(text, FlagsOf(options) | SLUICE_REFERENCE, {});
}

StatusOr<std::string> Tokenizer::Decode(std::span<const TokenId> ids,
                                        bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens);
  std::string text;
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size()) {
      return InvalidArgument("token id ", id, " outside [0, ", vocab_size(),
                             ")");
    }
    text += detokenizer.Push(id);
  }
  text += detokenizer.Finish();
  return text;
}

std::string Tokenizer::TokenText(TokenId id) const {
  return Utf8Lossy(vocabulary_.Bytes(id));
}

std::string Tokenizer::TokenBytes(TokenId id) const {
  return std::string(vocabulary_.Bytes(id));
}

std::optional<TokenId> Tokenizer::bos_id() const {
  if (bos_token_.empty()) return std::nullopt;
  return TokenToId(bos_token_);
}

}  // namespace sluice
