#ifndef SLUICE_COMMON_SERVING_FIELDS_H_
#define SLUICE_COMMON_SERVING_FIELDS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/serving/error.h"

namespace sluice::serving {

inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// Reads typed fields of one JSON object and keeps the first error. An absent or
// null field returns nothing; so does every field after the first error. Errors
// describe values by type and number and never quote them.
class FieldReader {
 public:
  // `object` is an object that outlives the reader. `prefix` stands before
  // names in errors: "stream_options.".
  explicit FieldReader(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // Null if absent or JSON null.
  const Json* Find(std::string_view name) const;

  // Returns an integer in [low, high]. A number without fraction counts as one.
  std::optional<int64_t> Int(std::string_view name, int64_t low, int64_t high);
  std::optional<double> Number(std::string_view name, double low, double high);
  std::optional<bool> Bool(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  // Returns an array of token ids in [0, vocab_size), at most `max_count`.
  std::optional<std::vector<TokenId>> TokenIds(std::string_view name,
                                               int vocab_size,
                                               size_t max_count);
  // Returns a string, or an array of at most `max_count`; none empty.
  std::optional<std::vector<std::string>> Strings(std::string_view name,
                                                  size_t max_count,
                                                  size_t max_bytes);

  // Keeps an error about `name`, if it is the first.
  template <typename... Parts>
  void Refuse(std::string_view name, const Parts&... parts) {
    if (status_.ok())
      status_ = FieldError(prefix_ + std::string(name), parts...);
  }

  // Keeps a part's error, if it is the first.
  void Keep(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Status& status() const { return status_; }

 private:
  const Json& object_;
  const std::string prefix_;
  Status status_;
};

// Describes a value: "a string", "the number -1", "an array of 3".
std::string Describe(const Json& value);

// Returns `array` as token ids; errors name `param`.
StatusOr<std::vector<TokenId>> ParseTokenIds(const Json& array,
                                             std::string_view param,
                                             int vocab_size);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_FIELDS_H_
