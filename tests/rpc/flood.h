#ifndef SLUICE_TESTS_RPC_FLOOD_H_
#define SLUICE_TESTS_RPC_FLOOD_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/echo_service.h"

namespace sluice::rpc::testing {

// Opens 64 streams of `method` on 4 connections, each with `hello` and a
// message of 100 MB, and waits until all of them were refused.
inline void Flood(const std::string& address, const std::string& method,
                  const std::string& hello) {
  static const std::string& large = *new std::string(100'000'000, 'x');
  const grpc::Slice slice(large.data(), large.size(),
                          grpc::Slice::STATIC_SLICE);
  TransportOptions options;
  options.max_message_bytes = int64_t{1} << 30;
  std::vector<std::shared_ptr<RecordingStream>> streams;
  for (int connection = 0; connection < 4; ++connection) {
    const auto channel = Connect(address, options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    for (int i = 0; i < 16; ++i) {
      streams.push_back(
          std::make_shared<RecordingStream>(*channel, method.c_str()));
      streams.back()->Open(hello);
      streams.back()->Send(grpc::ByteBuffer(&slice, 1));
    }
  }
  for (const auto& stream : streams) {
    ASSERT_TRUE(Eventually([&] { return stream->ends().size() == 1; }));
    const StatusCode code = stream->ends()[0].code();
    EXPECT_TRUE(code == StatusCode::kInvalidArgument ||
                code == StatusCode::kFailedPrecondition)
        << stream->ends()[0];
  }
}

// The most memory that a process ever had, in bytes.
inline int64_t PeakRss(pid_t pid) {
  std::ifstream status(Cat("/proc/", pid, "/status"));
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  ADD_FAILURE() << "no VmHWM of process " << pid;
  return 0;
}

// What a flood may cost: 64 KiB for each of its streams are 4 MiB.
#if defined(SLUICE_ASAN) || defined(SLUICE_TSAN)
inline constexpr int64_t kFloodBytes = int64_t{1} << 30;  // they keep what was
#else
inline constexpr int64_t kFloodBytes = int64_t{32} << 20;
#endif

}  // namespace sluice::rpc::testing

#endif  // SLUICE_TESTS_RPC_FLOOD_H_
