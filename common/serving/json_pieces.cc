#include "common/serving/json_pieces.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace sluice::serving {
namespace {

bool HoldsList(const Json& value) {
  if (value.is_binary()) return true;
  return value.is_structured() &&
         std::any_of(value.begin(), value.end(), HoldsList);
}

}  // namespace

// No value of ours is binary, so a binary value stands for a list, and its
// subtype is the list's number.
Json JsonPieces::List(size_t size, Element element) {
  lists_.push_back({size, std::move(element)});
  return Json::binary({}, lists_.size() - 1);
}

void JsonPieces::Write(const Json& value) {
  std::vector<Part> parts;
  Split(value, parts);
  std::move(parts.begin(), parts.end(), std::back_inserter(parts_));
}

void JsonPieces::Split(const Json& value, std::vector<Part>& parts) {
  if (value.is_binary()) {
    Part& part = parts.emplace_back();
    part.is_list = true;
    part.list = std::move(lists_.at(value.get_binary().subtype()));
    return;
  }
  const auto add = [&](std::string_view text) {
    if (parts.empty() || parts.back().is_list) parts.emplace_back();
    parts.back().text += text;
  };
  if (!HoldsList(value)) {
    add(DumpJson(value));
  } else if (value.is_object()) {
    add("{");
    for (auto it = value.begin(); it != value.end(); ++it) {
      if (it != value.begin()) add(",");
      add(DumpJson(Json(it.key())));
      add(":");
      Split(it.value(), parts);
    }
    add("}");
  } else {
    add("[");
    for (auto it = value.begin(); it != value.end(); ++it) {
      if (it != value.begin()) add(",");
      Split(*it, parts);
    }
    add("]");
  }
}

std::string JsonPieces::Next(size_t bytes) {
  std::string out;
  while (out.size() < bytes && !parts_.empty()) {
    Part& part = parts_.front();
    if (!part.is_list) {
      const size_t count =
          std::min(bytes - out.size(), part.text.size() - part.next);
      out.append(part.text, part.next, count);
      part.next += count;
      if (part.next == part.text.size()) parts_.pop_front();
      continue;
    }
    if (part.next == part.list.size) {
      out += part.next == 0 ? "[]" : "]";
      parts_.pop_front();
      continue;
    }
    out += part.next == 0 ? "[" : ",";
    const Json element = part.list.element(part.next++);
    std::vector<Part> inner;
    Split(element, inner);
    parts_.insert(parts_.begin(), std::make_move_iterator(inner.begin()),
                  std::make_move_iterator(inner.end()));
  }
  return out;
}

}  // namespace sluice::serving
