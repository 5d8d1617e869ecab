#ifndef SLUICE_COMMON_BASE_OPTION_ROW_H_
#define SLUICE_COMMON_BASE_OPTION_ROW_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

// Rows of a service's table of options. A row is bound to the variable that it
// sets. The option's default is the value that the variable has when the row is
// made: its initialiser's, or that of a constructor, as GatewayFlags(). The
// default has no other place. The variable must outlive the row. For one
// thread.
namespace sluice {

// Numbers from `low` to `high`, both included. Without limits NaN fits, too.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// The texts that an option takes, and the variable that they set.
struct OptionValue {
  enum class Kind { kSwitch, kNumber, kText, kList };

  OptionValue() = default;
  // A row names its variable in the place of a value.
  OptionValue(bool* variable);                      // NOLINT
  OptionValue(std::string* variable);               // NOLINT
  OptionValue(std::vector<std::string>* variable);  // NOLINT
  OptionValue(double* variable, double low, double high);
  template <std::integral Integer>
  OptionValue(Integer* variable, double low, double high);
  template <std::integral Integer>
  OptionValue(Integer* variable)  // NOLINT
      : OptionValue(variable, Range().low, Range().high) {}

  Kind kind = Kind::kText;
  std::string unit;  // what a value is called, "SECONDS"; of a switch empty
  Range range;
  std::vector<std::string> choices;  // the only texts; empty: there are more
  // Returns what is wrong with a text of any range: "must be a whole number".
  // Empty for nothing.
  std::function<std::string(const std::string& text)> flaw;
  // Sets the variable. INVALID_ARGUMENT naming the option, the limit and the
  // value. Needs a text without a flaw.
  std::function<Status(const std::string& option, const std::string& text)> set;
  std::function<std::string()> get;  // returns the variable's value as text
};

struct OptionRow {
  OptionRow(const char* option, OptionValue texts, const char* meaning)
      : name(option),
        value(std::move(texts)),
        about(meaning),
        usual(value.get()) {}

  std::string name;  // "kv-blocks"
  OptionValue value;
  std::string about;
  std::string usual;  // the default as text
};

using OptionRows = std::vector<OptionRow>;

// Returns the rows in the order of their names.
OptionRows SortedByName(OptionRows rows);

// Returns the row of that name, where '_' is as good as '-'; null without one.
const OptionRow* FindOption(const OptionRows& rows, std::string name);

// Kinds of values that need more than a variable.
namespace option {

// The high end of a range that only the variable's size bounds. Help and pages
// tell such a range as "at least 0".
inline constexpr double kNoLimit = std::numeric_limits<int32_t>::max();

// Reads a text as Abseil's flags do. Returns false for a text that is no value
// of the type.
bool Read(const std::string& text, bool& out);
bool Read(const std::string& text, int32_t& out);
bool Read(const std::string& text, int64_t& out);
bool Read(const std::string& text, double& out);
bool Read(const std::string& text, std::string& out);
bool Read(const std::string& text, std::vector<std::string>& out);
std::string Write(bool value);
std::string Write(int64_t value);
std::string Write(double value);
std::string Write(const std::string& value);
std::string Write(const std::vector<std::string>& value);

// INVALID_ARGUMENT naming the option unless `value` lies in the range.
Status CheckRange(const std::string& option, double value, const Range& range);

// Lets `value` take what is read as a Raw, within its range: `set` gets that
// and returns a Status, `get` returns the like.
template <typename Raw, typename Set, typename Get>
void Bind(OptionValue& value, Set set, Get get) {
  value.flaw = [](const std::string& text) -> std::string {
    Raw raw{};
    if (Read(text, raw)) return "";
    if (std::is_same_v<Raw, bool>) return "must be true or false";
    return std::is_integral_v<Raw> ? "must be a whole number"
                                   : "must be a number";
  };
  value.set = [set, range = value.range](const std::string& option,
                                         const std::string& text) -> Status {
    Raw raw{};
    Read(text, raw);
    if constexpr (std::is_arithmetic_v<Raw>) {
      const auto number = static_cast<double>(raw);
      SLUICE_RETURN_IF_ERROR(CheckRange(option, number, range));
    } else {
      static_cast<void>(range);
    }
    const Status status = set(raw);
    const std::string name = "--" + option;
    if (status.ok() || Message(status).find(name) != std::string_view::npos) {
      return status;
    }
    return InvalidArgument(name, ": ", Message(status));
  };
  value.get = [get] { return Write(get()); };
}

// A number that a variable of another type is made from.
template <typename Raw, typename Set, typename Get>
OptionValue Number(const char* unit, Range range, Set set, Get get) {
  OptionValue value;
  value.kind = OptionValue::Kind::kNumber;
  value.unit = unit;
  value.range = range;
  Bind<Raw>(value, set, get);
  return value;
}

// A text that `parse` turns into the variable; its errors are the option's.
// `print` is the reverse.
template <typename T, typename Parse, typename Print>
OptionValue Parsed(T* variable, Parse parse, Print print) {
  OptionValue value;
  value.unit = "TEXT";
  Bind<std::string>(
      value,
      [variable, parse](const std::string& text) -> Status {
        SLUICE_ASSIGN_OR_RETURN(*variable, parse(text));
        return OkStatus();
      },
      [variable, print] { return std::string(print(*variable)); });
  return value;
}

// Words, each for a value of the variable.
template <typename T>
OptionValue Words(T* variable, std::vector<std::pair<std::string, T>> words);

// A switch of the opposite name: --no-prefix-cache clears `prefix_cache`.
OptionValue Off(bool* variable);

// Times. A whole number of MS or US is one where `Raw` is int32_t.
template <typename Period, typename Raw = double>
OptionValue Time(const char* unit, Duration* variable, Range range);
inline OptionValue Seconds(Duration* variable, double low, double high) {
  return Time<std::ratio<1>>("SECONDS", variable, {low, high});
}
inline OptionValue Milliseconds(Duration* variable, double low, double high) {
  return Time<std::milli>("MS", variable, {low, high});
}

// Whole MiB of a variable in bytes.
OptionValue Mebibytes(size_t* variable, double low, double high);

}  // namespace option

// Details.

template <std::integral Integer>
OptionValue::OptionValue(Integer* variable, double low, double high)
    : kind(Kind::kNumber), unit("N"), range{low, high} {
  using Raw = std::conditional_t<sizeof(Integer) == 8, int64_t, int32_t>;
  option::Bind<Raw>(
      *this,
      [variable](Raw raw) {
        *variable = static_cast<Integer>(raw);
        return OkStatus();
      },
      [variable] { return static_cast<int64_t>(*variable); });
}

template <typename T>
OptionValue option::Words(T* variable,
                          std::vector<std::pair<std::string, T>> words) {
  OptionValue value;
  value.unit = "WORD";
  for (const auto& [word, meaning] : words) value.choices.push_back(word);
  value.flaw = [](const std::string&) { return std::string(); };
  value.get = [variable, words] {
    for (const auto& [word, meaning] : words) {
      if (meaning == *variable) return word;
    }
    return std::string();
  };
  value.set = [variable, words](const std::string& option,
                                const std::string& text) -> Status {
    std::string known;
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].first == text) *variable = words[i].second;
      if (words[i].first == text) return OkStatus();
      known += i == 0 ? "" : i + 1 < words.size() ? ", " : " or ";
      known += words[i].first;
    }
    return InvalidArgument("--", option, " must be ", known, ", got '", text,
                           "'");
  };
  return value;
}

template <typename Period, typename Raw>
OptionValue option::Time(const char* unit, Duration* variable, Range range) {
  using Units = std::chrono::duration<double, Period>;
  return Number<Raw>(
      unit, range,
      [variable](Raw raw) {
        *variable = std::chrono::duration_cast<Duration>(Units(raw));
        return OkStatus();
      },
      [variable] { return Units(*variable).count(); });
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_OPTION_ROW_H_
