#include "services/cli/interrupts.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "services/cli/child_process.h"
#include "services/cli/command_line.h"

namespace sluice::cli {
namespace {

TEST(InterruptsTest, ASignalIsToldOnceAndDoesNotAct) {
  Interrupts interrupts;
  EXPECT_EQ(interrupts.Take(), 0);
  EXPECT_EQ(interrupts.Wait(-1, 0, 0), Interrupts::Woken::kTimeout);
  ::kill(::getpid(), SIGTERM);
  EXPECT_EQ(interrupts.Wait(-1, 0), Interrupts::Woken::kSignal);
  EXPECT_EQ(interrupts.Take(), SIGTERM);
  EXPECT_EQ(interrupts.Take(), 0);
  EXPECT_EQ(ExitCodeOf(InterruptedBy(SIGTERM)), 143);
  EXPECT_EQ(ExitCodeOf(InterruptedBy(SIGINT)), 130);
}

TEST(InterruptsTest, ASignalGoesBeforeWhatCanBeRead) {
  Interrupts interrupts;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_EQ(interrupts.Wait(ends[0], POLLIN), Interrupts::Woken::kReady);
  ::kill(::getpid(), SIGINT);
  EXPECT_EQ(interrupts.Wait(ends[0], POLLIN), Interrupts::Woken::kSignal);
  EXPECT_EQ(interrupts.Take(), SIGINT);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(InterruptsTest, WhatTheProcessWasToldToIgnoreStaysIgnored) {
  ASSERT_NE(::signal(SIGHUP, SIG_IGN), SIG_ERR);  // as nohup does
  {
    Interrupts interrupts;
    ::kill(::getpid(), SIGHUP);
    EXPECT_EQ(interrupts.Wait(-1, 0, 0), Interrupts::Woken::kTimeout);
  }
  ::signal(SIGHUP, SIG_DFL);
}

TEST(ChildProcessTest, AProgramHasItsInputUntilThatIsClosed) {
  Interrupts interrupts;
  const auto child =
      ChildProcess::Start({"sh", "-c", "echo $NAME; cat; exit 7"},
                          {interrupts.mask_before(), {"NAME=value"}});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->ReadOutput());
  EXPECT_EQ((*child)->text(), "value\n");
  EXPECT_EQ(interrupts.Wait((*child)->output_fd(), POLLIN, 0),
            Interrupts::Woken::kTimeout);
  (*child)->CloseInput();
  EXPECT_FALSE((*child)->ReadOutput());
  EXPECT_EQ((*child)->Wait(), 7);
}

TEST(ChildProcessTest, ASignalReachesItsWholeGroup) {
  Interrupts interrupts;
  const auto child =
      ChildProcess::Start({"sh", "-c", "sleep 600 & echo ready; wait"},
                          {interrupts.mask_before(), {}});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->ReadOutput());
  (*child)->Signal(SIGTERM);
  EXPECT_FALSE((*child)->ReadOutput()) << "the sleep has ended, too";
  EXPECT_EQ((*child)->Wait(), 128 + SIGTERM);
}

TEST(ChildProcessTest, AProgramThatIsNotThereIsNamed) {
  const auto child = ChildProcess::Start({"/no/such/program"}, {});
  ASSERT_FALSE(child.ok());
  EXPECT_NE(Message(child.status()).find("/no/such/program"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::cli
