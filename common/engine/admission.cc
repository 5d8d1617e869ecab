#include "common/engine/admission.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/retry_after.h"
#include "common/engine/sequence.h"

namespace sluice {
namespace {

// Tokens by which clients' turns may differ.
constexpr int64_t kTurn = 256;
// Part of max_queue_wait below which a refused client is accepted again.
constexpr double kTakenAgain = 0.9;

Duration FromSeconds(double seconds) {
  constexpr double kLongest = 1e6;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds, kLongest)));
}

const QueueState::Client* FindClient(const QueueState& queue,
                                     const std::string& name) {
  for (const QueueState::Client& client : queue.clients) {
    if (client.name == name) return &client;
  }
  return nullptr;
}

// Returns the time to compute `tokens` of prompts and to free `places`. With
// all places taken, one becomes free per mean completion that is decoded.
Duration WaitBehind(const QueueState& queue, double tokens, double places) {
  if (!queue.rates_known) return Duration::zero();
  return FromSeconds(
      std::max(tokens * queue.shared_prompt_seconds,
               tokens * queue.prompt_seconds +
                   places * queue.completion_tokens * queue.decode_seconds));
}

// Returns the number of places that must become free before the request behind
// `sequences` gets one.
double PlacesBehind(const QueueState& queue, double sequences) {
  return std::max(sequences + 1 - queue.free_places, 0.0);
}

}  // namespace

int PlaceShare(const EngineOptions& options, int places, size_t clients) {
  if (options.max_running_per_client > 0) return options.max_running_per_client;
  return std::max(places / std::max(static_cast<int>(clients), 1), 1);
}

int64_t PromptWork(const GenerateRequest& request, int64_t num_prompt_tokens) {
  const bool follows = request.num_choices > 1 && request.sampling.choice > 0 &&
                       request.sampling.prompt_logprobs < 0;
  return follows ? num_prompt_tokens % kBlockTokens + 1 : num_prompt_tokens;
}

Duration PromisedWait(const QueueState& queue) {
  return WaitBehind(queue, static_cast<double>(queue.prompt_tokens),
                    PlacesBehind(queue, queue.waiting));
}

namespace {

int NumLive(const QueueState::Client& client) {
  return client.running + client.waiting;
}

// Returns the wait of `own` if its prompts are owed a part of every plan: the
// time of its own prompts, and of a turn of every client but the largest.
std::optional<Duration> OwedWait(const QueueState& queue,
                                 const QueueState::Client& own,
                                 int place_share) {
  int most = 0;
  for (const auto& other : queue.clients) most = std::max(most, NumLive(other));
  const auto is_owed = [&](const QueueState::Client& client) {
    return client.running < place_share && NumLive(client) < most &&
           client.prompt_tokens <= int64_t{kShortPrompt} * client.waiting;
  };
  if (NumLive(own) >= place_share || !is_owed(own)) return std::nullopt;
  double tokens = static_cast<double>(own.prompt_tokens);
  for (const QueueState::Client& other : queue.clients) {
    if (other.name == own.name || NumLive(other) == most) continue;
    tokens += static_cast<double>(
        std::min(other.prompt_tokens, own.prompt_tokens + kTurn));
  }
  return FromSeconds(queue.rates_known ? tokens * queue.owed_prompt_seconds
                                       : 0.0);
}

}  // namespace

// A client's own prompts go before the new one, and as many tokens of every
// other client: turns are equal in tokens. Preempted sequences go before all.
Duration PromisedWait(const QueueState& queue, const std::string& name,
                      int place_share) {
  const QueueState::Client* own = FindClient(queue, name);
  const auto owed = OwedWait(
      queue, own != nullptr ? *own : QueueState::Client{name}, place_share);
  if (owed) return *owed;
  const int64_t own_tokens = own != nullptr ? own->prompt_tokens : 0;
  const int own_places = own != nullptr ? own->running + own->waiting : 0;
  double tokens = static_cast<double>(queue.prompt_tokens);
  double sequences = queue.waiting;
  for (const QueueState::Client& other : queue.clients) {
    const int64_t turn = own_tokens + kTurn;
    if (&other == own || other.prompt_tokens <= turn) continue;
    const double later = static_cast<double>(other.prompt_tokens - turn);
    tokens -= later;
    sequences -=
        other.waiting * later / static_cast<double>(other.prompt_tokens);
  }
  const bool is_given_one = own_places < place_share;
  return WaitBehind(queue, tokens,
                    is_given_one ? 0 : PlacesBehind(queue, sequences));
}

Admission::Admission(const EngineOptions& options) : options_(options) {
  queue_.free_places = queue_.places = options.max_running;
}

// Bounds the queue for any number of clients and any request.
Status Admission::CheckBound() const {
  const int64_t limit = int64_t{2} * options_.max_queue;
  if (queue_.waiting + int64_t{1} - queue_.free_places <= limit) {
    return OkStatus();
  }
  return ResourceExhausted("the queue is full: ", queue_.waiting,
                           " requests wait, limit ", limit, " of all clients");
}

// A full queue still takes clients below their share, up to CheckBound. With
// max_queue_per_client it takes no more of a client while others wait.
Status Admission::CheckCount(const std::string& name) const {
  const QueueState::Client* own = FindClient(queue_, name);
  const int own_waiting = own == nullptr ? 0 : own->waiting;
  const auto others =
      std::count_if(queue_.clients.begin(), queue_.clients.end(),
                    [own](const QueueState::Client& client) {
                      return &client != own && client.waiting > 0;
                    });
  const int cap = options_.max_queue_per_client;
  if (cap > 0 && others > 0 && own_waiting >= cap) {
    return ResourceExhausted("the queue is full: ", own_waiting,
                             " requests of this client wait, limit ", cap,
                             " while others wait");
  }
  const int over = queue_.waiting + 1 - queue_.free_places;
  if (over <= options_.max_queue) return OkStatus();
  const int share = options_.max_queue / static_cast<int>(others + 1);
  if (others > 0 && own_waiting < share) return OkStatus();
  return ResourceExhausted("the queue is full: ", queue_.waiting,
                           " requests wait, limit ", options_.max_queue);
}

Status Admission::CheckFirst(const std::string& client) {
  const size_t clients =
      queue_.clients.size() + (FindClient(queue_, client) == nullptr ? 1 : 0);
  // A single client has no other to give it a place.
  const int share =
      clients > 1 ? PlaceShare(options_, queue_.places, clients) : 0;
  const Duration wait = PromisedWait(queue_, client, share);
  const Duration limit = options_.max_queue_wait;
  const Duration low = FromSeconds(kTakenAgain * Seconds(limit));
  Status room = CheckBound();
  if (room.ok()) room = CheckCount(client);
  if (!room.ok()) {
    // By then a tenth of the queue has been served.
    return WithRetryAfter(room, FromSeconds((1 - kTakenAgain) * Seconds(wait)));
  }
  const bool refused_before = refusing_.count(client) > 0;
  if (wait > (refused_before ? low : limit)) {
    refusing_.insert(client);
    return WithRetryAfter(
        ResourceExhausted("the queue is full: a new request would wait ",
                          Seconds(wait), " s, limit ", Seconds(limit), " s"),
        wait - low);
  }
  if (refused_before) refusing_.erase(client);
  return OkStatus();
}

Status Admission::Admit(const GenerateRequest& request) {
  const std::string& id = request.request_id;
  SLUICE_RETURN_IF_ERROR(requests_.count(id) > 0 ? CheckBound()
                                                 : CheckFirst(request.client));
  if (!id.empty()) ++requests_[id];
  const Arrival arrival{
      request.client,
      PromptWork(request, static_cast<int64_t>(request.prompt_tokens.size()))};
  Add(arrival, queue_);
  since_.push_back(arrival);
  return OkStatus();
}

void Admission::OnEnd(const std::string& request_id) {
  ++queue_.free_places;
  const auto it = requests_.find(request_id);
  if (it != requests_.end() && --it->second == 0) requests_.erase(it);
}

void Admission::Publish(QueueState queue) {
  queue_ = std::move(queue);
  if (queue_.waiting == 0) refusing_.clear();
  for (const Arrival& arrival : since_) Add(arrival, queue_);
}

void Admission::Add(const Arrival& arrival, QueueState& queue) {
  ++queue.waiting;
  queue.prompt_tokens += arrival.prompt_tokens;
  for (QueueState::Client& client : queue.clients) {
    if (client.name != arrival.client) continue;
    ++client.waiting;
    client.prompt_tokens += arrival.prompt_tokens;
    return;
  }
  queue.clients.push_back({arrival.client, 1, arrival.prompt_tokens, 0});
}

}  // namespace sluice
