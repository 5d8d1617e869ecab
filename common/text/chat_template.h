#ifndef SLUICE_COMMON_TEXT_CHAT_TEMPLATE_H_
#define SLUICE_COMMON_TEXT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/text/jinja.h"
#include "common/text/special_marks.h"
#include "common/text/stand_ins.h"
#include "common/text/tokenizer.h"

namespace sluice {

struct RenderOptions {
  bool add_generation_prompt = true;
  // The prompt ends with the last message's content (without the spaces that
  // the template strips), so that the model continues the message, as in
  // transformers' apply_chat_template. Excludes add_generation_prompt.
  bool continue_final_message = false;
  // For ModelText::EncodeChat: adds BOS before the template's text.
  bool add_special_tokens = false;
  // OUT_OF_RANGE for a prompt of more bytes, before tokenizing.
  size_t max_bytes = std::numeric_limits<size_t>::max();
  Json kwargs = Json::object();  // chat_template_kwargs of the request
  StandIns stand_ins;            // in the messages
  // What strftime_now tells: "2025-06-28"; else this Unix time, in the local
  // zone; else now.
  std::optional<std::string> date;
  std::optional<int64_t> now;
  // Bounds the steps of a rendering: DEADLINE_EXCEEDED.
  std::optional<TimePoint> deadline;
};

// A model's chat template: messages to the prompt the model was trained on.
// Immutable after Load; any thread. Rendering is work: keep it off event
// loops for long conversations.
//
// The guard. Text of a request (contents, names, tool schemas, arguments)
// that spells a special token stays text, while the template sees the text as
// it is. How: the special tokens in the template's own literals (and in
// bos_token and so on) are marked by moving their characters to a private-use
// plane. What comes out marked is the template's. If no text of the request
// spells a special token, the one rendering of the marked template is the
// prompt. Else the template is rendered as it is, too, and a special token of
// that rendering counts only where the marked one shows it marked. Where a
// template puts a token together from parts ('<|' + role + '|>'), a rendering
// with the request's strings marked shows which bytes are not the request's.
// What is not proved is text; if nothing can be proved, the request is refused.
class ChatTemplate {
 public:
  // From chat_template.jinja, tokenizer_config.json or GGUF metadata of the
  // model at `model_path`. `tokenizer` is that model's and outlives this.
  // NOT_FOUND if the model has no chat template, INVALID_ARGUMENT if it does
  // not compile.
  static StatusOr<std::unique_ptr<ChatTemplate>> Load(
      const std::string& model_path, const Tokenizer& tokenizer);
  // From the text of a template.
  static StatusOr<std::unique_ptr<ChatTemplate>> Make(
      const std::string& source, const Tokenizer& tokenizer);

  // Returns the template's text.
  const std::string& source() const { return source_; }
  // Returns the text of the model's template for requests with tools; empty
  // without one.
  const std::string& tool_source() const { return tool_source_; }

  // Returns whether the template, or the one for requests with tools, reads the
  // variable `name` from outside, in any of its branches.
  bool Reads(std::string_view name) const { return reads_.contains(name); }

  // Returns the prompt's text. `messages`: an array of OpenAI messages;
  // arguments of tool calls may be JSON text. `tools`: an array, or null.
  // INVALID_ARGUMENT: messages of the wrong shape, or the template refused them
  // (in its own words); RESOURCE_EXHAUSTED: a limit, named.
  StatusOr<std::string> Render(Json messages, Json tools,
                               const RenderOptions& options) const;

  // Returns the prompt's token ids, with the guard above.
  StatusOr<std::vector<TokenId>> RenderIds(Json messages, Json tools,
                                           const RenderOptions& options) const;

 private:
  // One template, plain and with its special tokens marked in each plane.
  struct Variants {
    std::unique_ptr<JinjaTemplate> plain;
    std::unique_ptr<JinjaTemplate> marked[2];
    // The marked rendering of a made-up chat, without its marks, is the plain
    // one, and all its special tokens are marked.
    bool marks_prove_all = false;
  };
  // The input of a rendering.
  struct Request {
    Json messages;
    Json tools;
    bool add_generation_prompt = true;
    Json kwargs;
    int64_t now = 0;
    std::optional<TimePoint> deadline;
  };
  // A prompt before tokenizing, with the bytes that are control tokens.
  struct Guarded {
    std::string text;
    std::vector<ControlSpan> controls;
  };
  // By byte of a text; nullopt: unknown.
  using Marks = std::optional<std::vector<bool>>;
  // The parts that all renderings of a request share.
  struct Shared {
    JinjaVariables variables;
    // A plane without a character of the request; nullopt: none.
    std::optional<char32_t> free_plane;
    bool may_spell_specials =
        true;  // some text of the request spells a special token
  };

  explicit ChatTemplate(const Tokenizer& tokenizer);
  StatusOr<Variants> Compile(const std::string& source) const;
  // Learns the template's properties from made-up messages.
  void Probe();
  StatusOr<Request> Prepare(Json messages, Json tools,
                            const RenderOptions& options) const;
  const Variants& VariantsFor(const Request& request) const;
  // Returns the special tokens' names as variables, marked in `plane`; 0:
  // unmarked.
  std::string Names(char32_t plane) const;
  StatusOr<Shared> Share(const Request& request) const;
  // The plain rendering.
  StatusOr<std::string> RenderPlain(const Request& request,
                                    const Shared& shared) const;
  // Renders the marked template alone; nullopt if that proves nothing.
  std::optional<Guarded> RenderOnce(const Request& request,
                                    const Shared& shared) const;
  // Renders with the guard. OUT_OF_RANGE for more than `max_bytes`.
  StatusOr<Guarded> RenderGuarded(const Request& request, const Shared& shared,
                                  size_t max_bytes) const;
  // Returns the control tokens in `text`, the plain rendering of `request`.
  StatusOr<std::vector<ControlSpan>> FindControls(const Request& request,
                                                  const Shared& shared,
                                                  std::string_view text) const;
  // Returns which bytes of `text` are the request's.
  Marks ForeignBytes(const Request& request, char32_t plane,
                     std::string_view text) const;
  // Returns the end of `text`, the plain rendering of `request`, for a
  // continued final message. Leaves `request` unchanged.
  StatusOr<size_t> EndOfFinalMessage(Request& request,
                                     std::string_view text) const;

  const Tokenizer& tokenizer_;
  SpecialSpellings specials_;
  std::string source_;
  std::string tool_source_;
  Variants default_;
  std::optional<Variants> tool_use_;
  bool accepts_parts_ = false;                // contents may be lists of parts
  bool composes_tokens_ = false;              // writes special tokens in pieces
  std::set<std::string, std::less<>> reads_;  // variables
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_CHAT_TEMPLATE_H_
