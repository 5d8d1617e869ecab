#ifndef SLUICE_TESTS_DIALECTS_OLLAMA_OLLAMA_FIXTURE_H_
#define SLUICE_TESTS_DIALECTS_OLLAMA_OLLAMA_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/http/router.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::ollama {

// The dialect's routes, over the fake model and an engine that the test plays.
class OllamaTest : public ::testing::Test {
 protected:
  OllamaTest()
      : context_{model_, engine_.loop(), metrics_, nullptr,
                 [] { return serving::Readiness{true}; }} {
    gateway::AddDialects(router_, context_);
    gateway::AddUnbuiltHandlers(router_);
  }
  void TearDown() override { engine_.EndAll(); }

  // The model reasons between <think> and </think>, and calls as Hermes.
  void SetParsed() {
    auto text = std::make_unique<serving::FakeText>();
    text->format = {ToolFormat::kHermes, ReasoningFormat::kThink};
    text->new_parser = [format = text->format](const OutputRequest& request) {
      return NewMarkupParser(format, request,
                             std::make_shared<const ToolTypes>(request.tools));
    };
    model_.text = std::move(text);
  }

  std::shared_ptr<http::FakeExchange> Ask(std::string_view path,
                                          std::string body,
                                          std::string_view method = "POST") {
    auto exchange = http::Post(path, std::move(body));
    exchange->request().method = method;
    exchange->format = gateway::FormatOf(exchange->request());
    router_.Route(exchange);
    return exchange;
  }

  // The lines of a stream, each whole, without their times; `created_at` is
  // checked. Durations that are not 0 become 1.
  static std::vector<std::string> Lines(const http::FakeExchange& exchange) {
    EXPECT_EQ(exchange.responses.at(0).content_type, "application/x-ndjson");
    std::vector<std::string> lines;
    for (const std::string& chunk : exchange.chunks) {
      EXPECT_TRUE(chunk.ends_with("\n")) << chunk;
      std::string_view rest = chunk;
      while (!rest.empty()) {
        const size_t end = rest.find('\n');
        lines.push_back(WithoutTimes(*ParseJson(rest.substr(0, end))));
        rest.remove_prefix(end + 1);
      }
    }
    return lines;
  }
  static std::string WithoutTimes(Json line) {
    if (line.contains("created_at")) {
      const std::string time = line["created_at"];
      EXPECT_EQ(time.size(),
                std::string("2026-12-01T01:15:46.123456789Z").size());
      EXPECT_EQ(time.back(), 'Z');
      line.erase("created_at");
    }
    for (const char* name : {"total_duration", "load_duration",
                             "prompt_eval_duration", "eval_duration"}) {
      if (!line.contains(name)) continue;
      EXPECT_GE(line[name].get<int64_t>(), 0) << name;
      if (line[name] > 0) line[name] = 1;
    }
    return DumpJson(line);
  }

  serving::ServedModel model_ = gateway::FakeModel();
  gateway::ScriptedEngine engine_;
  gateway::GatewayMetrics metrics_{{"fake"}};
  serving::ServingContext context_;
  http::Router router_;
};

}  // namespace sluice::ollama

#endif  // SLUICE_TESTS_DIALECTS_OLLAMA_OLLAMA_FIXTURE_H_
