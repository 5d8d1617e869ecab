#include "common/otlp/otlp_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/otlp/sampler.h"

namespace sluice::otlp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Variables = std::map<std::string, std::string>;

StatusOr<std::optional<OtlpOptions>> Read(Variables variables) {
  return OptionsFromEnvironment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

OtlpOptions Made(Variables variables) {
  variables.emplace("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");
  const auto read = Read(std::move(variables));
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() && *read ? **read : OtlpOptions();
}

TEST(OtlpOptionsTest, NothingIsSentUnlessAnEndpointIsNamed) {
  const std::string endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
  for (const Variables& variables :
       {Variables{}, Variables{{endpoint, ""}},
        Variables{{endpoint, "http://a:1"}, {"OTEL_SDK_DISABLED", "true"}},
        Variables{{endpoint, "http://a:1"}, {"OTEL_TRACES_EXPORTER", "none"}},
        Variables{{"OTEL_SERVICE_NAME", "x"}}}) {
    const auto read = Read(variables);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_FALSE(read->has_value());
  }
}

TEST(OtlpOptionsTest, EndpointsHaveASchemeAndADefaultPort) {
  const auto target = [](const std::string& endpoint) {
    const OtlpOptions made = Made({{"OTEL_EXPORTER_OTLP_ENDPOINT", endpoint}});
    return std::pair(made.target, made.tls);
  };
  EXPECT_THAT(target("http://10.0.0.7:9000"), Pair("10.0.0.7:9000", false));
  EXPECT_THAT(target("http://collector/"), Pair("collector:4317", false));
  EXPECT_THAT(target("https://c.example:443"), Pair("c.example:443", true));
  EXPECT_THAT(target("http://[::1]"), Pair("[::1]:4317", false));
  EXPECT_THAT(target("collector:4317"), Pair("collector:4317", true));
  const OtlpOptions own =
      Made({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1"}});
  EXPECT_EQ(own.target, "traces:1") << "the variable for traces alone wins";
}

TEST(OtlpOptionsTest, ReadsNamesHeadersAndTimes) {
  const OtlpOptions made =
      Made({{"OTEL_SERVICE_NAME", "front"},
            {"OTEL_RESOURCE_ATTRIBUTES", "zone=b%2Cc, service.name=other"},
            {"OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%20b,x=1"},
            {"OTEL_EXPORTER_OTLP_TIMEOUT", "250"},
            {"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"}});
  EXPECT_THAT(made.resource,
              ElementsAre(Pair("zone", "b,c"), Pair("service.name", "front")));
  EXPECT_THAT(made.headers,
              ElementsAre(Pair("api-key", "a b"), Pair("x", "1")));
  EXPECT_EQ(made.timeout, std::chrono::milliseconds(250));
  EXPECT_TRUE(made.gzip);
  EXPECT_THAT(Made({}).resource,
              ElementsAre(Pair("service.name", "sluice-gateway")));
}

TEST(OtlpOptionsTest, RefusesWhatItCannotObeyByName) {
  const std::map<std::string, std::string> wrong = {
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://a"},
      {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
      {"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"},
      {"OTEL_EXPORTER_OTLP_TIMEOUT", "soon"},
      {"OTEL_EXPORTER_OTLP_CLIENT_KEY", "alone.pem"},
      {"OTEL_TRACES_EXPORTER", "zipkin"},
      {"OTEL_TRACES_SAMPLER", "sometimes"},
      {"OTEL_BSP_SCHEDULE_DELAY", "-1"},
      {"OTEL_RESOURCE_ATTRIBUTES", "nothing"}};
  for (const auto& [name, value] : wrong) {
    Variables variables = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"}};
    variables[name] = value;
    const auto read = Read(variables);
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(Message(read.status()), HasSubstr(name));
  }
  for (const char* headers : {"a b=1", "x-bin=1", "grpc-x=1", "x=%0a", "x"}) {
    const auto read = Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"},
                            {"OTEL_EXPORTER_OTLP_HEADERS", headers}});
    EXPECT_THAT(Message(read.status()), HasSubstr("OTLP_HEADERS")) << headers;
  }
}

SamplerOptions SamplerOf(const std::string& name, const std::string& argument) {
  return Made({{"OTEL_TRACES_SAMPLER", name},
               {"OTEL_TRACES_SAMPLER_ARG", argument}})
      .sampler;
}

// A parent whose trace id's last half is `bits`.
std::string ParentOf(const std::string& bits, bool sampled) {
  return "00-0af7651916cd43dd" + bits + "-b7ad6b7169203331-0" +
         (sampled ? "1" : "0");
}

TEST(OtlpSamplerTest, AParentDecidesIfItIsAsked) {
  const std::string yes = ParentOf("0000000000000001", true);
  const std::string no = ParentOf("0000000000000001", false);
  for (const char* name : {"parentbased_always_on", "parentbased_always_off",
                           "parentbased_traceidratio"}) {
    EXPECT_TRUE(IsSampled(SamplerOf(name, "0"), yes)) << name;
    EXPECT_FALSE(IsSampled(SamplerOf(name, "1"), no)) << name;
  }
  EXPECT_TRUE(IsSampled(SamplerOptions(), "")) << "the default";
  EXPECT_FALSE(IsSampled(SamplerOptions(), no)) << "the default";
  EXPECT_TRUE(IsSampled(SamplerOf("always_on", ""), no));
  EXPECT_FALSE(IsSampled(SamplerOf("always_off", ""), yes));
  EXPECT_FALSE(IsSampled(SamplerOf("parentbased_always_off", ""), ""));
}

TEST(OtlpSamplerTest, ARatioIsOfTheTraceIdOrDrawn) {
  const SamplerOptions quarter = SamplerOf("traceidratio", "0.25");
  EXPECT_TRUE(IsSampled(quarter, ParentOf("3ffffffffffff000", false)));
  EXPECT_FALSE(IsSampled(quarter, ParentOf("4000000000000000", true)));
  int taken = 0;
  for (int i = 0; i < 4000; ++i) taken += IsSampled(quarter, "") ? 1 : 0;
  // Ten standard deviations of a binomial distribution.
  EXPECT_NEAR(taken, 1000, 274);
}

TEST(OtlpSamplerTest, AParentIsTakenApart) {
  const auto parent =
      ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(parent->trace_id,
            "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c");
  EXPECT_EQ(parent->span_id, "\xb7\xad\x6b\x71\x69\x20\x33\x31");
  EXPECT_TRUE(parent->sampled);
  EXPECT_FALSE(ParseParent("").has_value());
}

}  // namespace
}  // namespace sluice::otlp
