#include "tests/tools/convert/golden_folder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <utility>

#include "common/text/vocabulary_spec.h"
#include "tests/testing/test_data.h"

namespace sluice::testing {

namespace fs = std::filesystem;

std::string ByteTokenizerJson() {
  VocabularySpec spec;
  spec.tokens = {"<pad>", "<s>", "</s>", "<end>"};
  spec.kinds.assign(4, TokenKind::kControl);
  for (int byte = 32; byte < 127; ++byte) {
    spec.tokens.push_back(
        ByteLevelText(std::string(1, static_cast<char>(byte))));
  }
  spec.tokens.push_back("he");
  spec.merges.emplace_back("h", "e");
  spec.kinds.resize(spec.tokens.size(), TokenKind::kNormal);
  spec.byte_level = true;
  spec.patterns = PreTokenizerByName("qwen2")->patterns;
  return *ToTokenizerJson(spec);
}

GoldenFolder::GoldenFolder(const std::string& golden) {
  for (const auto& entry : fs::directory_iterator(golden)) {
    fs::create_symlink(entry.path(),
                       fs::path(dir_.path()) / entry.path().filename());
  }
  Replace("tokenizer.json", ByteTokenizerJson());
  Json text = *ParseJson(ReadFileOrDie(golden + "/tokenizer_config.json"));
  text["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}";
  Replace("tokenizer_config.json", DumpJson(text));
  config_ = *ParseJson(ReadFileOrDie(golden + "/config.json"));
}

void GoldenFolder::Replace(const std::string& name,
                           const std::string& text) const {
  fs::remove(fs::path(path()) / name);
  dir_.Write(name, text);
}

std::string WideLlama(const TempDir& dir) {
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .U32("llama.embedding_length", 64)
      .U32("llama.block_count", 2)
      .U32("llama.attention.head_count", 4)
      .U32("llama.attention.head_count_kv", 2)
      .U32("llama.attention.key_length", 16)
      .U32("llama.feed_forward_length", 96)
      .U32("llama.context_length", 64)
      .U32("tokenizer.ggml.bos_token_id", 1)
      .U32("tokenizer.ggml.eos_token_id", 2)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<uint64_t> dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::vector<float> values(count);
    for (float& value : values) {
      seed = seed * 1664525u + 1013904223u;
      value = static_cast<float>(seed >> 8) * 0x1p-24f - 0.5f;
    }
    gguf.Tensor(name, std::move(dims), 0, BytesOf(values));
  };
  add("token_embd.weight", {64, 100});
  for (const char* prefix : {"blk.0.", "blk.1."}) {
    add(Cat(prefix, "attn_norm.weight"), {64});
    add(Cat(prefix, "attn_q.weight"), {64, 64});
    add(Cat(prefix, "attn_k.weight"), {64, 32});
    add(Cat(prefix, "attn_v.weight"), {64, 32});
    add(Cat(prefix, "attn_output.weight"), {64, 64});
    add(Cat(prefix, "ffn_norm.weight"), {64});
    add(Cat(prefix, "ffn_gate.weight"), {64, 96});
    add(Cat(prefix, "ffn_up.weight"), {64, 96});
    add(Cat(prefix, "ffn_down.weight"), {96, 64});
  }
  add("output_norm.weight", {64});
  return dir.Write("wide.gguf", gguf.Build());
}

StatusOr<ConvertReport> Convert(const std::string& model,
                                const std::string& out,
                                std::optional<weights::DType> type,
                                std::vector<ConvertRule> rules) {
  return ConvertModel({model, out, type, std::move(rules)}, {});
}

std::vector<Answer> Answers(const std::string& path,
                            const std::vector<GoldenPrompt>& goldens,
                            WeightsMode weights) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.weights = weights;
  options.stage.threads = 1;
  options.stage.kv_blocks = 256;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  std::vector<Ask> asks;
  for (const GoldenPrompt& golden : goldens) {
    Ask ask{golden.ids, {}, static_cast<int32_t>(golden.greedy_ids.size())};
    ask.sampling.temperature = 0;
    ask.sampling.return_logits = true;
    asks.push_back(std::move(ask));
  }
  return (*pipeline)->Generate(asks);
}

}  // namespace sluice::testing
