// Reflection as tools use it. Debian ships no header of its messages: they are
// made from the descriptors that the linked library brings.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/rpc/echo_service.h"

namespace sluice::rpc {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<google::protobuf::Message> NewMessage(const char* name) {
  const auto* type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
          Cat("grpc.reflection.v1alpha.", name));
  SLUICE_CHECK(type != nullptr);
  return std::unique_ptr<google::protobuf::Message>(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(type)
          ->New());
}

grpc::ByteBuffer Request(const char* field, const char* text) {
  const auto request = NewMessage("ServerReflectionRequest");
  request->GetReflection()->SetString(
      request.get(), request->GetDescriptor()->FindFieldByName(field), text);
  return testing::Bytes(request->SerializeAsString());
}

constexpr char kMethod[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

TEST(ReflectionTest, AServerTellsNothingUnlessItIsTold) {
  testing::EchoService service;
  const auto listening = Listen("127.0.0.1:0", TransportOptions(), &service);
  ASSERT_TRUE(listening.ok()) << listening.status();
  const auto channel = Connect(listening->address, TransportOptions());
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto stream =
      std::make_shared<testing::RecordingStream>(*channel, kMethod);
  stream->Open();
  stream->Send(Request("list_services", "*"));
  ASSERT_TRUE(testing::Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_EQ(stream->ends()[0].code(), StatusCode::kUnimplemented);
}

TEST(ReflectionTest, WithTheFlagAServerTellsItsServicesAndTheirMethods) {
  // Or the linker leaves the messages out.
  ASSERT_NE(v1::StepFrame::descriptor(), nullptr);
  testing::EchoService service;
  TransportOptions options;
  options.reflection = true;
  const auto listening = Listen("127.0.0.1:0", options, &service);
  ASSERT_TRUE(listening.ok()) << listening.status();
  const auto channel = Connect(listening->address, TransportOptions());
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto stream =
      std::make_shared<testing::RecordingStream>(*channel, kMethod);
  stream->Open();
  ASSERT_TRUE(stream->Send(Request("list_services", "*")));
  ASSERT_TRUE(
      stream->Send(Request("file_containing_symbol", "sluice.v1.Stage")));
  stream->HalfClose();
  ASSERT_TRUE(testing::Eventually([&] { return stream->ends().size() == 1; }));
  EXPECT_TRUE(stream->ends()[0].ok()) << stream->ends()[0];
  ASSERT_EQ(stream->messages().size(), 2u);

  const auto services = NewMessage("ServerReflectionResponse");
  ASSERT_TRUE(services->ParseFromString(stream->messages()[0]));
  EXPECT_THAT(services->DebugString(), HasSubstr("\"sluice.v1.Stage\""));
  EXPECT_THAT(services->DebugString(), HasSubstr("\"grpc.health.v1.Health\""));

  const auto files = NewMessage("ServerReflectionResponse");
  ASSERT_TRUE(files->ParseFromString(stream->messages()[1]));
  EXPECT_THAT(files->DebugString(), HasSubstr("sluice/v1/stage.proto"));
  EXPECT_THAT(files->DebugString(), HasSubstr("Steps"));
}

}  // namespace
}  // namespace sluice::rpc
