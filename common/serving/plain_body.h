#ifndef SLUICE_COMMON_SERVING_PLAIN_BODY_H_
#define SLUICE_COMMON_SERVING_PLAIN_BODY_H_

#include <span>
#include <string_view>

namespace sluice::serving {

// A member of a body that brings no grammar with some values.
struct PlainValue {
  std::string_view name;
  std::string_view value;  // JSON without white space
};

// Whether an answer to a request with `body` needs no grammar: the body has no
// schema, pattern, tool or other member that could ask for a grammar. `names`,
// sorted: members that bring none, whatever their value is; others bring none
// as null or with a value of `values`. What cannot be told is not plain: a
// member of another name, a name with an escape, a body that is no object. One
// pass over the bytes.
bool IsPlainBody(std::string_view body, std::span<const std::string_view> names,
                 std::span<const PlainValue> values);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_PLAIN_BODY_H_
