// Answers that are kept for later requests of the same key.
#include "common/serving/answer_store.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "common/base/cat.h"

namespace sluice::serving {
namespace {

TEST(AnswerStoreTest, FindsAnswersOfTheirKeyAlone) {
  AnswerStore store({.max_bytes = 1 << 20});
  store.Put("a", "resp_1", {"{}", "[]"});
  const auto found = store.Find("a", "resp_1");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->answer, "{}");
  EXPECT_EQ(store.Find("b", "resp_1").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.Erase("b", "resp_1").code(), StatusCode::kNotFound);
  EXPECT_TRUE(store.Erase("a", "resp_1").ok());
  EXPECT_EQ(store.Find("a", "resp_1").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(AnswerStoreTest, TheOldestOfAKeyMakeRoom) {
  AnswerStore store({.max_bytes = 10 << 10, .max_answers = 5});
  store.Put("b", "resp_0", {"{}", "[]"});
  for (int i = 0; i < 20; ++i) {
    store.Put("a", Cat("resp_", i), {std::string(100, ' '), "[]"});
  }
  EXPECT_FALSE(store.Find("a", "resp_14").ok());
  EXPECT_TRUE(store.Find("a", "resp_15").ok());
  EXPECT_TRUE(store.Find("b", "resp_0").ok()) << "of another key";
  EXPECT_TRUE(store.Put("a", "resp_big", {std::string(8 << 10, ' '), "[]"}));
  EXPECT_FALSE(store.Find("a", "resp_15").ok());
  EXPECT_TRUE(store.Find("a", "resp_big").ok());
  EXPECT_FALSE(
      store.Put("a", "resp_bigger", {std::string(11 << 10, ' '), "[]"}));
  EXPECT_FALSE(store.Find("a", "resp_bigger").ok());
  EXPECT_LE(store.bytes(), size_t{20 << 10});
}

TEST(AnswerStoreTest, AnIdTwiceIsTheLatest) {
  AnswerStore store({.max_bytes = 1 << 20});
  store.Put("a", "resp_1", {"1", "[]"});
  store.Put("a", "resp_1", {"2", "[]"});
  EXPECT_EQ((*store.Find("a", "resp_1"))->answer, "2");
  EXPECT_EQ(store.bytes(), (AnswerStore::Answer{"2", "[]"}).memory());
}

TEST(AnswerStoreTest, OldAnswersAreForgotten) {
  AnswerStore store(
      {.max_bytes = 1 << 20, .max_age = std::chrono::milliseconds(1)});
  store.Put("a", "resp_1", {"{}", "[]"});
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_FALSE(store.Find("a", "resp_1").ok());
  EXPECT_EQ(store.bytes(), 0u);
}

}  // namespace
}  // namespace sluice::serving
