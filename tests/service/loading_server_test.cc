#include "common/service/loading_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/testing/http_exchange.h"

namespace sluice {
namespace {

using sluice::testing::Get;
using ::testing::HasSubstr;

TEST(LoadingServerTest, TheFirstLoadHasTheOutcome) {
  metrics::Registry registry;
  LoadingServer server{&registry};
  EXPECT_EQ(server.WaitLoaded(Clock::now(), "the model is"),
            DeadlineExceeded("the model is still being loaded"));
  EXPECT_FALSE(server.loaded());
  EXPECT_TRUE(server.SetOutcome(OkStatus()));
  EXPECT_FALSE(server.SetOutcome(Unavailable("later")));
  EXPECT_TRUE(server.loaded());
  EXPECT_TRUE(server.WaitLoaded(Clock::now(), "the model is").ok());
}

TEST(LoadingServerTest, ALoadThatFailedIsNotLoaded) {
  metrics::Registry registry;
  LoadingServer server{&registry};
  EXPECT_TRUE(server.SetOutcome(NotFound("no such file")));
  EXPECT_FALSE(server.loaded());
  EXPECT_EQ(server.WaitLoaded(Clock::now(), "the model is"),
            NotFound("no such file"));
}

TEST(LoadingServerTest, ItsPortHasTheProcessAndTheServersPages) {
  metrics::Registry registry;
  LoadingServer server{&registry};
  LoadingServer::Options options;
  options.service = "stage";
  options.isa = "portable";
  options.listen = "127.0.0.1:0";
  options.probes.readiness = [] { return http::Readiness{false, "{\"a\":1}"}; };
  options.probes.pages["/more"] = [] {
    return http::HttpResponse{200, "text/plain", {}, "more"};
  };
  ASSERT_TRUE(server.Open(std::move(options)).ok());
  const int port = server.metrics_port();
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("isa=\"portable\""));
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("process_start_time_seconds"));
  EXPECT_THAT(Get(port, "/readyz"), HasSubstr("{\"a\":1}"));
  EXPECT_THAT(Get(port, "/more"), HasSubstr("more"));
  server.Close();
  server.Close();
  EXPECT_EQ(server.metrics_port(), 0);
}

TEST(LoadingServerTest, WithoutAnAddressThereIsNoPort) {
  metrics::Registry registry;
  LoadingServer server{&registry};
  LoadingServer::Options options;
  options.service = "stage";
  ASSERT_TRUE(server.Open(std::move(options)).ok());
  EXPECT_EQ(server.metrics_port(), 0);
  EXPECT_THAT(registry.Text(), HasSubstr("service=\"stage\""));
}

}  // namespace
}  // namespace sluice
