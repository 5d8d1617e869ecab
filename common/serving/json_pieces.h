#ifndef SLUICE_COMMON_SERVING_JSON_PIECES_H_
#define SLUICE_COMMON_SERVING_JSON_PIECES_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace sluice::serving {

// Makes a JSON text piece by piece, with DumpJson's bytes: long lists are made
// element by element. One thread at a time.
class JsonPieces {
 public:
  using Element = std::function<Json(size_t index)>;

  // Returns a value that stands for a list. The elements are requested in
  // order, each once, when Next reaches them; they may hold lists too.
  Json List(size_t size, Element element);

  // Begins the text of `value`; `value` and its elements hold lists of this
  // object alone.
  void Write(const Json& value);
  // Returns the next piece: at least one byte, about `bytes`; empty at the end.
  std::string Next(size_t bytes);
  bool ended() const { return parts_.empty(); }

 private:
  struct Lazy {
    size_t size = 0;
    Element element;
  };
  // A text, from `next` on; or a list, with `next` its next element.
  struct Part {
    std::string text;
    Lazy list;
    bool is_list = false;
    size_t next = 0;
  };

  void Split(const Json& value, std::vector<Part>& parts);

  std::vector<Lazy> lists_;  // lists in parts_ are empty here
  std::deque<Part> parts_;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_JSON_PIECES_H_
