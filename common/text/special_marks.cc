#include "common/text/special_marks.h"

#include <algorithm>

#include "common/text/utf8.h"

namespace sluice {
namespace {

// Planes 15 and 16 hold 0xFFFE characters each.
constexpr char32_t kMaxMarked = 0xFFFD;

bool IsSpace(char32_t c) {
  return c == ' ' || (c >= 0x9 && c <= 0xD) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsMarkable(char32_t c) {
  return c > 0x20 && c != 0x7F && c <= kMaxMarked && c != '"' && c != '\'' &&
         c != '\\' && !IsSpace(c);
}

}  // namespace

SpecialSpellings::SpecialSpellings(const Vocabulary& vocabulary)
    : vocabulary_(vocabulary) {
  for (const TokenId id : vocabulary.special_ids()) {
    const std::string_view name = vocabulary.Name(id);
    if (name.empty()) continue;
    sorted_.emplace_back(name, id);
    starts_[static_cast<unsigned char>(name[0])] = true;
    escaped_in_json_ =
        escaped_in_json_ ||
        std::any_of(name.begin(), name.end(), [](unsigned char byte) {
          return byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F;
        });
  }
  std::sort(sorted_.begin(), sorted_.end());
}

std::vector<std::pair<size_t, TokenId>> SpecialSpellings::At(
    std::string_view text, size_t at) const {
  std::vector<std::pair<size_t, TokenId>> found;
  if (!starts_[static_cast<unsigned char>(text[at])]) return found;
  auto low = sorted_.begin();
  auto high = sorted_.end();
  // [low, high) begin with the `depth` bytes of the text from `at`.
  for (size_t depth = 0; at + depth < text.size(); ++depth) {
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    const auto less = [depth](const auto& entry, unsigned char b) {
      return entry.first.size() <= depth ||
             static_cast<unsigned char>(entry.first[depth]) < b;
    };
    low = std::lower_bound(low, high, byte, less);
    high = std::upper_bound(
        low, high, byte, [depth](unsigned char b, const auto& entry) {
          return b < static_cast<unsigned char>(entry.first[depth]);
        });
    if (low == high) break;
    if (low->first.size() == depth + 1) {
      found.emplace_back(depth + 1, low->second);
    }
  }
  std::reverse(found.begin(), found.end());
  return found;
}

bool SpecialSpellings::MayBeInJson(std::string_view text) const {
  if (escaped_in_json_) return true;
  for (size_t at = 0; at < text.size(); ++at) {
    if (starts_[static_cast<unsigned char>(text[at])] &&
        !At(text, at).empty()) {
      return true;
    }
  }
  return false;
}

std::optional<char32_t> FreeMarkPlane(std::string_view text,
                                      std::string_view other) {
  for (const char32_t plane : kMarkPlanes) {
    // The lead byte of the plane's characters. Plane 15 shares it with plane
    // 14, which therefore counts as taken.
    const char lead = plane == 0x100000 ? '\xF4' : '\xF3';
    if (text.find(lead) == std::string_view::npos &&
        other.find(lead) == std::string_view::npos) {
      return plane;
    }
  }
  return std::nullopt;
}

std::string MarkSpecials(std::string_view text, const SpecialSpellings& finder,
                         char32_t plane) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const auto found = finder.At(text, at);
    if (found.empty()) {
      out.push_back(text[at++]);
      continue;
    }
    std::string_view spelled = text.substr(at, found.front().first);
    at += spelled.size();
    while (!spelled.empty()) {
      const Utf8Unit unit = NextUtf8(spelled);
      AppendUtf8(unit.value <= kMaxMarked ? plane + unit.value : unit.value,
                 out);
      spelled.remove_prefix(unit.size);
    }
  }
  return out;
}

std::optional<Unmarked> TakeMarksOff(std::string_view marked, char32_t plane) {
  Unmarked out;
  out.text.reserve(marked.size());
  while (!marked.empty()) {
    const Utf8Unit unit = NextUtf8(marked);
    if (unit.kind != Utf8Unit::Kind::kCharacter) return std::nullopt;
    const bool is_marked =
        unit.value >= plane && unit.value - plane <= kMaxMarked;
    AppendUtf8(is_marked ? unit.value - plane : unit.value, out.text);
    out.marks.resize(out.text.size(), is_marked);
    marked.remove_prefix(unit.size);
  }
  return out;
}

std::string MarkAll(std::string_view text, char32_t plane) {
  std::string out;
  while (!text.empty()) {
    const Utf8Unit unit = NextUtf8(text);
    if (unit.kind == Utf8Unit::Kind::kCharacter && IsMarkable(unit.value)) {
      AppendUtf8(plane + unit.value, out);
    } else {
      out.append(text.substr(0, unit.size));
    }
    text.remove_prefix(unit.size);
  }
  return out;
}

bool AllMarkable(std::string_view text) {
  while (!text.empty()) {
    const Utf8Unit unit = NextUtf8(text);
    if (unit.kind != Utf8Unit::Kind::kCharacter || !IsMarkable(unit.value)) {
      return false;
    }
    text.remove_prefix(unit.size);
  }
  return true;
}

std::optional<std::vector<bool>> MarkedBytes(std::string_view plain,
                                             std::string_view marked,
                                             char32_t plane) {
  std::vector<bool> marks(plain.size(), false);
  size_t at = 0;
  while (at < plain.size() && !marked.empty()) {
    const Utf8Unit a = NextUtf8(plain.substr(at));
    const Utf8Unit b = NextUtf8(marked);
    if (a.kind != Utf8Unit::Kind::kCharacter ||
        b.kind != Utf8Unit::Kind::kCharacter) {
      return std::nullopt;
    }
    if (b.value == plane + a.value && a.value <= kMaxMarked) {
      std::fill_n(marks.begin() + static_cast<ptrdiff_t>(at), a.size, true);
    } else if (a.value != b.value) {
      return std::nullopt;
    }
    at += a.size;
    marked.remove_prefix(b.size);
  }
  if (at != plain.size() || !marked.empty()) return std::nullopt;
  return marks;
}

}  // namespace sluice
