#include "services/cli/clusters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A state folder of the test's own.
class ClustersTest : public ::testing::Test {
 protected:
  ClustersTest() { ::setenv("XDG_STATE_HOME", home_.c_str(), 1); }
  ~ClustersTest() override {
    ::unsetenv("XDG_STATE_HOME");
    fs::remove_all(home_);
  }

  static void MakeCluster(const fs::path& run_dir,
                          const std::string& more = "") {
    fs::create_directories(run_dir);
    std::ofstream(run_dir / "cluster.json")
        << R"({"url":"http://127.0.0.1:1","model":"/m","processes":[])" << more
        << "}";
  }
  static std::vector<std::string> Names() {
    std::vector<std::string> problems, names;
    for (const auto& cluster : ListClusters(problems)) {
      names.push_back(cluster.name);
    }
    for (const std::string& problem : problems) names.push_back(problem);
    return names;
  }

  const std::string home_ = Cat(::testing::TempDir(), "state-", getpid());
};

TEST_F(ClustersTest, ClustersAreFoundInTheStateFolderAndByLinks) {
  EXPECT_THAT(Names(), IsEmpty());
  MakeCluster(StateFolder() + "/b");
  MakeCluster(StateFolder() + "/a");
  fs::create_directories(StateFolder() + "/without");
  const fs::path elsewhere = home_ + "/else where/run";
  MakeCluster(elsewhere);
  const fs::path links = StateFolder() + "/.elsewhere";
  fs::create_directories(links);
  fs::create_symlink(elsewhere, links / "1");
  EXPECT_THAT(Names(), ElementsAre(elsewhere.string(), "a", "b"));
  fs::remove_all(elsewhere);
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
  EXPECT_FALSE(fs::is_symlink(links / "1")) << "a link to no cluster goes";
}

TEST_F(ClustersTest, ADamagedFileIsNamedAndHidesNoOtherCluster) {
  MakeCluster(StateFolder() + "/a");
  fs::create_directories(StateFolder() + "/bad");
  std::ofstream(StateFolder() + "/bad/cluster.json") << "{";
  EXPECT_THAT(Names(), ElementsAre("a", HasSubstr("bad/cluster.json")));
}

TEST_F(ClustersTest, WithoutANameTheOnlyClusterIsMeant) {
  EXPECT_EQ(ChooseRunDir("").status().code(), StatusCode::kNotFound);
  MakeCluster(StateFolder() + "/a");
  EXPECT_EQ(*ChooseRunDir(""), StateFolder() + "/a");
  MakeCluster(StateFolder() + "/b");
  EXPECT_THAT(Message(ChooseRunDir("").status()), HasSubstr(" a b"));
  EXPECT_EQ(*ChooseRunDir("b"), StateFolder() + "/b");
  EXPECT_EQ(*ChooseRunDir(StateFolder() + "/b"), StateFolder() + "/b");
  EXPECT_THAT(Message(ChooseRunDir("c").status()), HasSubstr("'c'"));
}

TEST_F(ClustersTest, AClusterWithoutAProcessIsDead) {
  MakeCluster(StateFolder() + "/a");
  std::vector<std::string> problems;
  const auto clusters = ListClusters(problems);
  ASSERT_EQ(clusters.size(), 1);
  EXPECT_EQ(LookAt(clusters[0]).state, "dead");
  EXPECT_EQ(ResidentBytes(clusters[0]), 0);
}

TEST_F(ClustersTest, ItsOwnKeyIsTakenWhereNoneIsGiven) {
  const std::string keys = home_ + "/keys";
  for (const auto& [text, key] :
       {std::pair("# all\n\nname: sk-1 \nsk-2\n", "sk-1"),
        std::pair("name:sk-3\n", "sk-3"), std::pair("sk-4\n", "sk-4"),
        std::pair("", "")}) {
    MakeCluster(StateFolder() + "/a",
                Cat(R"(,"options":{"api_key_file":")", keys, "\"}"));
    std::ofstream(keys) << text;
    EndpointOptions options;
    options.run_dir = StateFolder() + "/a";
    EXPECT_EQ(FindGateway(options)->api_key, key);
    options.api_key = "given";
    EXPECT_EQ(FindGateway(options)->api_key, "given");
  }
}

TEST(SecondsSinceTest, AnIsoTimeOfAnyZoneIsRead) {
  const time_t then = std::time(nullptr) - 3600;
  tm utc = {};
  ::gmtime_r(&then, &utc);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  EXPECT_NEAR(SecondsSince(Cat(text, ".123456+00:00")), 3600, 2);
  EXPECT_NEAR(SecondsSince(Cat(text, "+00:00")), 3600, 2);
  EXPECT_NEAR(SecondsSince(Cat(text, ".5+02:00")), 3 * 3600, 2);
  EXPECT_LT(SecondsSince(""), 0);
  EXPECT_LT(SecondsSince("yesterday"), 0);
}

}  // namespace
}  // namespace sluice::cli
