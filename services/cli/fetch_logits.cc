#include "services/cli/fetch_logits.h"

#include <cstring>

#include "common/base/json.h"

namespace sluice::cli {

StatusOr<LogitRows> FetchLogits(const BaseUrl& base,
                                const std::vector<int64_t>& ids) {
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      HttpPostForBytes(base, "/debug/logits", DumpJson(Json{{"prompt", ids}})));
  if (response.status == 404) {
    return NotFound(
        "/debug/logits is not on (--debug-endpoints; deploy/local/up --debug)");
  }
  if (response.status != 200) {
    return FailedPrecondition(ErrorText(response.status, response.body));
  }
  const size_t row_bytes = response.body.size() / ids.size();
  if (response.content_type != "application/octet-stream" || row_bytes == 0 ||
      response.body.size() % (ids.size() * sizeof(float)) != 0) {
    return FailedPrecondition(
        "/debug/logits answered something else: ", response.body.size(),
        " bytes of ", response.content_type);
  }
  LogitRows rows;
  rows.columns = row_bytes / sizeof(float);
  rows.values.resize(response.body.size() / sizeof(float));
  std::memcpy(rows.values.data(), response.body.data(), response.body.size());
  return rows;
}

}  // namespace sluice::cli
