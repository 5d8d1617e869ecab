#ifndef SLUICE_COMMON_TEXT_OUTPUT_ELEMENT_VALUE_H_
#define SLUICE_COMMON_TEXT_OUTPUT_ELEMENT_VALUE_H_

#include <string>
#include <string_view>

#include "common/text/output/parameter_types.h"

namespace sluice {

// Returns a value that MiniMax M3 writes in elements, as JSON text: a text
// without elements by its schema, elements named `item` as an array, others as
// an object. Elements that are not closed end with the text; text beside them
// is dropped. Of a name that comes twice the first value stands.
std::string ElementsAsJson(std::string_view text, const SchemaPlace& place);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_ELEMENT_VALUE_H_
