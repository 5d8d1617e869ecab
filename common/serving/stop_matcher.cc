#include "common/serving/stop_matcher.h"

#include <deque>
#include <utility>

namespace sluice::serving {

StopStrings::StopStrings(const std::vector<std::string>& strings) {
  if (strings.empty()) return;
  auto nodes = std::make_shared<Nodes>(1);
  for (const std::string& string : strings) Insert(string, *nodes);
  Link(*nodes);
  nodes_ = std::move(nodes);
}

int32_t StopStrings::Child(const Nodes& nodes, int32_t parent,
                           unsigned char byte) {
  int32_t child = nodes[static_cast<size_t>(parent)].first_child;
  while (child != 0 && nodes[static_cast<size_t>(child)].byte != byte) {
    child = nodes[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

int32_t StopStrings::Next(const Nodes& nodes, int32_t node,
                          unsigned char byte) {
  while (true) {
    if (const int32_t child = Child(nodes, node, byte)) return child;
    if (node == 0) return 0;
    node = nodes[static_cast<size_t>(node)].fallback;
  }
}

void StopStrings::Insert(const std::string& string, Nodes& nodes) {
  int32_t node = 0;
  for (const char c : string) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t child = Child(nodes, node, byte);
    if (child == 0) {
      Node& parent = nodes[static_cast<size_t>(node)];
      child = static_cast<int32_t>(nodes.size());
      const Node added{.next_sibling = std::exchange(parent.first_child, child),
                       .depth = parent.depth + 1,
                       .byte = byte};
      nodes.push_back(added);
    }
    node = child;
  }
  Node& last = nodes[static_cast<size_t>(node)];
  last.matched = last.depth;
}

// By level: a fallback is shorter, so it is complete before.
void StopStrings::Link(Nodes& nodes) {
  std::deque<int32_t> level{0};
  while (!level.empty()) {
    const int32_t parent = level.front();
    level.pop_front();
    int32_t child = nodes[static_cast<size_t>(parent)].first_child;
    while (child != 0) {
      Node& node = nodes[static_cast<size_t>(child)];
      if (parent != 0) {
        const int32_t shorter = nodes[static_cast<size_t>(parent)].fallback;
        node.fallback = Next(nodes, shorter, node.byte);
      }
      if (node.matched == 0) {
        node.matched = nodes[static_cast<size_t>(node.fallback)].matched;
      }
      level.push_back(child);
      child = node.next_sibling;
    }
  }
}

std::string StopMatcher::Push(std::string_view text) {
  if (matched()) return "";
  if (stops_.empty()) return std::string(text);
  const StopStrings::Nodes& nodes = *stops_.nodes_;
  for (size_t i = 0; i < text.size(); ++i) {
    node_ =
        StopStrings::Next(nodes, node_, static_cast<unsigned char>(text[i]));
    const auto length =
        static_cast<size_t>(nodes[static_cast<size_t>(node_)].matched);
    if (length == 0) continue;
    held_ += text.substr(0, i + 1);
    match_ = held_.substr(held_.size() - length);
    if (!include_) held_.erase(held_.size() - length);
    return std::exchange(held_, "");
  }
  held_ += text;
  const auto kept =
      static_cast<size_t>(nodes[static_cast<size_t>(node_)].depth);
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::Finish() {
  if (matched()) return "";
  node_ = 0;
  return std::exchange(held_, "");
}

}  // namespace sluice::serving
