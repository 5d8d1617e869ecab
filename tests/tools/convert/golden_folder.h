#ifndef SLUICE_TESTS_TOOLS_CONVERT_GOLDEN_FOLDER_H_
#define SLUICE_TESTS_TOOLS_CONVERT_GOLDEN_FOLDER_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/weights_mode.h"
#include "common/tools/convert/convert_model.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {

// A byte-level tokenizer of printable ASCII, one merge and the goldens' special
// tokens.
std::string ByteTokenizerJson();

// A copy of a golden with such a tokenizer: the goldens' own spell ids as
// words, which no GGUF can. Its config may be changed.
class GoldenFolder {
 public:
  explicit GoldenFolder(const std::string& golden);

  const std::string& path() const { return dir_.path(); }
  Json& config() { return config_; }
  void WriteConfig() const { Replace("config.json", DumpJson(config_)); }
  void Replace(const std::string& name, const std::string& text) const;

 private:
  TempDir dir_;
  Json config_;
};

// Writes a GGUF of a llama whose rows are whole blocks, without a tokenizer.
std::string WideLlama(const TempDir& dir);

StatusOr<ConvertReport> Convert(const std::string& model,
                                const std::string& out,
                                std::optional<weights::DType> type,
                                std::vector<ConvertRule> rules = {});

// The greedy answers of the model at `path`, with all logits.
std::vector<Answer> Answers(const std::string& path,
                            const std::vector<GoldenPrompt>& goldens,
                            WeightsMode weights = WeightsMode::kF32);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TOOLS_CONVERT_GOLDEN_FOLDER_H_
