#include "tests/services/gateway/cost_elements.h"

#include <string_view>
#include <utility>

#include "common/base/cat.h"
#include "common/dialects/llamacpp/parse.h"
#include "common/dialects/messages/known_fields.h"
#include "common/dialects/openai/known_fields.h"
#include "common/dialects/openai/parse.h"

namespace sluice::gateway {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";
// Bytes of a text that grows.
constexpr size_t kText = size_t{4} << 10;

std::string Repeat(std::string_view part, size_t n) {
  std::string text;
  text.reserve(part.size() * n);
  for (size_t i = 0; i < n; ++i) text += part;
  return text;
}

std::string List(size_t n, const std::function<std::string(size_t)>& item) {
  std::string text = "[";
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) text += ',';
    text += item(i);
  }
  return text + "]";
}

// {"0": VALUE, ..}
std::string Members(size_t n, std::string_view value) {
  std::string text = "{";
  for (size_t i = 0; i < n; ++i) {
    text += Cat(i > 0 ? "," : "", "\"", i, "\":", value);
  }
  return text + "}";
}

std::string Nested(size_t n, std::string_view inner) {
  return Repeat("{\"a\":", n) + std::string(inner) + Repeat("}", n);
}

std::string Quoted(std::string_view text) { return Cat("\"", text, "\""); }

// `json` as the JSON text of a string.
std::string AsText(std::string_view json) {
  std::string text = "\"";
  for (const char c : json) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

std::string User(std::string_view content_json) {
  return Cat("{\"role\":\"user\",\"content\":", content_json, "}");
}

std::string ChatBody(std::string_view messages, std::string_view more = "") {
  return Cat("{\"messages\":", messages, more.empty() ? "" : ",", more, "}");
}

std::string Call(size_t id, std::string_view arguments) {
  return Cat("{\"id\":\"call_", id, "\",\"type\":\"function\",\"function\":",
             "{\"name\":\"f\",\"arguments\":", arguments, "}}");
}

std::string Assistant(std::string_view calls, std::string_view more = "") {
  return Cat("{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":", calls,
             more.empty() ? "" : ",", more, "}");
}

std::string Result(std::string_view id) {
  return Cat("{\"role\":\"tool\",\"content\":\"r\"",
             id.empty() ? "" : Cat(",\"tool_call_id\":\"", id, "\""), "}");
}

std::string Tool(std::string_view parameters, size_t index = 0,
                 std::string_view description = "d") {
  return Cat("{\"type\":\"function\",\"function\":{\"name\":\"f", index,
             "\",\"description\":\"", description,
             "\",\"parameters\":", parameters, "}}");
}

// The endpoint's smallest body with `fields` in it.
std::string With(const char* path, std::string_view fields) {
  return path == kChat ? ChatBody("[" + User("\"hi\"") + "]", fields)
                       : Cat("{\"prompt\":\"hi\",", fields, "}");
}

using Elements = std::vector<CostElement>;
using Make = std::function<std::string(size_t)>;

void AddMessages(Elements& all) {
  const auto add = [&all](const char* name, size_t small, Make make,
                          const char* field = "messages") {
    all.push_back({Cat("chat: ", name), field, kChat, std::move(make), small});
  };
  add("messages, count", 128, [](size_t n) {
    return ChatBody(List(n, [](size_t) { return User("\"hello\""); }));
  });
  add(
      "variables of the template", 128,
      [](size_t n) {
        return With(kChat, "\"chat_template_kwargs\":" + Members(n, "[1]"));
      },
      "chat_template_kwargs");
  // Texts that some step looks at in a way of its own.
  constexpr std::pair<const char*, std::string_view> kTexts[] = {
      {"content, one long word", "x"},
      {"content, words", "a b "},
      {"content, spaces", "    "},
      {"content, newlines", "\\n\\n"},
      {"content, special tokens", "<|im_end|>"},
      {"content, beginnings of special tokens", "<|im_start<|im_"},
      {"content, tags of reasoning", "<think></think>"},
      {"content, tags that do not end", "<think><thin"},
      {"content, beginnings of calls", "{\\\"name\\\": \\\"f\\\", "},
      {"content, braces", "{[{["},
      {"content, characters of three bytes", "\xE4\xB8\x80"},
      {"content, escapes", "\\u0001\\u00e9"},
      {"content, private-use characters", "\xF4\x80\x80\x80"},
  };
  for (const auto& [name, part] : kTexts) {
    add(name, kText / part.size(), [part = part](size_t n) {
      return ChatBody("[" + User(Quoted(Repeat(part, n))) + "]");
    });
  }
  add("content, parts", serving::kMaxContentParts / 2, [](size_t n) {
    return ChatBody(
        "[" +
        User(List(
            n,
            [](size_t) { return "{\"type\":\"text\",\"text\":\"a part\"}"; })) +
        "]");
  });
  add("name", serving::kMaxNameBytes / 2, [](size_t n) {
    return ChatBody(Cat("[{\"role\":\"user\",\"content\":\"a\",\"name\":\"",
                        std::string(n, 'n'), "\"}]"));
  });
  add("reasoning", kText, [](size_t n) {
    return ChatBody(Cat("[", User("\"a\""), ",{\"role\":\"assistant\",",
                        "\"content\":\"a\",\"reasoning\":\"", Repeat("r", n),
                        "\"},", User("\"b\""), "]"));
  });
  add(
      "final message to continue", kText,
      [](size_t n) {
        return ChatBody(
            Cat("[", User(Quoted("sluicecontinueshere" + std::string(n, 'x'))),
                "]"),
            "\"continue_final_message\":true");
      },
      "continue_final_message");
  add("white space between values", kText, [](size_t n) {
    return Repeat(" ", n) + ChatBody("[" + User("\"hi\"") + "]");
  });
  add(
      "one key again and again", kText / 4,
      [](size_t n) {
        return ChatBody("[" + User("\"hi\"") + "]",
                        Repeat("\"user\":0,", n) + "\"user\":1");
      },
      "user");
}

void AddCalls(Elements& all) {
  const auto add = [&all](const char* name, size_t small, Make messages) {
    all.push_back({Cat("chat: ", name), "messages", kChat,
                   [messages = std::move(messages)](size_t n) {
                     return ChatBody(messages(n));
                   },
                   small});
  };
  const std::string name(serving::kMaxNameBytes, 'n');
  const std::string named = Cat("\"name\":\"", name, "\"");
  add("tool calls, of a message with a long name", serving::kMaxToolCalls / 8,
      [named](size_t n) {
        return "[" +
               Assistant(List(n, [](size_t i) { return Call(i, "\"{}\""); }),
                         named) +
               "]";
      });
  add("tool calls, each with its result", serving::kMaxToolCalls / 8,
      [](size_t n) {
        std::string text =
            "[" +
            Assistant(List(n, [](size_t i) { return Call(i, "\"{}\""); }));
        for (size_t i = n; i > 0; --i)
          text += "," + Result(Cat("call_", i - 1));
        return text + "]";
      });
  add("tool calls of one id, results of it", serving::kMaxToolCalls / 8,
      [](size_t n) {
        std::string text =
            "[" + Assistant(List(n, [](size_t) { return Call(7, "\"{}\""); }));
        for (size_t i = 0; i < n; ++i) text += "," + Result("call_7");
        return text + "]";
      });
  add("results without a call", 128, [](size_t n) {
    std::string text =
        "[" + Assistant(Cat("[", Call(0, "{}"), ",", Call(1, "{}"), "]"));
    for (size_t i = 0; i < n; ++i) text += "," + Result("");
    return text + "]";
  });
  add("arguments, keys", 512, [](size_t n) {
    return Cat("[", Assistant(Cat("[", Call(0, AsText(Members(n, "0"))), "]")),
               "]");
  });
  add("arguments, keys of an object", 512, [](size_t n) {
    return Cat("[", Assistant(Cat("[", Call(0, Members(n, "0")), "]")), "]");
  });
  add("arguments, depth", 24, [](size_t n) {
    return Cat(
        "[",
        Assistant(List(
            40, [n](size_t i) { return Call(i, AsText(Nested(n, "0"))); })),
        "]");
  });
  add("arguments, a long text", kText, [](size_t n) {
    return Cat(
        "[",
        Assistant(Cat(
            "[", Call(0, AsText(Nested(1, Quoted(std::string(n, 'v'))))), "]")),
        "]");
  });
  add("arguments, no JSON", kText, [](size_t n) {
    return Cat(
        "[",
        Assistant(
            Cat("[", Call(0, AsText("{\"a\":\"" + std::string(n, 'v'))), "]")),
        "]");
  });
  add("arguments, many calls of many keys", 4, [](size_t n) {
    return Cat("[",
               Assistant(List(n,
                              [](size_t i) {
                                return Call(i, AsText(Members(200, "\"v\"")));
                              })),
               "]");
  });
}

void AddTools(Elements& all) {
  const auto add = [&all](const char* name, size_t small, Make tools) {
    all.push_back({Cat("chat: tools, ", name), "tools", kChat,
                   [tools = std::move(tools)](size_t n) {
                     return With(kChat, "\"tools\":" + tools(n));
                   },
                   small});
  };
  add("count", serving::kMaxTools / 16, [](size_t n) {
    return List(n, [](size_t i) { return Tool("{\"type\":\"object\"}", i); });
  });
  all.push_back({"chat: functions, count", "functions", kChat,
                 [](size_t n) {
                   return With(kChat, "\"functions\":" + List(n, [](size_t i) {
                                        return Cat("{\"name\":\"f", i, "\"}");
                                      }));
                 },
                 serving::kMaxTools / 16});
  add("properties", 256, [](size_t n) {
    return "[" +
           Tool("{\"type\":\"object\",\"properties\":" +
                Members(n, "{\"type\":\"string\"}") + "}") +
           "]";
  });
  add("depth of a schema", 14, [](size_t n) {
    const std::string inner =
        "{\"type\":\"object\",\"properties\":" + Nested(n, "{}") + "}";
    return List(16, [&](size_t i) { return Tool(inner, i); });
  });
  add("types of a property", 256, [](size_t n) {
    return "[" +
           Tool("{\"properties\":{\"p\":{\"anyOf\":" +
                List(n, [](size_t) { return "{\"type\":\"null\"}"; }) + "}}}") +
           "]";
  });
  add("definitions, each of the next", 256, [](size_t n) {
    std::string defs;
    for (size_t i = 0; i < n; ++i) {
      defs += Cat(i > 0 ? "," : "", "\"d", i, "\":{\"$ref\":\"#/$defs/d", i + 1,
                  "\"}");
    }
    return "[" +
           Tool(
               "{\"properties\":{\"p\":{\"$ref\":\"#/$defs/d0\"}},"
               "\"$defs\":{" +
               defs + "}}") +
           "]";
  });
  add("enumeration", 512, [](size_t n) {
    return "[" +
           Tool("{\"properties\":{\"p\":{\"enum\":" +
                List(n, [](size_t i) { return Cat("\"e", i, "\""); }) + "}}}") +
           "]";
  });
  add("description", kText,
      [](size_t n) { return "[" + Tool("{}", 0, std::string(n, 'd')) + "]"; });
  add("unknown members", 256, [](size_t n) {
    return Cat("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"more\":",
               Members(n, "null"), "},\"other\":", Members(n, "0"), "}]");
  });
}

void AddAnswers(Elements& all, const char* path, const char* name) {
  const auto add = [&](const char* what, const char* field, size_t small,
                       Make make) {
    all.push_back({Cat(name, ": ", what), field, path, std::move(make), small});
  };
  const bool chat = path == kChat;
  // With a prompt, which the answer repeats.
  const auto echoed = [chat](size_t n, std::string_view fields) {
    const std::string text(n, 'e');
    return chat ? ChatBody("[" + User(Quoted(text)) + "]",
                           Cat("\"max_tokens\":", n, ",", fields))
                : Cat("{\"max_tokens\":", n, ",\"prompt\":\"", text, "\",",
                      fields, "}");
  };
  add("choices", "n", serving::kMaxChoices / 16,
      [=](size_t n) { return echoed(200, Cat("\"n\":", n)); });
  add("choices, streamed", "stream", serving::kMaxChoices / 16,
      [=](size_t n) { return echoed(200, Cat("\"stream\":true,\"n\":", n)); });
  add("a stream's answer", "stream", 512, [=](size_t n) {
    return echoed(n,
                  "\"stream\":true,\"stream_options\":"
                  "{\"include_usage\":true,\"continuous_usage_stats\":true}");
  });
  add("answer with log probabilities", "logprobs", 128, [=](size_t n) {
    return echoed(
        n, chat ? "\"logprobs\":true,\"top_logprobs\":20" : "\"logprobs\":20");
  });
  add("log probabilities of named tokens", "logprob_token_ids",
      kMaxLogprobTokenIds / 8, [=](size_t n) {
        return echoed(100, Cat("\"logprobs\":", chat ? "true" : "0",
                               ",\"logprob_token_ids\":",
                               List(n, [](size_t i) { return Cat(i); })));
      });
  add("log probabilities of the prompt", "prompt_logprobs", 64,
      [=](size_t n) { return echoed(n, "\"prompt_logprobs\":20,\"n\":4"); });
  add("token ids", "return_token_ids", 2048,
      [=](size_t n) { return echoed(n, "\"return_token_ids\":true"); });
  constexpr std::pair<const char*, std::string_view> kAnswers[] = {
      {"answer, tags that do not end", "<think><thin"},
      {"answer, beginnings of calls", "{\\\"name\\\": \\\"f\\\", "},
      {"answer, braces", "{[{["},
  };
  for (const auto& [what, part] : kAnswers) {
    if (!chat) break;
    add(what, "messages", 1024 / part.size(), [part = part](size_t n) {
      return ChatBody("[" + User(Quoted(Repeat(part, n))) + "]",
                      Cat("\"max_tokens\":", n * part.size(), ",\"tools\":[",
                          Tool("{}"), "]"));
    });
  }
  add("allowed token ids", "allowed_token_ids",
      serving::kMaxAllowedTokenIds / 16, [=](size_t n) {
        return echoed(200, "\"allowed_token_ids\":" +
                               List(n, [](size_t i) { return Cat(i % 256); }));
      });
  add("bad words", "bad_words", serving::kMaxBadWords / 8, [=](size_t n) {
    return echoed(200, "\"bad_words\":" + List(n, [](size_t i) {
                         return Cat("\"", std::string(1000, 'b'), i, "\"");
                       }));
  });
  // They have 4096 bytes together.
  add("stop strings", "stop", serving::kMaxStopStrings / 4, [=](size_t n) {
    return echoed(kText / 4, "\"stop\":" + List(n, [](size_t i) {
                               return Cat("\"ee", i, "\"");
                             }));
  });
  add("a stop string that nearly matches", "stop", serving::kMaxStopBytes / 2,
      [=](size_t n) {
        return echoed(4 * n, "\"stop\":\"" + std::string(n - 1, 'e') + "f\"");
      });
  add("an answer beside a long stop string", "stop", 1024, [=](size_t n) {
    return echoed(n, "\"stop\":\"" +
                         std::string(serving::kMaxStopBytes - 1, 'e') + "f\"");
  });
  add("stop token ids", "stop_token_ids", 64, [=](size_t n) {
    return With(path, "\"stop_token_ids\":" +
                          List(n, [](size_t i) { return Cat(i + 300); }));
  });
  add("biases", "logit_bias", 512, [=](size_t n) {
    return With(path, "\"logit_bias\":" + Members(n, "1"));
  });
  add("fields that are not known", "", 1024, [=](size_t n) {
    std::string fields = "\"m\":" + Members(n, "[]");
    for (size_t i = 0; i < n; ++i) fields += Cat(",\"unknown", i, "\":0");
    return With(path, fields);
  });
  all.push_back(
      {Cat(name, ": a number of many digits"), "seed", path,
       [=](size_t n) { return With(path, "\"seed\":" + std::string(n, '9')); },
       kText, 400});
  all.push_back(
      {Cat(name, ": depth of the body"), "", path,
       [=](size_t n) { return With(path, "\"x\":" + Nested(n, "0")); }, 28});
}

// Grammars that an answer is held to. They have 256 KiB.
void AddGrammars(Elements& all, const char* path, const char* name) {
  const auto add = [&](const char* what, const char* field, size_t small,
                       const Make& value) {
    all.push_back({Cat(name, ": ", what), field, path,
                   [=](size_t n) {
                     return With(path, Cat("\"", field, "\":", value(n)));
                   },
                   small});
  };
  const auto quoted = [](size_t n) {
    return List(n, [](size_t i) { return Cat("\"word", i, "\""); });
  };
  const auto rules = [](size_t n, std::string_view first, std::string_view is) {
    std::string text(first);
    for (size_t i = 0; i < n; ++i) {
      text += Cat("r", i, " ", is, " \\\"", i, "\\\" r", i + 1, "\\n");
    }
    return Cat("\"", text, "r", n, " ", is, " \\\"x\\\"\"");
  };
  const auto gbnf = [rules](size_t n) {
    return rules(n, "root ::= r0\\n", "::=");
  };
  add("properties of a schema", "response_format", 64, [](size_t n) {
    return Cat("{\"type\":\"json_schema\",\"json_schema\":{\"schema\":",
               "{\"type\":\"object\",\"properties\":", Members(n, "true"),
               "}}}");
  });
  add("choices", "structured_outputs", 256,
      [quoted](size_t n) { return Cat("{\"choice\":", quoted(n), "}"); });
  add("values of an enum", "guided_json", 256,
      [quoted](size_t n) { return Cat("{\"enum\":", quoted(n), "}"); });
  add("choices by an older name", "guided_choice", 256, quoted);
  add("a long regular expression", "guided_regex", kText / 4,
      [](size_t n) { return Quoted(Repeat("a[bc]", n)); });
  add("a long regular expression, SGLang's", "regex", kText / 4,
      [](size_t n) { return Quoted(Repeat("a|", n) + "b"); });
  add("rules of Lark", "guided_grammar", 64,
      [rules](size_t n) { return rules(n, "start: r0\\n", ":"); });
  add("rules of GBNF", "grammar", 64, gbnf);
  add("rules of GBNF, SGLang's", "ebnf", 64, gbnf);
  add("tags of a structural tag", "structural_tag", 64, [](size_t n) {
    std::string tags;
    for (size_t i = 0; i < n; ++i) {
      tags += Cat(i == 0 ? "" : ",", R"({"begin":"<)", i,
                  R"(>","end":"<.>","schema":{"type":"integer"}})");
    }
    return Cat(R"({"triggers":["<"],"structures":[)", tags, "]}");
  });
  add("a schema's text", "json_schema", kText, [](size_t n) {
    return Cat("{\"type\":\"null\",\"description\":\"", std::string(n, 'd'),
               "\"}");
  });
}

void AddPrompts(Elements& all) {
  const auto add = [&all](const char* name, const char* field, size_t small,
                          Make make) {
    all.push_back({Cat("completions: ", name), field, kCompletions,
                   std::move(make), small});
  };
  add("prompts", "prompt", openai::kMaxPrompts / 2, [](size_t n) {
    return "{\"prompt\":" + List(n, [](size_t) { return "\"some text\""; }) +
           "}";
  });
  add("prompts of token ids", "prompt", openai::kMaxPrompts / 2, [](size_t n) {
    return "{\"prompt\":" + List(n, [](size_t) { return "[1,2,3]"; }) + "}";
  });
  add("token ids of a prompt", "prompt", 4096, [](size_t n) {
    return "{\"prompt\":" + List(n, [](size_t) { return "97"; }) + "}";
  });
  add("a prompt's words", "prompt", kText / 4,
      [](size_t n) { return Cat("{\"prompt\":\"", Repeat("abc ", n), "\"}"); });
  add("a prompt's one word", "prompt", kText,
      [](size_t n) { return Cat("{\"prompt\":\"", Repeat("y", n), "\"}"); });
  add("a prompt's special tokens", "prompt", kText / 8, [](size_t n) {
    return Cat("{\"prompt\":\"", Repeat("<|im_end|> ", n), "\"}");
  });
  add("a prompt that is echoed", "echo", kText / 8, [](size_t n) {
    return Cat("{\"echo\":true,\"n\":2,\"logprobs\":2,\"prompt\":\"",
               Repeat("abc ", n), "\"}");
  });
  add("a prompt that is cut", "truncate_prompt_tokens", kText / 4,
      [](size_t n) {
        return Cat("{\"truncate_prompt_tokens\":5,\"prompt\":\"",
                   Repeat("abc ", n), "\"}");
      });
}

void AddLlamacpp(Elements& all) {
  const auto add = [&all](const char* name, const char* path, size_t small,
                          Make make) {
    all.push_back({Cat("llamacpp: ", name), "", path, std::move(make), small});
  };
  add("a prompt's words", "/completion", kText / 4, [](size_t n) {
    return Cat("{\"return_tokens\":true,\"n_predict\":", n, ",\"prompt\":\"",
               Repeat("abc ", n), "\"}");
  });
  add("a stream", "/completion", 512, [](size_t n) {
    return Cat("{\"stream\":true,\"timings_per_token\":true,\"n_predict\":", n,
               ",\"prompt\":\"", Repeat("a", n), "\"}");
  });
  add("probabilities", "/completion", 128, [](size_t n) {
    return Cat("{\"n_probs\":20,\"n_predict\":", n, ",\"prompt\":\"",
               Repeat("a", n), "\"}");
  });
  add("texts and tokens of a prompt", "/completion",
      llamacpp::kMaxPromptParts / 4, [](size_t n) {
        return "{\"prompt\":" +
               List(2 * n, [](size_t i) { return i % 2 ? "97" : "\"b\""; }) +
               "}";
      });
  add("prompts", "/completion", llamacpp::kMaxPrompts / 2, [](size_t n) {
    return "{\"prompt\":" + List(n, [](size_t) { return "\"some text\""; }) +
           "}";
  });
  add("choices of a long prompt", "/completion", serving::kMaxChoices / 16,
      [](size_t n) {
        return Cat("{\"n_cmpl\":", n, ",\"prompt\":\"", Repeat("abc ", 500),
                   "\"}");
      });
  add("biases of texts", "/completion", 64, [](size_t n) {
    return "{\"prompt\":\"a\",\"logit_bias\":" +
           List(n,
                [](size_t) {
                  return Cat("[\"", std::string(1000, 'b'), "\",0.0001]");
                }) +
           "}";
  });
  add("stop strings", "/completion", serving::kMaxStopStrings / 4,
      [](size_t n) {
        return Cat("{\"n_cmpl\":8,\"prompt\":\"a\",\"stop\":",
                   List(n, [](size_t i) { return Cat("\"e", i, "\""); }), "}");
      });
  add("members to give", "/completion", llamacpp::kMaxResponseFields / 4,
      [](size_t n) {
        return "{\"prompt\":\"a\",\"response_fields\":" +
               List(n,
                    [](size_t i) {
                      return Cat("\"generation_settings/a/b/c/", i, "\"");
                    }) +
               "}";
      });
  add("other files", "/infill", llamacpp::kMaxExtraFiles / 4, [](size_t n) {
    return "{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":" +
           List(n,
                [](size_t) {
                  return "{\"filename\":\"f\",\"text\":\"abc abc\"}";
                }) +
           "}";
  });
  add("a prefix", "/infill", kText / 4, [](size_t n) {
    return Cat("{\"input_suffix\":\"b\",\"input_prefix\":\"", Repeat("abc ", n),
               "\"}");
  });
  add("messages", "/apply-template", 512, [](size_t n) {
    return "{\"messages\":" + List(n, [](size_t) { return User("\"abc\""); }) +
           "}";
  });
  add("pieces", "/tokenize", kText / 4, [](size_t n) {
    return Cat("{\"with_pieces\":true,\"content\":\"", Repeat("abc ", n),
               "\"}");
  });
}

void AddOthers(Elements& all) {
  const auto add = [&all](const char* name, const char* path, size_t small,
                          Make make, int status = 200) {
    all.push_back({name, "", path, std::move(make), small, status});
  };
  add("tokenize: a prompt", "/tokenize", kText / 4, [](size_t n) {
    return Cat("{\"return_token_strs\":true,\"prompt\":\"", Repeat("abc ", n),
               "\"}");
  });
  add("tokenize: one word", "/tokenize", kText,
      [](size_t n) { return Cat("{\"prompt\":\"", Repeat("z", n), "\"}"); });
  add("tokenize: messages", "/tokenize", 256, [](size_t n) {
    return ChatBody(List(n, [](size_t) { return User("\"hello\""); }));
  });
  add("tokenize: a final message to continue", "/tokenize", 8 * kText,
      [](size_t n) {
        return ChatBody(
            Cat("[", User(Quoted("sluicecontinueshere" + std::string(n, 'x'))),
                "]"),
            "\"continue_final_message\":true");
      });
  add("tokenize: tools", "/tokenize", 64, [](size_t n) {
    return With(kChat, "\"tools\":" + List(n, [](size_t i) {
                         return Tool("{\"type\":\"object\"}", i);
                       }));
  });
  add("detokenize: tokens", "/detokenize", 4096, [](size_t n) {
    return "{\"tokens\":" + List(n, [](size_t i) { return Cat(i % 256); }) +
           "}";
  });
  add("logits: tokens", "/debug/logits", 16, [](size_t n) {
    return "{\"prompt\":" + List(n, [](size_t) { return "97"; }) + "}";
  });
  add(
      "models: a long name", "", kText,
      [](size_t n) { return "/v1/models/" + std::string(n, 'm'); }, 404);
  add(
      "traces: a long id", "", kText,
      [](size_t n) { return "/debug/traces/" + std::string(n, 't'); }, 404);
  add(
      "no path of ours", "", kText, [](size_t n) { return Repeat("/a", n); },
      404);
  all.push_back({"traces: a traced answer", "stream", kCompletions,
                 [](size_t n) {
                   return Cat("{\"stream\":true,\"max_tokens\":", n,
                              ",\"prompt\":\"", std::string(n, 't'), "\"}");
                 },
                 512, 200, /*traced=*/true});
}

// Anthropic's blocks, tools and fields.
void AddAnthropics(Elements& all) {
  constexpr const char* kMessages = "/v1/messages";
  const auto body = [](std::string_view messages, std::string_view more = "") {
    return Cat("{\"max_tokens\":4,\"messages\":", messages,
               more.empty() ? "" : ",", more, "}");
  };
  const std::string hello = "[" + User("\"hi\"") + "]";
  const auto add = [&all](const char* name, size_t small, Make make,
                          int status = 200) {
    all.push_back({Cat("Messages: ", name), "", kMessages, std::move(make),
                   small, status});
  };
  // `block` of a message of the user, again and again.
  const auto add_block = [&](const char* name, std::string block) {
    add(name, serving::kMaxContentParts / 2, [=](size_t n) {
      return body("[" + User(List(n, [&](size_t) { return block; })) + "]");
    });
  };
  add("turns of one role", 128, [=](size_t n) {
    return body(List(n, [](size_t) { return User("\"hello\""); }));
  });
  add("turns of both roles", 64, [=](size_t n) {
    return body(List(n, [](size_t) {
      return Cat(User("\"a\""), ",{\"role\":\"assistant\",\"content\":",
                 "[{\"type\":\"thinking\",\"thinking\":\"t\"},",
                 "{\"type\":\"text\",\"text\":\"b\"}]},", User("\"c\""));
    }));
  });
  add("system, blocks", serving::kMaxContentParts / 2, [=](size_t n) {
    return body(hello, "\"system\":" + List(n, [](size_t) {
                         return R"({"type":"text","text":"be brief"})";
                       }));
  });
  add_block("texts", R"({"type":"text","text":"a part"})");
  add_block("pictures", R"({"type":"image","source":{"data":"AA"}})");
  add_block("unknown blocks", R"({"type":"of_tomorrow","a":[1]})");
  add_block("documents",
            R"({"type":"document","title":"t","source":{"type":"text",)"
            R"("data":"some words"}})");
  add_block("references", R"({"type":"tool_reference","tool_name":"f"})");
  add("a picture", kText, [=](size_t n) {
    return body(Cat("[",
                    User(Cat(R"([{"type":"image","source":{"data":")",
                             std::string(n, 'A'), "\"}}]")),
                    "]"));
  });
  add("documents within documents", 4, [=](size_t n) {
    return body(
        Cat("[",
            User(Cat("[",
                     Repeat(R"({"type":"document","source":{"type":"content",)"
                            R"("content":[)",
                            n),
                     R"({"type":"text","text":")", std::string(kText, 'x'),
                     "\"}", Repeat("]}}", n), "]")),
            "]"));
  });
  add("calls and results", 64, [=](size_t n) {
    return body(Cat(R"([{"role":"assistant","content":)",
                    List(n,
                         [](size_t i) {
                           return Cat(R"({"type":"tool_use","id":"u)", i,
                                      R"(","name":"f","input":{"a":[1,2]}})");
                         }),
                    "},",
                    User(List(n,
                              [](size_t i) {
                                return Cat(
                                    R"({"type":"tool_result","tool_use_id":"u)",
                                    i, R"(","content":"r"})");
                              })),
                    "]"));
  });
  add("keys of a call's input", 512, [=](size_t n) {
    return body(Cat(R"([{"role":"assistant","content":[{"type":"tool_use",)",
                    R"("id":"u","name":"f","input":)", Members(n, "0"), "}]},",
                    User("\"a\""), "]"));
  });
  add("a signature that is thinking", kText, [=](size_t n) {
    return body(Cat(R"([{"role":"assistant","content":[{"type":"thinking",)",
                    R"("thinking":"","signature":"sluice:)",
                    std::string(n, 't'), "\"}]},", User("\"a\""), "]"));
  });
  add("a last message to go on with", 8 * kText, [=](size_t n) {
    return body(Cat("[", User("\"a\""), R"(,{"role":"assistant","content":")",
                    std::string(n, 'x'), "\"}]"));
  });
  add("tools", 64, [=](size_t n) {
    return body(hello, "\"tools\":" + List(n, [](size_t i) {
                         return Cat(R"({"name":"f)", i,
                                    R"(","input_schema":{"properties":{}}})");
                       }));
  });
  add("deferred tools, each with a reference", 64, [=](size_t n) {
    return body(
        Cat("[",
            User(List(n,
                      [](size_t i) {
                        return Cat(R"({"type":"tool_reference","tool_name":"f)",
                                   i, "\"}");
                      })),
            "]"),
        "\"tools\":" + List(n, [](size_t i) {
          return Cat(R"({"name":"f)", i, R"(","defer_loading":true})");
        }));
  });
  add("properties of a schema", 128, [=](size_t n) {
    return body(hello, Cat(R"("tools":[{"name":"f","input_schema":)",
                           R"({"properties":)", Members(n, "{}"), "}}]"));
  });
  add("a format", 64, [=](size_t n) {
    return body(hello,
                Cat(R"("output_config":{"format":{"type":"json_schema",)",
                    R"("schema":{"type":"object","properties":)",
                    Members(n, "{\"type\":\"integer\"}"), "}}}"));
  });
  add("stop sequences", 256, [=](size_t n) {
    return body(hello, "\"stop_sequences\":" + List(n, [](size_t i) {
                         return Cat("\"s", i, "\"");
                       }));
  });
  add("a stream", 512, [=](size_t n) {
    return Cat(R"({"stream":true,"max_tokens":)", n, R"(,"messages":[)",
               User(Quoted(std::string(n, 't'))), "]}");
  });
  all.push_back({"Messages: a count", "", "/v1/messages/count_tokens",
                 [=](size_t n) {
                   return body("[" + User(Quoted(Repeat("abc ", n))) + "]");
                 },
                 kText / 4});
  for (const serving::RequestField& row : messages::KnownFields()) {
    if (row.use == serving::FieldUse::kIgnored) continue;
    add(
        Cat("anything as ", row.name).c_str(), 64,
        [=, field = row.name](size_t n) {
          return body(hello, Cat("\"", field, "\":[\"", std::string(8 * n, 's'),
                                 "\",", Members(n, "{}"), "]"));
        },
        /*status=*/0);
  }
}

void AddOllama(Elements& all) {
  const auto add = [&all](const char* name, bool chat, size_t small,
                          Make members, int status = 200) {
    all.push_back({Cat("ollama: ", name), "",
                   chat ? "/api/chat" : "/api/generate",
                   [members = std::move(members)](size_t n) {
                     return Cat("{\"model\":\"toy\",", members(n), "}");
                   },
                   small, status});
  };
  const std::string user = "\"messages\":[" + User("\"hi\"") + "],";
  add("messages, count", true, 128, [](size_t n) {
    return "\"messages\":" + List(n, [](size_t) { return User("\"hello\""); });
  });
  add("a message's words", true, kText / 4, [](size_t n) {
    return Cat("\"messages\":[", User(Quoted(Repeat("a b ", n))), "]");
  });
  add("pictures of the history", true, serving::kMaxContentParts / 2,
      [](size_t n) {
        return Cat("\"messages\":[{\"role\":\"user\",\"images\":",
                   List(n, [](size_t) { return "\"eA==\""; }), "},",
                   User("\"hi\""), "]");
      });
  add("thinking of the history", true, kText, [](size_t n) {
    return Cat("\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",",
               "\"thinking\":\"", Repeat("r", n), "\"},", User("\"hi\""), "]");
  });
  add("arguments of a call, keys", true, 256, [](size_t n) {
    return Cat("\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[",
               "{\"function\":{\"name\":\"f\",\"arguments\":", Members(n, "1"),
               "}}]},", User("\"hi\""), "]");
  });
  add("tools, count", true, serving::kMaxTools / 16, [user](size_t n) {
    return Cat(user, "\"tools\":", List(n, [](size_t i) {
                 return Tool("{\"type\":\"object\"}", i);
               }));
  });
  add("tools that are left out", true, serving::kMaxTools / 2,
      [user](size_t n) {
        return Cat(user, "\"tools\":", List(n, [](size_t) {
                     return "{\"type\":\"x\"}";
                   }));
      });
  add("properties of a format", true, 64, [user](size_t n) {
    return Cat(user, "\"format\":{\"type\":\"object\",\"properties\":",
               Members(n, "true"), "}");
  });
  add("members that are not known", true, 1024, [user](size_t n) {
    return Cat(user, "\"later\":0,\"options\":", Members(n, "[]"));
  });
  add("stop strings", true, serving::kMaxStopStrings / 4, [user](size_t n) {
    return Cat(user, "\"options\":{\"stop\":",
               List(n, [](size_t i) { return Cat("\"ee", i, "\""); }), "}");
  });
  const auto raw = [](size_t n, std::string_view more) {
    return Cat("\"raw\":true,\"options\":{\"num_predict\":", n,
               "},\"prompt\":\"", std::string(n, 'e'), "\"", more);
  };
  add("a stream's answer", false, 512, [raw](size_t n) { return raw(n, ""); });
  add("an answer", false, 2048,
      [raw](size_t n) { return raw(n, ",\"stream\":false"); });
  add("a stream with log probabilities", false, 128, [raw](size_t n) {
    return raw(n, ",\"logprobs\":true,\"top_logprobs\":20");
  });
  add("an answer with log probabilities", false, 128, [raw](size_t n) {
    return raw(n, ",\"logprobs\":true,\"top_logprobs\":20,\"stream\":false");
  });
  add("a prompt's words", false, kText / 4,
      [](size_t n) { return Cat("\"prompt\":\"", Repeat("abc ", n), "\""); });
  add("a suffix", false, kText,
      [](size_t n) { return Cat("\"suffix\":\"", Repeat("s", n), "\""); });
  add(
      "anything as think", true, 64,
      [user](size_t n) {
        return Cat(user, "\"think\":", Nested(28, "1"),
                   ",\"x\":", Members(n, "{}"));
      },
      400);
}

// Whatever may be put in the place of any field: a text, keys, a list, depth.
// Of /v1/responses: items, parts, tools and grammars.
void AddResponses(Elements& all) {
  const auto add = [&all](const char* name, size_t small, Make members,
                          int status = 200) {
    all.push_back({Cat("responses: ", name), "", "/v1/responses",
                   [members = std::move(members)](size_t n) {
                     return Cat("{\"max_output_tokens\":4,", members(n), "}");
                   },
                   small, status});
  };
  const auto input = [](const std::string& item) {
    return [item](size_t n) {
      return "\"input\":" + List(n, [&](size_t) { return item; });
    };
  };
  const auto tools = [](const std::function<std::string(size_t)>& tool) {
    return [tool](size_t n) {
      return "\"input\":\"hi\",\"tools\":" + List(n, tool);
    };
  };
  add("messages", 128, input(User("\"hello\"")));
  add("developers", 128, input(R"({"role":"developer","content":"be"})"));
  add("an assistant's texts", 128,
      input(R"({"role":"assistant","content":"so"})"));
  add("reasoning", 128,
      input(R"({"type":"reasoning","summary":[{"type":"summary_text",)"
            R"("text":"hm"}]})"));
  add("items of unknown types", 128, input(R"({"type":"later","x":[1]})"));
  add("calls", serving::kMaxToolCalls / 2,
      input(R"({"type":"function_call","call_id":"c","name":"f",)"
            R"("arguments":"{\"a\":1}"})"));
  add("a call's arguments", 512, [](size_t n) {
    return Cat(R"("input":[{"type":"function_call","name":"f","arguments":)",
               AsText(Members(n, "0")), "}]");
  });
  add("a custom tool's input", kText, [](size_t n) {
    return Cat(R"("input":[{"type":"custom_tool_call","name":"f","input":)",
               Quoted(Repeat("x", n)), "}]");
  });
  add("outputs", 128,
      input(R"({"type":"function_call_output","call_id":"c","output":"o"})"));
  add("pictures of an output", serving::kMaxContentParts / 2, [](size_t n) {
    return Cat(R"("input":[{"type":"function_call_output","call_id":"c",)"
               R"("output":)",
               List(n, [](size_t) { return R"({"type":"input_image"})"; }),
               "}]");
  });
  add("an input, words", kText / 2,
      [](size_t n) { return "\"input\":" + Quoted(Repeat("a ", n)); });
  add("instructions", kText, [](size_t n) {
    return Cat("\"input\":\"hi\",\"instructions\":", Quoted(Repeat("a", n)));
  });
  add(
      "metadata", 512,
      [](size_t n) {
        return Cat("\"input\":\"hi\",\"metadata\":", Members(n, "\"v\""));
      },
      400);
  add("tools", serving::kMaxTools / 2, tools([](size_t i) {
        return Cat(R"({"type":"function","name":"f)", i,
                   R"(","parameters":{"type":"object"}})");
      }));
  add("tools that are left out", 512,
      tools([](size_t) { return R"({"type":"web_search"})"; }));
  add("tools of a namespace", serving::kMaxTools / 2, [](size_t n) {
    return Cat(R"("input":"hi","tools":[{"type":"namespace","name":"n",)"
               R"("tools":)",
               List(n,
                    [](size_t i) {
                      return Cat(R"({"type":"function","name":"f)", i, "\"}");
                    }),
               "}]");
  });
  add("a Lark grammar that no expression is", 512, [](size_t n) {
    std::string rules = "start: r0";
    for (size_t i = 0; i < n; ++i) rules += Cat("\\nr", i, ": r", i + 1);
    return Cat(R"("input":"hi","tools":[{"type":"custom","name":"c",)"
               R"("format":{"type":"grammar","syntax":"lark",)"
               R"("definition":")",
               rules, "\"}}]");
  });
  add("a Lark grammar that doubles", 16, [](size_t n) {
    std::string rules = "start: r0";
    for (size_t i = 0; i < n; ++i) {
      rules += Cat("\\nr", i, ": r", i + 1, " r", i + 1);
    }
    return Cat(R"("input":"hi","tools":[{"type":"custom","name":"c",)"
               R"("format":{"type":"grammar","syntax":"lark",)"
               R"("definition":")",
               rules, "\\nr", n, ": \\\"aa\\\"\"}}]");
  });
}

void AddGeneric(Elements& all) {
  for (const openai::KnownField& field : openai::KnownFields()) {
    for (const char* path : {kChat, kCompletions}) {
      if (path == kChat ? !field.chat : !field.completions) continue;
      const std::string name(field.name);
      all.push_back(
          {Cat(path == kChat ? "chat: " : "completions: ", "anything as ",
               name),
           name, path,
           [path, name](size_t n) {
             const std::string value =
                 Cat("[\"", std::string(8 * n, 's'), "\",", Members(n, "{}"),
                     ",", List(n, [](size_t) { return "0"; }), "]");
             // The later of two fields of one name counts.
             return With(path, Cat("\"", name, "\":", value));
           },
           64, /*status=*/0});
    }
  }
}

}  // namespace

std::vector<CostElement> CostElements() {
  Elements all;
  AddMessages(all);
  AddCalls(all);
  AddTools(all);
  AddAnswers(all, kChat, "chat");
  AddAnswers(all, kCompletions, "completions");
  AddGrammars(all, kChat, "chat");
  AddGrammars(all, kCompletions, "completions");
  AddPrompts(all);
  AddLlamacpp(all);
  AddOthers(all);
  AddAnthropics(all);
  AddOllama(all);
  AddResponses(all);
  AddGeneric(all);
  return all;
}

}  // namespace sluice::gateway
