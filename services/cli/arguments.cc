#include "services/cli/arguments.h"

#include <algorithm>
#include <charconv>

namespace sluice::cli {
namespace {

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <typename T>
StatusOr<std::optional<T>> Convert(std::string_view name,
                                   const std::optional<std::string>& text) {
  if (!text) return std::optional<T>();
  T value{};
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) {
    return InvalidArgument("--", name, ": '", *text, "' is no number");
  }
  return std::optional<T>(value);
}

}  // namespace

StatusOr<Arguments> Arguments::Parse(const std::vector<std::string>& raw,
                                     const std::vector<std::string>& options,
                                     const std::vector<std::string>& switches) {
  Arguments parsed;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] == "--") {
      parsed.words_.insert(parsed.words_.end(), raw.begin() + i + 1, raw.end());
      break;
    }
    if (raw[i].rfind("--", 0) != 0) {
      parsed.words_.push_back(raw[i]);
      continue;
    }
    const size_t equals = raw[i].find('=');
    const std::string name = raw[i].substr(2, equals - 2);
    if (equals == std::string::npos && Contains(switches, name)) {
      parsed.values_[name] = "";
    } else if (!Contains(options, name)) {
      return InvalidArgument("unknown option ", raw[i]);
    } else if (equals != std::string::npos) {
      parsed.values_[name] = raw[i].substr(equals + 1);
    } else if (++i == raw.size()) {
      return InvalidArgument("--", name, " needs a value");
    } else {
      parsed.values_[name] = raw[i];
    }
  }
  return parsed;
}

bool Arguments::Has(std::string_view name) const {
  return values_.find(name) != values_.end();
}

std::optional<std::string> Arguments::String(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

StatusOr<std::optional<int64_t>> Arguments::Int(std::string_view name) const {
  return Convert<int64_t>(name, String(name));
}

StatusOr<std::optional<double>> Arguments::Number(std::string_view name) const {
  return Convert<double>(name, String(name));
}

}  // namespace sluice::cli
