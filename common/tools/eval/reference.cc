#include "common/tools/eval/reference.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/base/text_file.h"
#include "common/tools/eval/logits_file.h"

namespace sluice::eval {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Checks that lengths agree.
Status Check(const ReferencePrompt& prompt) {
  const auto differs = [](size_t got, size_t want) {
    return got != 0 && got != want;
  };
  const size_t tokens = prompt.ids.size(), greedy = prompt.greedy_ids.size();
  if (tokens == 0) return InvalidArgument("no ids");
  if (differs(prompt.prompt_logprobs.size(), tokens)) {
    return InvalidArgument(prompt.prompt_logprobs.size(),
                           " prompt_logprobs for ", tokens, " ids");
  }
  if (differs(prompt.logits.size(), tokens * prompt.vocab_size)) {
    return InvalidArgument(prompt.logits.size(), " logits for ", tokens,
                           " ids of ", prompt.vocab_size);
  }
  if (!prompt.logits.empty()) {
    // The ids choose columns of the logits.
    for (size_t t = 0; t < tokens; ++t) {
      const int64_t id = prompt.ids[t];
      if (id < 0 || static_cast<uint64_t>(id) >= prompt.vocab_size) {
        return InvalidArgument("ids[", t, "] must be 0 to ",
                               prompt.vocab_size - 1,
                               ", as the logits' rows have ", prompt.vocab_size,
                               " values, got ", id);
      }
    }
  }
  if (differs(prompt.greedy_logprobs.size(), greedy) ||
      differs(prompt.gaps.size(), greedy)) {
    return InvalidArgument(prompt.greedy_logprobs.size(),
                           " greedy_logprobs and ", prompt.gaps.size(),
                           " gaps for ", greedy, " greedy_ids");
  }
  if (differs(prompt.top.size(), tokens + greedy)) {
    return InvalidArgument(prompt.top.size(), " lists of top_ids for ", tokens,
                           " ids and ", greedy, " greedy_ids");
  }
  for (size_t t = 1; t < prompt.top.size(); ++t) {
    if (prompt.top[t].empty()) {
      return InvalidArgument("top_ids[", t, "] is empty");
    }
  }
  return OkStatus();
}

StatusOr<std::vector<ReferencePrompt>> FromTensors(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(auto tensors, ReadTensors(path));
  std::vector<ReferencePrompt> prompts;
  for (size_t i = 0;; ++i) {
    const std::string name = Cat("prompt_", i);
    const auto ids = tensors.find(name + ".ids");
    if (ids == tensors.end()) break;
    ReferencePrompt prompt;
    prompt.name = name;
    prompt.ids = ids->second.ints;
    prompt.greedy_ids = tensors[name + ".greedy_ids"].ints;
    ReferenceTensor& logits = tensors[name + ".logits"];
    if (logits.shape.size() == 2) {
      prompt.vocab_size = static_cast<size_t>(logits.shape[1]);
    }
    prompt.logits = std::move(logits.floats);
    const Status checked = Check(prompt);
    if (!checked.ok()) return Annotate(checked, path, ": ", name);
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return InvalidArgument(path, " has no prompt_0.ids");
  return prompts;
}

// Appends the list of the first present key of `keys`; null is NaN. Throws
// nlohmann's exception for other values.
template <typename T>
void ReadList(const Json& json, std::initializer_list<const char*> keys,
              std::vector<T>& out) {
  for (const char* key : keys) {
    const Json* found = FindMember(json, key);
    if (found == nullptr) continue;
    for (const Json& value : found->get_ref<const Json::array_t&>()) {
      if (std::is_integral_v<T> && !value.is_number_integer()) {
        throw std::invalid_argument(Cat(key, " has something else than ids"));
      }
      out.push_back(value.is_null() ? T(kNan) : value.get<T>());
    }
    return;
  }
}

void ReadLogits(const Json& rows, ReferencePrompt& prompt) {
  for (const Json& row : rows.get_ref<const Json::array_t&>()) {
    const auto values = row.get<std::vector<float>>();
    if (!prompt.logits.empty() && values.size() != prompt.vocab_size) {
      throw std::invalid_argument(
          Cat("logits: every row must have ", prompt.vocab_size,
              " values, as the first, one has ", values.size()));
    }
    prompt.vocab_size = values.size();
    prompt.logits.insert(prompt.logits.end(), values.begin(), values.end());
  }
}

// Reads "top_ids" and "top_logprobs". Throws as ReadList.
void ReadTop(const Json& json, ReferencePrompt& prompt) {
  const Json::array_t& ids = FindList(json, "top_ids");
  const Json::array_t& logprobs = FindList(json, "top_logprobs");
  if (ids.size() != logprobs.size()) {
    throw std::invalid_argument(
        Cat(ids.size(), " top_ids and ", logprobs.size(), " top_logprobs"));
  }
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto row = ids[t].get<std::vector<int64_t>>();
    const auto values = logprobs[t].get<std::vector<double>>();
    if (row.size() != values.size()) {
      throw std::invalid_argument(Cat("position ", t, " has ", row.size(),
                                      " top_ids and ", values.size(),
                                      " top_logprobs"));
    }
    auto& top = prompt.top.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) top.emplace_back(row[i], values[i]);
  }
}

StatusOr<ReferencePrompt> FromJson(const Json& json) {
  ReferencePrompt prompt;
  try {
    ReadList(json, {"ids", "prompt_ids"}, prompt.ids);
    ReadList(json, {"prompt_logprobs"}, prompt.prompt_logprobs);
    ReadList(json, {"greedy_ids"}, prompt.greedy_ids);
    ReadList(json, {"greedy_logprobs", "logprobs"}, prompt.greedy_logprobs);
    ReadList(json, {"gaps"}, prompt.gaps);
    const Json* rows = FindMember(json, "logits");
    if (rows != nullptr) ReadLogits(*rows, prompt);
    ReadTop(json, prompt);
  } catch (const std::exception& error) {
    return InvalidArgument(error.what());
  }
  SLUICE_RETURN_IF_ERROR(Check(prompt));
  return prompt;
}

Json Numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) {
    list.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
  }
  return list;
}

// Adds "top_ids" and "top_logprobs".
void AddTop(const ReferencePrompt& prompt, Json& entry) {
  Json ids = Json::array(), logprobs = Json::array();
  for (const auto& position : prompt.top) {
    Json row = Json::array(), values = Json::array();
    for (const auto& [id, logprob] : position) {
      row.push_back(id);
      values.push_back(logprob);
    }
    ids.push_back(std::move(row));
    logprobs.push_back(std::move(values));
  }
  entry["top_ids"] = std::move(ids);
  entry["top_logprobs"] = std::move(logprobs);
}

}  // namespace

StatusOr<std::vector<ReferencePrompt>> ReadReference(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return FromTensors(path + "/expected.safetensors");
  }
  if (path.size() > 12 && path.substr(path.size() - 12) == ".safetensors") {
    return FromTensors(path);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const StatusOr<Json> json = ParseJson(text, {size_t{1} << 30, 64});
  if (!json.ok()) return Annotate(json.status(), path);
  if (!json->is_object() || !json->contains("prompts") ||
      !(*json)["prompts"].is_array() || (*json)["prompts"].empty()) {
    return InvalidArgument(path, ": no \"prompts\"");
  }
  std::vector<ReferencePrompt> prompts;
  for (const Json& entry : (*json)["prompts"]) {
    const std::string name = Cat("prompt_", prompts.size());
    auto prompt = FromJson(entry);
    if (!prompt.ok()) return Annotate(prompt.status(), path, ": ", name);
    const std::string given = FindText(entry, "name");
    prompt->name = given.empty() ? name : given;
    prompts.push_back(*std::move(prompt));
  }
  return prompts;
}

std::string ReferenceJson(const std::string& made_by,
                          const std::vector<ReferencePrompt>& prompts) {
  Json list = Json::array();
  for (const ReferencePrompt& prompt : prompts) {
    Json entry = {{"ids", prompt.ids}, {"greedy_ids", prompt.greedy_ids}};
    entry["prompt_logprobs"] = Numbers(prompt.prompt_logprobs);
    entry["greedy_logprobs"] = Numbers(prompt.greedy_logprobs);
    if (!prompt.gaps.empty()) entry["gaps"] = Numbers(prompt.gaps);
    if (!prompt.name.empty()) entry["name"] = prompt.name;
    if (!prompt.top.empty()) AddTop(prompt, entry);
    list.push_back(std::move(entry));
  }
  Json all = {{"made_by", made_by}};
  all["prompts"] = std::move(list);
  return DumpJson(all) + "\n";
}

StatusOr<std::vector<std::string>> ReadPromptLines(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::istringstream in(text);
  std::vector<std::string> prompts;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const StatusOr<Json> json = ParseJson(line);
    if (!json.ok()) return Annotate(json.status(), path, ":", number);
    const Json* prompt = FindMember(*json, "prompt");
    if (prompt == nullptr || !(prompt->is_string() || prompt->is_array())) {
      return InvalidArgument(
          path, ":", number, ": ",
          json->is_object() ? "no \"prompt\"" : "not a JSON object");
    }
    prompts.push_back(DumpJson(*prompt));
  }
  if (prompts.empty()) return InvalidArgument(path, " is empty");
  return prompts;
}

std::vector<double> LogSoftmax(const float* row, size_t size) {
  std::vector<double> out(row, row + size);
  const double top = *std::max_element(out.begin(), out.end());
  double sum = 0;
  for (const double value : out) sum += std::exp(value - top);
  const double norm = top + std::log(sum);
  for (double& value : out) value -= norm;
  return out;
}

}  // namespace sluice::eval
