// A lead and followers in one process, over real streams.
#ifndef SLUICE_TESTS_PIPELINE_RANK_PROCESSES_H_
#define SLUICE_TESTS_PIPELINE_RANK_PROCESSES_H_

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/pipeline/ranks/lead_connection.h"
#include "common/pipeline/ranks/lead_ranks.h"
#include "common/pipeline/ranks/ranks_service.h"
#include "common/rpc/transport.h"
#include "tests/pipeline/rank_values.h"
#include "tests/testing/captured_stderr.h"
#include "tests/testing/holds_within.h"

namespace sluice::testing {

inline TimePoint Soon() { return Clock::now() + std::chrono::seconds(10); }

inline void AwaitLogged(const CapturedStderr& logged, const std::string& part) {
  EXPECT_TRUE(HoldsWithin(std::chrono::seconds(10), [&] {
    return logged.Text().find(part) != std::string::npos;
  })) << part;
}

// Texts that callbacks give on any thread.
class Texts {
 public:
  void Add(std::string text) {
    MutexLock lock(mutex_);
    texts_.push_back(std::move(text));
  }
  std::vector<std::string> all() const {
    MutexLock lock(mutex_);
    return texts_;
  }
  std::string last() const {
    MutexLock lock(mutex_);
    return texts_.empty() ? "" : texts_.back();
  }
  // Waits for the last text to be `text`.
  void AwaitIs(const std::string& text) const {
    EXPECT_TRUE(
        HoldsWithin(std::chrono::seconds(10), [&] { return last() == text; }))
        << "the last text is '" << last() << "', not " << text;
  }
  // Waits for a last text that has `part`; returns it.
  std::string Await(const std::string& part) const {
    EXPECT_TRUE(
        HoldsWithin(std::chrono::seconds(10),
                    [&] { return last().find(part) != std::string::npos; }))
        << "the last text is '" << last() << "', not with " << part;
    return last();
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

// A lead of ranks [0, own) of `all`, which a server serves.
class LeadProcess {
 public:
  using Connected = std::future<StatusOr<std::string>>;

  LeadProcess(int32_t own, int32_t all,
              const std::string& address = "127.0.0.1:0",
              std::vector<grpc::Service*> others = {},
              const std::string& build = "")
      : all_(all), lead_(std::make_shared<LeadRanks>(Options(own, build))) {
    service_ = MakeRanksService(lead_, nullptr);
    others.push_back(service_.get());
    rpc::TransportOptions transport;
    transport.max_message_bytes = int64_t{64} << 20;
    auto server = rpc::Listen(address, transport, others);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~LeadProcess() { Kill(); }

  LeadRanks& link() { return *lead_; }
  const std::string& address() const { return server_.address; }
  // Connect with the id "id", and the digest of OrderOf or `digest`.
  Connected Connect(const std::string& digest = "") {
    RankOrder order = OrderOf(all_);
    if (!digest.empty()) order.model_digest = digest;
    return std::async(std::launch::async,
                      [this, order] { return lead_->Connect(order, "id"); });
  }
  std::future<StatusOr<RankFacts>> Agree(const RankFacts& own) {
    return std::async(std::launch::async,
                      [this, own] { return lead_->Agree(own); });
  }
  // Breaks all connections, as the process's end does.
  void Kill() {
    if (server_.server == nullptr) return;
    server_.server->Shutdown(std::chrono::system_clock::now());
    server_.server->Wait();
    server_.server.reset();
    lead_->Stop();
  }

  Texts waiting;
  Texts leaving;
  Texts lost;

 private:
  LeadRanksOptions Options(int32_t own, const std::string& build) {
    LeadRanksOptions options;
    options.build = build;
    options.own_ranks = own;
    options.all_ranks = all_;
    options.on_waiting = [this](const std::string& text) { waiting.Add(text); };
    options.on_leaving = [this](const std::string& why) { leaving.Add(why); };
    options.on_lost = [this](const std::string& why) { lost.Add(why); };
    return options;
  }

  const int32_t all_;
  const std::shared_ptr<LeadRanks> lead_;
  std::unique_ptr<grpc::Service> service_;
  rpc::ListeningServer server_;
};

// A follower, and how its stream ended.
class FollowerProcess {
 public:
  FollowerProcess(const std::string& address, const FollowerHello& hello) {
    auto link =
        LeadConnection::Open(address, {}, hello, [this](const Status& status) {
          MutexLock lock(mutex_);
          EXPECT_FALSE(end_.has_value()) << "a second end";
          end_ = status;
        });
    EXPECT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
  }
  FollowerProcess(LeadProcess& lead, int32_t first, int32_t count)
      : FollowerProcess(lead.address(), HelloOf(first, count)) {}

  LeadConnection& link() { return *link_; }
  // Waits for the order, and connects with it when all do; the id.
  std::string Connect(int32_t all_ranks) {
    const auto order = link_->WaitOrder(Soon());
    EXPECT_TRUE(order.ok()) << order.status();
    if (!order.ok()) return "";
    EXPECT_EQ(*order, OrderOf(all_ranks));
    const auto id = link_->Connect(*order, "");
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : "";
  }
  std::future<StatusOr<RankFacts>> Agree(const RankFacts& own) {
    return std::async(std::launch::async,
                      [this, own] { return link_->Agree(own); });
  }
  bool ended() const {
    MutexLock lock(mutex_);
    return end_.has_value();
  }
  // Waits for the end of the stream.
  Status End() const {
    EXPECT_TRUE(HoldsWithin(std::chrono::seconds(10), [&] { return ended(); }));
    MutexLock lock(mutex_);
    return end_.value_or(Status(StatusCode::kUnknown, "goes on"));
  }
  // Breaks the stream, as the process's end does.
  void Kill() { link_.reset(); }

 private:
  mutable Mutex mutex_;
  std::optional<Status> end_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LeadConnection> link_;  // its end comes before the others'
};

// Waits for the lead's Connect; the id.
inline std::string IdOf(LeadProcess::Connected& connected) {
  const auto id = connected.get();
  EXPECT_TRUE(id.ok()) << id.status();
  return id.ok() ? *id : "";
}

// Connects `followers`, which are all of the lead's, and waits for its Connect.
inline void Meet(LeadProcess::Connected& connected,
                 const std::vector<FollowerProcess*>& followers,
                 int32_t all_ranks) {
  std::vector<std::future<std::string>> ids;
  for (FollowerProcess* one : followers) {
    ids.push_back(std::async(std::launch::async, [one, all_ranks] {
      return one->Connect(all_ranks);
    }));
  }
  for (auto& id : ids) EXPECT_EQ(id.get(), "id");
  EXPECT_EQ(IdOf(connected), "id");
}

// A lead with a follower for each of `firsts`, loaded: ranks are [0, 2) and
// pairs.
struct Loaded {
  explicit Loaded(const std::vector<int32_t>& firsts)
      : all(2 + 2 * static_cast<int32_t>(firsts.size())), lead(2, all) {
    for (int32_t first : firsts) {
      followers.push_back(std::make_unique<FollowerProcess>(lead, first, 2));
    }
    Load();
  }
  void Load() {
    auto connected = lead.Connect();
    Meet(connected, everyone(), all);
    auto agreed = lead.Agree(FactsOf(100, 50, 1));
    std::vector<std::future<StatusOr<RankFacts>>> said;
    for (auto& follower : followers) {
      said.push_back(follower->Agree(FactsOf(100, 50, 1)));
    }
    said.push_back(std::move(agreed));
    for (auto& facts : said) {
      const auto got = facts.get();
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, FactsOf(100, 50, said.size()));
    }
  }
  FollowerProcess& follower(size_t i) { return *followers[i]; }
  std::vector<FollowerProcess*> everyone() const {
    std::vector<FollowerProcess*> all_of_them;
    for (const auto& one : followers) all_of_them.push_back(one.get());
    return all_of_them;
  }

  const int32_t all;
  LeadProcess lead;
  std::vector<std::unique_ptr<FollowerProcess>> followers;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_PIPELINE_RANK_PROCESSES_H_
