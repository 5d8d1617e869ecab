#include "common/engine/admission.h"

#include <algorithm>
#include <utility>

#include "common/base/retry_after.h"

namespace sluice {
namespace {

// Tokens by which turns among tenants may be unequal.
constexpr int64_t kTurn = 256;
// Of max_queue_wait: below it a refused tenant is taken again.
constexpr double kTakenAgain = 0.9;

Duration FromSeconds(double seconds) {
  constexpr double kLongest = 1e6;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds, kLongest)));
}

const QueueState::Tenant* FindTenant(const QueueState& queue,
                                     const std::string& name) {
  for (const QueueState::Tenant& tenant : queue.tenants) {
    if (tenant.name == name) return &tenant;
  }
  return nullptr;
}

// As long as the pipeline needs for the prompts before it; and when all places
// are taken, as it takes until so many have become free: with all places busy,
// one does whenever a mean completion's tokens were decoded.
Duration WaitBehind(const QueueState& queue, double tokens, double sequences) {
  if (!queue.rates_known) return Duration::zero();
  const double places = std::max(sequences + 1 - queue.free_places, 0.0);
  return FromSeconds(
      std::max(tokens * queue.shared_prompt_seconds,
               tokens * queue.prompt_seconds +
                   places * queue.completion_tokens * queue.decode_seconds));
}

}  // namespace

int64_t PromptWork(const GenerateRequest& request, int64_t num_prompt_tokens) {
  const bool follows = request.num_choices > 1 && request.sampling.choice > 0 &&
                       request.sampling.prompt_logprobs < 0;
  return follows ? num_prompt_tokens % kBlockTokens + 1 : num_prompt_tokens;
}

Duration PromisedWait(const QueueState& queue) {
  return WaitBehind(queue, static_cast<double>(queue.prompt_tokens),
                    queue.waiting);
}

// The tenant's own go before it, and as much of every other tenant's: turns
// are equal in tokens. Those that return go before all.
Duration PromisedWait(const QueueState& queue, const std::string& name) {
  const QueueState::Tenant* own = FindTenant(queue, name);
  const int64_t own_tokens = own != nullptr ? own->prompt_tokens : 0;
  double tokens = static_cast<double>(queue.prompt_tokens);
  double sequences = queue.waiting;
  for (const QueueState::Tenant& other : queue.tenants) {
    const int64_t turn = own_tokens + kTurn;
    if (&other == own || other.prompt_tokens <= turn) continue;
    const double later = static_cast<double>(other.prompt_tokens - turn);
    tokens -= later;
    sequences -=
        other.waiting * later / static_cast<double>(other.prompt_tokens);
  }
  return WaitBehind(queue, tokens, sequences);
}

Admission::Admission(const EngineOptions& options) : options_(options) {
  queue_.free_places = options.max_running;
}

// However many tenants there are and whatever a request consists of.
Status Admission::CheckBound() const {
  const int64_t limit = int64_t{2} * options_.max_queue;
  if (queue_.waiting + int64_t{1} - queue_.free_places <= limit) {
    return OkStatus();
  }
  return ResourceExhausted("the queue is full: ", queue_.waiting,
                           " requests wait, limit ", limit, " of all tenants");
}

// A full queue still takes those of tenants that have less than their share,
// up to CheckBound.
Status Admission::CheckCount(const std::string& name) const {
  const int over = queue_.waiting + 1 - queue_.free_places;
  if (over <= options_.max_queue) return OkStatus();
  const QueueState::Tenant* own = FindTenant(queue_, name);
  const size_t tenants = queue_.tenants.size() + (own == nullptr ? 1 : 0);
  const int share = options_.max_queue / static_cast<int>(tenants);
  if (tenants > 1 && (own == nullptr ? 0 : own->waiting) < share) {
    return OkStatus();
  }
  return ResourceExhausted("the queue is full: ", queue_.waiting,
                           " requests wait, limit ", options_.max_queue);
}

Status Admission::CheckFirst(const std::string& tenant) {
  const Duration wait = PromisedWait(queue_, tenant);
  const Duration limit = options_.max_queue_wait;
  const Duration low = FromSeconds(kTakenAgain * Seconds(limit));
  Status room = CheckBound();
  if (room.ok()) room = CheckCount(tenant);
  if (!room.ok()) {
    // A tenth of the queue is served then.
    return WithRetryAfter(room, FromSeconds((1 - kTakenAgain) * Seconds(wait)));
  }
  const bool refused_before = refusing_.count(tenant) > 0;
  if (wait > (refused_before ? low : limit)) {
    refusing_.insert(tenant);
    return WithRetryAfter(
        ResourceExhausted("the queue is full: a new request would wait ",
                          Seconds(wait), " s, limit ", Seconds(limit), " s"),
        wait - low);
  }
  if (refused_before) refusing_.erase(tenant);
  return OkStatus();
}

Status Admission::Admit(const GenerateRequest& request) {
  const std::string& id = request.request_id;
  SLUICE_RETURN_IF_ERROR(requests_.count(id) > 0 ? CheckBound()
                                                 : CheckFirst(request.tenant));
  if (!id.empty()) ++requests_[id];
  const Arrival arrival{
      request.tenant,
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
  for (const Arrival& arrival : since_) Add(arrival, queue_);
}

void Admission::Add(const Arrival& arrival, QueueState& queue) {
  ++queue.waiting;
  queue.prompt_tokens += arrival.prompt_tokens;
  for (QueueState::Tenant& tenant : queue.tenants) {
    if (tenant.name != arrival.tenant) continue;
    ++tenant.waiting;
    tenant.prompt_tokens += arrival.prompt_tokens;
    return;
  }
  queue.tenants.push_back({arrival.tenant, 1, arrival.prompt_tokens});
}

}  // namespace sluice
