#ifndef SLUICE_COMMON_OPENAI_STOP_MATCHER_H_
#define SLUICE_COMMON_OPENAI_STOP_MATCHER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::openai {

// Stop strings as an automaton (Aho and Corasick 1975): one step per byte of
// the text, however many strings there are. Immutable; copies share it.
class StopStrings {
 public:
  StopStrings() = default;  // none
  // None of `strings` is empty.
  StopStrings(const std::vector<std::string>& strings);
  StopStrings(std::initializer_list<std::string> strings)
      : StopStrings(std::vector<std::string>(strings)) {}

  bool empty() const { return nodes_ == nullptr; }

 private:
  friend class StopMatcher;
  // What a text may end with: the beginning of a stop string, by its last
  // byte. Node 0 is the empty one.
  struct Node {
    int32_t first_child = 0;   // 0: none
    int32_t next_sibling = 0;  // of the same parent; 0: none
    int32_t fallback = 0;      // the longest proper end of it that is a node
    int32_t depth = 0;         // its length
    int32_t matched = 0;       // length of the longest stop string that ends it
    unsigned char byte = 0;
  };
  using Nodes = std::vector<Node>;

  static int32_t Child(const Nodes& nodes, int32_t parent, unsigned char byte);
  // The longest node that what `node` stands for and `byte` end with.
  static int32_t Next(const Nodes& nodes, int32_t node, unsigned char byte);
  static void Insert(const std::string& string, Nodes& nodes);
  static void Link(Nodes& nodes);

  std::shared_ptr<const Nodes> nodes_;
};

// Looks for stop strings in a text that comes in pieces. What may still turn
// out to begin one is held back, so nothing of a stop string is ever shown,
// or, where it is to be shown, nothing behind it.
// The outcome does not depend on how the text is cut: the stop string that
// ends first wins, of those the one that begins first.
class StopMatcher {
 public:
  // `include`: the one that ends the text is shown.
  explicit StopMatcher(StopStrings stops, bool include = false)
      : stops_(std::move(stops)), include_(include) {}

  // The text that may be shown now. After a match nothing more comes.
  std::string Push(std::string_view text);
  // The rest, when the text ends without a match.
  std::string Finish();
  bool matched() const { return !match_.empty(); }
  // The string that was found; empty: none yet.
  const std::string& match() const { return match_; }

 private:
  const StopStrings stops_;
  const bool include_;
  int32_t node_ = 0;  // what `held_` is
  std::string held_;
  std::string match_;
};

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_STOP_MATCHER_H_
