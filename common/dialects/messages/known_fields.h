#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_KNOWN_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_KNOWN_FIELDS_H_

#include <span>
#include <string_view>

namespace sluice::messages {

// The fields of a body that change what is answered.
std::span<const std::string_view> ReadFields();
// Fields of the API that have no effect here.
std::span<const std::string_view> IgnoredFields();

// As serving::Dialect::is_plain.
bool IsPlainBody(std::string_view body);

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_KNOWN_FIELDS_H_
