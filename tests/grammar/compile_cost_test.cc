// Compiling a grammar takes CPU time in proportion to its text: a text of twice
// the size takes at most 2.5 times as much, and every text, of any size, at
// most a second. The generators make texts of every kind, with repetition,
// alternation, nesting, classes and bounds.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/grammar/compile_server.h"
#include "common/grammar/grammar_compiler.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

using Kind = GrammarSpec::Kind;

constexpr double kMaxGrowth = 2.5;
// Families that grow faster within the library, and those of many properties,
// whose row of Earley items grows, too.
const std::map<std::string, double> kFaster = {
    {"T{n}", 3.2},       {"A & B", 6},
    {"%json..", 3.8},    {"rules", 4.5},
    {"properties", 3.2}, {"properties of numbers", 3.5},
    {"allOf", 3.6},      {"patterns", 3.5},
    {"required", 4},     {"start: \"a\" | ..", 3.2},
};
// Of a text that is refused by what is counted in it.
constexpr double kRefusedGrowth = 3;
// Shorter work is as long as the machine's noise, and so is half of it.
constexpr double kLeastMs = 10;
constexpr double kLeastHalfMs = 4;
// Growth shows below; larger texts are tried once, in a process of their own.
constexpr double kEnoughMs = 100;
constexpr int kMostTries = 8;
// Of this process, which repeats what took at most 450 ms there.
constexpr double kMaxMs = 700;

struct Family {
  const char* name;
  Kind kind;
  std::function<std::string(int)> text;
  int most = 1 << 17;  // the largest size that is tried
};

std::string Repeat(const std::string& what, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += what;
  return text;
}

// Joins of(0), of(1), ..
std::string Join(int count, const std::string& between,
                 const std::function<std::string(int)>& of) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : between) + of(i);
  return text;
}

std::string Letter(int i) {
  return std::string(1, static_cast<char>('a' + i % 26));
}

std::string Wrapped(const std::string& open, const std::string& core,
                    const std::string& close, int count) {
  return Repeat(open, count) + core + Repeat(close, count);
}

std::string Properties(int count, const std::string& of) {
  return "{\"type\":\"object\",\"properties\":{" +
         Join(count, ",", [&](int i) { return Cat("\"p", i, "\":", of); }) +
         "}}";
}

std::vector<Family> Regexes() {
  return {
      {"a?..", Kind::kRegex, [](int n) { return Repeat("a?", n); }},
      {"(ab)?..", Kind::kRegex, [](int n) { return Repeat("(ab)?", n); }},
      {"a*b*..", Kind::kRegex, [](int n) { return Repeat("a*b*", n); }},
      {"a?b?c?..", Kind::kRegex,
       [](int n) {
         return Join(n, "", [](int i) { return Letter(i) + "?"; });
       }},
      {"(a?b?)..", Kind::kRegex, [](int n) { return Repeat("(a?b?)", n); }},
      {"(a|b|)..", Kind::kRegex, [](int n) { return Repeat("(a|b|)", n); }},
      {"[a-z]?..", Kind::kRegex, [](int n) { return Repeat("[a-z]?", n); }},
      {"a{0,9}..", Kind::kRegex, [](int n) { return Repeat("a{0,9}", n); }},
      {"(a?)+", Kind::kRegex,
       [](int n) { return Wrapped("(", "a", "?)+", std::min(n, 200)); }, 200},
      {"x a?..", Kind::kRegex, [](int n) { return "x" + Repeat("a?", n); }},
      {"a{n}", Kind::kRegex, [](int n) { return Cat("a{", n, "}"); }, 1 << 24},
      {"a{0,n}", Kind::kRegex, [](int n) { return Cat("a{0,", n, "}"); },
       1 << 24},
      // Their size is what they count.
      {"(a{n}){n}", Kind::kRegex,
       [](int n) {
         const int root = static_cast<int>(std::sqrt(n));
         return Cat("(a{", root, "}){", root, "}");
       },
       1 << 24},
      {"((a{n}){n}){n}", Kind::kRegex,
       [](int n) {
         const int root = static_cast<int>(std::cbrt(n));
         return Cat("((a{", root, "}){", root, "}){", root, "}");
       },
       1 << 30},
      {"((a{0,n}){0,n}){0,n}", Kind::kRegex,
       [](int n) {
         const int root = static_cast<int>(std::cbrt(n));
         return Cat("((a{0,", root, "}){0,", root, "}){0,", root, "}");
       },
       1 << 30},
      {"(a|b){n}", Kind::kRegex, [](int n) { return Cat("(a|b){", n, "}"); },
       1 << 24},
      {"abc..", Kind::kRegex, [](int n) { return Join(n, "", Letter); }},
      {"a|b|..", Kind::kRegex,
       [](int n) { return Join(n, "|", [](int i) { return Cat("w", i); }); }},
      {"(a|b)..", Kind::kRegex, [](int n) { return Repeat("(a|b)", n); }},
      {"[..]", Kind::kRegex,
       [](int n) {
         return "[" +
                Join(n, "",
                     [](int i) {
                       return Cat("\\x{", 256 + 2 * (i % 40'000), "}");
                     }) +
                "]";
       }},
      {"\\w..", Kind::kRegex, [](int n) { return Repeat("\\w", n); }},
      {"\\w?..", Kind::kRegex, [](int n) { return Repeat("\\w?", n); }},
      {"\\w+..", Kind::kRegex, [](int n) { return Repeat("\\w+ ", n); }},
      {".*a..", Kind::kRegex, [](int n) { return Repeat(".*a", n); }},
      {"((a))", Kind::kRegex, [](int n) { return Wrapped("(", "a", ")", n); }},
      {"(a|(b|..))", Kind::kRegex,
       [](int n) { return Wrapped("(a|", "b", ")", n); }},
      {"(a(b)?)?", Kind::kRegex,
       [](int n) { return Wrapped("(a", "b", ")?", n); }},
  };
}

std::vector<Family> Larks() {
  const auto rules = [](int n, const std::function<std::string(int)>& of) {
    return Join(n, "\n", of);
  };
  return {
      {"T: \"a\"?..", Kind::kLark,
       [](int n) { return "start: T\nT: " + Repeat("\"a\"? ", n); }},
      {"T: (\"a\"|\"b\"|)..", Kind::kLark,
       [](int n) { return "start: T\nT: " + Repeat("(\"a\" | \"b\")? ", n); }},
      {"start: \"a\"?..", Kind::kLark,
       [](int n) { return "start: " + Repeat("\"a\"? ", n); }},
      {"start: x?..", Kind::kLark,
       [](int n) {
         return "start: " + Repeat("x? ", n) + "\nx: \"a\" | \"b\" x";
       }},
      {"start: x.., x: \"a\"?", Kind::kLark,
       [](int n) { return "start: " + Repeat("x ", n) + "\nx: \"a\"?"; }},
      {"start: x..", Kind::kLark,
       [](int n) {
         return "start: " + Repeat("x ", n) + "\nx: \"a\" | \"b\" x";
       }},
      {"r0: r1", Kind::kLark,
       [rules](int n) {
         return "start: r0\n" + rules(n, [n](int i) {
                  return i + 1 == n ? Cat("r", i, ": \"a\"")
                                    : Cat("r", i, ": \"a\" r", i + 1);
                });
       }},
      {"r0: r1?", Kind::kLark,
       [rules](int n) {
         return "start: r0\n" + rules(n, [n](int i) {
                  return i + 1 == n ? Cat("r", i, ": \"a\"")
                                    : Cat("r", i, ": r", i + 1, "?");
                });
       }},
      {"T0: T1 T1", Kind::kLark,
       [rules](int n) {
         return "start: T0\n" + rules(n, [n](int i) {
                  return i + 1 == n ? Cat("T", i, ": \"a\"?")
                                    : Cat("T", i, ": T", i + 1, " T", i + 1);
                });
       },
       64},
      {"r0: r1 r1", Kind::kLark,
       [rules](int n) {
         return "start: r0\n" + rules(n, [n](int i) {
                  return i + 1 == n ? Cat("r", i, ": \"a\"?")
                                    : Cat("r", i, ": r", i + 1, " r", i + 1);
                });
       },
       64},
      {"start: \"a\" | ..", Kind::kLark,
       [](int n) {
         return "start: " +
                Join(n, " | ", [](int i) { return Cat("\"w", i, "\""); });
       }},
      {"terminals", Kind::kLark,
       [rules](int n) {
         return "start: " + Join(n, " | ", [](int i) { return Cat("T", i); }) +
                "\n" + rules(n, [](int i) {
                  return Cat("T", i, ": /w", i, "[a-z]+/");
                });
       }},
      {"((x))", Kind::kLark,
       [](int n) { return "start: " + Wrapped("(", "\"a\"", ")", n); }},
      {"x{n}", Kind::kLark,
       [](int n) { return Cat("start: x{", n, "}\nx: \"a\" | \"b\" x"); },
       1 << 24},
      {"T{n}", Kind::kLark,
       [](int n) { return Cat("start: T\nT: \"a\"{", n, "}"); }, 1 << 24},
      {"/a?../", Kind::kLark,
       [](int n) { return "start: /" + Repeat("a?", n) + "/"; }},
      {"A & B", Kind::kLark,
       [](int n) {
         return "start: T\nT: " + Join(n, " & ", [](int i) {
                  return Cat("/[a-z]*", Letter(i), "[a-z]*/");
                });
       }},
      {"%json..", Kind::kLark,
       [](int n) {
         return "start: " + Join(n, " | ", [](int i) { return Cat("r", i); }) +
                "\n" + Join(n, "\n", [](int i) {
                  return Cat("r", i, ": %json {\"const\":", i, "}");
                });
       }},
  };
}

std::vector<Family> Gbnfs() {
  return {
      {"\"a\"?..", Kind::kGbnf,
       [](int n) { return "root ::= " + Repeat("\"a\"? ", n); }},
      {"[a-z]*..", Kind::kGbnf,
       [](int n) { return "root ::= " + Repeat("[a-z]* ", n); }},
      {"\"a\" | ..", Kind::kGbnf,
       [](int n) {
         return "root ::= " +
                Join(n, " | ", [](int i) { return Cat("\"w", i, "\""); });
       }},
      {"x{n}", Kind::kGbnf,
       [](int n) { return Cat("root ::= \"a\"{", n, "}"); }, 1 << 24},
      {"rules", Kind::kGbnf,
       [](int n) {
         return "root ::= r0\n" + Join(n, "\n", [n](int i) {
                  return i + 1 == n ? Cat("r", i, " ::= \"a\"")
                                    : Cat("r", i, " ::= \"a\" r", i + 1, "?");
                });
       }},
      {"((x))", Kind::kGbnf,
       [](int n) { return "root ::= " + Wrapped("(", "\"a\"", ")", n); }},
  };
}

std::vector<Family> Schemas() {
  const std::string text = R"({"type":"string"})";
  return {
      {"properties", Kind::kJsonSchema,
       [text](int n) { return Properties(n, text); }},
      {"properties of numbers", Kind::kJsonSchema,
       [](int n) {
         return Properties(n, R"({"type":"number","minimum":0.5})");
       }},
      {"enum", Kind::kJsonSchema,
       [](int n) {
         return "{\"enum\":[" +
                Join(n, ",", [](int i) { return Cat("\"v", i, "\""); }) + "]}";
       }},
      {"enum of numbers", Kind::kJsonSchema,
       [](int n) {
         return "{\"enum\":[" + Join(n, ",", [](int i) { return Cat(i * 7); }) +
                "]}";
       }},
      {"anyOf", Kind::kJsonSchema,
       [](int n) {
         return "{\"anyOf\":[" +
                Join(n, ",",
                     [](int i) {
                       return Cat("{\"type\":\"object\",\"required\":[\"k", i,
                                  "\"],\"properties\":{\"k", i,
                                  "\":{\"const\":", i, "}}}");
                     }) +
                "]}";
       }},
      {"allOf", Kind::kJsonSchema,
       [](int n) {
         return "{\"allOf\":[" +
                Join(n, ",",
                     [](int i) {
                       return Cat("{\"properties\":{\"k", i,
                                  "\":{\"type\":\"integer\"}}}");
                     }) +
                "]}";
       }},
      {"prefixItems", Kind::kJsonSchema,
       [text](int n) {
         return "{\"type\":\"array\",\"prefixItems\":[" +
                Join(n, ",", [&](int) { return text; }) + "]}";
       }},
      {"minItems", Kind::kJsonSchema,
       [](int n) {
         return Cat(
             "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
             "\"minItems\":",
             n, "}");
       },
       1 << 24},
      {"maxItems", Kind::kJsonSchema,
       [](int n) {
         return Cat(
             "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
             "\"maxItems\":",
             n, "}");
       },
       1 << 24},
      {"minLength", Kind::kJsonSchema,
       [](int n) { return Cat("{\"type\":\"string\",\"minLength\":", n, "}"); },
       1 << 24},
      {"maxLength", Kind::kJsonSchema,
       [](int n) { return Cat("{\"type\":\"string\",\"maxLength\":", n, "}"); },
       1 << 24},
      {"maximum", Kind::kJsonSchema,
       [](int n) {
         return Cat("{\"type\":\"integer\",\"minimum\":0,\"maximum\":", n, "}");
       },
       1 << 24},
      {"pattern", Kind::kJsonSchema,
       [](int n) {
         return Cat("{\"type\":\"string\",\"pattern\":\"^", Repeat("a?", n),
                    "$\"}");
       }},
      {"patterns", Kind::kJsonSchema,
       [](int n) {
         return Properties(n,
                           R"({"type":"string","pattern":"^[a-z]+[0-9]*$"})");
       }},
      {"$defs", Kind::kJsonSchema,
       [](int n) {
         return "{\"$ref\":\"#/$defs/d0\",\"$defs\":{" +
                Join(
                    n, ",",
                    [n](int i) {
                      return i + 1 == n
                                 ? Cat("\"d", i, "\":{\"type\":\"null\"}")
                                 : Cat("\"d", i,
                                       "\":{\"type\":\"object\",\"properties\":"
                                       "{\"a\":{\"$ref\":\"#/$defs/d",
                                       i + 1, "\"}}}");
                    }) +
                "}}";
       }},
      {"required", Kind::kJsonSchema,
       [](int n) {
         return "{\"type\":\"object\",\"required\":[" +
                Join(n, ",", [](int i) { return Cat("\"p", i, "\""); }) + "]}";
       }},
      {"patternProperties", Kind::kJsonSchema,
       [](int n) {
         return "{\"type\":\"object\",\"patternProperties\":{" +
                Join(n, ",",
                     [](int i) {
                       return Cat("\"^k", i, "\":{\"type\":\"integer\"}");
                     }) +
                "}}";
       },
       64},
      {"levels", Kind::kJsonSchema,
       [](int n) {
         return Wrapped("{\"type\":\"array\",\"items\":", "{\"type\":\"null\"}",
                        "}", n);
       },
       64},
      {"choice", Kind::kChoice,
       [](int n) {
         return "[" + Join(n, ",", [](int i) { return Cat("\"w", i, "\""); }) +
                "]";
       }},
      {"choice of prefixes", Kind::kChoice,
       [](int n) {
         // Its size is its bytes.
         const int root = static_cast<int>(std::sqrt(n));
         return "[" +
                Join(root, ",",
                     [](int i) {
                       return "\"" +
                              std::string(static_cast<size_t>(i) + 1, 'a') +
                              "\"";
                     }) +
                "]";
       },
       1 << 18},
  };
}

double CpuMs() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 +
         static_cast<double>(time.tv_nsec) / 1e6;
}

// Returns 0 behind the largest int.
int Doubled(int n) { return n > (1 << 29) ? 0 : 2 * n; }

class CompileCostTest : public ::testing::TestWithParam<Family> {
 protected:
  CompileCostTest() : tokenizer_(TinyTokenizer()) {
    GrammarCompiler::Options options;
    options.limits.max_compile_ms = 0;  // what is measured, not what is cut
    options.max_cached = 0;
    compiler_ = *GrammarCompiler::Create(
        *tokenizer_, tokenizer_->vocab_size(),
        std::vector<TokenId>{*tokenizer_->TokenToId("<|im_end|>")}, options);
    EXPECT_TRUE(compiler_->Compile({Kind::kRegex, "a"}, "").ok());
  }

  // Returns the CPU time to compile `spec`, or to refuse it.
  double Measure(const GrammarSpec& spec, Status* status = nullptr) {
    const double begin = CpuMs();
    const Status made = compiler_->Compile(spec, "").status();
    if (status != nullptr) *status = made;
    return CpuMs() - begin;
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

TEST_P(CompileCostTest, GrowsNoFasterThanTheText) {
  const Family& family = GetParam();
  double before = 0;
  for (int n = 8; n > 0 && n <= family.most; n = Doubled(n)) {
    const GrammarSpec spec = {family.kind, family.text(n)};
    if (spec.text.size() > GrammarLimits().max_bytes) break;
    Status status;
    double took = Measure(spec, &status);
    if (std::getenv("SLUICE_SHOW_COSTS") != nullptr) {
      std::printf("%-24s %8d %9.2f ms %s\n", family.name, n, took,
                  Message(status).substr(0, 60).c_str());
    }
    if (n > 8 && took > kLeastMs) {
      // The least of several measurements is the work's own.
      const GrammarSpec half = {family.kind, family.text(n / 2)};
      before = std::max(before, kLeastHalfMs);
      const auto faster = kFaster.find(family.name);
      const double most = faster != kFaster.end() ? faster->second
                          : status.ok()           ? kMaxGrowth
                                                  : kRefusedGrowth;
      for (int i = 0; i < kMostTries && took > most * before; ++i) {
        took = std::min(took, Measure(spec));
        before = std::max(std::min(before, Measure(half)), kLeastHalfMs);
      }
      EXPECT_LE(took, most * before)
          << family.name << ": " << n << " of " << spec.text.size()
          << " bytes: " << status;
    }
    if (HasFailure() || took > kEnoughMs) break;
    before = took;
  }
}

TEST_P(CompileCostTest, TheLargestTakesNoLongerThanItMay) {
  const Family& family = GetParam();
  int most = 8;
  for (int n = 8; n > 0 && n <= family.most; n = Doubled(n)) {
    if (family.text(n).size() > GrammarLimits().max_bytes) break;
    most = n;
  }
  GrammarCompiler::Options options;
  options.trial_program = "/proc/self/exe";
  const auto compiler = *GrammarCompiler::Create(
      *tokenizer_, tokenizer_->vocab_size(),
      std::vector<TokenId>{*tokenizer_->TokenToId("<|im_end|>")}, options);
  const GrammarSpec spec = {family.kind, family.text(most)};
  const double begin = CpuMs();
  const Status status = compiler->Compile(spec, "").status();
  EXPECT_LE(CpuMs() - begin, kMaxMs) << family.name << ": " << status;
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument)
      << family.name << ": " << status;
}

std::string NameOf(const ::testing::TestParamInfo<Family>& info) {
  return Cat(info.index);
}

INSTANTIATE_TEST_SUITE_P(Regex, CompileCostTest, ::testing::ValuesIn(Regexes()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Lark, CompileCostTest, ::testing::ValuesIn(Larks()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Gbnf, CompileCostTest, ::testing::ValuesIn(Gbnfs()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Schema, CompileCostTest,
                         ::testing::ValuesIn(Schemas()), NameOf);

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  if (sluice::IsCompileProcess(argc, argv)) return sluice::RunCompileProcess();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
