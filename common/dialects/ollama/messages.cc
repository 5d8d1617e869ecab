#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/dialects/ollama/parse.h"
#include "common/http/message.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/request_limits.h"

namespace sluice::ollama {
namespace {

using serving::Describe;
using serving::FieldReader;

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

// Returns the number of pictures; errors stay in `in`.
size_t CountImages(FieldReader& in) {
  const Json* images = in.Find("images");
  if (images == nullptr) return 0;
  const bool fits =
      images->is_array() && images->size() <= serving::kMaxContentParts &&
      std::all_of(images->begin(), images->end(),
                  [](const Json& image) { return image.is_string(); });
  if (fits) return images->size();
  in.Refuse("images", "must be an array of at most ", serving::kMaxContentParts,
            " strings of base64, got ", Describe(*images));
  return 0;
}

// Copies a name or an id, if present, to member `as` of `out`.
void CopyName(FieldReader& in, const char* name, const char* as, Json& out) {
  auto text = in.String(name);
  if (!text) return;
  if (text->size() > serving::kMaxNameBytes) {
    in.Refuse(name, "has ", text->size(), " bytes, limit ",
              serving::kMaxNameBytes);
  }
  AppendMember(out, as, *std::move(text));
}

Json ParseCall(const Json& call, const std::string& where, FieldReader& in,
               JsonBudget& budget) {
  const auto refuse = [&](const auto&... parts) {
    in.Refuse("tool_calls", where, parts...);
    return Json();
  };
  if (!call.is_object()) return refuse(" must be an object");
  FieldReader of_call(call);
  const std::string id = of_call.String("id").value_or("");
  const Json* function = of_call.Find("function");
  if (!of_call.status().ok()) {
    return refuse(".", Message(of_call.status()));
  }
  if (id.size() > serving::kMaxNameBytes) {
    return refuse(".id has ", id.size(), " bytes, limit ",
                  serving::kMaxNameBytes);
  }
  if (function == nullptr || !function->is_object()) {
    return refuse(".function must be an object");
  }
  FieldReader sub(*function);
  const std::string name = sub.String("name").value_or("");
  if (name.empty() || name.size() > serving::kMaxNameBytes) {
    return refuse(".function.name must be 1 to ", serving::kMaxNameBytes,
                  " bytes");
  }
  const Json* arguments = sub.Find("arguments");
  if (arguments != nullptr && !arguments->is_object() &&
      !arguments->is_string()) {
    return refuse(".function.arguments must be an object, got ",
                  Describe(*arguments));
  }
  auto shown = serving::ArgumentsToShow(arguments, budget);
  if (!shown.ok()) {
    return refuse(".function.arguments: ", Message(shown.status()));
  }
  return serving::MakeCall(name, *std::move(shown), id);
}

void CopyCalls(FieldReader& in, JsonBudget& budget, Json& out) {
  const Json* calls = in.Find("tool_calls");
  if (calls == nullptr) return;
  if (!calls->is_array() || calls->size() > serving::kMaxToolCalls) {
    in.Refuse("tool_calls", "must be an array of at most ",
              serving::kMaxToolCalls, " calls, got ", Describe(*calls));
    return;
  }
  Json made = Json::array();
  for (size_t i = 0; i < calls->size() && in.status().ok(); ++i) {
    made.push_back(ParseCall((*calls)[i], Cat("[", i, "]"), in, budget));
  }
  // Templates take an empty list for calls.
  if (!made.empty()) AppendMember(out, "tool_calls", std::move(made));
}

// `is_last`: it is the last message of the user.
StatusOr<Json> ParseMessage(const Json& message, size_t index, bool is_last,
                            JsonBudget& budget) {
  FieldReader in(message, Cat("messages[", index, "]."));
  const std::string role = http::AsciiLower(in.String("role").value_or(""));
  const auto known = std::find(std::begin(kRoles), std::end(kRoles), role);
  if (known == std::end(kRoles)) {
    in.Refuse("role", "must be system, user, assistant or tool");
  }
  std::string content = in.String("content").value_or("");
  const size_t images = CountImages(in);
  if (is_last && images > 0) {
    in.Keep(serving::WithCode(
        serving::FieldError(Cat("messages[", index, "].images"),
                            "no model here reads pictures, got ", images),
        "unsupported_content"));
  }
  for (size_t i = 0; i < images; ++i) {
    if (!content.empty()) content += '\n';
    content += serving::kImageNote;
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  Json out = serving::MakeMessage(role, std::move(content));
  if (role == "tool") {
    CopyName(in, "tool_name", "name", out);
    CopyName(in, "tool_call_id", "tool_call_id", out);
  } else if (role == "assistant") {
    auto thinking = in.String("thinking").value_or("");
    if (!thinking.empty()) {
      AppendMember(out, "reasoning_content", std::move(thinking));
    }
    CopyCalls(in, budget, out);
  }
  SLUICE_RETURN_IF_ERROR(in.status());
  return out;
}

bool IsOfUser(const Json& message) {
  const auto role = message.find("role");
  return role != message.end() && role->is_string() &&
         http::AsciiLower(role->get_ref<const std::string&>()) == "user";
}

}  // namespace

StatusOr<Json> ParseMessages(const Json& messages, JsonBudget& budget) {
  if (!messages.is_array() || messages.size() > serving::kMaxMessages) {
    return serving::FieldError("messages", "must be an array of at most ",
                               serving::kMaxMessages, " messages, got ",
                               Describe(messages));
  }
  std::optional<size_t> last;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) {
      return serving::FieldError(Cat("messages[", i, "]"),
                                 "must be an object, got ",
                                 Describe(messages[i]));
    }
    if (IsOfUser(messages[i])) last = i;
  }
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(Json message,
                            ParseMessage(messages[i], i, i == last, budget));
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace sluice::ollama
