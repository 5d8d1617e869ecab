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

// What waits, and how fast it is served: all that a promise rests on. A copy,
// taken at one moment.
struct QueueState {
  struct Client {
    std::string name;
    int waiting = 0;            // sequences
    int64_t prompt_tokens = 0;  // of them, to be computed
    int running = 0;            // sequences
  };
  std::vector<Client> clients;  // those with live sequences
  int waiting = 0;              // sequences of all, returning ones included
  int64_t prompt_tokens = 0;    // of all
  int64_t history_tokens = 0;   // kept of all: choices have a history each
  int free_places = 0;  // that may start at once; 0 also while blocks are short
  int places = 0;       // of all

  bool rates_known = false;
  double prompt_seconds = 0;  // of the pipeline per token
  // The same beside what the running sequences decode meanwhile.
  double shared_prompt_seconds = 0;
  // The same for short prompts of a client that has less than its share.
  double owed_prompt_seconds = 0;
  double decode_seconds = 0;
  double completion_tokens = 0;  // of a sequence, on average
};

// Places that each of `clients` may hold while another one waits.
int PlaceShare(const EngineOptions& options, int places, size_t clients);

// Prompt tokens that a request asks to compute: of choices that share their
// prompt only the first computes all of it.
int64_t PromptWork(const GenerateRequest& request, int64_t num_prompt_tokens);

// How long a new request would wait for its first step: behind all, or as one
// of `client`, which is given places up to `place_share` by those that hold
// more. One that has less, of places and of sequences, does not wait for those
// of the client that has the most. Zero while the rates are not known.
Duration PromisedWait(const QueueState& queue);
Duration PromisedWait(const QueueState& queue, const std::string& client,
                      int place_share = 0);

// Which requests are taken: those that the queue can promise to start within
// max_queue_wait. Below the rates' being known, and above all, the number of
// the waiting is bounded, shared out among clients. What comes with one
// request_id (choices, several prompts) is promised its start once, with the
// first of them: the others are not held against each other. Not thread safe:
// under the engine loop's lock.
class Admission {
 public:
  explicit Admission(const EngineOptions& options);

  // OK: the request counts as waiting from here on. RESOURCE_EXHAUSTED with
  // the time after which its like is taken again. A client that was refused
  // stays so until its wait has fallen a good deal, so that refusals do not
  // alternate with acceptances.
  Status Admit(const GenerateRequest& request);

  // The engine's thread takes what was admitted so far..
  void OnTaken() { since_.clear(); }
  // ..and it is in `queue` now.
  void Publish(QueueState queue);
  // An admitted request has ended since: its client may send the next one.
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
  QueueState queue_;  // as published, and those who came and ended since
  std::vector<Arrival> since_;
  std::set<std::string> refusing_;  // clients
  // Sequences taken and not ended, of each request_id that is not empty.
  std::map<std::string, int> requests_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ADMISSION_H_
