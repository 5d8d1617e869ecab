// Who has the keys and values of layers that move, and what a stage gives.
#include "common/pipeline/gateway/kv_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/pipeline/stage/kv_source.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class KvMovesTest : public ::testing::Test {
 protected:
  KvMovesTest() {
    for (size_t i = 0; i < 4; ++i) {
      processes_.push_back(
          std::make_shared<StageProcess>(i, "a:1", Clock::now()));
      processes_[i]->Hello(i + 1, 0, Clock::now(), out_);
      processes_[i]->OnWelcome({});
    }
    moves_.OnUp(Epoch(3, 1), {processes_[0], processes_[1], processes_[2]},
                {{0, 3}, {3, 5}, {5, 9}});
  }
  // "0:0-3 self:3-4": processes and layers.
  std::string DonorsOf(size_t process, const StagePlace& place) const {
    std::string donors;
    for (const act::KvDonor& donor :
         moves_.DonorsOf(*processes_[process], place)) {
      donors += Cat(donors.empty() ? "" : " ",
                    donor.is_self ? "self" : Cat(donor.process), ":",
                    donor.layers.first_layer, "-", donor.layers.last_layer);
    }
    return donors;
  }

  act::Outbox out_;
  StageProcesses processes_;
  KvMoves moves_;
};

TEST_F(KvMovesTest, EveryLayerOfAPlaceHasItsDonorInOrder) {
  moves_.OnEnd(/*is_planned=*/true);
  EXPECT_EQ(DonorsOf(3, {3, 5}), "1:3-5");
  EXPECT_EQ(DonorsOf(3, {2, 6}), "0:2-3 1:3-5 2:5-6");
  EXPECT_EQ(DonorsOf(0, {0, 4}), "self:0-3 1:3-4");
  EXPECT_EQ(DonorsOf(2, {4, 9}), "1:4-5 self:5-9");
  EXPECT_EQ(DonorsOf(2, {5, 9}), "") << "it has them";
  EXPECT_TRUE(moves_.IsDonor(*processes_[1]));
  EXPECT_FALSE(moves_.IsDonor(*processes_[3]));
}

TEST_F(KvMovesTest, ALossMovesNothing) {
  moves_.OnEnd(/*is_planned=*/false);
  EXPECT_EQ(DonorsOf(3, {3, 5}), "");
  EXPECT_FALSE(moves_.IsDonor(*processes_[1]));
}

TEST_F(KvMovesTest, WithADonorGoneThePlaceIsComputedAgain) {
  moves_.OnEnd(/*is_planned=*/true);
  processes_[1]->OnEnd(Unavailable("Socket closed"), std::nullopt, Clock::now(),
                       out_);
  EXPECT_EQ(DonorsOf(3, {2, 6}), "");
  EXPECT_EQ(DonorsOf(3, {5, 9}), "2:5-9");
}

TEST_F(KvMovesTest, AMoveThatFailedIsNotTriedAgain) {
  moves_.OnEnd(/*is_planned=*/true);
  moves_.OnFailed();
  EXPECT_EQ(DonorsOf(3, {3, 5}), "");
}

// A stage's offers.

std::shared_ptr<const KvShelf> Shelf() {
  return std::make_shared<const KvShelf>(
      StagePlace{2, 4}, std::vector<KvEntry>{{{2, 0, BlockId(1)}, "ab", 1},
                                             {{3, 0, BlockId(1)}, "cd", 2}});
}

TEST(KvOffersTest, TheLastEpochIsOfferedUntilThisOneRunsAStep) {
  KvOffers offers;
  offers.Begin(Epoch(1), "one", /*kept=*/false, Epoch());
  offers.Begin(Epoch(2), "two", /*kept=*/true, Epoch());
  EXPECT_TRUE(offers.Find(Epoch(1), "one").ok());
  EXPECT_TRUE(offers.Find(Epoch(2), "two").ok());
  offers.OnSteps();
  EXPECT_FALSE(offers.Find(Epoch(1), "one").ok());
  EXPECT_TRUE(offers.Find(Epoch(2), "two").ok());
}

TEST(KvOffersTest, AnotherEpochsContentIsNotOffered) {
  KvOffers offers;
  offers.Begin(Epoch(1), "one", /*kept=*/false, Epoch());
  offers.Begin(Epoch(2), "two", /*kept=*/false, Epoch());
  EXPECT_FALSE(offers.Find(Epoch(1), "one").ok());
  EXPECT_FALSE(offers.Find(Epoch(), "").ok());
}

TEST(KvOffersTest, ASecretOfAnotherEpochIsRefused) {
  KvOffers offers;
  offers.Begin(Epoch(1), "one", /*kept=*/false, Epoch());
  EXPECT_THAT(Message(offers.Find(Epoch(1), "two").status()),
              HasSubstr("secret"));
}

TEST(KvOffersTest, LayersThatWentAreOnTheShelf) {
  KvOffers offers;
  offers.Begin(Epoch(1), "one", /*kept=*/false, Epoch());
  offers.Unload(Shelf());
  offers.Begin(Epoch(2), "two", /*kept=*/false, /*donors=*/Epoch(1));
  const auto found = offers.Find(Epoch(1), "one");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_NE(found->shelf, nullptr);
  const auto source = MakeKvSource(found->shelf, StagePlace{3, 9});
  std::vector<size_t> runs;
  for (int i = 0; i < 2; ++i) {
    source->Next([&](StatusOr<std::vector<KvEntry>> entries) {
      ASSERT_TRUE(entries.ok());
      runs.push_back(entries->size());
    });
  }
  EXPECT_EQ(runs, (std::vector<size_t>{1, 0}));
}

TEST(KvOffersTest, AShelfThatNoMoveNamesIsGone) {
  KvOffers offers;
  offers.Begin(Epoch(1), "one", /*kept=*/false, Epoch());
  offers.Unload(Shelf());
  offers.Begin(Epoch(2), "two", /*kept=*/false, /*donors=*/Epoch());
  EXPECT_FALSE(offers.Find(Epoch(1), "one").ok());
}

TEST(KvOffersTest, LayersThatWentWithoutAShelfAreGone) {
  KvOffers offers;
  offers.Begin(Epoch(1), "one", /*kept=*/false, Epoch());
  offers.Unload(nullptr);
  EXPECT_FALSE(offers.Find(Epoch(1), "one").ok());
}

}  // namespace
}  // namespace sluice
