// Tenants take turns, measured in tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

GenerateRequest Of(const std::string& tenant, int length, int max_tokens,
                   uint64_t seed) {
  GenerateRequest request = TestRequest(length, max_tokens, seed);
  request.tenant = request.client = tenant;
  return request;
}

EngineOptions OneAtATime() {
  EngineOptions options;
  options.max_running = 1;
  options.prefix_cache = false;
  return options;
}

// The tenants of sequences in the order of their first start.
std::vector<SequenceId> RunAndListStarts(SchedulerHarness& harness) {
  std::vector<SequenceId> started;
  for (;;) {
    if (const auto plan = harness.Plan()) {
      for (const StartedSequence& s : plan->started) {
        started.push_back(s.sequence);
      }
    }
    if (!harness.Commit()) return started;
  }
}

TEST(SchedulerTenantTest, OneWhoComesLateIsNotBehindAnothersWholeQueue) {
  SchedulerHarness harness(OneAtATime(), TestLimits(100));
  for (uint64_t i = 0; i < 50; ++i) harness.Add(Of("many", 100, 5, i));
  const SequenceId late = harness.Add(Of("few", 100, 5, 99));
  const auto started = RunAndListStarts(harness);
  size_t place = 0;
  while (started[place] != late) ++place;
  EXPECT_LE(place, 4u);
}

TEST(SchedulerTenantTest, WithinATenantTheOrderIsThatOfArrival) {
  SchedulerHarness harness(OneAtATime(), TestLimits(100));
  std::map<std::string, std::vector<SequenceId>> added, ran;
  for (uint64_t i = 0; i < 30; ++i) {
    const std::string tenant = i % 3 == 0 ? "a" : "b";
    added[tenant].push_back(
        harness.Add(Of(tenant, i % 5 == 0 ? 200 : 20, 3, i)));
  }
  for (const SequenceId id : RunAndListStarts(harness)) {
    ran[harness.request(id).tenant].push_back(id);
  }
  EXPECT_EQ(ran, added);
}

TEST(SchedulerTenantTest, WithinATenantALowerPriorityStartsFirst) {
  SchedulerHarness harness(OneAtATime(), TestLimits(100));
  std::vector<std::pair<int32_t, SequenceId>> added;
  for (uint64_t i = 0; i < 30; ++i) {
    GenerateRequest request = Of("a", 20, 3, i);
    request.priority = static_cast<int32_t>(i * 7 % 5) - 2;
    const int32_t priority = request.priority;
    added.emplace_back(priority, harness.Add(std::move(request)));
  }
  std::ranges::stable_sort(added, {},
                           [](const auto& one) { return one.first; });
  std::vector<SequenceId> expected;
  for (const auto& [priority, id] : added) expected.push_back(id);
  EXPECT_EQ(RunAndListStarts(harness), expected);
}

// The law of priorities: which tenant starts when does not depend on them.
TEST(SchedulerTenantTest, APriorityPassesNoOtherTenant) {
  const auto tenants_in_order = [](bool prioritised) {
    SchedulerHarness harness(OneAtATime(), TestLimits(100));
    for (uint64_t i = 0; i < 60; ++i) {
      // Tenants differ in sizes; the requests of each are alike.
      const std::string tenant(1, static_cast<char>('a' + i * i % 3));
      GenerateRequest request = Of(tenant, tenant == "a" ? 200 : 20, 3, i);
      const bool urges = prioritised && tenant != "b";
      if (urges) request.priority = -static_cast<int32_t>(i * 5 % 11);
      harness.Add(std::move(request));
    }
    std::string order;
    for (const SequenceId id : RunAndListStarts(harness)) {
      order += harness.request(id).tenant;
    }
    return order;
  };
  const std::string order = tenants_in_order(false);
  EXPECT_EQ(order.size(), 60u);
  EXPECT_EQ(tenants_in_order(true), order);
}

TEST(SchedulerTenantTest, SharesAreEqualInTokensNotInRequests) {
  SchedulerHarness harness(OneAtATime(), TestLimits(100));
  for (uint64_t i = 0; i < 40; ++i) harness.Add(Of("long", 400, 1, i));
  for (uint64_t i = 0; i < 400; ++i) harness.Add(Of("short", 40, 1, i));
  std::map<std::string, int64_t> tokens;
  int64_t total = 0;
  for (const SequenceId id : RunAndListStarts(harness)) {
    const GenerateRequest& request = harness.request(id);
    const auto length = static_cast<int64_t>(request.prompt_tokens.size());
    tokens[request.tenant] += length;
    total += length;
    if (total > 1500 && total < 30000) {
      // At no moment is one ahead by more than a prompt and a round.
      EXPECT_NEAR(tokens["long"], tokens["short"], 400 + 2 * 256 + 2 * 40)
          << "after " << total;
    }
  }
}

TEST(SchedulerTenantTest, GeneratedTokensArePaidForAsWell) {
  EngineOptions options = OneAtATime();
  SchedulerHarness harness(options, TestLimits(100));
  for (uint64_t i = 0; i < 60; ++i) harness.Add(Of("talks", 10, 190, i));
  for (uint64_t i = 0; i < 60; ++i) harness.Add(Of("reads", 190, 10, i));
  std::map<std::string, int> first;
  const auto started = RunAndListStarts(harness);
  for (size_t i = 0; i < 60; ++i) ++first[harness.request(started[i]).tenant];
  EXPECT_NEAR(first["talks"], 30, 6);
}

TEST(SchedulerTenantTest, NobodyPaysForWhatNobodyElseWanted) {
  SchedulerHarness harness(OneAtATime(), TestLimits(100));
  for (uint64_t i = 0; i < 20; ++i) harness.Add(Of("early", 300, 20, i));
  harness.Plan();
  for (int i = 0; i < 15 * 20; ++i) {
    harness.Commit();
    harness.Plan();
  }
  std::vector<SequenceId> later;
  for (uint64_t i = 0; i < 20; ++i) {
    later.push_back(harness.Add(Of("late", 300, 20, 100 + i)));
  }
  const auto started = RunAndListStarts(harness);
  std::map<std::string, int> first;
  for (size_t i = 0; i < 6; ++i) ++first[harness.request(started[i]).tenant];
  EXPECT_GE(first["early"], 2);
  EXPECT_GE(first["late"], 2);
}

TEST(SchedulerTenantTest, ALargeRequestIsNotOvertakenUntilItNeverFits) {
  EngineOptions options;
  options.prefix_cache = false;
  SchedulerHarness harness(options, TestLimits(20), /*num_stages=*/2);
  harness.Add(Of("small", 40, 60, 1));
  const SequenceId large = harness.Add(Of("large", 300, 10, 2));
  uint64_t seed = 10;
  for (int i = 0; i < 2000 && harness.outcome(large).ends.empty(); ++i) {
    while (harness.num_waiting() < 6) {
      harness.Add(Of("small", 40, 60, ++seed));
    }
    harness.Plan();
    harness.Commit();
  }
  EXPECT_EQ(harness.outcome(large).ends.size(), 1u);
  harness.RunToEnd();
}

TEST(SchedulerTenantTest, APreemptedSequenceReturnsBeforeAnotherTenantsFirst) {
  EngineOptions options;
  options.prefix_cache = false;
  SchedulerHarness harness(options, TestLimits(7));
  harness.Add(Of("a", 40, 40, 1));
  const SequenceId young = harness.Add(Of("a", 32, 40, 2));
  harness.Plan();
  harness.Commit();
  ASSERT_EQ(harness.num_running(), 2u);
  const SequenceId other = harness.Add(Of("b", 32, 40, 3));
  std::vector<SequenceId> started;
  while (harness.outcome(other).ends.empty()) {
    if (const auto plan = harness.Plan()) {
      for (const StartedSequence& s : plan->started) {
        started.push_back(s.sequence);
      }
    }
    ASSERT_TRUE(harness.Commit());
  }
  ASSERT_GT(harness.counters().preemptions, 0u);
  // Preempted and started again before the other one's first time.
  const auto others = std::find(started.begin(), started.end(), other);
  EXPECT_GE(std::count(started.begin(), others, young), 1);
  harness.RunToEnd();
  for (const auto& [id, outcome] : harness.outcomes()) {
    EXPECT_EQ(outcome.result(), Undisturbed(harness.request(id), 50));
  }
}

TEST(SchedulerTenantTest, APrefixIsFoundByItsOwnTenantAlone) {
  SchedulerHarness harness({}, TestLimits(100));
  const auto cached = [&](const std::string& tenant, const char* salt) {
    GenerateRequest request = Of(tenant, 50, 1, 1);
    request.cache_salt = salt;
    const SequenceId id = harness.Add(request);
    harness.RunToEnd();
    return harness.outcome(id).ends[0].stats.cached_tokens;
  };
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_EQ(cached("a", ""), 48);
  EXPECT_EQ(cached("b", ""), 0);
  EXPECT_EQ(cached("", ""), 0);
  EXPECT_EQ(cached("", "1:a"), 0);
  EXPECT_EQ(cached("", "a"), 0) << "the salt is no tenant";
  EXPECT_EQ(cached("ab", "c"), 0);
  EXPECT_EQ(cached("a", "bc"), 0) << "names do not run into salts";
  EXPECT_EQ(cached("b", ""), 48);
}

}  // namespace
}  // namespace sluice
