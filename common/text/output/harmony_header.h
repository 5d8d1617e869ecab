#ifndef SLUICE_COMMON_TEXT_OUTPUT_HARMONY_HEADER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_HARMONY_HEADER_H_

#include <string>
#include <string_view>

namespace sluice {

// Sender and recipient of a harmony message: ROLE[
// to=RECIPIENT][<|channel|>CHANNEL[ to=RECIPIENT]][<|constrain|>TYPE]. Other
// words are ignored if a message follows; without a message they are its text.
// Value type.
class HarmonyHeader {
 public:
  // `assistant`: the role is known, and text may replace the header.
  explicit HarmonyHeader(bool assistant) : assistant_(assistant) {}

  // Called behind <|channel|> (the last one counts) and <|constrain|>.
  void BeginChannel();
  void BeginType() { part_ = Part::kType; }
  // Takes whole characters of `text` up to a bound, and returns the rest.
  std::string_view Push(std::string_view text);

  bool full() const { return full_; }  // some text was beyond the bound
  // Returns whether text stands in the header's place: the model left it out.
  bool is_text() const;
  // Returns whether the text may still become a header.
  bool is_bare() const { return assistant_ && !has_channel_; }

  // Returns "analysis", "commentary", "final", or empty.
  std::string_view channel() const;
  // Returns the word behind "to=": the channel's, else the role's. Empty: none.
  std::string recipient() const;
  bool from_assistant() const;
  // Returns the text without role, channel, recipient and type.
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
