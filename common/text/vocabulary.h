#ifndef SLUICE_COMMON_TEXT_VOCABULARY_H_
#define SLUICE_COMMON_TEXT_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice {

// Every token's name and bytes. Immutable after Parse: any thread.
class Vocabulary {
 public:
  // Parses the table of sluice_tokenizer_vocabulary.
  static StatusOr<Vocabulary> Parse(std::string_view table);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Returns one more than the highest id.
  int size() const { return static_cast<int>(entries_.size()); }
  bool Contains(TokenId id) const;
  bool IsSpecial(TokenId id) const;
  // Returns the spelling in the tokenizer's file ("Ġthe", "<|eot_id|>"); empty
  // for an unknown id.
  std::string_view Name(TokenId id) const;
  // Returns the bytes that the token decodes to.
  std::string_view Bytes(TokenId id) const;
  std::optional<TokenId> Find(std::string_view name) const;
  // Returns the ids of the tokens with special: true, ascending.
  const std::vector<TokenId>& special_ids() const { return special_ids_; }

  // Decoded tokens are joined with a space.
  bool join_with_space() const { return join_with_space_; }
  // A decoded text loses one leading space.
  bool strip_leading_space() const { return strip_leading_space_; }

 private:
  struct Entry {
    uint32_t flags = 0;
    size_t name = 0;  // offset in text_; the bytes follow the name
    uint32_t name_size = 0;
    uint32_t bytes_size = 0;
  };

  Vocabulary() = default;
  const Entry* At(TokenId id) const;

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<TokenId> special_ids_;
  std::unordered_map<std::string, TokenId> ids_;
  bool join_with_space_ = false;
  bool strip_leading_space_ = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_VOCABULARY_H_
