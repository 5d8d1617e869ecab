// Holds answers to a script: EngineLoop::Submit, wrapped by the linker. A
// prompt that has SCRIPT between <|object_ref_start|> and <|object_ref_end|>,
// which the chat template of a test's model writes and no message can, is
// answered by SCRIPT: a grammar allows nothing else. The model computes, the
// sampler draws and the journal keeps each token, as of any constrained
// request. The grammar of the request itself, where there is one, is left out.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/engine/engine_loop.h"
#include "common/grammar/grammar_compiler.h"
#include "common/grammar/lark_text.h"
#include "common/serving/served_model.h"
#include "common/text/vocabulary.h"

// As the compiler calls them; a change of either does not link.
#define SLUICE_SUBMIT                                              \
  "_ZN6sluice10EngineLoop6SubmitENS_15GenerateRequestESt10shared_" \
  "ptrINS_9TokenSinkEE"
#define SLUICE_LOAD                                                       \
  "_ZN6sluice7serving15LoadServedModelERKNSt7__cxx1112basic_stringIcSt11" \
  "char_traitsIcESaIcEEES8_S8_S8_RKNS_15GrammarCompiler7OptionsE"

namespace sluice::scripted {

using serving::ServedModel;
using Text = const std::string&;

// The functions that are wrapped. A method is a function of its object.
StatusOr<SequenceId> Submit(
    EngineLoop* engine, GenerateRequest request,
    std::shared_ptr<TokenSink> sink) asm("__real_" SLUICE_SUBMIT);
StatusOr<SequenceId> SubmitScripted(
    EngineLoop* engine, GenerateRequest request,
    std::shared_ptr<TokenSink> sink) asm("__wrap_" SLUICE_SUBMIT);
StatusOr<ServedModel> Load(
    Text path, Text name, Text tools, Text reasoning,
    const GrammarCompiler::Options& grammars) asm("__real_" SLUICE_LOAD);
StatusOr<ServedModel> LoadScripted(
    Text path, Text name, Text tools, Text reasoning,
    const GrammarCompiler::Options& grammars) asm("__wrap_" SLUICE_LOAD);

namespace {

// The model of this process, loaded before its first request; its parts stay
// where they are.
struct Scripts {
  GrammarCompiler* grammars = nullptr;  // null: no model with the marks
  const serving::ModelText* text = nullptr;
  const Vocabulary* vocabulary = nullptr;
  TokenId begin = 0;
  TokenId end = 0;
};
Scripts scripts;

// Returns the id that is `mark` alone; nothing if there is none.
std::optional<TokenId> IdOf(const serving::ModelText& text,
                            std::string_view mark) {
  const auto ids = text.Encode(mark, /*special=*/true);
  if (!ids.ok() || ids->size() != 1) return std::nullopt;
  return ids->front();
}

void Keep(const ServedModel& model) {
  const auto begin = IdOf(*model.text, "<|object_ref_start|>");
  const auto end = IdOf(*model.text, "<|object_ref_end|>");
  if (!begin || !end) return;
  scripts = {model.grammars.get(), model.text.get(), model.vocabulary, *begin,
             *end};
}

// Returns what stands between the prompt's last marks.
std::optional<std::span<const TokenId>> ScriptOf(
    const std::vector<TokenId>& prompt) {
  const auto end = std::find(prompt.rbegin(), prompt.rend(), scripts.end);
  const auto begin = std::find(end, prompt.rend(), scripts.begin);
  if (begin == prompt.rend()) return std::nullopt;
  return std::span<const TokenId>(begin.base(), end.base() - 1);
}

// Returns the grammar of these tokens: special ones by their ids, text as text.
std::string LarkOf(std::span<const TokenId> tokens) {
  std::string lark = "start:";
  std::string text;
  const auto add_text = [&] {
    if (!text.empty()) lark += Cat(" ", LarkLiteral(text));
    text.clear();
  };
  for (const TokenId token : tokens) {
    if (!scripts.vocabulary->IsSpecial(token)) {
      text += scripts.text->TokenBytes(token);
      continue;
    }
    add_text();
    lark += Cat(" <[", token, "]>");
  }
  add_text();
  return lark;
}

Status HoldToScript(GenerateRequest& request) {
  if (scripts.grammars == nullptr) return OkStatus();
  const auto script = ScriptOf(request.prompt_tokens);
  if (!script) return OkStatus();
  GrammarUse use;
  SLUICE_ASSIGN_OR_RETURN(
      use.grammar,
      scripts.grammars->Compile({GrammarSpec::Kind::kLark, LarkOf(*script)},
                                request.tenant));
  use.takes_forced = false;  // every token is drawn
  request.constraint = scripts.grammars->NewConstraint(std::move(use));
  return OkStatus();
}

}  // namespace

StatusOr<SequenceId> SubmitScripted(EngineLoop* engine, GenerateRequest request,
                                    std::shared_ptr<TokenSink> sink) {
  SLUICE_RETURN_IF_ERROR(HoldToScript(request));
  return Submit(engine, std::move(request), std::move(sink));
}

StatusOr<ServedModel> LoadScripted(Text path, Text name, Text tools,
                                   Text reasoning,
                                   const GrammarCompiler::Options& grammars) {
  auto model = Load(path, name, tools, reasoning, grammars);
  if (model.ok()) Keep(*model);
  return model;
}

}  // namespace sluice::scripted
