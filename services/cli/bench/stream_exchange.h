#ifndef SLUICE_SERVICES_CLI_BENCH_STREAM_EXCHANGE_H_
#define SLUICE_SERVICES_CLI_BENCH_STREAM_EXCHANGE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "services/cli/bench/load_generator.h"
#include "services/cli/bench/request_record.h"
#include "services/cli/http_call.h"
#include "services/cli/stream_chunk.h"

namespace sluice::cli {

// Measures one request and its streamed answer. Lives until its end; every call
// is on the loop's thread.
class StreamExchange : public std::enable_shared_from_this<StreamExchange> {
 public:
  using OnTokens = std::function<void(int)>;
  using OnEnd = std::function<void(RequestRecord)>;

  // `pool` outlives the exchange. `head` is RequestHead's; `record` has index
  // and scheduled.
  StreamExchange(ConnectionPool& pool, const std::string& head,
                 const LoadRequest& request, RequestRecord record);

  // `on_end` runs once, never within Start.
  void Start(Duration timeout, OnTokens on_tokens, OnEnd on_end);
  void Cancel() { call_->Cancel(); }

 private:
  void OnBody(std::string_view bytes, TimePoint at);
  // False: the event ended the exchange.
  bool OnEvent(TimePoint at, const std::string& data);
  void OnToken(TimePoint at, const StreamChunk& chunk);
  void Fail(Outcome outcome, const std::string& error);
  // Records what is wrong with a complete answer, if anything.
  void JudgeWhole();
  void OnCallEnd(HttpCall::End end, const std::string& error);

  const std::shared_ptr<HttpCall> call_;
  RequestRecord record_;
  OnTokens on_tokens_;
  OnEnd on_end_;
  SseReader events_;
  std::string refusal_;    // the body of another status than 200
  int64_t counted_ = 0;    // over all arrivals
  bool complete_ = false;  // [DONE] or a finish_reason came
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_STREAM_EXCHANGE_H_
