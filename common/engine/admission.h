#ifndef SLUICE_COMMON_ENGINE_ADMISSION_H_
#define SLUICE_COMMON_ENGINE_ADMISSION_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/engine/engine_options.h"

namespace sluice {

// The waiting sequences and the measured rates, at one moment. Promised waits
// follow from them.
struct QueueState {
  struct Client {
    std::string name;
    int waiting = 0;            // sequences
    int64_t prompt_tokens = 0;  // of them, to be computed
    int running = 0;            // sequences
  };
  std::vector<Client> clients;  // those with live sequences
  int waiting = 0;              // sequences, preempted ones included
  int64_t prompt_tokens = 0;    // of all
  int64_t history_tokens = 0;   // kept by all: each choice has its own
  int free_places = 0;  // that may start at once; 0 while blocks are short
  int places = 0;       // of all

  bool rates_known = false;
  double prompt_seconds = 0;  // of the pipeline per token
  // The same while the running sequences decode.
  double shared_prompt_seconds = 0;
  // The same for short prompts of a client below its share.
  double owed_prompt_seconds = 0;
  double decode_seconds = 0;
  double completion_tokens = 0;  // of a sequence, on average
};

// Places that each of `clients` may hold while another one waits.
int PlaceShare(const EngineOptions& options, int places, size_t clients);

// Returns the prompt tokens that a request computes. Of choices that share a
// prompt only the first computes all of it.
int64_t PromptWork(const GenerateRequest& request, int64_t num_prompt_tokens);

// Returns how long a new request waits for its first step: behind all requests,
// or as a request of `client`. Clients with more places give places to `client`
// up to `place_share`. A client below that, with fewer sequences than the
// largest client, does not wait for the largest client's prompts. Zero while
// the rates are unknown.
Duration PromisedWait(const QueueState& queue);
Duration PromisedWait(const QueueState& queue, const std::string& client,
                      int place_share = 0);

// Takes or refuses requests. A request is taken if the queue promises to start
// it within max_queue_wait. The number of waiting sequences is bounded as well,
// with shares for clients. All sequences of one request_id (choices, several
// prompts) rest on the promise to the first of them. Not thread safe: the
// engine loop's lock guards it.
class Admission {
 public:
  explicit Admission(const EngineOptions& options);

  // OK: the request counts as waiting from here on. RESOURCE_EXHAUSTED, with
  // RetryAfterSeconds, refuses the client until its wait is well below the
  // limit, so that refusals and acceptances do not alternate.
  Status Admit(const GenerateRequest& request);

  // The engine's thread takes the requests admitted so far.
  void OnTaken() { since_.clear(); }
  // `queue` holds the requests of the latest OnTaken.
  void Publish(QueueState queue);
  // An admitted request has ended since the latest Publish: its client may send
  // the next one.
  void OnEnd(const std::string& request_id);

 private:
  struct Arrival {
    std::string client;
    int64_t prompt_tokens = 0;
  };
  static void Add(const Arrival& arrival, QueueState& queue);
  Status CheckCount(const std::string& client) const;
  Status CheckBound() const;
  Status CheckFirst(const std::string& client);

  const EngineOptions options_;
  QueueState queue_;  // as published, with later arrivals and ends
  std::vector<Arrival> since_;
  std::set<std::string> refusing_;  // clients
  // Sequences taken and not ended, of each nonempty request_id.
  std::map<std::string, int> requests_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ADMISSION_H_
