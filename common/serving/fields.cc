#include "common/serving/fields.h"

#include <cmath>

#include "common/base/json.h"

namespace sluice::serving {
namespace {

// Returns `value` as an integer, if it is one within int64.
std::optional<int64_t> AsInt(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > uint64_t{INT64_MAX}) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < 9e15) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string Describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return Cat("an array of ", value.size());
    default:
      return Cat("the number ", value.dump());
  }
}

StatusOr<std::vector<TokenId>> ParseTokenIds(const Json& array,
                                             std::string_view param,
                                             int vocab_size) {
  std::vector<TokenId> tokens;
  tokens.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const auto id = AsInt(array[i]);
    if (!id || array[i].is_number_float()) {
      return FieldError(param, "entry ", i, " must be a token id, got ",
                        Describe(array[i]));
    }
    if (*id < 0 || *id >= vocab_size) {
      return FieldError(param, "entry ", i, " must be a token id from 0 to ",
                        vocab_size - 1, ", got ", *id);
    }
    tokens.push_back(static_cast<TokenId>(*id));
  }
  return tokens;
}

const Json* FieldReader::Find(std::string_view name) const {
  if (!status_.ok()) return nullptr;
  const auto found = object_.find(std::string(name));
  if (found == object_.end() || found->is_null()) return nullptr;
  return &*found;
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t low,
                                        int64_t high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = AsInt(*value);
  if (number && *number >= low && *number <= high) return number;
  Refuse(name, "must be an integer from ", low, " to ", high, ", got ",
         Describe(*value));
  return std::nullopt;
}

std::optional<double> FieldReader::Number(std::string_view name, double low,
                                          double high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number >= low && number <= high) return number;
  }
  Refuse(name, "must be a number from ", low, " to ", high, ", got ",
         Describe(*value));
  return std::nullopt;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Refuse(name, "must be true or false, got ", Describe(*value));
  return std::nullopt;
}

std::optional<std::string> FieldReader::String(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Refuse(name, "must be a string, got ", Describe(*value));
  return std::nullopt;
}

std::optional<std::vector<TokenId>> FieldReader::TokenIds(std::string_view name,
                                                          int vocab_size,
                                                          size_t max_count) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) {
    Refuse(name, "must be an array of token ids, got ", Describe(*value));
    return std::nullopt;
  }
  if (value->size() > max_count) {
    Refuse(name, "has ", value->size(), " entries, limit ", max_count);
    return std::nullopt;
  }
  auto tokens = ParseTokenIds(*value, prefix_ + std::string(name), vocab_size);
  if (tokens.ok()) return *std::move(tokens);
  status_ = tokens.status();
  return std::nullopt;
}

std::optional<std::vector<std::string>> FieldReader::Strings(
    std::string_view name, size_t max_count, size_t max_bytes) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const size_t count = value->is_array() ? value->size() : 1;
  if (count > max_count) {
    Refuse(name, "has ", count, " strings, limit ", max_count);
    return std::nullopt;
  }
  std::vector<std::string> strings;
  for (size_t i = 0; i < count; ++i) {
    const Json& entry = value->is_array() ? (*value)[i] : *value;
    if (!entry.is_string()) {
      Refuse(name, "must be a string or an array of strings, got ",
             value->is_array() ? "an array with " : "", Describe(entry));
      return std::nullopt;
    }
    const auto& text = entry.get_ref<const std::string&>();
    if (text.empty() || text.size() > max_bytes) {
      Refuse(name, "each string must have 1 to ", max_bytes, " bytes, got ",
             text.size());
      return std::nullopt;
    }
    strings.push_back(text);
  }
  return strings;
}

}  // namespace sluice::serving
