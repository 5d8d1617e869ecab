#include "common/placement/machines.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "common/base/byte_size.h"

namespace sluice::placement {
namespace {

// What is usual where nothing was measured.
constexpr double kUsualGopPerGb = 40;
constexpr double kUsualJoinSeconds = 5e-6;
constexpr double kUsualWakeSeconds = 15e-6;

const PairLink* FindPair(const std::vector<PairLink>& links, int32_t a,
                         int32_t b) {
  for (size_t i = links.size(); i > 0; --i) {
    const PairLink& pair = links[i - 1];
    const bool is_pair =
        (pair.a == a && pair.b == b) || (pair.a == b && pair.b == a);
    if (is_pair) return &pair;
  }
  return nullptr;
}

}  // namespace

const Link& Machines::Between(int32_t a, int32_t b) const {
  const PairLink* const pair = FindPair(links, a, b);
  return pair == nullptr ? link : pair->link;
}

bool Machines::HasPair(int32_t a, int32_t b) const {
  return FindPair(links, a, b) != nullptr;
}

StatusOr<double> ParseFigure(const std::string& key, const std::string& text,
                             bool may_be_zero) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool whole = end != text.c_str() && *end == '\0';
  if (!whole || !std::isfinite(value) || value < 0 ||
      (value == 0 && !may_be_zero)) {
    return InvalidArgument(key, " must be a positive number, got '", text, "'");
  }
  return value;
}

StatusOr<Machine> ParseMachine(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  if (parts.size() < 2 || parts.size() > 4) {
    return InvalidArgument("must be MEMORY,READ_GB[,BYTE_GOP[,F32_GOP]], got '",
                           text, "'");
  }
  Machine machine;
  SLUICE_ASSIGN_OR_RETURN(machine.memory, ParseBytes(parts[0]));
  double* const rates[] = {&machine.rates.read_gb_per_s,
                           &machine.rates.byte_gop_per_s,
                           &machine.rates.f32_gop_per_s};
  for (size_t i = 1; i < parts.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(*rates[i - 1], ParseFigure("rate", parts[i]));
  }
  FillRates(machine.rates);
  return machine;
}

void FillRates(MachineRates& rates) {
  const auto fill = [](double& to, double usual) {
    if (!(to > 0)) to = usual;
  };
  fill(rates.byte_gop_per_s, rates.f32_gop_per_s > 0
                                 ? 2 * rates.f32_gop_per_s
                                 : kUsualGopPerGb * rates.read_gb_per_s);
  fill(rates.f32_gop_per_s, rates.byte_gop_per_s / 2);
  fill(rates.join_seconds, kUsualJoinSeconds);
  fill(rates.wake_seconds, kUsualWakeSeconds);
}

}  // namespace sluice::placement
