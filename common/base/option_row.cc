#include "common/base/option_row.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>

namespace sluice {
namespace {

template <typename T>
auto Assign(T* variable) {
  return [variable](const T& value) {
    *variable = value;
    return OkStatus();
  };
}

template <typename T>
auto ValueOf(const T* variable) {
  return [variable] { return *variable; };
}

}  // namespace

OptionValue::OptionValue(bool* variable) : kind(Kind::kSwitch) {
  option::Bind<bool>(*this, Assign(variable), ValueOf(variable));
}

OptionValue::OptionValue(std::string* variable) : unit("TEXT") {
  option::Bind<std::string>(*this, Assign(variable), ValueOf(variable));
}

OptionValue::OptionValue(std::vector<std::string>* variable)
    : kind(Kind::kList), unit("TEXT,...") {
  option::Bind<std::vector<std::string>>(*this, Assign(variable),
                                         ValueOf(variable));
}

OptionValue::OptionValue(double* variable, double low, double high)
    : kind(Kind::kNumber), unit("NUMBER"), range{low, high} {
  option::Bind<double>(*this, Assign(variable), ValueOf(variable));
}

OptionRows SortedByName(OptionRows rows) {
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return rows;
}

const OptionRow* FindOption(const OptionRows& rows, std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  for (const OptionRow& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

namespace option {

bool Read(const std::string& text, bool& out) {
  return absl::SimpleAtob(absl::StripAsciiWhitespace(text), &out);
}

bool Read(const std::string& text, int64_t& out) {
  // Decimal, or hexadecimal behind 0x.
  const auto trimmed = std::string(absl::StripAsciiWhitespace(text));
  const bool is_hex = trimmed.starts_with("0x") || trimmed.starts_with("0X");
  char* end = nullptr;
  errno = 0;
  out = std::strtoll(trimmed.c_str(), &end, is_hex ? 16 : 10);
  return errno == 0 && !trimmed.empty() &&
         end == trimmed.c_str() + trimmed.size();
}

bool Read(const std::string& text, int32_t& out) {
  int64_t wide = 0;
  if (!Read(text, wide) || wide < INT32_MIN || wide > INT32_MAX) return false;
  out = static_cast<int32_t>(wide);
  return true;
}

bool Read(const std::string& text, double& out) {
  return absl::SimpleAtod(text, &out);
}

bool Read(const std::string& text, std::string& out) {
  out = text;
  return true;
}

bool Read(const std::string& text, std::vector<std::string>& out) {
  out.clear();
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return true;
}

std::string Write(bool value) { return value ? "true" : "false"; }
std::string Write(int64_t value) { return std::to_string(value); }
std::string Write(double value) {
  char text[32];
  constexpr auto kGeneral = std::chars_format::general;
  return {text,
          std::to_chars(text, text + sizeof(text), value, kGeneral, 15).ptr};
}
std::string Write(const std::string& value) { return value; }
std::string Write(const std::vector<std::string>& value) {
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    text += Cat(i == 0 ? "" : ",", value[i]);
  }
  return text;
}

Status CheckRange(const std::string& option, double value, const Range& range) {
  const Range all;
  if (range.low == all.low && range.high == all.high) return OkStatus();
  if (value >= range.low && value <= range.high) return OkStatus();
  return InvalidArgument("--", option, " must be between ", Write(range.low),
                         " and ", Write(range.high), ", got ", Write(value));
}

OptionValue Off(bool* variable) {
  OptionValue value(variable);
  Bind<bool>(
      value,
      [variable](bool off) {
        *variable = !off;
        return OkStatus();
      },
      [variable] { return !*variable; });
  return value;
}

OptionValue Mebibytes(size_t* variable, double low, double high) {
  return Number<int32_t>(
      "MIB", {low, high},
      [variable](int32_t mebibytes) {
        *variable = static_cast<size_t>(mebibytes) << 20;
        return OkStatus();
      },
      [variable] { return static_cast<int64_t>(*variable >> 20); });
}

}  // namespace option
}  // namespace sluice
