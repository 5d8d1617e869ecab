#ifndef SLUICE_COMMON_TRACE_TRACE_RECORD_H_
#define SLUICE_COMMON_TRACE_TRACE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/core/stage_identity.h"
#include "common/core/step_trace.h"
#include "common/http/exchange.h"

namespace sluice::trace {

// The raw measurements of one request, in the order of their arrival. A value.
// All times are nanoseconds of the gateway's clock.
struct TraceRecord {
  // One block of the answer's bytes.
  struct Block {
    TraceSpan wait;   // until the connection takes it
    TraceSpan write;  // until the kernel has all of it
  };
  // One event of a sequence on its way from the engine to the answer.
  struct Delivery {
    size_t steps = 0;  // steps that came before it
    int32_t num_tokens = 0;
    bool is_end = false;
    // For an end: whether a token was sampled for it, and how many prompt
    // tokens came from the prefix cache.
    bool has_end_token = false;
    int32_t cached_tokens = 0;
    int64_t posted_ns = 0;   // the engine's thread left it in the mailbox
    int64_t begin_ns = 0;    // the loop took it
    int64_t decoded_ns = 0;  // tokens are text
    int64_t sent_ns = 0;     // the answer's bytes, if any, are queued
  };
  struct Step {
    std::shared_ptr<const StepTrace> trace;
    TracedChunk chunk;  // this sequence's
  };
  struct Choice {
    int64_t submit_ns = 0;  // EngineLoop::Submit is called
    TraceSpan inbox;        // from there to the engine's thread
    std::vector<Step> steps;
    std::vector<Delivery> deliveries;
    bool truncated = false;  // its later steps or deliveries are left out
  };
  // A stage, and its clock at the end of the request.
  struct Stage {
    std::string address;
    StagePlace place;
    ClockEstimate clock;
  };

  // What the client asked for, without its text.
  struct Request {
    std::string method;
    std::string path;
    std::string traceparent;  // checked; empty: none
    std::string model;        // as it is served; empty: not prepared
    bool prepared = false;    // the rest is known
    int32_t max_tokens = 0;
    float temperature = 0;
    float top_p = 0;
    int32_t top_k = 0;
    float frequency_penalty = 0;
    float presence_penalty = 0;
  };
  // How it ended.
  struct Answer {
    int status = 0;  // 0: the client left first
    std::string error_type;
    http::AnswerFigures figures;
  };

  std::string request_id;
  Request request;
  Answer answer;
  std::string tenant;  // the API key's name, or empty; may see the trace
  int64_t arrival_unix_us = 0;
  TraceSpan read;          // first byte of the header to the handler
  TraceSpan prepare_wait;  // for a text thread; only large bodies
  TraceSpan prepare;       // parse, template, tokenizer
  TraceSpan start_wait;    // back to the loop
  std::vector<Choice> choices;
  std::vector<Block> blocks;  // in the order in which they were queued
  std::vector<Stage> stages;
  bool truncated =
      false;  // a choice is, or blocks before the last are left out

  // The request's first moment and its last byte's.
  int64_t begin_ns() const { return read.start_ns; }
  int64_t end_ns() const {
    return blocks.empty() ? read.stop_ns : blocks.back().write.stop_ns;
  }
};

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_TRACE_RECORD_H_
