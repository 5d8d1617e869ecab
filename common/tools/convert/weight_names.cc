#include "common/tools/convert/weight_names.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "common/weights/quantize.h"

namespace sluice {
namespace {

using weights::Coding;
using weights::DType;

constexpr std::string_view kStored = "stored";

std::string InSmallLetters(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return small;
}

// The names of types, and what they mean.
std::vector<std::pair<std::string, DType>> TypeNames() {
  std::vector<std::pair<std::string, DType>> names;
  for (int i = 0; i <= static_cast<int>(DType::kIq4Xs); ++i) {
    const auto type = static_cast<DType>(i);
    if (weights::CanQuantize(type)) {
      names.emplace_back(InSmallLetters(ToString(type)), type);
    }
  }
  // distributed-llama's names.
  names.emplace_back("q40", DType::kQ4_0);
  names.emplace_back("q80", DType::kQ8_0);
  return names;
}

// The names of codings.
std::vector<std::pair<std::string, Coding>> CodingNames() {
  std::vector<std::pair<std::string, Coding>> names;
  for (const Coding coding : {Coding::kFp8, Coding::kGptq, Coding::kAwq}) {
    names.emplace_back(InSmallLetters(ToString(coding)), coding);
  }
  return names;
}

template <typename Value>
std::vector<std::string> FirstsOf(
    const std::vector<std::pair<std::string, Value>>& names) {
  std::vector<std::string> firsts;
  for (const auto& named : names) firsts.push_back(named.first);
  return firsts;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) {
    all += Cat(all.empty() ? "" : ", ", name);
  }
  return all;
}

std::optional<DType> FindType(std::string_view name) {
  for (const auto& [known, type] : TypeNames()) {
    if (known == name) return type;
  }
  return std::nullopt;
}

}  // namespace

StatusOr<DType> WeightTypeByName(std::string_view name) {
  if (const auto type = FindType(name)) return *type;
  return InvalidArgument("type '", name, "' is not known; known are ",
                         Listed(FirstsOf(TypeNames())));
}

StatusOr<NamedWeights> WeightsByName(std::string_view name) {
  if (name == kStored) return NamedWeights();
  for (const auto& [known, coding] : CodingNames()) {
    if (known == name) return NamedWeights{std::nullopt, coding};
  }
  if (const auto type = FindType(name)) return NamedWeights{type};
  return InvalidArgument("weights '", name, "' are not known; known are ",
                         Listed(WeightsNames()));
}

std::vector<std::string> WeightsNames() {
  std::vector<std::string> names = {std::string(kStored)};
  for (const auto& more : {FirstsOf(TypeNames()), FirstsOf(CodingNames())}) {
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

}  // namespace sluice
