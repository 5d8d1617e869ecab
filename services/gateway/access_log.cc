#include "services/gateway/access_log.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "common/base/log.h"

namespace sluice::gateway {
namespace {

constexpr size_t kMaxPathBytes = 256;
constexpr std::string_view kAddress = "addr:";
// A client that left before its answer's end, as nginx writes it.
constexpr int64_t kClientLeft = 499;

double Milliseconds(Duration duration) {
  return std::round(Seconds(duration) * 1e6) / 1e3;
}

void AddText(std::vector<LogField>& fields, std::string_view name,
             std::string_view text) {
  if (!text.empty()) fields.push_back({name, text});
}

void AddRequest(std::vector<LogField>& fields,
                const http::HttpRequest& request) {
  AddText(fields, "request_id", request.request_id);
  AddText(fields, "key", request.tenant);
  const std::string_view client = request.client;
  if (client.starts_with(kAddress)) {
    AddText(fields, "address", client.substr(kAddress.size()));
  }
  AddText(fields, "method", request.method);
  AddText(fields, "path",
          std::string_view(request.path).substr(0, kMaxPathBytes));
}

void AddGeneration(std::vector<LogField>& fields,
                   const http::AnswerFigures& figures) {
  if (figures.first_token) {
    fields.push_back({"first_token_ms", Milliseconds(*figures.first_token)});
  }
  fields.push_back({"prompt_tokens", figures.prompt_tokens});
  fields.push_back({"cached_tokens", figures.cached_tokens});
  fields.push_back({"completion_tokens", figures.completion_tokens});
  AddText(fields, "finish", figures.finish);
}

}  // namespace

void LogAccess(const http::ExchangeSummary& summary) {
  std::vector<LogField> fields;
  if (summary.request != nullptr) AddRequest(fields, *summary.request);
  const int64_t status = summary.status;
  fields.push_back({"status", status == 0 ? kClientLeft : status});
  AddText(fields, "error_type", summary.error_type);
  AddText(fields, "error_code", summary.error_code);
  const http::AnswerFigures* figures = summary.figures;
  if (figures != nullptr) {
    AddText(fields, "error_type", figures->error_type);
    AddText(fields, "error_code", figures->error_code);
  }
  fields.push_back({"ms", Milliseconds(summary.duration)});
  if (figures != nullptr && figures->generates) {
    AddGeneration(fields, *figures);
  }
  LogFields("access", fields);
}

}  // namespace sluice::gateway
