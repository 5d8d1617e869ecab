#include "common/standby/repeat_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace sluice::standby {
namespace {

using Loss = RepeatOrder::Loss;
using Verdict = RepeatOrder::Verdict;

constexpr Loss kSilent{.is_plain = true};
constexpr Loss kSilentGrammar{.is_plain = false};
constexpr Loss kFurther{.has_events = true, .is_further = true};
constexpr Loss kNoFurther{.has_events = true};
constexpr Loss kGrammarFurther{
    .is_plain = false, .has_events = true, .is_further = true};

class RepeatOrderTest : public ::testing::Test {
 protected:
  // Sends the request, if it may go.
  bool Sends(int& request) {
    if (!order_.MayGo(&request)) return false;
    order_.OnSent(&request);
    return true;
  }
  RepeatOrder order_;
  int one_ = 1, two_ = 2, three_ = 3;
};

TEST_F(RepeatOrderTest, ASuspectGoesOnceMoreAndEndsWithTheNextServer) {
  EXPECT_TRUE(order_.MayGo(&one_));
  for (const Loss& loss : {kSilent, kSilentGrammar}) {
    EXPECT_EQ(order_.OnLost(&one_, loss), Verdict::kRepeat);
    EXPECT_TRUE(Sends(one_));
    EXPECT_EQ(order_.OnLost(&one_, loss), Verdict::kEnd);
    EXPECT_EQ(order_.losses(&one_), 2);
    EXPECT_TRUE(order_.OnEnded(&one_));
    EXPECT_FALSE(order_.OnEnded(&one_));
  }
}

TEST_F(RepeatOrderTest, SuspectsGoOneAfterTheOther) {
  for (int* one : {&one_, &two_, &three_}) {
    EXPECT_EQ(order_.OnLost(one, kSilentGrammar), Verdict::kRepeat);
  }
  EXPECT_FALSE(Sends(three_));
  EXPECT_FALSE(Sends(two_));
  EXPECT_TRUE(Sends(one_));
  EXPECT_FALSE(Sends(two_));
  // The first one is the culprit; the others still have their try.
  EXPECT_EQ(order_.OnLost(&one_, kSilentGrammar), Verdict::kEnd);
  EXPECT_TRUE(order_.OnEnded(&one_));
  EXPECT_TRUE(Sends(two_));
  EXPECT_FALSE(Sends(three_));
  EXPECT_TRUE(order_.OnEvent(&two_));
  EXPECT_TRUE(Sends(three_));
}

TEST_F(RepeatOrderTest, ARequestThatNoServerTookKeepsItsPlace) {
  order_.OnLost(&one_, kSilentGrammar);
  order_.OnLost(&two_, kSilentGrammar);
  EXPECT_TRUE(Sends(one_));
  order_.OnReturned(&one_);
  EXPECT_FALSE(Sends(two_));
  EXPECT_TRUE(Sends(one_));
  order_.OnEnded(&one_);
  EXPECT_TRUE(Sends(two_));
}

TEST_F(RepeatOrderTest, PlainSuspectsGoTogetherAndThenAlone) {
  for (int* one : {&one_, &two_, &three_}) order_.OnLost(one, kSilent);
  int grammar = 4;
  order_.OnLost(&grammar, kSilentGrammar);
  EXPECT_FALSE(Sends(grammar));
  EXPECT_TRUE(Sends(one_));
  EXPECT_FALSE(Sends(grammar));
  EXPECT_TRUE(Sends(two_));
  EXPECT_TRUE(Sends(three_));
  order_.OnEnded(&three_);
  // Either may be the cause.
  EXPECT_EQ(order_.OnLost(&two_, kSilent), Verdict::kRepeat);
  EXPECT_EQ(order_.OnLost(&one_, kSilent), Verdict::kRepeat);
  EXPECT_TRUE(Sends(grammar)) << "it has one loss, they have two";
  order_.OnEnded(&grammar);
  EXPECT_FALSE(Sends(two_));
  EXPECT_TRUE(Sends(one_));
  EXPECT_EQ(order_.OnLost(&one_, kSilent), Verdict::kEnd);
  order_.OnEnded(&one_);
  EXPECT_TRUE(Sends(two_));
}

TEST_F(RepeatOrderTest, SuspectsWaitForTheInnocent) {
  order_.OnLost(&one_, kSilentGrammar);
  order_.OnLost(&two_, kSilent);
  order_.OnLost(&three_, kGrammarFurther);
  EXPECT_FALSE(Sends(one_));
  EXPECT_FALSE(Sends(two_));
  EXPECT_TRUE(Sends(three_));
  EXPECT_FALSE(Sends(two_)) << "no event has come yet";
  EXPECT_TRUE(order_.OnEvent(&three_));
  EXPECT_FALSE(order_.OnEvent(&three_));
  EXPECT_TRUE(Sends(two_));
  order_.OnEnded(&two_);
  EXPECT_FALSE(order_.MayGo(&one_, /*spares=*/true));
  EXPECT_TRUE(order_.MayGo(&one_));
  order_.OnEnded(&three_);
  EXPECT_TRUE(order_.MayGo(&one_, /*spares=*/true));
}

TEST_F(RepeatOrderTest, APlainStreamThatGetsFurtherIsNeverEnded) {
  for (int losses = 0; losses < 50; ++losses) {
    EXPECT_EQ(order_.OnLost(&one_, kFurther), Verdict::kRepeat);
    EXPECT_TRUE(Sends(one_));
    EXPECT_TRUE(order_.OnEvent(&one_));
  }
  EXPECT_EQ(order_.OnLost(&one_, kFurther), Verdict::kRepeat);
  EXPECT_TRUE(Sends(one_));
  EXPECT_EQ(order_.OnLost(&one_, kNoFurther), Verdict::kRepeat);
  order_.OnLost(&two_, kSilent);
  EXPECT_TRUE(Sends(two_));
  EXPECT_FALSE(Sends(one_)) << "a suspect by now";
  order_.OnEnded(&two_);
  EXPECT_TRUE(Sends(one_));
  EXPECT_EQ(order_.OnLost(&one_, kNoFurther), Verdict::kEnd);
}

TEST_F(RepeatOrderTest, AStreamWithAGrammarEndsWithItsThirdServer) {
  EXPECT_EQ(order_.OnLost(&one_, kGrammarFurther), Verdict::kRepeat);
  EXPECT_TRUE(Sends(one_));
  EXPECT_TRUE(order_.OnEvent(&one_));
  EXPECT_EQ(order_.OnLost(&one_, kGrammarFurther), Verdict::kRepeat);
  order_.OnLost(&two_, kSilentGrammar);
  EXPECT_FALSE(Sends(one_)) << "after all others";
  EXPECT_TRUE(Sends(two_));
  order_.OnEnded(&two_);
  EXPECT_TRUE(Sends(one_));
  order_.OnEvent(&one_);
  order_.OnLost(&three_, kSilent);
  EXPECT_FALSE(Sends(three_)) << "it is alone to its end";
  EXPECT_EQ(order_.OnLost(&one_, kGrammarFurther), Verdict::kEnd);
}

// Requests and the servers that answer them, one after the other, step by step.
class Simulation {
 public:
  struct Request {
    bool is_plain = true;
    bool is_stream = true;
    int steps = 0;     // of its answer; each but the first has an event
    int arrival = 0;   // the time
    int ends_at = -1;  // the step that ends its server; -1: none does
    // So far.
    int at = 0;      // the step, at this server
    int passed = 0;  // events
    int before = 0;  // those when it was sent
    int kills = 0;
    bool is_sent = false, is_over = false, is_ended = false;
  };

  Simulation(std::vector<Request> requests, unsigned seed)
      : requests_(std::move(requests)), draw_(seed) {}

  // False: not all came to their end. `lost_at`: times at which the server ends
  // by itself.
  bool Run(const std::vector<int>& lost_at = {}) {
    for (time_ = 0; time_ < 20'000; ++time_) {
      if (std::ranges::all_of(requests_, &Request::is_over)) return true;
      Send();
      bool is_lost = std::ranges::count(lost_at, time_) > 0;
      for (Request& one : requests_) is_lost = Step(one) || is_lost;
      if (is_lost) Lose();
    }
    return false;
  }
  const std::vector<Request>& requests() const { return requests_; }

 private:
  void Send() {
    std::vector<Request*> waiting;
    for (Request& one : requests_) {
      if (!one.is_sent && !one.is_over && one.arrival <= time_) {
        waiting.push_back(&one);
      }
    }
    std::shuffle(waiting.begin(), waiting.end(), draw_);
    for (Request* one : waiting) {
      // Some are slow to go on.
      if (order_.losses(one) > 0 && draw_() % 4 == 0) continue;
      if (!order_.MayGo(one)) continue;
      order_.OnSent(one);
      one->is_sent = true;
      one->at = 0;
      one->before = one->passed;
    }
  }
  // True: the server has ended.
  bool Step(Request& one) {
    if (!one.is_sent) return false;
    if (one.at == one.ends_at) {
      ++one.kills;
      return true;
    }
    ++one.at;
    if (one.is_stream && one.at - 1 > one.passed) {
      one.passed = one.at - 1;
      order_.OnEvent(&one);
    }
    if (one.at >= one.steps) {
      one.is_over = true;
      one.is_sent = false;
      order_.OnEnded(&one);
    }
    return false;
  }
  void Lose() {
    for (Request& one : requests_) {
      if (!one.is_sent) continue;
      one.is_sent = false;
      const Loss loss{one.is_plain, one.passed > 0, one.passed > one.before};
      if (order_.OnLost(&one, loss) == Verdict::kRepeat) continue;
      one.is_ended = one.is_over = true;
      order_.OnEnded(&one);
    }
  }

  std::vector<Request> requests_;
  std::mt19937 draw_;
  RepeatOrder order_;
  int time_ = 0;
};

std::vector<Simulation::Request> Innocents(std::mt19937& draw) {
  std::vector<Simulation::Request> all(5 + draw() % 30);
  for (Simulation::Request& one : all) {
    one.is_plain = draw() % 2 == 0;
    one.is_stream = draw() % 3 != 0;
    one.steps = 2 + static_cast<int>(draw() % 200);
    one.arrival = static_cast<int>(draw() % 50);
  }
  return all;
}

TEST(RepeatOrderSimulation, ACulpritEndsItselfAlone) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 draw(seed);
    auto requests = Innocents(draw);
    const bool is_stream = draw() % 2 == 0, is_plain = draw() % 3 == 0;
    // At its compile, its first mask, its 50th.
    const int ends_at = std::vector<int>{0, 1, 50}[draw() % 3];
    requests.push_back({.is_plain = is_plain,
                        .is_stream = is_stream,
                        .steps = 100,
                        .arrival = static_cast<int>(draw() % 50),
                        .ends_at = ends_at});
    Simulation run(requests, seed);
    ASSERT_TRUE(run.Run()) << seed;
    const auto& all = run.requests();
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      ASSERT_FALSE(all[i].is_ended) << "seed " << seed << ", request " << i;
    }
    const bool is_silent = !is_stream || ends_at <= 1;
    EXPECT_TRUE(all.back().is_ended) << seed;
    EXPECT_LE(all.back().kills, is_silent && !is_plain ? 2 : 3) << seed;
  }
}

TEST(RepeatOrderSimulation, SeveralCulpritsAtOnceEndThemselvesAlone) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 draw(seed);
    auto requests = Innocents(draw);
    for (Simulation::Request& one : requests) one.arrival = 0;
    const size_t innocent = requests.size();
    for (unsigned i = 0; i < 2 + draw() % 4; ++i) {
      requests.push_back({.is_plain = false,
                          .is_stream = draw() % 2 == 0,
                          .steps = 100,
                          .arrival = 1,
                          .ends_at = static_cast<int>(draw() % 2)});
    }
    Simulation run(requests, seed);
    ASSERT_TRUE(run.Run()) << seed;
    for (size_t i = 0; i < run.requests().size(); ++i) {
      const auto& one = run.requests()[i];
      // A stream with a grammar that is live at three losses ends, too.
      EXPECT_FALSE(i < innocent && one.is_plain && one.is_ended) << seed;
      EXPECT_LE(one.kills, i < innocent ? 0 : 2) << seed;
    }
  }
}

TEST(RepeatOrderSimulation, PlainStreamsGoOnAsLongAsServersComeBack) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 draw(seed);
    std::vector<Simulation::Request> requests(20);
    for (auto& one : requests) one.steps = 1000;
    std::vector<int> lost_at;
    // With time for each to come further: an answer is computed again.
    for (int i = 1; i <= 12; ++i) {
      lost_at.push_back((lost_at.empty() ? 0 : lost_at.back()) + 80 * i +
                        static_cast<int>(draw() % 20));
    }
    Simulation run(requests, seed);
    ASSERT_TRUE(run.Run(lost_at)) << seed;
    for (const auto& one : run.requests()) EXPECT_FALSE(one.is_ended) << seed;
  }
}

}  // namespace
}  // namespace sluice::standby
