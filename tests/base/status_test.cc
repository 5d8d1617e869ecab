#include "common/base/status.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "common/base/catch_exceptions.h"
#include "common/base/retry_after.h"

namespace sluice {
namespace {

StatusOr<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd value ", x);
  return x / 2;
}

StatusOr<int> Quarter(int x) {
  SLUICE_ASSIGN_OR_RETURN(const int half, Half(x));
  SLUICE_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int x) {
  SLUICE_RETURN_IF_ERROR(Quarter(x).status());
  return OkStatus();
}

TEST(StatusTest, AssignOrReturnPassesTheValueOn) {
  ASSERT_TRUE(Quarter(8).ok());
  EXPECT_EQ(*Quarter(8), 2);
}

TEST(StatusTest, TheFirstErrorIsReturned) {
  EXPECT_EQ(Message(Quarter(6).status()), "odd value 3");
  EXPECT_EQ(CheckQuarter(5).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckQuarter(4).ok());
}

TEST(StatusTest, AnnotateKeepsTheCodeAndPutsContextFirst) {
  const Status status = Annotate(NotFound("no file"), "model ", 3);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(status), "model 3: no file");
  EXPECT_TRUE(Annotate(OkStatus(), "x").ok());
}

TEST(StatusTest, CatTakesStringViews) {
  EXPECT_EQ(Cat("a", std::string_view("b"), 1, 'c', 2.5f), "ab1c2.5");
}

TEST(CatchExceptionsTest, AnExceptionBecomesAStatusByItsKind) {
  EXPECT_TRUE(CatchExceptions("job", [] {}).ok());
  const auto memory = CatchExceptions("job", [] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(memory), "job: out of memory");
  const auto length =
      CatchExceptions("job", [] { std::string().reserve(SIZE_MAX); });
  EXPECT_EQ(length.code(), StatusCode::kUnavailable);
  const auto other =
      CatchExceptions("job", [] { throw std::runtime_error("a word"); });
  EXPECT_EQ(other.code(), StatusCode::kInternal);
  EXPECT_EQ(Message(other), "job: a word");
  EXPECT_EQ(CatchExceptions("job", [] { throw 7; }).code(),
            StatusCode::kInternal);
}

TEST(RetryAfterTest, SecondsAreRoundedUpAndNeverBelowOne) {
  using std::chrono::milliseconds;
  const Status full = ResourceExhausted("full");
  EXPECT_EQ(RetryAfterSeconds(full), std::nullopt);
  EXPECT_EQ(RetryAfterSeconds(WithRetryAfter(full, milliseconds(0))), 1);
  EXPECT_EQ(RetryAfterSeconds(WithRetryAfter(full, milliseconds(-5))), 1);
  EXPECT_EQ(RetryAfterSeconds(WithRetryAfter(full, milliseconds(2001))), 3);
  const Status later = WithRetryAfter(full, milliseconds(7000));
  EXPECT_EQ(RetryAfterSeconds(later), 7);
  EXPECT_EQ(later.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(later), "full");
}

}  // namespace
}  // namespace sluice
