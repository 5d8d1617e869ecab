#ifndef SLUICE_COMMON_SERVING_STOP_MATCHER_H_
#define SLUICE_COMMON_SERVING_STOP_MATCHER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::serving {

// Stop strings as an automaton (Aho and Corasick 1975): one step per byte of
// text for any number of strings. Immutable; copies share it.
class StopStrings {
 public:
  StopStrings() = default;  // none
  // No string is empty.
  StopStrings(const std::vector<std::string>& strings);
  StopStrings(std::initializer_list<std::string> strings)
      : StopStrings(std::vector<std::string>(strings)) {}

  bool empty() const { return nodes_ == nullptr; }

 private:
  friend class StopMatcher;
  // The beginning of a stop string that ends a text, by its last byte. Node 0
  // is empty.
  struct Node {
    int32_t first_child = 0;   // 0: none
    int32_t next_sibling = 0;  // of the same parent; 0: none
    int32_t fallback = 0;      // the longest proper end that is a node
    int32_t depth = 0;         // its length
    int32_t matched = 0;       // length of the longest stop string at its end
    unsigned char byte = 0;
  };
  using Nodes = std::vector<Node>;

  static int32_t Child(const Nodes& nodes, int32_t parent, unsigned char byte);
  // Returns the longest node at the end of `node`'s text and `byte`.
  static int32_t Next(const Nodes& nodes, int32_t node, unsigned char byte);
  static void Insert(const std::string& string, Nodes& nodes);
  static void Link(Nodes& nodes);

  std::shared_ptr<const Nodes> nodes_;
};

// Finds stop strings in a text that comes in pieces. A possible beginning of a
// stop string is held back, so that no part of a stop string is shown, or
// nothing behind it if `include`. The result does not depend on the pieces: the
// stop string that ends first wins, and of several the one that begins first.
class StopMatcher {
 public:
  // `include`: the matched string is shown.
  explicit StopMatcher(StopStrings stops, bool include = false)
      : stops_(std::move(stops)), include_(include) {}

  // Returns the text to show; after a match, nothing.
  std::string Push(std::string_view text);
  // Returns the text held back, when the text ends without a match. A text that
  // is pushed then is a new text.
  std::string Finish();
  bool matched() const { return !match_.empty(); }
  // Returns the matched string; empty: none yet.
  const std::string& match() const { return match_; }

 private:
  const StopStrings stops_;
  const bool include_;
  int32_t node_ = 0;  // the node of `held_`
  std::string held_;
  std::string match_;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_STOP_MATCHER_H_
