#include "common/placement/machine_rates.h"

#include <algorithm>
#include <cmath>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/placement/machine_rates.h"
#include "common/tensor/weight_format.h"

namespace sluice::placement {
namespace {

// A figure and its unit in JSON.
struct Figure {
  const char* name;
  double MachineRates::*value;
  double unit;
};
constexpr Figure kFigures[] = {
    {"read_gb_per_s", &MachineRates::read_gb_per_s, 1},
    {"byte_gop_per_s", &MachineRates::byte_gop_per_s, 1},
    {"f32_gop_per_s", &MachineRates::f32_gop_per_s, 1},
    {"join_us", &MachineRates::join_seconds, 1e-6},
    {"wake_us", &MachineRates::wake_seconds, 1e-6},
    {"cache_mb", &MachineRates::cache_bytes, 1e6}};
constexpr double kPicosecond = 1e-12;

Json ListOf(const ProductRate::Seconds& seconds) {
  Json list = Json::array();
  for (const double value : seconds) list.push_back(value / kPicosecond);
  return list;
}

Status ReadList(const Json& product, const char* name,
                ProductRate::Seconds& to) {
  const Json::array_t& list = FindList(product, name);
  if (list.size() != to.size()) {
    return InvalidArgument("products: ", name, " has ", list.size(),
                           " figures, expected ", to.size());
  }
  for (size_t i = 0; i < to.size(); ++i) {
    const double value = list[i].is_number() ? list[i].get<double>() : 0;
    if (!(value > 0)) {
      return InvalidArgument("products: ", name, "[", i,
                             "] must be a positive number");
    }
    to[i] = value * kPicosecond;
  }
  return OkStatus();
}

StatusOr<ProductRate> ParseProduct(const Json& json) {
  ProductRate rate;
  const std::string name = FindText(json, "type");
  const auto format =
      std::find_if(kWeightFormats.begin(), kWeightFormats.end(),
                   [&](const WeightFormat& one) { return one.name == name; });
  if (format == kWeightFormats.end()) {
    return InvalidArgument("products: there is no type '", name, "'");
  }
  rate.type = format->type;
  SLUICE_RETURN_IF_ERROR(ReadList(json, "memory_ps", rate.from_memory));
  SLUICE_RETURN_IF_ERROR(ReadList(json, "cache_ps", rate.from_cache));
  return rate;
}

}  // namespace

std::string RatesJson(const MachineRates& rates) {
  Json json = {
      {"cpu", rates.cpu}, {"isa", rates.isa}, {"threads", rates.threads}};
  for (const Figure& figure : kFigures) {
    json[figure.name] = rates.*figure.value / figure.unit;
  }
  if (rates.is_gpu) json["gpu"] = true;
  json["rows"] = kRateRows;
  json["products"] = Json::array();
  for (const ProductRate& rate : rates.products) {
    json["products"].push_back({{"type", FormatOf(rate.type).name},
                                {"memory_ps", ListOf(rate.from_memory)},
                                {"cache_ps", ListOf(rate.from_cache)}});
  }
  return json.dump(1) + "\n";
}

StatusOr<MachineRates> ParseRates(const std::string& text) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  MachineRates rates;
  rates.cpu = FindText(json, "cpu");
  rates.isa = FindText(json, "isa");
  const int64_t threads = FindInt(json, "threads").value_or(0);
  rates.threads = static_cast<int32_t>(std::clamp<int64_t>(threads, 0, 4096));
  const Json* gpu = FindMember(json, "gpu");
  if (gpu != nullptr && !gpu->is_boolean()) {
    return InvalidArgument("gpu must be true or false");
  }
  rates.is_gpu = gpu != nullptr && gpu->get<bool>();
  for (const Figure& figure : kFigures) {
    const Json* value = FindMember(json, figure.name);
    if (value == nullptr) continue;
    if (!value->is_number() || value->get<double>() < 0) {
      return InvalidArgument(figure.name, " must be a number, not negative");
    }
    rates.*figure.value = value->get<double>() * figure.unit;
  }
  if (!(rates.read_gb_per_s > 0)) {
    return InvalidArgument("read_gb_per_s is missing");
  }
  for (const Json& product : FindList(json, "products")) {
    SLUICE_ASSIGN_OR_RETURN(ProductRate rate, ParseProduct(product));
    rates.products.push_back(rate);
  }
  return rates;
}

}  // namespace sluice::placement
