#ifndef SLUICE_COMMON_TEXT_JINJA_H_
#define SLUICE_COMMON_TEXT_JINJA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"

struct SluiceTemplate;

namespace sluice {

// One compiled chat template: jinja2 as transformers sets it up (trim_blocks,
// lstrip_blocks, loop controls, tojson like json.dumps without ASCII
// escaping, raise_exception, strftime_now). The source comes from a model's
// files and is untrusted: steps, recursion and output are bounded. Immutable;
// any thread.
class JinjaTemplate {
 public:
  static constexpr size_t kMaxOutputBytes = size_t{16} << 20;

  // INVALID_ARGUMENT with the line of a syntax error.
  static StatusOr<std::unique_ptr<JinjaTemplate>> Compile(
      std::string_view source);

  ~JinjaTemplate();
  JinjaTemplate(const JinjaTemplate&) = delete;
  JinjaTemplate& operator=(const JinjaTemplate&) = delete;

  // Renders with the variables of `context`, the text of a JSON object.
  // `now`: the wall clock that strftime_now shows, in seconds since 1970 in
  // its own zone. INVALID_ARGUMENT: the template raised (its message alone)
  // or failed; RESOURCE_EXHAUSTED: a limit, named.
  StatusOr<std::string> Render(std::string_view context, int64_t now) const;

 private:
  explicit JinjaTemplate(SluiceTemplate* handle) : handle_(handle) {}

  SluiceTemplate* handle_;  // owned
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_JINJA_H_
