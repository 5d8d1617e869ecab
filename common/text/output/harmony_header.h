#ifndef SLUICE_COMMON_TEXT_OUTPUT_HARMONY_HEADER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_HARMONY_HEADER_H_

#include <string>
#include <string_view>

namespace sluice {

// Who a harmony message is from and for:
// ROLE[ to=RECIPIENT][<|channel|>CHANNEL[ to=RECIPIENT]][<|constrain|>TYPE].
// Words that belong to none of these are ignored where a message follows, and
// are its text where none does. Value type.
class HarmonyHeader {
 public:
  // `assistant`: the role is known, text may come instead of a header.
  explicit HarmonyHeader(bool assistant) : assistant_(assistant) {}

  // Behind <|channel|> (the last one counts) and <|constrain|>.
  void BeginChannel();
  void BeginType() { part_ = Part::kType; }
  // Takes `text` up to a bound, whole characters, and returns what is beyond
  // it.
  std::string_view Push(std::string_view text);

  bool full() const { return full_; }  // some text was beyond the bound
  // Text where only a header may be: the model left the header out.
  bool is_text() const;
  // Nothing but text that might still become a header.
  bool is_bare() const { return assistant_ && !has_channel_; }

  // "analysis", "commentary", "final", or empty.
  std::string_view channel() const;
  // What behind "to=": the channel's before the role's. Empty: none.
  std::string recipient() const;
  bool from_assistant() const;
  // What is left without role, channel, recipient and type.
  std::string rest() const;

 private:
  enum class Part { kRole, kChannel, kType };

  const bool assistant_;
  bool has_channel_ = false;
  bool full_ = false;
  Part part_ = Part::kRole;
  std::string role_;
  std::string channel_;
  std::string type_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_HARMONY_HEADER_H_
