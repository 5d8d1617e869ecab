// The paths below /api that tell of the model, and the errors of all of them.
#include <gmock/gmock.h>

#include "common/dialects/ollama/handlers.h"
#include "tests/dialects/ollama/ollama_fixture.h"

namespace sluice::ollama {
namespace {

using ::testing::HasSubstr;

TEST_F(OllamaTest, TellsTheVersion) {
  const Json body = Ask("/api/version", "", "GET")->Body();
  EXPECT_THAT(body["version"].get<std::string>(), HasSubstr("0.40."));
  EXPECT_THAT(body["server"].get<std::string>(), HasSubstr("sluice "));
}

TEST_F(OllamaTest, ListsEachNameOfTheModel) {
  model_.aliases = {"org/other:8b"};
  model_.created = 1'700'000'000;
  model_.config = R"({"model_type":"llama"})";
  const Json models = Ask("/api/tags", "", "GET")->Body()["models"];
  ASSERT_EQ(models.size(), 2u);
  const Json& entry = models[0];
  EXPECT_EQ(entry["name"], "fake:latest");
  EXPECT_EQ(entry["model"], "fake:latest");
  EXPECT_EQ(models[1]["name"], "org/other:8b");
  EXPECT_EQ(entry["modified_at"], "2023-11-14T22:13:20.000000000Z");
  EXPECT_EQ(entry["digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(DumpJson(entry["details"]),
            R"({"parent_model":"","format":"safetensors","family":"llama",)"
            R"("families":["llama"],"parameter_size":"",)"
            R"("quantization_level":""})");
  const Json running = Ask("/api/ps", "", "GET")->Body()["models"];
  EXPECT_EQ(running[1]["name"], "org/other:8b");
  EXPECT_EQ(running[0]["context_length"], 4096);
  EXPECT_EQ(running[0]["digest"], entry["digest"]);
}

TEST_F(OllamaTest, ShowsTheModel) {
  const auto show = [this] {
    return Ask("/api/show", R"({"name":"fake"})")->Body();
  };
  Json body = show();
  EXPECT_EQ(DumpJson(body["capabilities"]), R"(["completion"])");
  EXPECT_EQ(body["template"], "{{ messages }}");
  EXPECT_EQ(body["model_info"]["general.architecture"], "unknown");
  model_.config = R"({"model_type":"qwen3"})";
  model_.defaults.temperature = 0.5f;
  model_.defaults.top_k = 20;
  SetParsed();
  body = show();
  EXPECT_EQ(DumpJson(body["capabilities"]),
            R"(["completion","tools","thinking"])");
  EXPECT_EQ(body["model_info"]["qwen3.context_length"], 4096);
  EXPECT_EQ(body["parameters"], "temperature 0.5\ntop_k 20");
}

TEST_F(OllamaTest, ANameMayHaveNoTag) {
  model_.name = "org/fake:8b";
  model_.aliases = {"plain"};
  const auto status = [this](std::string_view name) {
    return Ask("/api/show", Cat(R"({"model":")", name, "\"}"))
        ->responses.at(0)
        .status;
  };
  for (const char* name : {"org/fake:8b", "org/fake", "org/fake:latest",
                           "plain", "plain:latest"}) {
    EXPECT_EQ(status(name), 200) << name;
  }
  for (const char* name :
       {"org/fake:4b", "fake", "plain:8b", "org/fake:", "plai", "org:latest"}) {
    EXPECT_EQ(status(name), 404) << name;
  }
  model_.any_name = true;
  EXPECT_EQ(status("gpt-oss:20b"), 200);
}

TEST_F(OllamaTest, ItsOwnModelIsThereToPull) {
  const auto stream = Ask("/api/pull", R"({"model":"fake"})");
  EXPECT_EQ(stream->responses.at(0).content_type, "application/x-ndjson");
  EXPECT_EQ(stream->responses.at(0).body, "{\"status\":\"success\"}\n");
  const auto whole = Ask("/api/pull", R"({"model":"fake","stream":false})");
  EXPECT_EQ(whole->responses.at(0).content_type, "application/json");
  EXPECT_EQ(whole->responses.at(0).body, R"({"status":"success"})");
  const auto other = Ask("/api/pull", R"({"model":"gpt-oss:20b"})");
  EXPECT_EQ(other->responses.at(0).status, 404);
  EXPECT_EQ(other->Body()["error"],
            "model 'gpt-oss:20b' not found: this server downloads no model; "
            "it serves 'fake'");
}

TEST_F(OllamaTest, AnotherModelIsNotFound) {
  for (const char* path : {"/api/chat", "/api/generate", "/api/show"}) {
    const auto on = Ask(path, R"({"model":"x","prompt":"p","messages":[)"
                              R"({"role":"user","content":"c"}]})");
    EXPECT_EQ(on->responses.at(0).status, 404) << path;
    EXPECT_EQ(on->responses.at(0).body, R"({"error":"model 'x' not found"})");
    EXPECT_EQ(Ask(path, "{}")->responses.at(0).body,
              R"({"error":"model: is missing"})");
  }
}

TEST_F(OllamaTest, WhatIsNotServedIsRefusedByName) {
  for (const auto& [method, path] :
       std::vector<std::pair<std::string, std::string>>{
           {"POST", "/api/push"},
           {"POST", "/api/create"},
           {"POST", "/api/copy"},
           {"DELETE", "/api/delete"},
           {"POST", "/api/blobs/sha256:00"},
           {"HEAD", "/api/blobs/sha256:00"}}) {
    const auto on = Ask(path, R"({"model":"fake"})", method);
    EXPECT_EQ(on->responses.at(0).status, 404) << path;
    EXPECT_THAT(on->Body()["error"].get<std::string>(),
                HasSubstr(path.substr(0, 10)));
  }
}

TEST_F(OllamaTest, AModelWithoutPoolingHasNoEmbeddings) {
  for (const char* path : {"/api/embed", "/api/embeddings"}) {
    const auto on = Ask(path, R"({"model":"fake","input":"a","prompt":"a"})");
    EXPECT_EQ(on->responses.at(0).status, 400) << path;
    EXPECT_THAT(on->Body()["error"].get<std::string>(),
                HasSubstr("has no embeddings"));
  }
  EXPECT_THAT(Ask("/api/embed", R"({"model":"fake","input":[1]})")
                  ->Body()["error"]
                  .get<std::string>(),
              HasSubstr("input: must have strings alone"));
}

TEST_F(OllamaTest, StrictPathsRefuseFieldsThatAreNotKnown) {
  context_.strict_fields = true;
  http::Router strict;
  gateway::AddDialects(strict, context_);
  for (const char* path :
       {"/api/embed", "/api/embeddings", "/api/show", "/api/pull"}) {
    const auto on = http::Post(path, R"({"model":"fake","wich":1})");
    on->format = gateway::FormatOf(on->request());
    strict.Route(on);
    EXPECT_EQ(on->responses.at(0).status, 400) << path;
    EXPECT_EQ(on->Body()["error"],
              "wich: field 2 of the body is not known here");
  }
  const auto pulled = http::Post(
      "/api/pull", R"({"name":"fake","insecure":true,"stream":false})");
  strict.Route(pulled);
  EXPECT_EQ(pulled->Body(), Json({{"status", "success"}}));
}

// What the server itself refuses has the dialect's shape, by the path alone.
TEST_F(OllamaTest, ErrorsAreTexts) {
  EXPECT_EQ(Ask("/api/none", "")->responses.at(0).body,
            R"({"error":"There is no /api/none here"})");
  const auto wrong = Ask("/api/chat", "", "GET");
  EXPECT_EQ(wrong->responses.at(0).status, 405);
  EXPECT_EQ(wrong->responses.at(0).body,
            R"({"error":"/api/chat takes POST, OPTIONS"})");
  const auto format = kDialect.format;
  http::HttpRequest request;
  for (const int status : {401, 413, 429, 503}) {
    const auto response =
        format.error({.http_status = status, .message = "so"}, request);
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.body, R"({"error":"so"})");
    const bool again = std::any_of(
        response.headers.begin(), response.headers.end(),
        [](const auto& header) { return header.first == "Retry-After"; });
    EXPECT_EQ(again, status == 429 || status == 503);
  }
  EXPECT_EQ(format.stream_error({.message = "so"}, request),
            "{\"error\":\"so\"}\n");
  const auto openai = Ask("/v1/none", "");
  EXPECT_THAT(openai->responses.at(0).body, HasSubstr(R"("type":)"));
}

TEST_F(OllamaTest, OnlyABodyThatAsksForNoFormMayBePlain) {
  for (const char* body :
       {"", "{}", R"({"model":"m","messages":[{"tools":1}],"options":{}})",
        R"({"prompt":"x","format":"","tools":[]})", R"({"format":null})"}) {
    EXPECT_TRUE(IsPlainBody(body)) << body;
  }
  for (const char* body : {R"({"format":"json"})", R"({"format":{}})",
                           R"({"tools":[{}]})", R"({"later":1})", "["}) {
    EXPECT_FALSE(IsPlainBody(body)) << body;
  }
}

}  // namespace
}  // namespace sluice::ollama
