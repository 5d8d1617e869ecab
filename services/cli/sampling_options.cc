#include "services/cli/sampling_options.h"

#include <cstdio>

#include "common/base/json.h"

namespace sluice::cli {
namespace {

struct Option {
  const char* name;
  const char* field;
  bool is_integer;
};
constexpr Option kOptions[] = {
    {"max-tokens", "max_tokens", true}, {"temperature", "temperature", false},
    {"top-p", "top_p", false},          {"top-k", "top_k", true},
    {"min-p", "min_p", false},          {"seed", "seed", true},
    {"min-tokens", "min_tokens", true},
};

}  // namespace

Status AddSampling(const Arguments& arguments, Json& body) {
  for (const Option& option : kOptions) {
    if (option.is_integer) {
      SLUICE_ASSIGN_OR_RETURN(const auto value, arguments.Int(option.name));
      if (value) body[option.field] = *value;
    } else {
      SLUICE_ASSIGN_OR_RETURN(const auto value, arguments.Number(option.name));
      if (value) body[option.field] = *value;
    }
  }
  if (const auto stop = arguments.String("stop")) body["stop"] = *stop;
  return OkStatus();
}

void PrintOutput(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 32 ? byte != 127 : c == '\n' || c == '\t') std::putchar(c);
  }
  std::fflush(stdout);
}

}  // namespace sluice::cli
