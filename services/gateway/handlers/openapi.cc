#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/build_info.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/dialects/openai/field_schemas.h"
#include "common/dialects/openai/known_fields.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/page/page_files.h"

namespace sluice::gateway {
namespace {

std::string_view SourceOf(std::string_view path) {
  for (const PageFile& file : ApiSources()) {
    if (file.path == path) return file.bytes;
  }
  CheckFailed(__FILE__, __LINE__, "a source of the API's document is missing");
}

// Returns Markdown with the texts of its links alone: their targets are files
// beside API.md.
std::string WithoutLinks(std::string_view markdown) {
  std::string out;
  while (!markdown.empty()) {
    const size_t open = markdown.find('[');
    const size_t middle = markdown.find("](", open);
    const size_t close = markdown.find(')', middle);
    // Brackets of JSON within a text are no link.
    const size_t other =
        open == markdown.npos ? open : markdown.find_first_of("[]", open + 1);
    if (close == markdown.npos || other != middle) {
      const size_t end = other == markdown.npos ? markdown.size() : other;
      out += markdown.substr(0, end);
      markdown.remove_prefix(end);
      continue;
    }
    out += markdown.substr(0, open);
    out += markdown.substr(open + 1, middle - open - 1);
    markdown.remove_prefix(close + 1);
  }
  return out;
}

// Returns the last columns of API.md's rows "| `field` | for | text |".
std::map<std::string, std::string, std::less<>> FieldTexts() {
  std::map<std::string, std::string, std::less<>> texts;
  std::string_view page = SourceOf("/API.md");
  while (!page.empty()) {
    const std::string_view line = page.substr(0, page.find('\n'));
    page.remove_prefix(std::min(page.size(), line.size() + 1));
    if (!line.starts_with("| `") || !line.ends_with(" |")) continue;
    const size_t name_end = line.find("` | ", 3);
    const size_t text = line.find(" | ", name_end + 4);
    if (name_end == line.npos || text == line.npos) continue;
    texts.emplace(line.substr(3, name_end - 3),
                  WithoutLinks(line.substr(text + 3, line.size() - text - 5)));
  }
  return texts;
}

std::string_view UseName(openai::FieldUse use) {
  switch (use) {
    case openai::FieldUse::kBuilt:
      return "obeyed";
    case openai::FieldUse::kIgnored:
      return "ignored";
    case openai::FieldUse::kUnbuilt:
      return "not built";
  }
  return "";
}

Json RequestSchema(const openai::FieldSchemaOptions& options) {
  Json schema = openai::BodySchema(options);
  const auto texts = FieldTexts();
  for (const openai::KnownField& field : openai::KnownFields()) {
    const auto found = schema["properties"].find(std::string(field.name));
    if (found == schema["properties"].end()) continue;
    const auto text = texts.find(field.name);
    SLUICE_CHECK(text != texts.end());  // a test compares the lists
    (*found)["description"] = text->second;
    (*found)["x-sluice-use"] = UseName(field.use);
  }
  return schema;
}

// Removes the operations that their flag would switch on.
void RemoveFlagged(Json& paths) {
  std::vector<std::string> flagged;
  for (const auto& [path, operations] : paths.items()) {
    if (operations.front().contains("x-sluice-flag")) flagged.push_back(path);
  }
  for (const std::string& path : flagged) paths.erase(path);
}

}  // namespace

Json ApiDocument(const ApiDocumentOptions& options) {
  StatusOr<Json> read = ParseJson(SourceOf("/openapi.json"));
  SLUICE_CHECK(read.ok());
  Json document = *std::move(read);
  document["info"]["version"] = std::string(BuildVersion());
  // An empty requirement: a request without a key passes too.
  if (!options.keys_asked) document["security"].push_back(Json::object());
  if (!options.debug_endpoints) RemoveFlagged(document["paths"]);
  openai::FieldSchemaOptions fields;
  fields.strict = options.strict_fields;
  fields.max_stops = options.max_stop_strings;
  Json& schemas = document["components"]["schemas"];
  schemas["ChatCompletionRequest"] = RequestSchema(fields);
  fields.chat = false;
  schemas["CompletionRequest"] = RequestSchema(fields);
  return document;
}

void AddApiDocumentHandler(http::Router& router,
                           const ApiDocumentOptions& options) {
  const auto text =
      std::make_shared<const std::string>(DumpJson(ApiDocument(options)));
  router.Add("GET", "/openapi.json",
             [text](std::shared_ptr<http::Exchange> on) {
               http::HttpResponse response;
               response.headers = {{"Cache-Control", "no-cache"},
                                   {"X-Content-Type-Options", "nosniff"}};
               response.body = *text;
               on->Send(std::move(response));
             });
}

}  // namespace sluice::gateway
