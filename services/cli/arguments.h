#ifndef SLUICE_SERVICES_CLI_ARGUMENTS_H_
#define SLUICE_SERVICES_CLI_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

// The arguments of one command, parsed: "--name value" and "--name=value"
// options, "--name" switches, and words. A value; threadless.
class Arguments {
 public:
  // `options` take a value, `switches` take none; "--" ends them.
  // INVALID_ARGUMENT names an unknown option or one without its value.
  static StatusOr<Arguments> Parse(const std::vector<std::string>& raw,
                                   const std::vector<std::string>& options,
                                   const std::vector<std::string>& switches);

  const std::vector<std::string>& words() const { return words_; }
  bool Has(std::string_view name) const;
  std::optional<std::string> String(std::string_view name) const;
  // nullopt if absent; INVALID_ARGUMENT for text that is no number.
  StatusOr<std::optional<int64_t>> Int(std::string_view name) const;
  StatusOr<std::optional<double>> Number(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> words_;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_ARGUMENTS_H_
