#include "common/dialects/llamacpp/plain_body.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/dialects/llamacpp/known_fields.h"
#include "common/serving/plain_body.h"

namespace sluice::llamacpp {
namespace {

constexpr serving::PlainValue kPlainValues[] = {{"grammar", R"("")"}};

// Returns the names of the fields that bring no grammar, sorted.
std::vector<std::string_view> PlainNames() {
  std::vector<std::string_view> names;
  for (const KnownField& field : KnownFields()) {
    const bool plain = field.name != "grammar" && field.name != "json_schema";
    if (plain && field.use != FieldUse::kUnbuilt) names.push_back(field.name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

bool IsPlainBody(std::string_view body) {
  static const auto* const names =
      new std::vector<std::string_view>(PlainNames());
  return serving::IsPlainBody(body, *names, kPlainValues);
}

}  // namespace sluice::llamacpp
