#include "services/gateway/stream_record.h"

#include <algorithm>
#include <chrono>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "services/gateway/dialects.h"

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxIdBytes = 4096;  // of each id
constexpr size_t kMaxNameBytes = 512;

}  // namespace

std::string EncodeStreamRequest(const serving::StreamRequest& request) {
  const auto age =
      std::chrono::duration_cast<milliseconds>(Clock::now() - request.arrival);
  const Json head{{"request_id", request.request_id},
                  {"tenant", request.tenant},
                  {"path", request.path},
                  {"first_event_id", request.first_event_id},
                  {"age_ms", std::max<int64_t>(age.count(), 0)}};
  return DumpJson(head) + "\n" + request.body;
}

StatusOr<serving::StreamRequest> DecodeStreamRequest(std::string_view bytes) {
  const auto bad = [](const char* what) {
    return InvalidArgument("a request of another gateway's streams has ", what);
  };
  const size_t end = bytes.find('\n');
  if (end == bytes.npos) return bad("no head");
  const StatusOr<Json> head = ParseJson(std::string(bytes.substr(0, end)));
  if (!head.ok() || !head->is_object()) return bad("no JSON as its head");
  serving::StreamRequest request;
  request.request_id = FindText(*head, "request_id");
  request.tenant = FindText(*head, "tenant");
  request.path = FindText(*head, "path");
  request.first_event_id = FindText(*head, "first_event_id");
  request.body = bytes.substr(end + 1);
  if (FindEndpoint(request.path) == nullptr) {
    return bad("another path than those of generations");
  }
  if (request.request_id.empty() || request.request_id.size() > kMaxIdBytes ||
      request.tenant.size() > kMaxNameBytes || request.first_event_id.empty() ||
      request.first_event_id.size() > 2 * kMaxIdBytes) {
    return bad("a name that is empty or too long");
  }
  const int64_t age = FindInt(*head, "age_ms").value_or(-1);
  constexpr int64_t kDay = 24 * 3600 * 1000;
  if (age < 0) return bad("no age");
  request.arrival = Clock::now() - milliseconds(std::min(age, kDay));
  return request;
}

std::vector<std::string> RecordsAfter(serving::StreamJournal& journal,
                                      uint64_t& after, size_t bytes) {
  std::vector<std::string> records;
  for (const serving::StreamJournal::Entry& kept :
       journal.KeptAfter(after, bytes)) {
    records.push_back(EncodeStreamRequest(*kept));
  }
  return records;
}

}  // namespace sluice::gateway
