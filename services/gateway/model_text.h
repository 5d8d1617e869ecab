#ifndef SLUICE_SERVICES_GATEWAY_MODEL_TEXT_H_
#define SLUICE_SERVICES_GATEWAY_MODEL_TEXT_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice::gateway {

// One sequence's tokens to text, as they come; one thread.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // Whole characters only: what is incomplete is held back.
  virtual std::string Push(TokenId token) = 0;
  virtual std::string Finish() = 0;
};

// The served model's text side: what the gateway asks of common/text, which
// tests replace by a vocabulary of bytes. Immutable; any thread. Encoding is
// work: long texts are kept off the event loops.
class ModelText {
 public:
  virtual ~ModelText() = default;

  // `special`: spelled special tokens become tokens, and BOS is added where
  // the model wants it.
  virtual StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                bool special) const = 0;
  // Renders the template with the assistant's turn opened. Message text can
  // never become a special token. INVALID_ARGUMENT with the template's own
  // complaint; FAILED_PRECONDITION if the model has no template.
  virtual StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, bool add_generation_prompt) const = 0;
  // INVALID_ARGUMENT for an id out of range.
  virtual StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                                       bool skip_special) const = 0;
  virtual std::unique_ptr<TextDecoder> NewDecoder(
      std::span<const TokenId> prompt) const = 0;

  // One token for people, and as bytes.
  virtual std::string TokenText(TokenId token) const = 0;
  virtual std::string TokenBytes(TokenId token) const = 0;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_MODEL_TEXT_H_
