#include "common/rpc/payload_frame.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "sluice/v1/stage.pb.h"

namespace sluice::rpc {
namespace {

using ::testing::HasSubstr;

constexpr int kField = 15;
constexpr size_t kMaxHead = 1 << 16;

Buffer Payload(size_t bytes) {
  Buffer buffer(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    buffer.data()[i] = static_cast<std::byte>(i * 7);
  }
  return buffer;
}

v1::StepFrame Head() {
  v1::StepFrame frame;
  frame.mutable_step()->mutable_header()->set_epoch(uint64_t{1} << 60);
  frame.mutable_step()->mutable_plan()->add_ended(300);
  frame.mutable_step()->set_sent_ns(-1);
  return frame;
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

// `text` in slices of `size` bytes.
grpc::ByteBuffer Cut(const std::string& text, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < text.size(); at += size) {
    slices.emplace_back(text.substr(at, size));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST(PayloadFrameTest, WhatIsJoinedIsPlainProtobuf) {
  const Buffer payload = Payload(1000);
  const std::string text = Text(JoinPayload(Head(), kField, Payload(1000)));
  v1::StepFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(text));
  EXPECT_EQ(parsed.step().SerializeAsString(),
            Head().step().SerializeAsString());
  ASSERT_EQ(parsed.hidden_states().size(), 1000u);
  EXPECT_EQ(std::memcmp(parsed.hidden_states().data(), payload.data(), 1000),
            0);
}

TEST(PayloadFrameTest, ThePayloadIsSentFromWhereItLies) {
  Buffer payload = Payload(1 << 20);
  const void* where = payload.data();
  const grpc::ByteBuffer frame =
      JoinPayload(Head(), kField, std::move(payload));
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(frame.Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[1].begin(), where);
}

TEST(PayloadFrameTest, SplittingIsTheInverseHoweverSlicesAreCut) {
  for (const size_t bytes : {1u, 127u, 128u, 4096u, 70000u}) {
    const std::string text = Text(JoinPayload(Head(), kField, Payload(bytes)));
    for (const size_t cut : {1u, 2u, 3u, 7u, 64u, 1000000u}) {
      const auto split = SplitPayload(Cut(text, cut), kField, kMaxHead);
      ASSERT_TRUE(split.ok()) << split.status();
      EXPECT_EQ(split->head, Head().SerializeAsString());
      ASSERT_EQ(split->payload.size(), bytes);
      EXPECT_EQ(
          std::memcmp(split->payload.data(), Payload(bytes).data(), bytes), 0);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(split->payload.data()) %
                    Buffer::kAlignment,
                0u);
    }
  }
}

TEST(PayloadFrameTest, AMessageOfAnotherWriterIsReadWhereverTheFieldStands) {
  v1::StepFrame frame = Head();
  frame.set_hidden_states("payload");
  std::string text = frame.SerializeAsString();
  v1::StepFrame tail;
  tail.mutable_step()->mutable_plan()->add_ended(4);
  text += tail.SerializeAsString();
  const auto split = SplitPayload(Cut(text, 5), kField, kMaxHead);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->payload.size(), 7u);
  const auto head = ParseHead<v1::StepFrame>(split->head);
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->step().plan().ended_size(), 2);
}

TEST(PayloadFrameTest, AnEmptyMessageHasNeitherHeadNorPayload) {
  const auto split = SplitPayload(grpc::ByteBuffer(), kField, kMaxHead);
  EXPECT_FALSE(split.ok());  // no message at all
  const auto empty = SplitPayload(
      JoinPayload(v1::StepFrame(), kField, Buffer()), kField, kMaxHead);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_TRUE(empty->head.empty());
  EXPECT_TRUE(empty->payload.empty());
}

TEST(PayloadFrameTest, WhatIsPutBehindIsMergedIntoTheMessage) {
  grpc::ByteBuffer frame = JoinPayload(Head(), kField, Payload(1000));
  v1::StepFrame tail;
  tail.mutable_step()->mutable_plan()->add_ended(301);
  AppendMessage(tail, &frame);
  const auto split = SplitPayload(frame, kField, kMaxHead);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->payload.size(), 1000u);
  const auto head = ParseHead<v1::StepFrame>(split->head);
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->step().header().epoch(), uint64_t{1} << 60);
  ASSERT_EQ(head->step().plan().ended_size(), 2);
  EXPECT_EQ(head->step().plan().ended(1), 301u);
}

TEST(PayloadFrameTest, EveryTruncationIsRefusedOrIsAWholeMessage) {
  const std::string text = Text(JoinPayload(Head(), kField, Payload(40)));
  for (size_t length = 1; length < text.size(); ++length) {
    const auto split =
        SplitPayload(Cut(text.substr(0, length), 3), kField, kMaxHead);
    if (split.ok()) {
      EXPECT_TRUE(split->payload.empty()) << length;
    } else {
      EXPECT_EQ(split.status().code(), StatusCode::kInvalidArgument);
    }
  }
}

TEST(PayloadFrameTest, GroupsOverlongNumbersAndLargeHeadsAreRefused) {
  EXPECT_THAT(Message(SplitPayload(Cut("\x0b", 1), kField, kMaxHead).status()),
              HasSubstr("wire type 3"));
  EXPECT_FALSE(
      SplitPayload(Cut(std::string(11, '\xff'), 1), kField, kMaxHead).ok());
  // A length beyond the frame must not be allocated.
  EXPECT_THAT(
      Message(SplitPayload(Cut("\x7a\xff\xff\xff\xff\x0f", 2), kField, kMaxHead)
                  .status()),
      HasSubstr("4294967295"));
  // No field is number 0, not even where no payload is wanted.
  for (const int field : {kField, 0}) {
    for (const char* bytes : {"\x02\x01x", "\x05xxxx"}) {
      EXPECT_EQ(Message(SplitPayload(Cut(bytes, 1), field, kMaxHead).status()),
                "frame has a field 0");
    }
  }
  const std::string text = Text(JoinPayload(Head(), kField, Payload(8)));
  EXPECT_THAT(Message(SplitPayload(Cut(text, 9), kField, 4).status()),
              HasSubstr("more than 4 bytes"));
}

TEST(PayloadFrameTest, NumbersCountAmongTheBytesBesideThePayload) {
  // Field 1, again and again, as a number of two bytes with its tag.
  std::string text;
  for (int i = 0; i < 50; ++i) text += "\x08\x05";
  const auto whole = SplitPayload(Cut(text, 7), kField, text.size());
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->head, text);
  EXPECT_THAT(
      Message(SplitPayload(Cut(text, 7), kField, text.size() - 1).status()),
      HasSubstr("more than 99 bytes"));
}

}  // namespace
}  // namespace sluice::rpc
