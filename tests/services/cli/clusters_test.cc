#include "services/cli/clusters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "services/cli/model_cluster.h"
#include "tests/services/cli/answering_gateway.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kStranger = 12345;

// Returns the time of a clock that is `seconds` behind, as cluster.json has it.
std::string TimeBefore(int seconds) {
  const time_t then = std::time(nullptr) - seconds;
  tm utc = {};
  ::gmtime_r(&then, &utc);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S+00:00", &utc);
  return text;
}

// Returns this process as cluster.json names a process.
ClusterProcess ThisProcess() {
  ClusterProcess process;
  process.pid = ::getpid();
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) {
    process.argv.push_back(word);
  }
  return process;
}

// Returns a cluster that this process belongs to, `age` seconds old.
KnownCluster RunningCluster(const std::string& url, int age) {
  KnownCluster cluster;
  cluster.file.url = url;
  cluster.file.created = TimeBefore(age);
  cluster.file.ready_timeout = 100;
  cluster.file.processes = {ThisProcess()};
  return cluster;
}

// Returns the cluster on other hosts, with this process as its supervisor.
KnownCluster RemoteCluster(const std::string& url, int age) {
  KnownCluster cluster = RunningCluster(url, age);
  cluster.file.supervisor = ThisProcess();
  cluster.file.processes.clear();
  cluster.file.remote.emplace_back();
  return cluster;
}

constexpr char kRefusing[] = "http://127.0.0.1:1";

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

TEST_F(ClustersTest, ALinkStaysWhereTheFolderCannotBeLookedInto) {
  const fs::path elsewhere = home_ + "/elsewhere/run";
  fs::create_directories(elsewhere);
  fs::create_symlink("cluster.json", elsewhere / "cluster.json");  // ELOOP
  const fs::path link = StateFolder() + "/.elsewhere/1";
  fs::create_directories(link.parent_path());
  fs::create_symlink(elsewhere, link);
  EXPECT_THAT(Names(),
              ElementsAre(HasSubstr(Cat(elsewhere.string(), "/cluster.json"))));
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(ClustersTest, AFileOfAnotherUserIsNotTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  MakeCluster(StateFolder() + "/a");
  const fs::path elsewhere = home_ + "/elsewhere/run";
  MakeCluster(elsewhere);
  const fs::path link = StateFolder() + "/.elsewhere/1";
  fs::create_directories(link.parent_path());
  fs::create_symlink(elsewhere, link);
  const std::string file = (elsewhere / "cluster.json").string();
  ASSERT_EQ(::chown(file.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(Names(),
              ElementsAre("a", AllOf(HasSubstr(file), HasSubstr("user 12345"),
                                     HasSubstr("user 0"))));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ReadClusterFile(elsewhere.string()).status().code(),
            StatusCode::kFailedPrecondition);
  EndpointOptions options;
  options.run_dir = elsewhere.string();
  EXPECT_FALSE(FindGateway(options).ok()) << "no prompt goes to its url";
}

TEST_F(ClustersTest, AFileOfRootIsTrustedByAnyUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string run_dir = Cat("/tmp/sluice-root-", getpid());
  MakeCluster(run_dir);
  fs::permissions(run_dir, fs::perms::others_read | fs::perms::others_exec,
                  fs::perm_options::add);
  fs::permissions(run_dir + "/cluster.json", fs::perms::others_read,
                  fs::perm_options::add);
  ASSERT_EQ(::seteuid(kStranger), 0);
  const auto file = ReadClusterFile(run_dir);
  ASSERT_EQ(::seteuid(0), 0);
  fs::remove_all(run_dir);
  EXPECT_TRUE(file.ok()) << file.status();
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

TEST(LookAtTest, ARefusedConnectionIsLoadingOnlyOfAYoungCluster) {
  EXPECT_EQ(LookAt(RunningCluster(kRefusing, 10)).state, "loading");
  const ClusterState old = LookAt(RunningCluster(kRefusing, 200));
  EXPECT_EQ(old.state, "not ready");
  EXPECT_THAT(old.why, HasSubstr("refused"));
  KnownCluster incomplete = RunningCluster(kRefusing, 10);
  incomplete.file.processes.emplace_back();
  EXPECT_EQ(LookAt(incomplete).state, "not ready");
  KnownCluster undated = RunningCluster(kRefusing, 10);
  undated.file.created.clear();
  EXPECT_EQ(LookAt(undated).state, "not ready");
}

TEST(LookAtTest, AGatewayThatHangsIsNotReady) {
  const AnsweringGateway gateway("");
  const ClusterState look = LookAt(RunningCluster(gateway.url(), 10));
  EXPECT_EQ(look.state, "not ready");
  EXPECT_THAT(look.why, HasSubstr("no answer in time"));
}

TEST(LookAtTest, AClusterOfOtherHostsIsNotReadyWhenTheWayToThemIsDown) {
  EXPECT_EQ(LookAt(RemoteCluster(kRefusing, 10)).state, "loading");
  const ClusterState down = LookAt(RemoteCluster(kRefusing, 200));
  EXPECT_EQ(down.state, "not ready");
  EXPECT_THAT(down.why, HasSubstr("the way to its hosts"));
  KnownCluster unwatched = RemoteCluster(kRefusing, 10);
  unwatched.file.supervisor = {};
  const ClusterState left = LookAt(unwatched);
  EXPECT_EQ(left.state, "not ready") << "its hosts may serve on";
  EXPECT_THAT(left.why, HasSubstr("supervisor"));
  const AnsweringGateway gateway(http::testing::HttpAnswer("200 OK", "ok"));
  EXPECT_EQ(LookAt(RemoteCluster(gateway.url(), 200)).state, "ready");
}

TEST(AwaitReadyTest, AClusterThatLoadsForeverIsAwaitedForItsReadyTimeout) {
  const AnsweringGateway gateway(http::testing::HttpAnswer(
      "503 Service Unavailable", R"({"not_ready":[{"why":"loading 1 %"}]})"));
  KnownCluster cluster = RunningCluster(gateway.url(), 1000);
  cluster.name = "slow";
  cluster.file.ready_timeout = 1;
  ASSERT_EQ(LookAt(cluster).state, "loading");
  Interrupts interrupts;
  ::testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  const StatusOr<bool> ready = AwaitReady(cluster, interrupts);
  const std::chrono::duration<double> waited =
      std::chrono::steady_clock::now() - begin;
  const std::string told = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(ready.ok());
  EXPECT_FALSE(*ready);
  EXPECT_GE(waited.count(), 1);
  EXPECT_THAT(told, HasSubstr("slow is not used: it is loading"));
}

TEST_F(ClustersTest, TheReadyTimeoutIsTheClustersOwn) {
  MakeCluster(StateFolder() + "/a");
  EXPECT_EQ(ReadClusterFile(StateFolder() + "/a")->ready_timeout, 900);
  MakeCluster(StateFolder() + "/a", R"(,"options":{"ready_timeout":7})");
  EXPECT_EQ(ReadClusterFile(StateFolder() + "/a")->ready_timeout, 7);
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
