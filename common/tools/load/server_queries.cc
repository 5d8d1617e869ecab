#include "common/tools/load/server_queries.h"

#include <chrono>
#include <cstdlib>
#include <sstream>

#include "common/base/json_member.h"

namespace sluice::load {

StatusOr<std::string> ServedModelId(const http::BaseUrl& base) {
  SLUICE_ASSIGN_OR_RETURN(const Json json, http::GetJson(base, "/v1/models"));
  const Json::array_t& data = FindList(json, "data");
  if (!data.empty() && data[0].is_object()) return FindText(data[0], "id");
  return Internal("/v1/models lists no model: ", DumpJson(json));
}

StatusOr<std::vector<int64_t>> Tokenize(const http::BaseUrl& base,
                                        const Json& body) {
  SLUICE_ASSIGN_OR_RETURN(const Json answer,
                          http::PostJson(base, "/tokenize", body));
  const Json* tokens = FindMember(answer, "tokens");
  std::vector<int64_t> ids;
  if (tokens == nullptr || !tokens->is_array()) {
    return FailedPrecondition("/tokenize gave no tokens");
  }
  for (const Json& id : *tokens) {
    if (!id.is_number_integer()) {
      return FailedPrecondition("/tokenize gave no ids");
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

Metrics ParseMetrics(const std::string& text) {
  Metrics sums;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    sums[line.substr(0, line.find_first_of("{ "))] +=
        std::strtod(line.c_str() + space, nullptr);
  }
  return sums;
}

StatusOr<Metrics> FetchMetrics(const http::BaseUrl& base) {
  SLUICE_ASSIGN_OR_RETURN(
      const http::HttpResponse response,
      http::HttpGet(base, "/metrics", std::chrono::seconds(2)));
  if (response.status != 200) {
    return FailedPrecondition(http::ErrorText(response.status, response.body));
  }
  return ParseMetrics(response.body);
}

}  // namespace sluice::load
