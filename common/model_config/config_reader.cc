#include "common/model_config/config_reader.h"

#include <cmath>
#include <utility>

namespace sluice {

const Json* ConfigReader::Find(const char* key) const {
  if (read_ != nullptr) read_->insert(key);
  const auto found = config_.find(key);
  if (found == config_.end() || found->is_null()) return nullptr;
  return &*found;
}

Status ConfigReader::Int(const char* key, int64_t max,
                         std::optional<int64_t> absent, int32_t& out) const {
  return Int(key, 1, max, absent, out);
}

Status ConfigReader::Int(const char* key, int64_t min, int64_t max,
                         std::optional<int64_t> absent, int32_t& out) const {
  int64_t value = 0;
  if (const Json* found = Find(key)) {
    // 2048.0 is an integer, as in Python.
    if (found->is_number_float() && std::abs(found->get<double>()) < 0x1p53 &&
        std::trunc(found->get<double>()) == found->get<double>()) {
      return Set(key, min, max, static_cast<int64_t>(found->get<double>()),
                 out);
    }
    if (!found->is_number_integer()) return WrongType(key, "an integer");
    if (found->is_number_unsigned() &&
        !std::in_range<int64_t>(found->get<uint64_t>())) {
      return InvalidArgument(key, " is ", DumpJson(*found), ", limits ", min,
                             " and ", max);
    }
    value = found->get<int64_t>();
  } else if (absent) {
    value = *absent;
  } else {
    return InvalidArgument("key ", key, " is missing");
  }
  return Set(key, min, max, value, out);
}

Status ConfigReader::Set(const char* key, int64_t min, int64_t max,
                         int64_t value, int32_t& out) {
  if (value < min || value > max) {
    return InvalidArgument(key, " is ", value, ", limits ", min, " and ", max);
  }
  out = static_cast<int32_t>(value);
  return OkStatus();
}

Status ConfigReader::Positive(const char* key, double max, double absent,
                              double& out) const {
  out = absent;
  if (const Json* found = Find(key)) {
    if (!found->is_number()) return WrongType(key, "a number");
    out = found->get<double>();
  }
  if (!(out > 0.0 && out <= max)) {
    return InvalidArgument(key, " is ", out, ", limits 0 (excluded) and ", max);
  }
  return OkStatus();
}

Status ConfigReader::Bool(const char* key, bool absent, bool& out) const {
  out = absent;
  if (const Json* found = Find(key)) {
    if (!found->is_boolean()) return WrongType(key, "true or false");
    out = found->get<bool>();
  }
  return OkStatus();
}

Status ConfigReader::MustBe(const char* key, const Json& built) const {
  const Json* found = Find(key);
  if (found == nullptr || *found == built) return OkStatus();
  return InvalidArgument(key, " ", DumpJson(*found), " is not supported, only ",
                         DumpJson(built));
}

Status ConfigReader::WrongType(const char* key, std::string_view wanted) const {
  return InvalidArgument(key, " is ", config_[key].type_name(), ", expected ",
                         wanted);
}

}  // namespace sluice
