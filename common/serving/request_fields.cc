#include "common/serving/request_fields.h"

#include <algorithm>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/serving/error.h"
#include "common/serving/json_digest.h"

namespace sluice::serving {
namespace {

const RequestField* FindRow(FieldTable table, std::string_view name,
                            int place) {
  const auto found = std::ranges::find_if(table, [&](const RequestField& row) {
    return row.name == name && (row.place & place) != 0;
  });
  return found == table.end() ? nullptr : &*found;
}

Status Unknown(const std::string& name, size_t number,
               const FieldCheck& check) {
  constexpr size_t kMaxShownName = 64;
  std::string text(check.unknown);
  const size_t at = text.find('#');
  if (at != text.npos) text.replace(at, 1, Cat(number));
  return WithCode(
      FieldError(Cat(check.prefix, name.substr(0, kMaxShownName)), text),
      "unknown_parameter");
}

// Refuses `value` of a row that is not built, unless it changes nothing.
Status CheckUnbuilt(const RequestField& row, const Json& value,
                    std::string_view prefix) {
  if (value.is_null()) return OkStatus();
  const Json neutral = *ParseJson(row.neutral);
  if (std::ranges::find(neutral, value) != neutral.end()) return OkStatus();
  const std::string name = Cat(prefix, row.name);
  const std::string_view list = row.neutral.substr(1, row.neutral.size() - 2);
  const Status status =
      row.hint.empty()
          ? FieldError(name, "not supported; leave it out, or give ", list,
                       "; got ", Describe(value))
          : FieldError(name, "not supported", row.hint);
  return WithCode(status, "unsupported_parameter");
}

// Reads one row, by the type of its goal.
struct RowReader {
  template <typename T>
  using Member = T GenerationFields::*;

  FieldReader& in;
  const RequestField& row;
  int vocab_size;
  GenerationFields& out;

  void operator()(std::monostate) const {}
  void operator()(Member<std::optional<double>> goal) const {
    const auto value = in.Number(row.name, row.low, row.high);
    if (value) out.*goal = value;
  }
  void operator()(Member<std::optional<int64_t>> goal) const {
    if (const auto value = Int()) out.*goal = value;
  }
  void operator()(Member<int64_t> goal) const {
    if (const auto value = Int()) out.*goal = *value;
  }
  void operator()(Member<int32_t> goal) const {
    if (const auto value = Int()) out.*goal = static_cast<int32_t>(*value);
  }
  // A seed: of any integer the bits.
  void operator()(Member<std::optional<uint64_t>> goal) const {
    const auto value = in.Int(row.name, INT64_MIN, INT64_MAX);
    if (value) out.*goal = static_cast<uint64_t>(*value);
  }
  void operator()(Member<bool> goal) const {
    if (const auto value = in.Bool(row.name)) out.*goal = *value;
  }
  void operator()(Member<std::string> goal) const {
    auto value = in.String(row.name);
    if (!value) return;
    if (row.high > 0 && value->size() > most()) {
      in.Refuse(row.name, "has ", value->size(), " bytes, limit ", most());
    }
    out.*goal = *std::move(value);
  }
  void operator()(Member<std::vector<TokenId>> goal) const {
    auto value = in.TokenIds(row.name, vocab_size, most());
    if (value) out.*goal = *std::move(value);
  }
  void operator()(Member<std::vector<std::string>> goal) const {
    auto value = in.Strings(row.name, most(), kMaxStopBytes);
    if (!value) return;
    size_t bytes = 0;
    for (const std::string& text : *value) bytes += text.size();
    if (goal == &GenerationFields::stop && bytes > kMaxAllStopBytes) {
      in.Refuse(row.name, "the strings have ", bytes, " bytes together, limit ",
                kMaxAllStopBytes);
    }
    out.*goal = *std::move(value);
  }

 private:
  size_t most() const { return static_cast<size_t>(row.high); }
  std::optional<int64_t> Int() const {
    return in.Int(row.name, static_cast<int64_t>(row.low),
                  static_cast<int64_t>(row.high));
  }
};

}  // namespace

Status CheckFields(const Json& body, FieldTable table,
                   const FieldCheck& check) {
  size_t number = 0;
  for (const auto& [name, value] : body.items()) {
    ++number;
    const RequestField* row = FindRow(table, name, check.place);
    if (row == nullptr) {
      if (check.strict) return Unknown(name, number, check);
    } else if (row->use == FieldUse::kUnbuilt) {
      SLUICE_RETURN_IF_ERROR(CheckUnbuilt(*row, value, check.prefix));
    }
  }
  return OkStatus();
}

void ReadFields(FieldReader& in, FieldTable table, int place, int vocab_size,
                GenerationFields& out) {
  for (const RequestField& row : table) {
    if ((row.place & place) == 0) continue;
    std::visit(RowReader{in, row, vocab_size, out}, row.goal);
  }
  if (out.temperature.value_or(0) < 0) out.temperature = 0;
  if (out.top_k.value_or(0) < 0) out.top_k = 0;
  // No probability at all is the likeliest token's alone.
  if (out.top_p && static_cast<float>(*out.top_p) == 0.0f) {
    out.temperature = 0;
    out.top_p = 1;
  }
}

void CheckMinTokens(FieldReader& in, const GenerationFields& fields) {
  if (!fields.max_tokens || fields.min_tokens <= *fields.max_tokens) return;
  in.Refuse(fields.names->min_tokens, "must not exceed ",
            fields.max_tokens_field, " ", *fields.max_tokens, ", got ",
            fields.min_tokens);
}

void ReadPenaltyWindow(FieldReader& in, std::string_view name,
                       GenerationFields& out) {
  const auto last = in.Int(name, -1, kMaxInt32);
  if (last == 0) {
    out.repetition_penalty = 1;
    out.presence_penalty = out.frequency_penalty = 0;
  }
  const bool penalizes = out.repetition_penalty.value_or(1) != 1 ||
                         out.frequency_penalty.value_or(0) != 0 ||
                         out.presence_penalty.value_or(0) != 0;
  if (last.value_or(-1) <= 0 || !penalizes) return;
  in.Refuse(name, "must be -1 or 0 beside a penalty: penalties look at the ",
            "whole prompt and completion, got ", *last);
}

void ReadLogprobs(FieldReader& in, GenerationFields& out) {
  const bool logprobs = in.Bool(out.names->logprobs).value_or(false);
  const auto top = in.Int(out.names->top_logprobs, 0, kMaxTopLogprobs);
  if (top.value_or(0) > 0 && !logprobs) {
    in.Refuse(out.names->top_logprobs, "needs \"", out.names->logprobs,
              "\": true");
  }
  if (logprobs) out.logprobs = static_cast<int>(top.value_or(0));
}

const Json* FindObject(FieldReader& in, std::string_view name) {
  const Json* value = in.Find(name);
  if (value == nullptr || value->is_object()) return value;
  in.Refuse(name, "must be an object, got ", Describe(*value));
  return nullptr;
}

void SetSchema(FieldReader& in, const std::string& name, const Json& schema,
               GenerationFields& out) {
  if (!schema.is_object() && !schema.is_boolean()) {
    in.Keep(FieldError(name, "must be a JSON schema, an object, got ",
                       Describe(schema)));
  } else if (out.grammar) {
    in.Keep(FieldError(name, "cannot go with ", out.grammar->name,
                       ": an answer keeps to one grammar"));
  } else {
    out.grammar = {name, {GrammarSpec::Kind::kJsonSchema, DumpJson(schema)}};
  }
}

uint64_t BodyDigest(const Json& body, FieldTable table) {
  std::vector<std::string_view> silent;
  std::vector<std::string_view> unordered;
  for (const RequestField& row : table) {
    if (row.is_silent || row.use == FieldUse::kIgnored) {
      silent.push_back(row.name);
    } else if (row.is_unordered) {
      unordered.push_back(row.name);
    }
  }
  return BodyDigest(body, silent, unordered);
}

std::vector<std::string_view> PlainNames(FieldTable table, int place) {
  std::vector<std::string_view> names;
  for (const RequestField& row : table) {
    const bool is_plain = !row.may_constrain && (row.place & place) != 0;
    if (is_plain) names.push_back(row.name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace sluice::serving
