#include "common/dialects/responses/answer.h"

#include <optional>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/dialects/responses/custom_input.h"
#include "common/http/sse.h"
#include "common/serving/answer_start.h"
#include "common/serving/block_format.h"
#include "common/serving/numbers.h"

namespace sluice::responses {
namespace {

using Kind = serving::AnswerBlock::Kind;

constexpr std::string_view kIdPrefix = "resp_";

Json UsageJson(const serving::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details",
           {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens.value_or(0)}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

class ResponseFormat : public serving::BlockFormat {
 public:
  ResponseFormat(const serving::ModelText& text,
                 const serving::AnswerInfo& info, AnswerTerms terms)
      : BlockFormat(info),
        text_(text),
        terms_(std::move(terms)),
        id_(info.id),
        model_(info.model),
        created_(info.created) {}

 protected:
  using Block = serving::AnswerBlock;

  Steps Opening(const serving::Usage&) override {
    const Json response = Response("in_progress", Json::array());
    return {Made("response.created", {{"response", response}}),
            Made("response.in_progress", {{"response", response}})};
  }

  Step Silence() override { return Made("keepalive", Json::object()); }

  Steps Opened(const Block& block) override {
    input_ = {};
    Json item = Item(block, "in_progress");
    Steps steps = {
        Made("response.output_item.added",
             {{"output_index", block.index}, {"item", std::move(item)}})};
    if (block.kind == Kind::kCall) return steps;
    steps.push_back(Made(TellsSummary(block)
                             ? "response.reasoning_summary_part.added"
                             : "response.content_part.added",
                         At(block, {{"part", Part(block, "", {})}})));
    return steps;
  }

  Step Piece(const Block& block, std::string_view piece,
             std::span<const TokenResult> logprobs) override {
    if (IsCustom(block)) {
      const std::string told = input_.Next(block.text, piece.size());
      if (told.empty()) return {};
      return Made(Cat(Prefix(block), ".delta"), At(block, {{"delta", told}}));
    }
    Json members{{"delta", piece}};
    if (block.kind == Kind::kText) {
      members["logprobs"] = serving::LogprobEntries(text_, logprobs);
    }
    return Made(Cat(Prefix(block), ".delta"), At(block, std::move(members)));
  }

  Steps Closed(const Block& block) override {
    Steps steps;
    const std::string done = Cat(Prefix(block), ".done");
    if (block.kind == Kind::kCall) {
      const bool is_custom = IsCustom(block);
      Json members = is_custom ? Json{{"input", InputOf(block)}}
                               : Json{{"name", NameOf(block).name},
                                      {"arguments", block.text}};
      steps.push_back(Made(done, At(block, std::move(members))));
    } else {
      Json members{{"text", block.text}};
      if (block.kind == Kind::kText) {
        members["logprobs"] = serving::LogprobEntries(text_, block.logprobs);
      }
      steps.push_back(Made(done, At(block, std::move(members))));
      steps.push_back(
          Made(TellsSummary(block) ? "response.reasoning_summary_part.done"
                                   : "response.content_part.done",
               At(block, {{"part", Part(block, block.text, block.logprobs)}})));
    }
    steps.push_back(Made("response.output_item.done",
                         {{"output_index", block.index},
                          {"item", Item(block, StatusOf(block))}}));
    return steps;
  }

  Steps Closing(const std::vector<Block>& blocks, const serving::AnswerEnd& end,
                const serving::Usage& usage) override {
    Json whole = WholeAnswer(blocks, end, usage);
    const std::string name =
        Cat("response.", whole["status"].get<std::string>());
    return {Made(name, {{"response", std::move(whole)}})};
  }

  Steps Failing(const http::ApiError& error,
                const std::vector<Block>& blocks) override {
    Json response = Response("failed", Output(blocks));
    response["error"] = ResponseError(error);
    return {Made("response.failed", {{"response", std::move(response)}})};
  }

  Json WholeAnswer(const std::vector<Block>& blocks,
                   const serving::AnswerEnd& end,
                   const serving::Usage& usage) override {
    const bool is_cut = end.reason == FinishReason::kLength;
    Json response =
        Response(is_cut ? "incomplete" : "completed", Output(blocks));
    if (is_cut) {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    } else {
      response["completed_at"] = serving::UnixSeconds();
    }
    response["usage"] = UsageJson(usage);
    if (terms_.keep != nullptr && !terms_.keep(id_, response)) {
      response["store"] = false;
    }
    return response;
  }

  void SetNumber(uint64_t number, Json& event) override {
    event["sequence_number"] = number;
  }

 private:
  static Step Made(std::string name, Json members) {
    Json event = MakeObject(members.size() + 2);
    AppendMember(event, "type", name);
    AppendMember(event, "sequence_number", 0);
    for (auto& [key, value] : members.items()) {
      AppendMember(event, key, std::move(value));
    }
    return {std::move(name), std::move(event)};
  }

  // Adds where in the answer `members` are.
  Json At(const Block& block, Json members) const {
    Json out{{"item_id", ItemId(block)}, {"output_index", block.index}};
    if (block.kind != Kind::kCall) {
      out[TellsSummary(block) ? "summary_index" : "content_index"] = 0;
    }
    out.update(members);
    return out;
  }

  const ToolName& NameOf(const Block& block) const {
    static const auto* const unknown = new ToolName;
    const auto found = terms_.names.find(block.name);
    return found == terms_.names.end() ? *unknown : found->second;
  }
  bool IsCustom(const Block& block) const {
    return block.kind == Kind::kCall && NameOf(block).is_custom;
  }
  bool TellsSummary(const Block& block) const {
    return block.kind == Kind::kReasoning && terms_.tells_summary;
  }

  // What the names of a block's deltas begin with.
  std::string_view Prefix(const Block& block) const {
    switch (block.kind) {
      case Kind::kReasoning:
        return terms_.tells_summary ? "response.reasoning_summary_text"
                                    : "response.reasoning_text";
      case Kind::kText:
        return "response.output_text";
      case Kind::kCall:
        break;
    }
    return IsCustom(block) ? "response.custom_tool_call_input"
                           : "response.function_call_arguments";
  }

  std::string ItemId(const Block& block) const {
    const char* prefix = "msg_";
    if (block.kind == Kind::kReasoning) prefix = "rs_";
    if (block.kind == Kind::kCall) prefix = IsCustom(block) ? "ctc_" : "fc_";
    return Cat(prefix, id_.substr(kIdPrefix.size()), "_", block.index);
  }

  static const char* StatusOf(const Block& block) {
    return block.is_cut ? "incomplete" : "completed";
  }

  static std::string InputOf(const Block& block) {
    CustomInput input;
    return input.Next(block.text, block.text.size());
  }

  Json Part(const Block& block, std::string_view text,
            std::span<const TokenResult> logprobs) const {
    if (block.kind == Kind::kReasoning) {
      return {{"type", TellsSummary(block) ? "summary_text" : "reasoning_text"},
              {"text", text}};
    }
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", serving::LogprobEntries(text_, logprobs)}};
  }

  // Returns a block as an item; of one in progress no text.
  Json Item(const Block& block, const char* status) const {
    const bool is_begun = std::string_view(status) == "in_progress";
    Json parts = Json::array();
    if (!is_begun && block.kind != Kind::kCall) {
      parts.push_back(Part(block, block.text, block.logprobs));
    }
    switch (block.kind) {
      case Kind::kReasoning: {
        Json item{{"type", "reasoning"},
                  {"id", ItemId(block)},
                  {"summary", Json::array()},
                  {"content", Json::array()},
                  {"status", status}};
        item[terms_.tells_summary ? "summary" : "content"] = std::move(parts);
        return item;
      }
      case Kind::kText:
        return {{"type", "message"},
                {"id", ItemId(block)},
                {"role", "assistant"},
                {"status", status},
                {"content", std::move(parts)}};
      case Kind::kCall:
        break;
    }
    const ToolName& named = NameOf(block);
    const bool is_known = !named.name.empty();
    Json item{{"type", named.is_custom ? "custom_tool_call" : "function_call"},
              {"id", ItemId(block)},
              {"call_id", block.id},
              {"name", is_known ? named.name : block.name}};
    if (!named.name_space.empty()) item["namespace"] = named.name_space;
    if (named.is_custom) {
      item["input"] = is_begun ? "" : InputOf(block);
    } else {
      item["arguments"] = is_begun ? "" : block.text;
    }
    item["status"] = status;
    return item;
  }

  Json Output(const std::vector<Block>& blocks) const {
    Json output = Json::array();
    for (const Block& block : blocks) {
      output.push_back(Item(block, StatusOf(block)));
    }
    return output;
  }

  Json Response(const char* status, Json output) const {
    Json response{{"id", id_},
                  {"object", "response"},
                  {"created_at", created_},
                  {"status", status},
                  {"background", false},
                  {"completed_at", nullptr},
                  {"error", nullptr},
                  {"incomplete_details", nullptr},
                  {"model", model_},
                  {"output", std::move(output)},
                  {"store", terms_.keep != nullptr},
                  {"usage", nullptr}};
    response.update(terms_.echo);
    return response;
  }

  const serving::ModelText& text_;
  const AnswerTerms terms_;
  const std::string id_;
  const std::string model_;
  const int64_t created_;
  CustomInput input_;  // of the open block
};

}  // namespace

std::unique_ptr<serving::AnswerFormat> MakeResponseFormat(
    const serving::ModelText& text, const serving::AnswerInfo& info,
    AnswerTerms terms) {
  return std::make_unique<ResponseFormat>(text, info, std::move(terms));
}

Json ResponseError(const http::ApiError& error) {
  std::string message = error.message;
  std::string code = "server_error";
  if (error.http_status == 429) {
    code = "rate_limit_exceeded";
    message += Cat(". Please try again in ", error.retry_after_seconds, "s.");
  } else if (error.code == "context_length_exceeded") {
    code = *error.code;
  } else if (error.http_status < 500) {
    code = "invalid_prompt";
  }
  return {{"code", std::move(code)}, {"message", std::move(message)}};
}

std::string StreamError(const http::ApiError& error, const http::HttpRequest&) {
  const Json told = ResponseError(error);
  return http::SseEvent(
      DumpJson({{"type", "error"},
                {"sequence_number", 0},
                {"code", told["code"]},
                {"message", told["message"]},
                {"param", error.param ? Json(*error.param) : Json()}}),
      "", "error");
}

}  // namespace sluice::responses
