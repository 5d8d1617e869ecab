#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_KNOWN_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_KNOWN_FIELDS_H_

#include <string_view>

#include "common/serving/request_fields.h"

namespace sluice::llamacpp {

// Where a field is: bits.
enum FieldPlace { kCompletion = 1, kInfill = 2 };

// Returns every known field; LLAMACPP.md has a row of each.
serving::FieldTable KnownFields();

// As serving::Dialect::is_plain.
bool IsPlainBody(std::string_view body);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_KNOWN_FIELDS_H_
