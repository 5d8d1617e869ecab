#include <utility>

#include "common/weights/gguf_file.h"

namespace sluice::weights {
namespace {

std::string Describe(const GgufValue& value) {
  if (std::holds_alternative<uint64_t>(value.value) ||
      std::holds_alternative<std::vector<uint64_t>>(value.value)) {
    return "uint64 above 2^63-1";
  }
  if (value.type != GgufType::kArray) return std::string(ToString(value.type));
  return Cat("array of ", ToString(value.element_type));
}

template <typename T>
StatusOr<T> Get(const GgufMetadata& metadata, std::string_view key,
                std::string_view wanted) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) {
    return NotFound("GGUF metadata has no key ", Quoted(key));
  }
  if (const T* held = std::get_if<T>(&value->value)) return *held;
  return InvalidArgument("GGUF key ", Quoted(key), " is of type ",
                         Describe(*value), ", expected ", wanted);
}

}  // namespace

std::string_view ToString(GgufType type) {
  static constexpr std::string_view kNames[] = {
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

StatusOr<std::string> GgufMetadata::String(std::string_view key) const {
  return Get<std::string>(*this, key, "string");
}

StatusOr<int64_t> GgufMetadata::Int(std::string_view key) const {
  return Get<int64_t>(*this, key, "an integer");
}

StatusOr<double> GgufMetadata::Float(std::string_view key) const {
  return Get<double>(*this, key, "float32 or float64");
}

StatusOr<bool> GgufMetadata::Bool(std::string_view key) const {
  return Get<bool>(*this, key, "bool");
}

StatusOr<std::vector<std::string>> GgufMetadata::Strings(
    std::string_view key) const {
  return Get<std::vector<std::string>>(*this, key, "array of string");
}

StatusOr<std::vector<int64_t>> GgufMetadata::Ints(std::string_view key) const {
  return Get<std::vector<int64_t>>(*this, key, "array of integers");
}

StatusOr<std::vector<double>> GgufMetadata::Floats(std::string_view key) const {
  return Get<std::vector<double>>(*this, key, "array of float32 or float64");
}

bool GgufMetadata::Insert(std::string key, GgufValue value) {
  return entries_.emplace(std::move(key), std::move(value)).second;
}

}  // namespace sluice::weights
