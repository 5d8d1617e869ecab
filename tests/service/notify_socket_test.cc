#include "common/service/notify_socket.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "common/service/service_process.h"

namespace sluice {
namespace {

// A service manager's end of the socket.
class Manager {
 public:
  // '@' before `path`: an abstract name.
  explicit Manager(const std::string& path) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';
    const auto size =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0)
        << std::strerror(errno);
    const timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~Manager() { close(fd_); }

  // The next message; empty after 10 s without one.
  std::string Next() const {
    char text[256];
    const ssize_t size = recv(fd_, text, sizeof(text), 0);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  int fd_ = -1;
};

class NotifySocketTest : public ::testing::Test {
 protected:
  NotifySocketTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "ns-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~NotifySocketTest() override {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
};

TEST_F(NotifySocketTest, AServiceTellsThatItIsReadyAliveAndStopping) {
  const Manager manager(folder_ + "/s");
  setenv("NOTIFY_SOCKET", (folder_ + "/s").c_str(), 1);
  setenv("WATCHDOG_USEC", "20000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  int tidied = 0;
  std::thread service([&] {
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    EXPECT_TRUE(AwaitSignal(signals, [&tidied] { ++tidied; }).ok());
  });
  EXPECT_EQ(manager.Next(), "READY=1");
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  pthread_kill(service.native_handle(), SIGUSR1);
  service.join();
  std::string last = manager.Next();
  while (last == "WATCHDOG=1") last = manager.Next();
  EXPECT_EQ(last, "STOPPING=1");
  EXPECT_GE(tidied, 2);
}

// A process asks itself once: each in a process of its own.
TEST_F(NotifySocketTest, AServiceThatAsksItselfToEndTellsWhy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const sigset_t signals = BlockSignals();
        std::thread([] { AskToEnd("nobody comes in"); }).detach();
        const Status why = AwaitSignal(signals);
        std::_Exit(Message(why) == "nobody comes in" ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        const sigset_t signals = BlockSignals();
        kill(getpid(), SIGTERM);
        const Status told = AwaitSignal(signals);
        AskToEnd("nobody comes in");
        UnblockSignals(signals);  // no second signal has come
        std::_Exit(told.ok() ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(NotifySocketTest, AServiceThatAsksItselfToEndWhileItLoadsEndsWithOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto never = [](TimePoint) { return DeadlineExceeded(""); };
  EXPECT_EXIT(
      {
        AskToEnd("nobody comes in");
        (void)AwaitLoad(BlockSignals(), never);
      },
      ::testing::ExitedWithCode(1), "ends while loading: nobody comes in");
  EXPECT_EXIT(
      {
        const sigset_t signals = BlockSignals();
        kill(getpid(), SIGTERM);
        (void)AwaitLoad(signals, never);
      },
      ::testing::ExitedWithCode(0), "asked to end while loading");
}

TEST_F(NotifySocketTest, AnAbstractNameIsReachedToo) {
  const std::string name = "@sluice-test-" + std::to_string(getpid());
  const Manager manager(name);
  NotifySocket(name, std::nullopt).Ready();
  EXPECT_EQ(manager.Next(), "READY=1");
}

TEST_F(NotifySocketTest, AWatchdogOfAnotherProcessIsNone) {
  setenv("NOTIFY_SOCKET", "/nowhere", 1);
  setenv("WATCHDOG_USEC", "10000000", 1);
  EXPECT_EQ(NotifySocket::FromEnvironment().ping_interval(),
            std::chrono::seconds(5));
  setenv("WATCHDOG_PID", std::to_string(getpid() + 1).c_str(), 1);
  EXPECT_EQ(NotifySocket::FromEnvironment().ping_interval(), std::nullopt);
  unsetenv("WATCHDOG_PID");
  for (const char* wrong : {"", "0", "-5", "10x", "99999999999999999999"}) {
    setenv("WATCHDOG_USEC", wrong, 1);
    EXPECT_EQ(NotifySocket::FromEnvironment().ping_interval(), std::nullopt)
        << wrong;
  }
}

TEST_F(NotifySocketTest, WithoutAManagerNothingIsSentAndNothingFails) {
  NotifySocket none("", std::chrono::seconds(1));
  none.Ready();
  none.StillAlive();
  EXPECT_EQ(none.ping_interval(), std::nullopt);
  NotifySocket gone(folder_ + "/gone", std::chrono::seconds(1));
  gone.Ready();
  gone.StillAlive();
  NotifySocket(std::string(200, 'x'), std::nullopt).Ready();
}

}  // namespace
}  // namespace sluice
