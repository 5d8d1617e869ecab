// What a request costs grows no faster than the request. For every element of
// cost_elements.h a request of size n and one of 2n are measured: bytes asked
// of malloc, bytes held at once, and instructions. None may grow to more than
// 2.5 times.
//
// Instructions are counted by callgrind, in a process of its own: there are no
// hardware counters in virtual machines, and executed edges of our own rooms
// would not show what memcmp in libc or the tokenizers in Rust do, where a
// quadratic search hides.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/dialects/openai/known_fields.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/request_grammar.h"
#include "common/trace/trace_store.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/cost_elements.h"
#include "tests/services/gateway/fakes.h"
#include "tests/serving/toy_text.h"
#include "tests/testing/allocation_count.h"

namespace sluice::gateway {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxGrowth = 2.5;
constexpr int kVocab = 2048;
constexpr int kPositions = 1 << 20;
constexpr int kMaxAnswered = kPositions / 2;
// Processes that share the elements.
constexpr size_t kWorkers = 2;

// One call per message, as Llama 3's and gpt-oss's templates take them, and all
// that a message may have.
constexpr const char* kTemplate =
    "{%- if tools %}{%- for t in tools %}{{ t | tojson }}\n{%- endfor %}"
    "Answer with {\"name\": \"f\", \"parameters\": {}}{%- endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}"
    "{%- if m.name %} {{ m.name }}{%- endif %}\n"
    "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{%- endif %}{{ m.content }}"
    "{%- if m.tool_calls %}{%- if m.tool_calls | length != 1 %}"
    "{{ raise_exception('one call') }}{%- endif %}"
    "{%- set call = m.tool_calls[0].function %}"
    "{\"name\": {{ call.name | tojson }}, "
    "\"parameters\": {{ call.arguments | tojson }}}{%- endif %}<|im_end|>\n"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}";

TokenResult Told(TokenId token, int tops) {
  TokenResult result{token, {}, {}};
  if (tops < 0) return result;
  result.logprob = TokenLogprob{token, -1.5f, 0};
  for (int i = 0; i < tops; ++i) {
    result.top_logprobs.push_back({static_cast<TokenId>(i), -2.25f, i});
  }
  return result;
}

// Answers each request at once: with its prompt's bytes, one event a token (a
// few, unless max_tokens is given), and with what is asked for beside them.
FinalEvent AnswerAtOnce(const GenerateRequest& request, TokenSink& sink) {
  const SamplingParams& sampling = request.sampling;
  if (request.trace) sink.OnInbox({});
  if (sampling.prompt_logprobs >= 0 || sampling.return_logits) {
    TokenEvent event;
    for (size_t i = 1; i < request.prompt_tokens.size(); ++i) {
      event.prompt.push_back(
          Told(request.prompt_tokens[i], sampling.prompt_logprobs));
    }
    if (sampling.return_logits) {
      event.logits.assign(request.prompt_tokens.size() * kVocab, 0.5f);
    }
    sink.OnTokens(std::move(event));
  }
  int left = request.max_tokens < kMaxAnswered ? request.max_tokens : 16;
  for (const TokenId token : request.prompt_tokens) {
    if (token >= 256) continue;
    if (--left < 0) break;
    TokenEvent event;
    event.tokens.push_back(Told(token, MostTopLogprobs(sampling)));
    sink.OnTokens(std::move(event));
  }
  FinalEvent end;
  end.stop_token = 256;
  return end;
}

// Everything behind the socket, with the real text side.
class Served {
 public:
  Served() {
    model_.name = "toy";
    auto text = serving::MakeToyText(
        kTemplate, {{"<|im_end|>", "<|im_start|>", "<|eot|>"},
                    {"<think>", "</think>", "<PRE>", "<SUF>", "<MID>"}});
    engine_.set_max_context(kPositions);
    model_.eos_ids = {256};
    model_.vocab_size = kVocab;
    serving::AddGrammars(text->tokenizer(), {}, model_);
    // Waits for the vocabulary's trie, which another thread makes.
    EXPECT_TRUE(
        model_.grammars->Compile({GrammarSpec::Kind::kRegex, "a"}, "").ok());
    model_.text = std::move(text);
    model_.max_positions = kPositions;
    serving::ServingContext context{model_, engine_.loop(), metrics_, nullptr,
                                    [] { return serving::Readiness{true}; }};
    context.traces = &traces_;
    context.rules.max_stop_strings = serving::kMaxStopStrings;
    context.limits.answer_bytes = size_t{1} << 30;
    context.limits.tokenize_bytes = size_t{1} << 20;
    AddDialects(router_, context);
    AddModelHandlers(router_, context);
    AddUnbuiltHandlers(router_);
    AddHealthHandlers(router_, context);
    AddTraceHandler(router_, context);
    AddDebugHandlers(router_, context);
  }

  const serving::ModelText& text() const { return *model_.text; }

  // The status of the answer to `made`, a body or a path of `element`.
  int Ask(const CostElement& element, std::string made) {
    auto exchange = element.path.empty()
                        ? Get(std::move(made))
                        : http::Post(element.path, std::move(made));
    if (element.traced) {
      exchange->request().headers = {{"x-sluice-trace", "1"}};
      exchange->request().request_id = "traced";
    }
    Run(exchange);
    if (element.traced) Run(Get("/debug/traces/traced"));
    return exchange->responses.size() == 1 && exchange->ended
               ? exchange->responses[0].status
               : 0;
  }

 private:
  static std::shared_ptr<http::FakeExchange> Get(std::string path) {
    auto exchange = http::Post(path, "");
    exchange->request().method = "GET";
    return exchange;
  }

  void Run(const std::shared_ptr<http::FakeExchange>& exchange) {
    exchange->deferred = true;  // as on a loop
    router_.Route(exchange);
    engine_.Settle(*exchange);
    engine_.Forget();
  }

  serving::ServedModel model_;
  ScriptedEngine engine_{AnswerAtOnce};
  GatewayMetrics metrics_{{"toy"}};
  trace::TraceStore traces_{
      {}, [] { return std::vector<trace::TraceRecord::Stage>(); }};
  http::Router router_;
};

// What one element takes at n and at 2n.
struct Growth {
  double small = 0;
  double large = 0;
  double ratio() const { return small > 0 ? large / small : 0; }
};

std::string DumpName(size_t element, bool large) {
  return Cat("element ", element, large ? " large" : " small");
}

// The child: asks for every `kWorkers`th element under callgrind, which writes
// what each request took.
int Work(size_t first) {
  Served served;
  const std::vector<CostElement> elements = CostElements();
  CALLGRIND_START_INSTRUMENTATION;
  for (size_t i = first; i < elements.size(); i += kWorkers) {
    const CostElement& element = elements[i];
    // What is made once.
    served.Ask(element, element.make(1 + element.small / 8));
    for (const bool large : {false, true}) {
      std::string made = element.make(element.small * (large ? 2 : 1));
      const std::string name = DumpName(i, large);
      CALLGRIND_ZERO_STATS;
      served.Ask(element, std::move(made));
      CALLGRIND_DUMP_STATS_AT(name.c_str());
    }
  }
  return 0;
}

pid_t StartWorker(size_t first, const std::string& folder) {
  const std::string out = Cat("--callgrind-out-file=", folder, "/", first);
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::string number = Cat(first);
  const pid_t child = fork();
  if (child != 0) return child;
  execlp("valgrind", "valgrind", "--tool=callgrind", "-q", "--instr-atstart=no",
         out.c_str(), self.c_str(), "--worker", number.c_str(), nullptr);
  _exit(127);
}

// Instructions by the name of their dump.
std::map<std::string, double> ReadDumps(const std::string& folder) {
  std::map<std::string, double> all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path());
    std::string line;
    std::string name;
    while (std::getline(in, line)) {
      constexpr std::string_view kTrigger = "desc: Trigger: Client Request: ";
      constexpr std::string_view kTotals = "totals: ";
      if (line.starts_with(kTrigger)) name = line.substr(kTrigger.size());
      if (line.starts_with(kTotals)) {
        all[name] = std::strtod(line.c_str() + kTotals.size(), nullptr);
      }
    }
  }
  return all;
}

std::vector<Growth> CountInstructions(size_t count) {
  const fs::path folder =
      fs::temp_directory_path() / Cat("sluice-cost-", ::getpid());
  fs::create_directories(folder);
  std::vector<pid_t> children;
  for (size_t i = 0; i < kWorkers; ++i) {
    children.push_back(StartWorker(i, folder.string()));
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "valgrind, of Debian's package of that name, ended "
                            "with an error or is not there";
  }
  const auto dumps = ReadDumps(folder.string());
  fs::remove_all(folder);
  std::vector<Growth> all(count);
  for (size_t i = 0; i < count; ++i) {
    const auto small = dumps.find(DumpName(i, false));
    const auto large = dumps.find(DumpName(i, true));
    if (small != dumps.end()) all[i].small = small->second;
    if (large != dumps.end()) all[i].large = large->second;
  }
  return all;
}

TEST(CostOracleTest, EveryFieldHasAnElement) {
  std::set<std::string> covered(FieldsWithoutSize().begin(),
                                FieldsWithoutSize().end());
  for (const CostElement& element : CostElements()) {
    if (element.status != 0) covered.insert(element.field);
  }
  for (const openai::KnownField& field : openai::KnownFields()) {
    // What has no effect and what is refused is covered by "anything as".
    if (field.use != openai::FieldUse::kBuilt) continue;
    EXPECT_TRUE(covered.contains(std::string(field.name)))
        << "field " << field.name
        << " of common/dialects/openai/known_fields.cc has no "
        << "element in tests/services/gateway/cost_elements.cc: add one that "
        << "grows it, or, if its value has no size, name it in "
        << "FieldsWithoutSize";
  }
}

TEST(CostOracleTest, NothingGrowsFasterThanTheRequest) {
  const std::vector<CostElement> elements = CostElements();
  std::vector<Growth> total(elements.size());
  std::vector<Growth> peak(elements.size());
  {
    Served served;
    for (size_t i = 0; i < elements.size(); ++i) {
      const CostElement& element = elements[i];
      served.Ask(element, element.make(1 + element.small / 8));
      for (const bool large : {false, true}) {
        std::string made = element.make(element.small * (large ? 2 : 1));
        ::sluice::testing::StartAllocationCount();
        const int status = served.Ask(element, std::move(made));
        const auto taken = ::sluice::testing::TakeAllocationCount();
        (large ? total[i].large : total[i].small) =
            static_cast<double>(taken.total_bytes);
        (large ? peak[i].large : peak[i].small) =
            static_cast<double>(taken.peak_bytes);
        if (element.status != 0) {
          EXPECT_EQ(status, element.status) << element.name;
        }
      }
    }
  }
  const std::vector<Growth> instructions = CountInstructions(elements.size());
  std::printf("%-52s %9s %5s %9s %5s %9s %5s\n", "element, from n to 2n",
              "kB asked", "x", "kB held", "x", "Minstr", "x");
  for (size_t i = 0; i < elements.size(); ++i) {
    std::printf("%-52s %9.0f %5.2f %9.0f %5.2f %9.2f %5.2f\n",
                elements[i].name.c_str(), total[i].large / 1e3,
                total[i].ratio(), peak[i].large / 1e3, peak[i].ratio(),
                instructions[i].large / 1e6, instructions[i].ratio());
    EXPECT_LE(total[i].ratio(), kMaxGrowth) << elements[i].name;
    EXPECT_LE(peak[i].ratio(), kMaxGrowth) << elements[i].name;
    EXPECT_LE(instructions[i].ratio(), kMaxGrowth) << elements[i].name;
    EXPECT_GT(total[i].small, 0) << elements[i].name;
    EXPECT_GT(instructions[i].small, 0) << elements[i].name;
  }
}

// Bodies that once took hundreds of megabytes, or minutes.
struct Attack {
  const char* what;
  std::string path;
  std::string body;
  int status;
  size_t held_per_byte;
};

std::string Calls(size_t count, const std::string& name,
                  const std::string& arguments) {
  std::string text = "{\"messages\":[{\"role\":\"assistant\",\"name\":\"" +
                     name + "\",\"tool_calls\":[";
  for (size_t i = 0; i < count; ++i) {
    text += Cat(i > 0 ? "," : "", "{\"function\":{\"name\":\"f\",",
                "\"arguments\":", arguments, "}}");
  }
  return text + "]}]}";
}

std::vector<Attack> Attacks() {
  const std::string chat = "/v1/chat/completions";
  std::string keys = "\"{";
  for (int i = 0; i < 8000; ++i) {
    keys += Cat(i > 0 ? "," : "", "\\\"", i, "\\\":0");
  }
  keys += "}\"";
  std::string words;
  while (words.size() < (size_t{8} << 20) - 100) words += "some words ";
  return {
      {"a name of 16 KiB, 512 calls", chat,
       Calls(512, std::string(16 << 10, 'n'), "{}"), 400, 32},
      {"a name of 128 KiB, 512 calls", chat,
       Calls(512, std::string(128 << 10, 'n'), "{}"), 400, 32},
      {"a name of 128 bytes, 512 calls", chat,
       Calls(512, std::string(128, 'n'), "{}"), 200, 256},
      {"20 calls of 8000 keys", chat, Calls(20, "n", keys), 400, 64},
      {"8 MiB to tokenize", "/tokenize", "{\"prompt\":\"" + words + "\"}", 400,
       6},
  };
}

TEST(CostOracleTest, BodiesThatTookTheGatewayDownHoldLittle) {
  Served served;
  for (const Attack& attack : Attacks()) {
    const CostElement element{attack.what, "", attack.path, nullptr};
    ::sluice::testing::StartAllocationCount();
    EXPECT_EQ(served.Ask(element, attack.body), attack.status) << attack.what;
    const auto taken = ::sluice::testing::TakeAllocationCount();
    std::printf("%-32s %8zu bytes, held %10zu\n", attack.what,
                attack.body.size(), taken.peak_bytes);
    EXPECT_LT(taken.peak_bytes, attack.held_per_byte * attack.body.size())
        << attack.what;
  }
}

TEST(CostOracleTest, ALongTextIsTokenizedInParts) {
  Served served;
  std::string words;
  while (words.size() < size_t{1} << 20) words += "some words ";
  ::sluice::testing::StartAllocationCount();
  ASSERT_TRUE(served.text().Encode(words, false).ok());
  const auto taken = ::sluice::testing::TakeAllocationCount();
  std::printf("%zu bytes of words, held %zu\n", words.size(), taken.peak_bytes);
  EXPECT_LT(taken.peak_bytes, 48 * words.size());
}

}  // namespace
}  // namespace sluice::gateway

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--worker") {
    return sluice::gateway::Work(std::strtoul(argv[2], nullptr, 10));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
