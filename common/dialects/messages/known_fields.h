#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_KNOWN_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_KNOWN_FIELDS_H_

#include <string_view>

#include "common/serving/request_fields.h"

namespace sluice::messages {

// Returns the fields of a body. MESSAGES.md names each.
serving::FieldTable KnownFields();

// As serving::Dialect::is_plain.
bool IsPlainBody(std::string_view body);

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_KNOWN_FIELDS_H_
