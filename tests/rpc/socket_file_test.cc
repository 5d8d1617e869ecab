// Servers on socket files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "common/base/log.h"
#include "common/rpc/grpc_log.h"
#include "tests/rpc/echo_service.h"
#include "tests/testing/no_descriptors.h"

namespace sluice::rpc {
namespace {

using testing::Bytes;
using testing::EchoService;
using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::RecordingStream;

class SocketFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/sluice-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Address() const { return "unix:" + Path(); }
  std::string Path() const { return folder_ + "/stage.sock"; }

  // That whoever listens there answers.
  void ExpectEcho() const {
    const auto channel = Connect(Address(), TransportOptions());
    ASSERT_TRUE(channel.ok()) << channel.status();
    const auto stream = std::make_shared<RecordingStream>(*channel);
    stream->Open();
    stream->Send(Bytes("x"));
    EXPECT_TRUE(Eventually([&] { return stream->messages().size() == 1; }));
    EXPECT_THAT(stream->messages(), ElementsAre("x"));
    stream->HalfClose();
    EXPECT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
  }

  // Takes the descriptors while a caller comes.
  bool TellsOnceThatItIsDeaf() {
    static std::atomic<int> told{0};
    const auto server = Listen(Address(), TransportOptions(), &service_);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    Path().copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int caller = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (!server.ok() || caller < 0) return false;
    OnDeaf([] { ++told; });
    {
      const sluice::testing::NoDescriptors none;
      if (::connect(caller, reinterpret_cast<sockaddr*>(&address),
                    sizeof(address)) != 0 ||
          !Eventually([] { return IsDeaf() && told == 1; })) {
        return false;
      }
    }
    OnDeaf([] { told += 10; });  // it has come: at once
    FlushLog(std::chrono::seconds(5));
    return told == 11;
  }

  std::string folder_;
  EchoService service_;
};

TEST_F(SocketFileTest, ASocketFileIsItsOwnersAlone) {
  const mode_t mask = ::umask(0);
  const auto server = Listen(Address(), TransportOptions(), &service_);
  EXPECT_EQ(::umask(mask), 0u);  // as it was
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(server->address, Address());
  struct stat status;
  ASSERT_EQ(::lstat(Path().c_str(), &status), 0);
  EXPECT_TRUE(S_ISSOCK(status.st_mode));
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ExpectEcho();
  service_.Drop();
}

TEST_F(SocketFileTest, ASecondServerIsRefusedAndTheFirstStaysThere) {
  const auto server = Listen(Address(), TransportOptions(), &service_);
  ASSERT_TRUE(server.ok()) << server.status();
  EchoService other;
  const Status refused = Listen(Address(), TransportOptions(), &other).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(refused), HasSubstr(Address() + ": the address is in"));
  ExpectEcho();
  service_.Drop();
}

TEST_F(SocketFileTest, AFileThatWasLeftBehindIsReplaced) {
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, Path().c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
            0);
  ::close(left);
  for (int round = 0; round < 2; ++round) {
    const auto server = Listen(Address(), TransportOptions(), &service_);
    ASSERT_TRUE(server.ok()) << server.status();
    ExpectEcho();
    service_.Drop();
  }
}

// In a process of its own, which is deaf from then on. GRPC_VERBOSITY does not
// keep it from hearing so.
TEST_F(SocketFileTest, AProcessThatCannotAcceptIsDeafAndToldSoOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("GRPC_VERBOSITY", "NONE", 1);
        const bool right = TellsOnceThatItIsDeaf();
        TearDown();
        std::_Exit(right ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "no connection is accepted any more");
}

TEST_F(SocketFileTest, AFolderThatIsNotThereIsNamed) {
  const auto server =
      Listen("unix:" + folder_ + "/none/a.sock", TransportOptions(), &service_);
  EXPECT_EQ(server.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(server.status()), HasSubstr("none/a.sock"));
}

}  // namespace
}  // namespace sluice::rpc
