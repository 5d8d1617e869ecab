#ifndef SLUICE_TESTS_DIALECTS_OPENAI_PARSE_TESTING_H_
#define SLUICE_TESTS_DIALECTS_OPENAI_PARSE_TESTING_H_

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/error.h"

namespace sluice::openai {

// Parses `messages`, the text of an array.
inline StatusOr<Json> Messages(const std::string& text) {
  JsonBudget budget;
  return ParseMessages(*ParseJson(text), budget);
}

// Expects a 400 that names `param`.
template <typename T>
void ExpectParam(const StatusOr<T>& got, std::string_view param) {
  ASSERT_FALSE(got.ok()) << param;
  const http::ApiError error = serving::ToApiError(got.status());
  EXPECT_EQ(error.http_status, 400) << error.message;
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_EQ(error.param.value_or("none"), param) << error.message;
}

}  // namespace sluice::openai

#endif  // SLUICE_TESTS_DIALECTS_OPENAI_PARSE_TESTING_H_
