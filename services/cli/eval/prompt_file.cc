#include "services/cli/eval/prompt_file.h"

#include <fstream>

#include "common/base/json.h"

namespace sluice::cli {

StatusOr<std::vector<std::string>> ReadPromptLines(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read ", path);
  std::vector<std::string> prompts;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const StatusOr<Json> json = ParseJson(line);
    if (!json.ok()) return Annotate(json.status(), path, ":", number);
    if (!json->is_object() || !json->contains("prompt") ||
        !((*json)["prompt"].is_string() || (*json)["prompt"].is_array())) {
      return InvalidArgument(path, ":", number, ": no \"prompt\"");
    }
    prompts.push_back(DumpJson((*json)["prompt"]));
  }
  if (prompts.empty()) return InvalidArgument(path, " is empty");
  return prompts;
}

}  // namespace sluice::cli
