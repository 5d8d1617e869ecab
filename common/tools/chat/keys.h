#ifndef SLUICE_COMMON_TOOLS_CHAT_KEYS_H_
#define SLUICE_COMMON_TOOLS_CHAT_KEYS_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/text/utf8.h"

namespace sluice::chat {

struct Key {
  enum class Kind {
    kText,   // characters of `text`
    kPaste,  // likewise, pasted: newlines are text
    kEnter,
    kNewLine,  // Alt-Enter
    kBackspace,
    kDelete,
    kLeft,
    kRight,
    kUp,
    kDown,
    kWordLeft,
    kWordRight,
    kLineBegin,
    kLineEnd,
    kEraseWord,
    kEraseToLineBegin,
    kEraseToLineEnd,
    kYank,
    kOlder,  // Ctrl-P, PageUp
    kNewer,  // Ctrl-N, PageDown
    kClear,
    kInterrupt,
    kDeleteOrEnd,  // Ctrl-D
    kSuspend,
  };
  Kind kind;
  std::string text;
};

// Reads the bytes of a terminal whose lines are not cooked, in any pieces, with
// its marks around what is pasted (?2004). Keys without a meaning are left out;
// Escape waits for the next key, as Alt. Threadless.
class KeyReader {
 public:
  std::vector<Key> Feed(std::string_view bytes);

 private:
  enum class Place { kPlain, kEscape, kSequence, kPaste };
  void Byte(char byte);
  void Plain(char byte);
  void Escape(char byte);
  void Sequence(char byte);
  void Paste(char byte);
  void Add(Key::Kind kind, std::string text = {});

  Place place_ = Place::kPlain;
  std::string held_;  // a sequence's bytes, or those pasted
  Utf8Stream characters_;
  std::vector<Key> keys_;
};

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_KEYS_H_
