#include "common/dialects/responses/stored.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "common/base/cat.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/request_limits.h"

namespace sluice::responses {
namespace {

using serving::AnswerStore;
using serving::FieldError;

constexpr std::string_view kPrefix = "/v1/responses/";
constexpr int kDefaultItems = 20;
constexpr int kMaxItems = 100;
constexpr std::string_view kReference = R"("item_reference")";
constexpr std::string_view kPrevious = R"("previous_response_id")";
constexpr size_t kMaxReferenceBytes = 512;

// What a path behind kPrefix names.
struct Place {
  std::string_view id;
  std::string_view part;  // "input_items", "cancel"; empty: the response
};

Place PlaceOf(const http::HttpRequest& request) {
  const std::string_view rest =
      std::string_view(request.path).substr(kPrefix.size());
  const size_t slash = rest.find('/');
  if (slash == rest.npos) return {rest, {}};
  return {rest.substr(0, slash), rest.substr(slash + 1)};
}

// Returns the value of `name` in "a=b&c=d"; nothing without it.
std::optional<std::string_view> QueryValue(std::string_view query,
                                           std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) {
      return pair.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

StatusOr<AnswerStore::Entry> FindEntry(const serving::ServingContext& context,
                                       const http::HttpRequest& http,
                                       std::string_view id) {
  if (context.answers == nullptr) {
    return serving::WithParam(
        NotFound("this server keeps no responses (its --response-store)"),
        "id");
  }
  auto found = context.answers->Find(http.tenant, id);
  if (!found.ok()) return serving::WithParam(found.status(), "id");
  return found;
}

// Returns the bytes of a response; 0: it is not kept.
size_t StoredBytes(const serving::ServingContext& context,
                   const http::HttpRequest& http, std::string_view id) {
  const auto found = FindEntry(context, http, id);
  return found.ok() ? (*found)->answer.size() + (*found)->items.size() : 0;
}

// Returns the id of the response whose output has the item `id`: an item's is
// its kind, its response's without the prefix, and its place there, joined by
// underscores. Empty for an id of another form.
std::string ResponseOf(std::string_view id) {
  const size_t begin = id.find('_');
  const size_t end = id.rfind('_');
  if (begin == id.npos || end <= begin + 1) return {};
  return Cat("resp_", id.substr(begin + 1, end - begin - 1));
}

Status NoItem(std::string_view id) {
  return NotFound("there is no item ", id.substr(0, 200),
                  ": its response was never kept, or is forgotten");
}

// Returns where `word` is in `body` from `from` on; npos: nowhere. Bodies have
// megabytes, and this is on an event loop: memmem takes no body much longer
// than another.
size_t FindWord(std::string_view body, std::string_view word, size_t from = 0) {
  const void* const found =
      memmem(body.data() + from, body.size() - from, word.data(), word.size());
  return found == nullptr ? body.npos
                          : static_cast<const char*>(found) - body.data();
}

// Returns the string that begins `text`, behind white space; empty without it,
// or with escapes.
std::string_view PlainString(std::string_view text) {
  const size_t begin = text.find('"');
  if (begin == text.npos) return {};
  text.remove_prefix(begin + 1);
  text = text.substr(0, text.find('"'));
  return text.find('\\') == text.npos ? text : std::string_view();
}

Status NoPart(const Place& place) {
  return serving::WithCode(
      NotFound("a response has no ", place.part.substr(0, 64)), "not_found");
}

// Returns an item as lists have it: with an id, and with its text as a part.
Json ListedItem(Json item, std::string_view response, size_t index) {
  if (!item.is_object()) return item;
  if (!item.contains("type")) item["type"] = "message";
  if (!item.contains("id") || !item["id"].is_string()) {
    item["id"] = Cat("in_", response, "_", index);
  }
  const auto content = item.find("content");
  if (content != item.end() && content->is_string()) {
    const bool is_answer = item.contains("role") && item["role"] == "assistant";
    *content = Json::array({{{"type", is_answer ? "output_text" : "input_text"},
                             {"text", content->get<std::string>()}}});
  }
  return item;
}

// limit, order (desc), after.
StatusOr<http::HttpResponse> InputItems(const http::HttpRequest& http,
                                        std::string_view id,
                                        const AnswerStore::Answer& kept) {
  int limit = kDefaultItems;
  if (const auto text = QueryValue(http.query, "limit")) {
    const auto parsed =
        std::from_chars(text->data(), text->data() + text->size(), limit);
    if (parsed.ec != std::errc() || parsed.ptr != text->data() + text->size() ||
        limit < 1 || limit > kMaxItems) {
      return FieldError("limit", "must be a number from 1 to ", kMaxItems);
    }
  }
  const std::string_view order =
      QueryValue(http.query, "order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return FieldError("order", "must be asc or desc");
  }
  SLUICE_ASSIGN_OR_RETURN(Json items, ParseJson(kept.items));
  Json listed = Json::array();
  for (size_t i = 0; i < items.size(); ++i) {
    listed.push_back(ListedItem(std::move(items[i]), id, i));
  }
  if (order == "desc") std::reverse(listed.begin(), listed.end());
  auto begin = listed.begin();
  if (const auto after = QueryValue(http.query, "after")) {
    begin = std::find_if(listed.begin(), listed.end(), [&](const Json& item) {
      return item.is_object() && item["id"] == Json(std::string(*after));
    });
    if (begin == listed.end()) {
      return FieldError("after", "names no item of the response");
    }
    ++begin;
  }
  const auto left = listed.end() - begin;
  const auto end = begin + std::min<std::ptrdiff_t>(left, limit);
  Json data = Json::array();
  for (auto item = begin; item != end; ++item) data.push_back(std::move(*item));
  const auto id_of = [](const Json& item) {
    return item.is_object() ? item["id"] : Json();
  };
  const Json first = data.empty() ? Json() : id_of(data.front());
  const Json last = data.empty() ? Json() : id_of(data.back());
  const bool has_more = left > limit;
  http::HttpResponse response;
  response.body = DumpJson({{"object", "list"},
                            {"data", std::move(data)},
                            {"first_id", first},
                            {"last_id", last},
                            {"has_more", has_more}});
  return response;
}

StatusOr<http::HttpResponse> Get(const serving::ServingContext& context,
                                 const http::HttpRequest& http) {
  const Place place = PlaceOf(http);
  SLUICE_ASSIGN_OR_RETURN(const AnswerStore::Entry kept,
                          FindEntry(context, http, place.id));
  if (place.part == "input_items") return InputItems(http, place.id, *kept);
  if (!place.part.empty()) return NoPart(place);
  if (QueryValue(http.query, "stream") == "true") {
    return FieldError("stream", "true is not supported: a response that is ",
                      "kept has ended");
  }
  http::HttpResponse response;
  response.body = kept->answer;
  return response;
}

StatusOr<http::HttpResponse> Delete(const serving::ServingContext& context,
                                    const http::HttpRequest& http) {
  const Place place = PlaceOf(http);
  SLUICE_RETURN_IF_ERROR(FindEntry(context, http, place.id).status());
  if (!place.part.empty()) return NoPart(place);
  SLUICE_RETURN_IF_ERROR(context.answers->Erase(http.tenant, place.id));
  http::HttpResponse response;
  response.body = DumpJson({{"id", std::string(place.id)},
                            {"object", "response"},
                            {"deleted", true}});
  return response;
}

StatusOr<http::HttpResponse> Cancel(const serving::ServingContext& context,
                                    const http::HttpRequest& http) {
  const Place place = PlaceOf(http);
  SLUICE_RETURN_IF_ERROR(FindEntry(context, http, place.id).status());
  if (place.part != "cancel") return NoPart(place);
  return FieldError("id",
                    "only a response in the background can be cancelled, "
                    "and this one has ended");
}

}  // namespace

StatusOr<Json> ItemsBehind(AnswerStore& store, const std::string& tenant,
                           std::string_view id, JsonBudget& budget) {
  SLUICE_ASSIGN_OR_RETURN(const AnswerStore::Entry kept,
                          store.Find(tenant, id));
  const JsonLimits limits{.budget = &budget};
  SLUICE_ASSIGN_OR_RETURN(Json items, ParseJson(kept->items, limits));
  SLUICE_ASSIGN_OR_RETURN(Json answer, ParseJson(kept->answer, limits));
  for (Json& item : answer["output"]) items.push_back(std::move(item));
  return items;
}

std::string_view PreviousIdOf(std::string_view body) {
  if (FindWord(body, kPrevious) == body.npos) return {};
  return PlainString(FindJsonText(body, "previous_response_id").value_or(""));
}

std::vector<std::string_view> ReferencedIds(std::string_view body) {
  std::vector<std::string_view> ids;
  size_t at = FindWord(body, kReference);
  for (size_t seen = 0; at != body.npos && seen < serving::kMaxMessages;
       ++seen) {
    size_t next = at + kReference.size();
    const size_t first = at - std::min(at, kMaxReferenceBytes);
    const size_t begin = body.substr(first, at - first).rfind('{');
    const size_t end = body.substr(at, kMaxReferenceBytes).find('}');
    if (begin != body.npos && end != body.npos) {
      next = at + end + 1;  // no object counts twice
      const std::string_view object =
          body.substr(first + begin, next - first - begin);
      const std::string_view id =
          object.size() > kMaxReferenceBytes
              ? ""
              : PlainString(FindJsonText(object, "id").value_or(""));
      if (!id.empty()) ids.push_back(id);
    }
    at = FindWord(body, kReference, next);
  }
  return ids;
}

StatusOr<Json> ReferencedItems::Take(std::string_view id, JsonBudget& budget) {
  const std::string response = ResponseOf(id);
  if (response.empty()) return NoItem(id);
  auto output = outputs_.find(response);
  if (output == outputs_.end()) {
    // The work was given its thread and its memory by these ids.
    if (!foreseen_) {
      const auto ids = ReferencedIds(request_.body);
      foreseen_.emplace(ids.begin(), ids.end());
    }
    if (!foreseen_->contains(id)) {
      return InvalidArgument("an item reference must be an object of at most ",
                             kMaxReferenceBytes, " bytes, its id without ",
                             "escapes, and among the first ",
                             serving::kMaxMessages, " of a body");
    }
    auto kept = store_.Find(request_.tenant, response);
    if (!kept.ok()) return NoItem(id);
    SLUICE_ASSIGN_OR_RETURN(Json answer,
                            ParseJson((*kept)->answer, {.budget = &budget}));
    output = outputs_.emplace(response, Output()).first;
    for (Json& item : answer["output"]) {
      std::string name = item["id"].get<std::string>();
      output->second.emplace(std::move(name), std::move(item));
    }
  }
  const auto item = output->second.find(id);
  if (item == output->second.end()) return NoItem(id);
  if (item->second.is_null()) {
    return InvalidArgument("the item ", id.substr(0, 200),
                           " is there already: refer to it once");
  }
  return std::exchange(item->second, nullptr);
}

size_t BytesBehind(const serving::ServingContext& context,
                   const http::HttpRequest& request) {
  if (context.answers == nullptr) return 0;
  const std::string_view previous = PreviousIdOf(request.body);
  size_t bytes = previous.empty() ? 0 : StoredBytes(context, request, previous);
  std::set<std::string> responses;
  for (const std::string_view id : ReferencedIds(request.body)) {
    const auto [response, is_new] = responses.insert(ResponseOf(id));
    if (!is_new) continue;
    const auto kept = FindEntry(context, request, *response);
    if (kept.ok()) bytes += (*kept)->answer.size();
  }
  return bytes;
}

void AddStoredHandlers(http::Router& router,
                       const serving::ServingContext& context) {
  const std::string pattern = Cat(kPrefix, "*");
  const auto add = [&](std::string_view method,
                       serving::Maker<http::HttpResponse> answer) {
    router.Add(method, pattern,
               [context, answer](std::shared_ptr<http::Exchange> on) {
                 serving::AnswerOffLoop(context, answer, std::move(on));
               });
  };
  router.Add("GET", pattern, [context](std::shared_ptr<http::Exchange> on) {
    const http::HttpRequest& request = on->request();
    const size_t bytes = StoredBytes(context, request, PlaceOf(request).id);
    serving::AnswerOffLoop(context, Get, std::move(on), bytes);
  });
  add("DELETE", Delete);
  add("POST", Cancel);
}

}  // namespace sluice::responses
