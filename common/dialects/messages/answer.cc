#include "common/dialects/messages/answer.h"

#include <utility>

#include "common/base/json.h"
#include "common/dialects/messages/errors.h"
#include "common/dialects/messages/turns.h"

namespace sluice::messages {
namespace {

using Kind = serving::AnswerBlock::Kind;

Json UsageValue(const serving::Usage& usage) {
  Json out = {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", usage.cached_tokens},
              {"output_tokens", usage.completion_tokens}};
  if (usage.reasoning_tokens) {
    out["output_tokens_details"] = {
        {"thinking_tokens", *usage.reasoning_tokens}};
  }
  return out;
}

// Returns a block without what its deltas tell.
Json EmptyBlock(const serving::AnswerBlock& block) {
  switch (block.kind) {
    case Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case Kind::kText:
      return {{"type", "text"}, {"text", ""}};
    case Kind::kCall:
      break;
  }
  return {{"type", "tool_use"},
          {"id", block.id},
          {"name", block.name},
          {"input", Json::object()}};
}

// Returns a call's arguments as an object. A text that is no object, such as a
// text that the limit cut, becomes {"arguments": text}.
Json InputOf(const std::string& arguments) {
  if (arguments.empty()) return Json::object();
  auto parsed = ParseJson(arguments);
  if (parsed.ok() && parsed->is_object()) return *std::move(parsed);
  return {{"arguments", arguments}};
}

}  // namespace

MessageFormat::MessageFormat(const serving::AnswerInfo& info, Options options)
    : BlockFormat(info),
      id_(info.id),
      model_(info.model),
      options_(std::move(options)) {}

Json MessageFormat::Message(Json content, const serving::Usage& usage) const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", UsageValue(usage)}};
}

std::string MessageFormat::Signature(const serving::AnswerBlock& block) const {
  std::string signature(kSignature);
  if (options_.omits_thinking) signature += block.text;
  return signature;
}

void MessageFormat::AddStop(const serving::AnswerEnd& end, Json& out) const {
  const auto* stop = end.stop ? std::get_if<std::string>(&*end.stop) : nullptr;
  Json& reason = out["stop_reason"] = "end_turn";
  Json sequence;
  if (end.reason == FinishReason::kLength) {
    reason = limit_is_context_ ? "model_context_window_exceeded" : "max_tokens";
  } else if (end.called) {
    reason = "tool_use";
  } else if (stop != nullptr) {
    reason = "stop_sequence";
    sequence = *stop;
  }
  out["stop_sequence"] = std::move(sequence);
}

MessageFormat::Steps MessageFormat::Opening(const serving::Usage& usage) {
  return {{"message_start",
           {{"type", "message_start"},
            {"message", Message(Json::array(), usage)}}}};
}

MessageFormat::Step MessageFormat::Silence() {
  return {"ping", {{"type", "ping"}}};
}

MessageFormat::Steps MessageFormat::Opened(const serving::AnswerBlock& block) {
  return {{"content_block_start",
           {{"type", "content_block_start"},
            {"index", block.index},
            {"content_block", EmptyBlock(block)}}}};
}

MessageFormat::Step MessageFormat::Piece(const serving::AnswerBlock& block,
                                         std::string_view piece,
                                         std::span<const TokenResult>) {
  Json delta;
  switch (block.kind) {
    case Kind::kReasoning:
      if (options_.omits_thinking) return {};
      delta = {{"type", "thinking_delta"}, {"thinking", piece}};
      break;
    case Kind::kText:
      delta = {{"type", "text_delta"}, {"text", piece}};
      break;
    case Kind::kCall:
      delta = {{"type", "input_json_delta"}, {"partial_json", piece}};
  }
  return {"content_block_delta",
          {{"type", "content_block_delta"},
           {"index", block.index},
           {"delta", std::move(delta)}}};
}

MessageFormat::Steps MessageFormat::Closed(const serving::AnswerBlock& block) {
  Steps steps;
  if (block.kind == Kind::kReasoning) {
    steps.push_back(
        {"content_block_delta",
         {{"type", "content_block_delta"},
          {"index", block.index},
          {"delta",
           {{"type", "signature_delta"}, {"signature", Signature(block)}}}}});
  }
  steps.push_back({"content_block_stop",
                   {{"type", "content_block_stop"}, {"index", block.index}}});
  return steps;
}

MessageFormat::Steps MessageFormat::Closing(
    const std::vector<serving::AnswerBlock>&, const serving::AnswerEnd& end,
    const serving::Usage& usage) {
  Json delta = Json::object();
  AddStop(end, delta);
  return {{"message_delta",
           {{"type", "message_delta"},
            {"delta", std::move(delta)},
            {"usage", UsageValue(usage)}}},
          {"message_stop", {{"type", "message_stop"}}}};
}

MessageFormat::Steps MessageFormat::Failing(
    const http::ApiError& error, const std::vector<serving::AnswerBlock>&) {
  return {{"error", ErrorValue(error, options_.request_id)}};
}

Json MessageFormat::BlockValue(const serving::AnswerBlock& block) const {
  Json out = EmptyBlock(block);
  switch (block.kind) {
    case Kind::kReasoning:
      if (!options_.omits_thinking) out["thinking"] = block.text;
      out["signature"] = Signature(block);
      break;
    case Kind::kText:
      out["text"] = block.text;
      break;
    case Kind::kCall:
      out["input"] = InputOf(block.text);
  }
  return out;
}

Json MessageFormat::WholeAnswer(const std::vector<serving::AnswerBlock>& blocks,
                                const serving::AnswerEnd& end,
                                const serving::Usage& usage) {
  Json content = Json::array();
  for (const serving::AnswerBlock& block : blocks) {
    content.push_back(BlockValue(block));
  }
  Json message = Message(std::move(content), usage);
  AddStop(end, message);
  return message;
}

}  // namespace sluice::messages
