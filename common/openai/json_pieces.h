#ifndef SLUICE_COMMON_OPENAI_JSON_PIECES_H_
#define SLUICE_COMMON_OPENAI_JSON_PIECES_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace sluice::openai {

// A JSON text that is made piece by piece, the same bytes as DumpJson's: long
// lists in it are made element by element. One thread at a time.
class JsonPieces {
 public:
  using Element = std::function<Json(size_t index)>;

  // What stands in a value for a list: its elements are asked for in order,
  // each once, when their turn to be written comes. They may hold lists too.
  Json List(size_t size, Element element);

  // `value` is the text to be made; `value` and elements hold lists of this
  // object alone.
  void Write(const Json& value);
  // The next piece of the text: at least one byte, and about `bytes`; empty
  // behind the end.
  std::string Next(size_t bytes);
  bool ended() const { return parts_.empty(); }

 private:
  struct Lazy {
    size_t size = 0;
    Element element;
  };
  // A text, from `next` on; or a list, `next` its element that comes.
  struct Part {
    std::string text;
    Lazy list;
    bool is_list = false;
    size_t next = 0;
  };

  void Split(const Json& value, std::vector<Part>& parts);

  std::vector<Lazy> lists_;  // those in parts_ are empty here
  std::deque<Part> parts_;
};

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_JSON_PIECES_H_
