"""Markdown that a hostile model could write, and how the page shows it."""

LINK = ("<a href=\"%s\" target=\"_blank\" "
        "rel=\"noopener noreferrer nofollow\">%s</a>")
# What a hostile model could write, and the markup that shows it.
MARKDOWN = [
    ("<img src=x onerror=\"window.pwned=1\">",
     "<p>&lt;img src=x onerror=\"window.pwned=1\"&gt;</p>"),
    ("<script>window.pwned=1</script>",
     "<p>&lt;script&gt;window.pwned=1&lt;/script&gt;</p>"),
    ("[x](javascript:window.pwned=1)", "<p><a>x</a></p>"),
    ("[x](JaVa\tScript:window.pwned=1) [x](java&#x0A;script:window.pwned=1)",
     "<p>[x](JaVa\tScript:window.pwned=1) <a>x</a></p>"),
    ("<javascript:window.pwned=1> [x](vbscript:a) [x](//e.org) [x](/cluster)",
     "<p><a>javascript:window.pwned=1</a> <a>x</a> <a>x</a> <a>x</a></p>"),
    ("[x](data:text/html,<b>)", "<p><a>x</a></p>"),
    ("![x](https://example.org/i.png)",
     "<p>" + LINK % ("https://example.org/i.png", "x") + "</p>"),
    ("[![b](https://img.io/x.svg) <https://e.org/> **c**](https://git.io/x)",
     "<p>" + LINK % ("https://git.io/x",
                     "b https://e.org/ <strong>c</strong>") + "</p>"),
    ("https://e.org/" + "a" * 986 + " https://e.org/" + "a" * 1_500,
     "<p>" + LINK % (("https://e.org/" + "a" * 986,) * 2)
     + " https://e.org/" + "a" * 1_500 + "</p>"),
    ("![x](javascript:window.pwned=1) ![<b>](x\"onerror=\"window.pwned=1)",
     "<p><a>x</a> <a>&lt;b&gt;</a></p>"),
    ("[x](https://e.org/\" onclick=\"window.pwned=1)",
     "<p>[x](" + LINK % ("https://e.org/", "https://e.org/")
     + "\" onclick=\"window.pwned=1)</p>"),
    ("[x][a]\n\n[a]: javascript:window.pwned=1",
     "<p>[x][a]</p><p>[a]: javascript:window.pwned=1</p>"),
    ("<svg><a xlink:href=\"javascript:window.pwned=1\"><math><style><img "
     "src=x onerror=window.pwned=1></style>",
     "<p>&lt;svg&gt;&lt;a xlink:href=\"javascript:window.pwned=1\"&gt;&lt;"
     "math&gt;&lt;style&gt;&lt;img src=x onerror=window.pwned=1&gt;&lt;/style"
     "&gt;</p>"),
    ("&lt;img src=x onerror=window.pwned=1&gt; &#60;script>",
     "<p>&lt;img src=x onerror=window.pwned=1&gt; &lt;script&gt;</p>"),
    ("a\n<!-- b\n\n--> c\n<iframe src=/docs>\n# <b>d</b>",
     "<p>a<br>&lt;!-- b</p><p>--&gt; c<br>&lt;iframe src=/docs&gt;</p>"
     "<h3 class=\"h1\">&lt;b&gt;d&lt;/b&gt;</h3>"),
    ("```\"><img/src=x/onerror=window.pwned=1>\n</code><img src=x>",
     "<figure class=\"code\"><figcaption><span>\"&gt;&lt;img/src=x/onerror="
     "window.pw</span>COPY</figcaption><pre tabindex=\"0\"><code>&lt;/code&gt;"
     "&lt;img src=x&gt;</code></pre></figure>"),
    ("```js\nlet a = '</span><img src=x>'  // <b>\n```",
     "<figure class=\"code\"><figcaption><span>js</span>COPY</figcaption>"
     "<pre tabindex=\"0\"><code><span class=\"hljs-keyword\">let</span> a = "
     "<span class=\"hljs-string\">'&lt;/span&gt;&lt;img src=x&gt;'</span>  "
     "<span class=\"hljs-comment\">// &lt;b&gt;</span></code></pre></figure>"),
    ("# A\n**b** *i* ~~d~~ `c<b>`",
     "<h3 class=\"h1\">A</h3><p><strong>b</strong> <em>i</em> "
     "<del>d</del> <code>c&lt;b&gt;</code></p>"),
    ("- a\n- b\n  1. c\n\n> q\n\n---",
     "<ul><li>a</li><li>b<ol><li>c</li></ol></li></ul>"
     "<blockquote><p>q</p></blockquote><hr>"),
    ("3. a\n4. [ ] b\n5. [x] c",
     "<ol start=\"3\"><li>a</li><li>☐ b</li><li>☑ c</li></ol>"),
    ("snake_case and 2*3*4 stay", "<p>snake_case and 2*3*4 stay</p>"),
    ("|a|b|\n|-|-:|\n|1|<i>|",
     "<div class=\"table\" tabindex=\"0\"><table><thead><tr>"
     "<th>a</th><th align=\"right\">b</th></tr></thead>"
     "<tbody><tr><td>1</td>"
     "<td align=\"right\">&lt;i&gt;</td></tr></tbody></table></div>"),
]
# What recursion or a slow pattern could drown in.
DEEP = ["> " * 20_000, "1. " * 20_000, "*" * 20_000 + "a" + "*" * 20_000,
        "[" * 20_000, "![a](" * 5_000, "`a" * 10_000, "<a " * 10_000,
        "|" * 5_000 + "\n" + "|-" * 5_000 + "\n", "**a *b " * 4_000,
        "```java\n" + "a" * 9_000, "```sh\n" + "${" * 4_000,
        "```shell\n" + "abc${\n" * 1_500, "```md\n" + "[a](" * 2_500]
