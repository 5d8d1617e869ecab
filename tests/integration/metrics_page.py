"""What services/METRICS.md says, compared with what a process serves."""

import re

import harness

_SECTIONS = {"gateway": ("Every process", "Gateway"),
             "stage": ("Every process", "Stage"),
             "expert": ("Every process", "Host of experts")}
_ROW = re.compile(r"\| `([\w:]+)` \| (\w+) \| ([^|]*)\| (.*)\|")


def rows(role):
    """{name: (type, labels, whether it is always there)} of the page."""
    found, heading = {}, None
    for line in (harness.ROOT / "services/METRICS.md").read_text().split("\n"):
        if line.startswith("## "):
            heading = line[3:]
        match = _ROW.fullmatch(line)
        if match and heading in _SECTIONS[role]:
            name, kind, labels, text = match.groups()
            found[name] = (kind, set(re.findall(r"`(\w+)`", labels)),
                           not text.startswith("With "))
    return found


def served(text):
    """{name: (type, labels)} of a scrape."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    labels = {name: set() for name in kinds}
    for name, of in re.findall(r"^([\w:]+)\{(.*)\} \S+$", text, re.M):
        if name not in kinds:
            name = re.sub("_(bucket|sum|count)$", "", name)
        labels[name] |= set(re.findall(r'(\w+)="', of))
    return {name: (kind, labels[name] - {"le"})
            for name, kind in kinds.items()}


def check(case, role, text):
    """`text` has the page's series and no others; of histograms with their
    kinds and labels too."""
    page, scrape = rows(role), served(text)
    everywhere = {"stage", "replica"} if role == "stage" else set()
    case.assertEqual(set(scrape) - set(page), set(), "not on the page")
    for name, (kind, labels, always) in page.items():
        case.assertTrue(name in scrape or not always,
                        f"{name} is on the page alone")
        if name in scrape:
            case.assertEqual(scrape[name], (kind, labels | everywhere), name)
