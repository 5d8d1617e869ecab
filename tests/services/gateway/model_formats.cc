#include "tests/services/gateway/model_formats.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/base/cat.h"
#include "common/serving/request_grammar.h"
#include "tests/testing/test_data.h"

namespace sluice::gateway {

Format Glm() {
  return {"glm",
          "GLM-4.6.jinja",
          {{"<|observation|>", "<|user|>", "<|assistant|>", "<|system|>",
            "[gMASK]", "<sop>"},
           {"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>",
            "</arg_key>", "<arg_value>", "</arg_value>"}},
          "\n<think>Need it.</think>\nLet me look.\n<tool_call>get_weather\n"
          "<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n"
          "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
          "<tool_call>get_location\n</tool_call>",
          true,
          true,
          false,
          R"({"content": "Let me look.", "reasoning_content": "Need it."})"};
}

Format Intellect() {
  return {"qwen3_coder",
          "Qwen3-Coder.jinja",
          {{"<|im_end|>", "<|im_start|>"},
           {"<think>", "</think>", "<tool_call>", "</tool_call>"}},
          "Need it.</think>\nLet me look.\n<tool_call>\n<function=get_weather>"
          "\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n2\n"
          "</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
          "<function=get_location>\n</function>\n</tool_call>",
          true,
          true,
          true,
          R"({"content": "Let me look."})"};
}

Format Hermes() {
  return {"hermes",
          "Qwen-Qwen3-0.6B.jinja",
          {{"<|im_end|>", "<|im_start|>"},
           {"<think>", "</think>", "<tool_call>", "</tool_call>"}},
          "<think>\nNeed it.\n</think>\n\nLet me look.\n<tool_call>\n"
          "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", "
          "\"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": "
          "\"get_location\", \"arguments\": {}}\n</tool_call>",
          true,
          true,
          false,
          R"({"content": "Let me look.", "reasoning_content": "Need it."})"};
}

Format Harmony() {
  return {"harmony",
          "openai-gpt-oss-120b.jinja",
          {{"<|call|>", "<|return|>", "<|start|>", "<|end|>", "<|message|>",
            "<|channel|>", "<|constrain|>"},
           {}},
          "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant"
          "<|channel|>commentary<|message|>Let me look.<|end|><|start|>"
          "assistant<|channel|>commentary to=functions.get_weather "
          "<|constrain|>json<|message|>{\"city\": \"Köln\", \"days\": 2}",
          true,
          false,
          false,
          R"({"content": "", "thinking": "Need it.\n\nLet me look."})"};
}

Format Llama() {
  return {"llama3_json",
          "meta-llama-Llama-3.1-8B-Instruct.jinja",
          {{"<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>",
            "<|end_header_id|>", "<|python_tag|>"},
           {}},
          "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Köln\", "
          "\"days\": 2}}",
          false,
          false,
          false,
          R"({"content": ""})"};
}

serving::ServedModel MakeToyModel(const std::string& chat_template,
                                  const serving::ToyTokens& tokens,
                                  const serving::FormatNames& formats) {
  auto text = serving::MakeToyText(chat_template, tokens, formats);
  serving::ServedModel model;
  model.name = "toy";
  model.root = "somewhere/toy";
  model.eos_ids = {256};
  model.vocab_size = text->tokenizer().vocab_size();
  model.max_positions = 1 << 16;
  serving::AddGrammars(text->tokenizer(), {}, model);
  model.text = std::move(text);
  return model;
}

std::string TemplateOf(const Format& format) {
  std::string source = ::sluice::testing::ReadFileOrDie(
      *::sluice::testing::TestData(Cat("templates/", format.file)));
  if (format.opens_thinking) {  // as INTELLECT-3's own template does
    const std::string turn = "{{- '<|im_start|>assistant\\n' }}";
    const size_t at = source.rfind(turn);
    EXPECT_NE(at, std::string::npos);
    source.replace(at, turn.size(), "{{- '<|im_start|>assistant\\n<think>' }}");
  }
  return source;
}

}  // namespace sluice::gateway
