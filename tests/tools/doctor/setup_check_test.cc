#include "common/tools/doctor/setup_check.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/cat.h"

namespace sluice::doctor {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class SetupCheckTest : public ::testing::Test {
 protected:
  SetupCheckTest()
      : folder_(
            (fs::temp_directory_path() / Cat("setup-", ::getpid())).string()) {
    fs::create_directories(folder_);
  }
  ~SetupCheckTest() override { fs::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text,
             mode_t mode = 0644) const {
    std::ofstream(folder_ + "/" + name) << text;
    ::chmod((folder_ + "/" + name).c_str(), mode);
  }
  const std::string folder_;
};

TEST_F(SetupCheckTest, MissingToolsAreNamedWithTheirPackages) {
  for (const char* name :
       {"python3", "cmake", "ninja", "c++", "protoc", "grpc_cpp_plugin"}) {
    Write(name, "#!/bin/sh\n", 0755);
  }
  Findings findings = CheckTools("/nowhere:" + folder_);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kNote);
  EXPECT_EQ(findings[0].what, "not in PATH: cargo");
  EXPECT_THAT(findings[0].advice, HasSubstr("install cargo-web"));
  Write("cargo", "", 0755);
  EXPECT_EQ(CheckTools(folder_)[0].level, Level::kFine);
  EXPECT_THAT(CheckTools("")[0].what, HasSubstr("python3, cmake, ninja"));
}

TEST_F(SetupCheckTest, AModelThatCannotBeReadIsAProblem) {
  const auto problem = [&](const std::string& words) {
    const Findings findings = CheckModel(folder_, uint64_t{1} << 40);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].level, Level::kProblem);
    EXPECT_THAT(findings[0].what, HasSubstr(words));
  };
  problem("it has no config.json");
  Write("config.json", R"({"model_type": "llama"})");
  problem("has neither model.safetensors");
  Write("model.safetensors", "cut");
  problem("model.safetensors");
}

TEST_F(SetupCheckTest, AFolderThatIsNotThereIsJudgedByTheOneAbove) {
  const Finding finding = CheckDisk(folder_ + "/a/b/c");
  EXPECT_THAT(finding.what, HasSubstr(folder_));
  EXPECT_THAT(finding.what, Not(HasSubstr("/a")));
}

TEST_F(SetupCheckTest, PackedWeightsAreCountedWithWhatIsInNoUse) {
  EXPECT_THAT(CheckPacked({folder_, ""}).what, HasSubstr("none"));
  std::filesystem::create_directory(folder_ + "/uid-7");
  Write("uid-7/a.packed", "");
  std::filesystem::resize_file(folder_ + "/uid-7/a.packed", 1000000000);
  Finding finding = CheckPacked({folder_});
  EXPECT_EQ(finding.level, Level::kFine);
  EXPECT_THAT(finding.what, HasSubstr("1 GB, 1 GB of them in no use"));
  std::filesystem::resize_file(folder_ + "/uid-7/a.packed", 3000000000);
  finding = CheckPacked({folder_});
  EXPECT_EQ(finding.level, Level::kNote);
  EXPECT_THAT(finding.advice, HasSubstr("--prune"));
}

TEST_F(SetupCheckTest, APortInUseIsToldWithItsProcess) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  const Finding taken = CheckPort(port);
  EXPECT_EQ(taken.level, Level::kNote);
  EXPECT_THAT(taken.what, HasSubstr(Cat("(", ::getpid(), ")")));
  ::close(socket);
  EXPECT_EQ(CheckPort(port).level, Level::kFine);
}

}  // namespace
}  // namespace sluice::doctor
