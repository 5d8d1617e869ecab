#ifndef SLUICE_COMMON_MODEL_CONFIG_CONFIG_READER_H_
#define SLUICE_COMMON_MODEL_CONFIG_CONFIG_READER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"

namespace sluice {

// The keys of a config that were asked for.
using ReadKeys = std::set<std::string, std::less<>>;

// Typed reads of one config's keys; each error names key, limit and value.
class ConfigReader {
 public:
  // `read`, if any, gets every key that is asked for and outlives the reader.
  explicit ConfigReader(const Json& config, ReadKeys* read = nullptr)
      : config_(config), read_(read) {}

  // Null for an absent key and for JSON null: configs use both alike.
  const Json* Find(const char* key) const;
  // Reads an integer in [1, max] or [min, max]. An absent key gives `absent`,
  // or an error without `absent`.
  Status Int(const char* key, int64_t max, std::optional<int64_t> absent,
             int32_t& out) const;
  Status Int(const char* key, int64_t min, int64_t max,
             std::optional<int64_t> absent, int32_t& out) const;
  // Reads a number in (0, max].
  Status Positive(const char* key, double max, double absent,
                  double& out) const;
  Status Bool(const char* key, bool absent, bool& out) const;
  // Refuses a value other than `built`, which changes the arithmetic.
  Status MustBe(const char* key, const Json& built) const;

 private:
  static Status Set(const char* key, int64_t min, int64_t max, int64_t value,
                    int32_t& out);
  Status WrongType(const char* key, std::string_view wanted) const;

  const Json& config_;
  ReadKeys* const read_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_CONFIG_READER_H_
