#include <utility>

#include "common/base/json.h"
#include "common/dialects/openai/common_fields.h"
#include "common/dialects/openai/handlers.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "common/text/utf8.h"

namespace sluice::openai {
namespace {

// Returns {"id", "piece"}: a text, or the bytes of a part of a character.
Json PieceJson(const serving::ModelText& text, TokenId token) {
  const std::string bytes = text.TokenBytes(token);
  if (FirstInvalidUtf8(bytes) == bytes.npos) {
    return {{"id", token}, {"piece", bytes}};
  }
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return {{"id", token}, {"piece", std::move(list)}};
}

// INVALID_ARGUMENT (request_too_large) for a chat whose text is too long.
Status OfRendering(const Status& status) {
  if (status.code() != StatusCode::kOutOfRange) return status;
  return serving::WithCode(
      serving::FieldError("messages", Message(status),
                          " (the server's --max-tokenize-bytes)"),
      "request_too_large");
}

StatusOr<http::HttpResponse> Tokenize(const serving::ServingContext& context,
                                      const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(const TokenizeRequest request,
                          ParseTokenizeRequest(http.body));
  SLUICE_RETURN_IF_ERROR(
      serving::CheckModel(context.model, "model", request.model));
  http::HttpResponse response;
  SLUICE_ASSIGN_OR_RETURN(
      response.headers,
      serving::CheckTemplateArguments(context, kChatNames.template_arguments,
                                      request.chat_template.kwargs,
                                      request.argument_names));
  const serving::ModelText& text = *context.model.text;
  const auto* prompt = std::get_if<std::string>(&request.input);
  const size_t limit = serving::MaxTokenizeBytes(context);
  RenderOptions options = request.chat_template;
  options.max_bytes = limit;
  SLUICE_RETURN_IF_ERROR(
      prompt != nullptr
          ? serving::CheckText(request.prompt_field, prompt->size(), limit)
          : serving::CheckHistory(kChatNames, std::get<Json>(request.input),
                                  request.tools, context.limits));
  auto tokens = prompt == nullptr
                    ? text.EncodeChat(std::get<Json>(request.input),
                                      request.tools, std::move(options))
                : request.parses_special
                    ? text.Encode(*prompt, request.add_special_tokens)
                    : text.EncodePlain(*prompt);
  if (!tokens.ok()) return OfRendering(tokens.status());
  Json strings = nullptr;
  if (request.return_token_strs) {
    strings = Json::array();
    for (const TokenId token : *tokens)
      strings.push_back(text.TokenText(token));
  }
  Json shown = Json::array();
  for (const TokenId token : *tokens) {
    shown.push_back(request.with_pieces ? PieceJson(text, token) : Json(token));
  }
  response.body = DumpJson({{"count", tokens->size()},
                            {"max_model_len", serving::MaxContext(context)},
                            {"tokens", std::move(shown)},
                            {"token_strs", std::move(strings)}});
  return response;
}

// llama.cpp's: the chat's prompt as a text, for /completion, which puts BOS in
// front of it.
StatusOr<http::HttpResponse> ApplyTemplate(
    const serving::ServingContext& context, const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(const TokenizeRequest request,
                          ParseTokenizeRequest(http.body));
  SLUICE_RETURN_IF_ERROR(
      serving::CheckModel(context.model, "model", request.model));
  const Json* messages = std::get_if<Json>(&request.input);
  if (messages == nullptr) {
    return serving::FieldError("messages", "is missing");
  }
  http::HttpResponse response;
  SLUICE_ASSIGN_OR_RETURN(
      response.headers,
      serving::CheckTemplateArguments(context, kChatNames.template_arguments,
                                      request.chat_template.kwargs,
                                      request.argument_names));
  SLUICE_RETURN_IF_ERROR(serving::CheckHistory(kChatNames, *messages,
                                               request.tools, context.limits));
  const serving::ModelText& text = *context.model.text;
  RenderOptions options = request.chat_template;
  options.max_bytes = serving::MaxTokenizeBytes(context);
  auto prompt = text.RenderChat(*messages, request.tools, std::move(options));
  if (!prompt.ok()) return OfRendering(prompt.status());
  const serving::TokenizerInfo info = text.info();
  const bool begins =
      !info.bos_token.empty() && prompt->starts_with(info.bos_token);
  if (info.adds_bos && begins) prompt->erase(0, info.bos_token.size());
  response.body = DumpJson({{"prompt", *prompt}});
  return response;
}

// The tokenizer's facts for evaluation harnesses, under vLLM's names.
http::HttpResponse TokenizerInfoResponse(
    const serving::ServingContext& context) {
  const serving::TokenizerInfo info = context.model.text->info();
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  http::HttpResponse response;
  response.body =
      DumpJson({{"bos_token", text_or_null(info.bos_token)},
                {"eos_token", text_or_null(info.eos_token)},
                {"pad_token", text_or_null(info.pad_token)},
                {"unk_token", text_or_null(info.unk_token)},
                {"add_bos_token", info.adds_bos},
                {"model_max_length", serving::MaxContext(context)},
                {"chat_template", text_or_null(info.chat_template)}});
  return response;
}

// INVALID_ARGUMENT if the text of that many tokens may be above the limit.
Status CheckTokens(const serving::ServingContext& context, size_t tokens) {
  // For a tokenizer without a bound: longer than most tokens.
  constexpr size_t kLongToken = 256;
  const size_t longest = context.model.text->max_bytes_per_token();
  const size_t bytes = tokens * (longest > 0 ? longest : kLongToken);
  if (bytes <= context.limits.answer_bytes) return OkStatus();
  return serving::WithCode(
      serving::FieldError("tokens", "the text of ", tokens, " tokens may take ",
                          bytes, " bytes, limit ", context.limits.answer_bytes,
                          " (the server's --max-answer-bytes)"),
      "request_too_large");
}

StatusOr<http::HttpResponse> Detokenize(const serving::ServingContext& context,
                                        const http::HttpRequest& http) {
  SLUICE_ASSIGN_OR_RETURN(
      const DetokenizeRequest request,
      ParseDetokenizeRequest(http.body, context.model.vocab_size));
  SLUICE_RETURN_IF_ERROR(
      serving::CheckModel(context.model, "model", request.model));
  SLUICE_RETURN_IF_ERROR(CheckTokens(context, request.tokens.size()));
  SLUICE_ASSIGN_OR_RETURN(
      const std::string prompt,
      context.model.text->Decode(request.tokens, /*skip_special=*/false));
  http::HttpResponse response;
  // vLLM's name, and llama.cpp's.
  response.body = DumpJson({{"prompt", prompt}, {"content", prompt}});
  return response;
}

}  // namespace

void AddTokenizeHandlers(http::Router& router,
                         const serving::ServingContext& context) {
  router.Add("POST", "/tokenize",
             [context](std::shared_ptr<http::Exchange> on) {
               serving::AnswerOffLoop(context, Tokenize, std::move(on));
             });
  router.Add("POST", "/apply-template",
             [context](std::shared_ptr<http::Exchange> on) {
               serving::AnswerOffLoop(context, ApplyTemplate, std::move(on));
             });
  router.Add("GET", "/tokenizer_info",
             [context](std::shared_ptr<http::Exchange> on) {
               on->Send(TokenizerInfoResponse(context));
             });
  router.Add("POST", "/detokenize",
             [context](std::shared_ptr<http::Exchange> on) {
               serving::AnswerOffLoop(context, Detokenize, std::move(on));
             });
}

}  // namespace sluice::openai
