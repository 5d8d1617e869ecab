// A gateway's view of one stage's process, told what befalls it.
#include "common/pipeline/gateway/stage_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "common/pipeline/gateway/stage_connection.h"

namespace sluice {
namespace {

class StageProcessTest : public ::testing::Test {
 protected:
  void Hello() { stage_->Hello(++links_, 0, Clock::now(), out_); }
  void End(const Status& why, std::optional<Absence> absence = std::nullopt) {
    stage_->OnEnd(why, absence, Clock::now(), out_);
  }
  void Welcome(const std::string& run = {}) {
    if (!stage_->linked()) Hello();
    StageWelcome welcome;
    welcome.facts.last_layer = 2;
    welcome.facts.num_layers = 2;
    welcome.run = run;
    stage_->OnHeard(Clock::now());
    stage_->OnWelcome(std::move(welcome));
  }
  StageStatus Shown() const {
    return stage_->Report(Clock::now(), {}, std::chrono::hours(1), false);
  }
  bool VacantIn(Duration later) const {
    return stage_->vacant(Clock::now() + later, kPatience);
  }

  static constexpr Duration kPatience = std::chrono::seconds(100);
  static std::unique_ptr<StageProcess> Make() {
    return std::make_unique<StageProcess>(0, "a:1", Clock::now());
  }

  uint64_t links_ = 0;
  act::Outbox out_;
  std::unique_ptr<StageProcess> stage_ = Make();
};

// Every row of kLifeRows, and every pair of a state and an event without a row.
class StageLifeTest : public StageProcessTest {
 protected:
  void Do(LifeEvent event) {
    switch (event) {
      case LifeEvent::kHello:
        return Hello();
      case LifeEvent::kWelcome:
        return Welcome();
      case LifeEvent::kAskToLoad:
        return stage_->AskToLoad({0, 2}, Epoch(3, 4), out_);
      case LifeEvent::kAskAgain:
        stage_->SetConflict("it does not fit");
        return stage_->SetConflict("");
      case LifeEvent::kDrained:
        return stage_->OnDrained();
      case LifeEvent::kDraining:
        return stage_->OnDraining(std::chrono::seconds(1), Clock::now(), out_);
      case LifeEvent::kEnd:
        return End(Unavailable("Socket closed"));
    }
  }
  // Brings a new process to a state.
  void Reach(LifeKind kind) {
    stage_ = Make();
    if (kind == LifeKind::kAway) return;
    Do(LifeEvent::kHello);
    if (kind == LifeKind::kTrying) return;
    Do(LifeEvent::kWelcome);
    if (kind == LifeKind::kAsked) Do(LifeEvent::kAskToLoad);
    if (kind == LifeKind::kDrained || kind == LifeKind::kParting) {
      Do(LifeEvent::kDrained);
    }
    if (kind == LifeKind::kLeaving || kind == LifeKind::kParting) {
      Do(LifeEvent::kDraining);
    }
  }
};

TEST_F(StageLifeTest, EachRowOfTheTableIsATransition) {
  std::set<std::pair<LifeKind, LifeEvent>> pairs;
  for (const LifeRow& row : kLifeRows) {
    SCOPED_TRACE(::testing::Message()
                 << "from " << static_cast<int>(row.from) << ", event "
                 << static_cast<int>(row.event));
    EXPECT_TRUE(pairs.insert({row.from, row.event}).second) << "twice";
    Reach(row.from);
    ASSERT_EQ(stage_->kind(), row.from);
    Do(row.event);
    EXPECT_EQ(stage_->kind(), row.to);
    EXPECT_EQ(stage_->linked(), row.to != LifeKind::kAway);
  }
  EXPECT_EQ(pairs.size(), std::size(kLifeRows));
}

TEST_F(StageLifeTest, WithoutARowNothingChanges) {
  size_t without = 0;
  for (size_t from = 0; from < std::variant_size_v<StageLife>; ++from) {
    for (int event = 0; event <= static_cast<int>(LifeEvent::kEnd); ++event) {
      const auto kind = static_cast<LifeKind>(from);
      const auto what = static_cast<LifeEvent>(event);
      const bool has_row = std::ranges::any_of(kLifeRows, [&](const auto& row) {
        return row.from == kind && row.event == what;
      });
      // Without a stream no Welcome comes.
      if (has_row || (kind == LifeKind::kAway && what == LifeEvent::kWelcome)) {
        continue;
      }
      SCOPED_TRACE(::testing::Message() << from << ", event " << event);
      Reach(kind);
      while (out_.Pop()) {
      }
      const uint64_t link_id = stage_->link_id();
      const TimePoint connect_at = stage_->connect_at();
      const StageStatus before = Shown();
      Do(what);
      EXPECT_EQ(stage_->kind(), kind);
      EXPECT_FALSE(out_.Pop().has_value());
      EXPECT_EQ(stage_->link_id(), link_id);
      EXPECT_EQ(stage_->connect_at(), connect_at);
      EXPECT_EQ(Shown().state, before.state);
      EXPECT_EQ(Shown().message, before.message);
      ++without;
    }
  }
  EXPECT_EQ(without, 28u);
}

TEST_F(StageLifeTest, AProcessThatHasDrainedMayStillRefuseItsLoad) {
  Reach(LifeKind::kAsked);
  Do(LifeEvent::kDrained);
  EXPECT_TRUE(stage_->drained());
  EXPECT_TRUE(stage_->load_sent());
}

TEST_F(StageLifeTest, ALoadIsOfTheEpochInWhichItIsAsked) {
  Reach(LifeKind::kThere);
  while (out_.Pop()) {
  }
  Do(LifeEvent::kAskToLoad);
  const auto action = out_.Pop();
  ASSERT_TRUE(action.has_value());
  EXPECT_EQ(std::get<act::SendLoad>(*action).epoch, Epoch(3, 4));
}

// What each state means, beside the way to it.
TEST_F(StageLifeTest, AStateTellsWhatTheProcessMayDo) {
  struct Meaning {
    LifeKind kind;
    bool linked, welcomed, available, load_sent, drained, leaving;
  };
  const Meaning meanings[] = {
      {LifeKind::kAway, false, false, false, false, false, false},
      {LifeKind::kTrying, true, false, false, false, false, false},
      {LifeKind::kThere, true, true, true, false, false, false},
      {LifeKind::kAsked, true, true, true, true, false, false},
      {LifeKind::kDrained, true, true, true, false, true, false},
      {LifeKind::kLeaving, true, true, false, false, false, true},
      {LifeKind::kParting, true, true, false, false, true, true},
  };
  ASSERT_EQ(std::size(meanings), std::variant_size_v<StageLife>);
  for (const Meaning& meaning : meanings) {
    SCOPED_TRACE(static_cast<int>(meaning.kind));
    Reach(meaning.kind);
    ASSERT_EQ(stage_->kind(), meaning.kind);
    EXPECT_EQ(stage_->linked(), meaning.linked);
    EXPECT_EQ(stage_->welcomed(), meaning.welcomed);
    EXPECT_EQ(stage_->available(), meaning.available);
    EXPECT_EQ(stage_->load_sent(), meaning.load_sent);
    EXPECT_EQ(stage_->drained(), meaning.drained);
    EXPECT_EQ(stage_->leaving(), meaning.leaving);
  }
}

// An absence lasts while the next hello is under way.
TEST_F(StageLifeTest, AnAbsenceTellsWhetherThePlaceIsVacant) {
  struct Meaning {
    Absence why;
    bool at_once, after_the_grace, after_the_patience;
    StageState shown;
  };
  const Meaning meanings[] = {
      {Absence::kNotReached, false, false, true, StageState::kConnecting},
      {Absence::kNotStarted, false, false, true, StageState::kConnecting},
      {Absence::kBroken, false, true, true, StageState::kLost},
      {Absence::kGone, true, true, true, StageState::kLost},
      {Absence::kGivenUp, true, true, true, StageState::kLost},
      {Absence::kLoading, false, false, false, StageState::kLoading},
      {Absence::kHeld, false, false, false, StageState::kRefused},
      {Absence::kRefusing, true, true, true, StageState::kRefused},
      {Absence::kReleased, true, true, true, StageState::kDraining},
  };
  for (const Meaning& meaning : meanings) {
    SCOPED_TRACE(static_cast<int>(meaning.why));
    Reach(LifeKind::kThere);
    End(Unavailable("it ends"), meaning.why);
    for (const bool tries : {false, true}) {
      if (tries) Hello();
      EXPECT_EQ(VacantIn(Duration::zero()), meaning.at_once);
      EXPECT_EQ(VacantIn(kReturnGrace), meaning.after_the_grace);
      EXPECT_EQ(VacantIn(kPatience), meaning.after_the_patience);
      EXPECT_EQ(stage_->Report(Clock::now(), {}, std::chrono::seconds(2), false)
                    .state,
                meaning.shown);
    }
  }
}

TEST_F(StageProcessTest, AnotherRunOfTheStageHasNothingKept) {
  const std::string first = "a";
  Welcome(first);
  stage_->OnUp(Epoch(7), true);
  Welcome(first);
  EXPECT_TRUE(stage_->kept(Epoch(7)));
  Welcome("b");
  EXPECT_FALSE(stage_->kept(Epoch(7)));
}

TEST_F(StageProcessTest, AStageThatNamesNoRunHasNothingKept) {
  Welcome();
  stage_->OnUp(Epoch(7), true);
  Welcome();
  EXPECT_FALSE(stage_->kept(Epoch(7)));
}

TEST_F(StageProcessTest, ALostProcessKeepsItsPlaceForTheGrace) {
  Welcome();
  End(Unavailable("Socket closed"));
  EXPECT_FALSE(VacantIn(kReturnGrace / 2));
  EXPECT_TRUE(VacantIn(kReturnGrace));
}

TEST_F(StageProcessTest, AProcessThatRefusesConnectionsIsGone) {
  Welcome();
  End(Unavailable("Socket closed"));
  Hello();
  End(
      Unavailable("failed to connect to all addresses: Connection "
                  "refused"));
  EXPECT_TRUE(VacantIn(Duration::zero()));
}

TEST_F(StageProcessTest, PatienceCountsFromWhereTheStageIsTried) {
  EXPECT_FALSE(VacantIn(kPatience / 2));
  EXPECT_TRUE(VacantIn(kPatience));
  Welcome();
  End(Unavailable("let go, for another gateway's sake"), Absence::kNotReached);
  stage_->NotTried(Clock::now() + 2 * kPatience);
  EXPECT_FALSE(VacantIn(2 * kPatience + kPatience / 2));
  EXPECT_TRUE(VacantIn(3 * kPatience));
}

// An exception may have kept the stream from being opened.
TEST(StageConnectionTest, WithoutAStreamNothingIsSent) {
  StageConnection connection("a:1", nullptr);
  connection.Send({});
  connection.SendHeartbeat(1);
  v1::HeartbeatReply reply;
  reply.set_sequence(1);
  EXPECT_FALSE(connection.OnHeartbeat(reply, MonotonicNanos()).has_value());
}

}  // namespace
}  // namespace sluice
