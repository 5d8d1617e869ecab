#ifndef SLUICE_COMMON_TEXT_JINJA_H_
#define SLUICE_COMMON_TEXT_JINJA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

struct SluiceTemplate;
struct SluiceVariables;

namespace sluice {

// Variables that several renderings of one request share, parsed once.
// Immutable; any thread.
class JinjaVariables {
 public:
  // Parses the text of a JSON object.
  static StatusOr<JinjaVariables> Parse(std::string_view json);

  const SluiceVariables* handle() const { return handle_.get(); }

 private:
  struct Free {
    void operator()(SluiceVariables* handle) const;
  };
  explicit JinjaVariables(SluiceVariables* handle) : handle_(handle) {}

  std::unique_ptr<SluiceVariables, Free> handle_;
};

// One compiled chat template: jinja2 as transformers sets it up (trim_blocks,
// lstrip_blocks, loop controls, tojson like json.dumps without ASCII
// escaping, raise_exception, strftime_now). Steps, recursion and output are
// bounded; memory is not: the source comes with the weights, from the operator.
// Immutable; any thread.
class JinjaTemplate {
 public:
  static constexpr size_t kMaxOutputBytes = size_t{16} << 20;
  // The most instructions of a rendering, about a second's work; most
  // renderings take some hundred per message.
  static constexpr uint64_t kMaxSteps = 20'000'000;

  // INVALID_ARGUMENT names the line of a syntax error.
  static StatusOr<std::unique_ptr<JinjaTemplate>> Compile(
      std::string_view source);

  ~JinjaTemplate();
  JinjaTemplate(const JinjaTemplate&) = delete;
  JinjaTemplate& operator=(const JinjaTemplate&) = delete;

  // Returns the variables that the template reads from outside, in any of its
  // branches; functions are among them.
  StatusOr<std::set<std::string, std::less<>>> Reads() const;

  // Renders, on this thread, with the variables of `names`, the text of a small
  // JSON object, and of `common`, which override `names`. `now`: strftime_now's
  // wall clock, in seconds since 1970 in its own zone. INVALID_ARGUMENT: the
  // template raised (its message alone) or failed; RESOURCE_EXHAUSTED: a limit,
  // named; DEADLINE_EXCEEDED: more steps than the time until `deadline` allows.
  StatusOr<std::string> Render(
      std::string_view names, const JinjaVariables& common, int64_t now,
      std::optional<TimePoint> deadline = std::nullopt) const;

 private:
  explicit JinjaTemplate(SluiceTemplate* handle) : handle_(handle) {}

  SluiceTemplate* handle_;  // owned
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_JINJA_H_
