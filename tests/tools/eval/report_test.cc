#include "common/tools/eval/report.h"

#include <gtest/gtest.h>

namespace sluice::eval {
namespace {

TEST(EvalReportTest, EveryCheckIsInTheTableAndHasASection) {
  CheckResult good;
  good.title = "Good";
  good.passed = true;
  good.summary = "all the same";
  good.body = "Text.\n";
  const std::string report = ReportMarkdown(
      {"m", "http://h:1"}, {good, FailedCheck("Bad", Unavailable("gone"))});
  for (const char* part :
       {"# Evaluation of m\n", "| Good | passed | all the same |",
        "| Bad | **FAILED** | could not be made: gone |", "\n## Good\n\nText.",
        "\n## Bad\n"}) {
    EXPECT_NE(report.find(part), std::string::npos) << part << "\n" << report;
  }
}

TEST(EvalReportTest, ATableEscapesItsCells) {
  EXPECT_EQ(MarkdownTable({{"a", "b"}, {"1|2", "3\n4"}}),
            "| a | b |\n| --- | --- |\n| 1\\|2 | 3 4 |\n");
}

TEST(EvalReportTest, SmallNumbersAreReadable) {
  EXPECT_EQ(Scientific(0), "0");
  EXPECT_EQ(Scientific(1.23e-7), "1.2e-07");
}

}  // namespace
}  // namespace sluice::eval
