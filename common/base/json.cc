#include "common/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "common/base/cat.h"

namespace sluice {
namespace {

// What JsonBytes counts for a value beside its text.
constexpr size_t kValueBytes = 64;

// What a pass over a text knows of its shape. Runs before the parser, so that
// depth costs no stack and values no memory.
class ShapeCheck {
 public:
  ShapeCheck(std::string_view text, const JsonLimits& limits)
      : text_(text), limits_(limits) {}

  // How many members each object has, in the order in which they open.
  std::vector<uint32_t> TakeCounts() { return std::move(counts_); }

  // An error where the text nests deeper, an object has more members, or
  // there are more values than the limits say.
  Status Run() {
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (in_string_) {
        if (c == '\\') {
          ++i;
        } else if (c == '"') {
          in_string_ = false;
          key_end_ = i;
        }
      } else if (c == '"') {
        in_string_ = true;
        key_begin_ = i + 1;
      } else if (c == '{' || c == '[') {
        SLUICE_RETURN_IF_ERROR(Open(i));
      } else if (c == '}' || c == ']') {
        if (!open_.empty()) open_.pop_back();
      } else if (c == ':' && !open_.empty() && open_.back() != kList) {
        SLUICE_RETURN_IF_ERROR(Key(i));
      } else if (c == ',') {
        SLUICE_RETURN_IF_ERROR(Value(i));
      }
    }
    return OkStatus();
  }

 private:
  // Every value but the first of a list or object comes behind a comma, the
  // first behind a bracket.
  Status Value(size_t at) {
    if (limits_.budget == nullptr) return OkStatus();
    if (limits_.budget->values == 0) {
      return InvalidArgument("JSON of more values than a request may have, ",
                             JsonBudget().values, ", at byte ", at);
    }
    --limits_.budget->values;
    return OkStatus();
  }

  Status Open(size_t at) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth)) {
      return InvalidArgument("JSON nested deeper than ", limits_.max_depth,
                             " levels at byte ", at);
    }
    open_.push_back(text_[at] == '[' ? kList : counts_.size());
    if (text_[at] == '{') counts_.push_back(0);
    return Value(at);
  }

  Status Key(size_t at) {
    if (++counts_[open_.back()] > limits_.max_members) {
      return InvalidArgument("JSON object with more than ", limits_.max_members,
                             " members at byte ", at);
    }
    const size_t bytes = key_end_ - key_begin_;
    if (bytes > limits_.max_key_bytes) {
      return InvalidArgument("JSON key of ", bytes, " bytes, limit ",
                             limits_.max_key_bytes, ", ahead of byte ", at);
    }
    return OkStatus();
  }

  static constexpr size_t kList = std::numeric_limits<size_t>::max();

  const std::string_view text_;
  const JsonLimits& limits_;
  bool in_string_ = false;
  std::vector<size_t> open_;  // what is open: an index into counts_, or kList
  std::vector<uint32_t> counts_;
  size_t key_begin_ = 0;  // of the latest string
  size_t key_end_ = 0;
};

// A decimal number without zeros at its ends: digits times a power of ten.
struct Digits {
  std::string digits;
  int64_t exponent = 0;

  bool operator==(const Digits&) const = default;
};

Digits DigitsOf(std::string_view text) {
  Digits out;
  bool is_behind_point = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == 'e' || c == 'E') {
      const bool plus = i + 1 < text.size() && text[i + 1] == '+';
      int64_t exponent = 0;
      const char* const begin = text.data() + i + (plus ? 2 : 1);
      std::from_chars(begin, text.data() + text.size(), exponent);
      out.exponent += exponent;
      break;
    }
    if (c == '.') is_behind_point = true;
    if (c < '0' || c > '9') continue;
    if (!out.digits.empty() || c != '0') out.digits += c;
    if (is_behind_point) --out.exponent;
  }
  while (!out.digits.empty() && out.digits.back() == '0') {
    out.digits.pop_back();
    ++out.exponent;
  }
  if (out.digits.empty()) out.exponent = 0;
  return out;
}

// Returns whether `value`, written again, is the number of `text`.
bool KeepsDigits(double value, const std::string& text) {
  const Digits digits = DigitsOf(text);
  constexpr int kKept = std::numeric_limits<double>::digits10;
  return (digits.digits.size() <= kKept && std::isnormal(value)) ||
         digits == DigitsOf(Json(value).dump());
}

// Of two numbers that are alike in this much of their paths the first counts.
constexpr size_t kRoundedLevels = 2;
constexpr size_t kMaxRounded = 256;

// Builds the value that a parser reads. Where nlohmann's own builder looks for
// each key among all before it, this one sorts an object's keys once. It makes
// room for all members first: a growing object copies what it has, values too.
class JsonBuilder : public nlohmann::json_sax<Json> {
 public:
  JsonBuilder(std::vector<uint32_t> counts, std::vector<RoundedNumber>* rounded)
      : counts_(std::move(counts)), rounded_(rounded) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    Add(value);
    if (rounded_ != nullptr && !KeepsDigits(value, text)) AddRounded(text);
    return true;
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override {
    const size_t index = num_objects_++;
    return Begin(MakeObject(index < counts_.size() ? counts_[index] : 0));
  }
  bool start_array(size_t) override { return Begin(Json::array()); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    DropRepeated(open_.back()->get_ref<Json::object_t&>());
    open_.pop_back();
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t at, const std::string&,
                   const nlohmann::json::exception& error) override {
    // 406: a number's text is well-formed and its value too large.
    status_ = error.id == 406
                  ? InvalidArgument(
                        "malformed JSON: a number is out of double's range")
                  : InvalidArgument("malformed JSON at byte ", at);
    return false;
  }

  Status status() const { return status_; }
  Json Take() { return std::move(root_); }

 private:
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Begin(Json empty) {
    open_.push_back(Place(std::move(empty)));
    return true;
  }
  void AddRounded(const std::string& text) {
    if (rounded_->size() > kMaxRounded) return;
    std::string part = Path(kRoundedLevels);
    if (rounded_->size() == kMaxRounded) {
      rounded_->push_back({"", text});
    } else if (part != last_part_) {
      rounded_->push_back({Path(open_.size()), text});
      last_part_ = std::move(part);
    }
  }
  // The path of the latest value, or the first levels of it: each open one is
  // the last within the one around it.
  std::string Path(size_t max_levels) const {
    std::string path;
    for (const Json* open : open_) {
      if (max_levels-- == 0) break;
      if (open->is_array()) {
        path += Cat("[", open->size() - 1, "]");
      } else {
        const auto& members = open->get_ref<const Json::object_t&>();
        path += Cat(path.empty() ? "" : ".", members.back().first);
      }
    }
    return path;
  }
  // Where `value` stays until what is open around it grows again.
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<Json::array_t&>();
      return &items.emplace_back(std::move(value));
    }
    auto& members = open_.back()->get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  // Of members of one name only the first one's place and the last one's
  // value stay.
  void DropRepeated(Json::object_t& object) {
    const size_t size = object.size();
    if (size < 2) return;
    auto* const members = object.data();
    order_.resize(size);
    for (uint32_t i = 0; i < size; ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      const int names = members[a].first.compare(members[b].first);
      return names != 0 ? names < 0 : a < b;
    });
    std::vector<bool> dropped;
    for (size_t i = size - 1; i > 0; --i) {
      auto& first = members[order_[i - 1]];
      auto& next = members[order_[i]];
      if (first.first != next.first) continue;
      dropped.resize(size);
      dropped[order_[i]] = true;
      first.second = std::move(next.second);
    }
    if (dropped.empty()) return;
    Json::object_t kept;
    kept.reserve(size);
    for (size_t i = 0; i < size; ++i) {
      if (dropped[i]) continue;
      kept.emplace_back(members[i].first, std::move(members[i].second));
    }
    object = std::move(kept);
  }

  const std::vector<uint32_t> counts_;
  std::vector<RoundedNumber>* const rounded_;  // null: not asked for
  std::string last_part_;  // of the latest one in `rounded_`
  size_t num_objects_ = 0;
  Json root_;
  std::vector<Json*> open_;  // from the outermost
  std::string key_;
  std::vector<uint32_t> order_;  // of one object's members; kept for its memory
  Status status_ = InvalidArgument("malformed JSON");
};

// Returns the place behind the string that begins at `at`.
size_t BehindString(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

// Returns the text of the member `name` of the object `text`.
std::optional<std::string_view> FindMember(std::string_view text,
                                           std::string_view name) {
  std::optional<std::string_view> found;
  int depth = 0;
  size_t begin = 0;  // of the latest value of the object itself
  bool is_named = false;
  std::string_view latest;  // string
  const auto end_value = [&](size_t end) {
    if (is_named) found = text.substr(begin, end - begin);
    is_named = false;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      const size_t end = BehindString(text, at);
      latest = text.substr(at + 1, end - at - 2);
      at = end;
      continue;
    }
    if (c == ':' && depth == 1) {
      begin = at + 1;
      is_named = latest == name;
    }
    if (c == ',' && depth == 1) end_value(at);
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 1) end_value(at);
      --depth;
    }
    ++at;
  }
  return found;
}

}  // namespace

std::optional<std::string_view> FindJsonText(std::string_view text,
                                             std::string_view path) {
  while (true) {
    const size_t dot = path.find('.');
    const auto member = FindMember(text, path.substr(0, dot));
    if (!member || dot == path.npos) return member;
    text = *member;
    path.remove_prefix(dot + 1);
  }
}

Status CheckJsonShape(std::string_view text, const JsonLimits& limits) {
  return ShapeCheck(text, limits).Run();
}

StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return InvalidArgument("JSON of ", text.size(), " bytes, limit ",
                           limits.max_bytes);
  }
  ShapeCheck shape(text, limits);
  SLUICE_RETURN_IF_ERROR(shape.Run());
  try {
    JsonBuilder builder(shape.TakeCounts(), limits.rounded);
    if (!Json::sax_parse(text, &builder)) return builder.status();
    return builder.Take();
  } catch (const std::bad_alloc&) {
    throw;  // whose request it is knows what to do
  } catch (const std::exception&) {
    return InvalidArgument("malformed JSON");
  }
}

StatusOr<SortedJson> ParseSortedJson(std::string_view text, int max_depth) {
  SLUICE_RETURN_IF_ERROR(CheckJsonShape(
      text, {.max_depth = max_depth,
             .max_members = std::numeric_limits<size_t>::max()}));
  auto json = SortedJson::parse(text, /*cb=*/nullptr,
                                /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("malformed JSON");
  return json;
}

Json MakeObject(size_t members) {
  Json made = Json::object();
  made.get_ref<Json::object_t&>().reserve(members);
  return made;
}

void AppendMember(Json& object, std::string name, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(std::move(name),
                                                 std::move(value));
}

size_t JsonBytes(const Json& value) {
  size_t bytes = kValueBytes;
  if (value.is_string()) {
    bytes += value.get_ref<const std::string&>().size();
  } else if (value.is_array()) {
    for (const Json& item : value) bytes += JsonBytes(item);
  } else if (value.is_object()) {
    for (const auto& [name, item] : value.get_ref<const Json::object_t&>()) {
      bytes += name.size() + JsonBytes(item);
    }
  }
  return bytes;
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice
