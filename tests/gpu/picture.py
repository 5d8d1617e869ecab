"""The picture of a run of tests/gpu/run: decode at batch 1 of every model as a share
of the read bandwidth, beside the goal, and PyTorch's speed where it was measured."""
import html

import large_models

WIDTH, LEFT, BAR, GAP, RIGHT = 860, 150, 16, 12, 190
INK, OURS, TORCH, GOAL = "#333333", "#2b6cb0", "#a0aec0", "#c53030"


def rows(results):
    """(name, tokens/s, share of bandwidth, PyTorch's share or None)."""
    for name in large_models.MODELS:
        one = large_models.decode_rate(results.get(name, {}), 1)
        share = one.get("share_of_read_bandwidth")
        if not share:
            continue
        times = large_models.ratio(results, name, 1)
        yield name, one["tok_per_s"], share, share / times if times else None


def text(x, y, what, anchor="start", colour=INK):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
            f'fill="{colour}">{html.escape(what)}</text>')


def svg(results):
    """The picture as SVG; None if no model was measured."""
    measured = list(rows(results))
    if not measured:
        return None
    machine = results.get("machine", {})
    across = WIDTH - LEFT - RIGHT
    parts = [text(LEFT, 24, "Decode at batch 1, share of the measured read "
                            "bandwidth"),
             text(LEFT, 42, ", ".join(filter(None, (
                 results.get("bandwidth", {}).get("name"),
                 machine.get("date"), (machine.get("commit") or "")[:12]))),
                 colour=TORCH)]
    top = 60
    for name, tokens, share, torch in measured:
        middle = top + BAR - 4
        parts.append(text(LEFT - 8, middle, name, "end"))
        parts.append(f'<rect class="ours" x="{LEFT}" y="{top}" '
                     f'width="{across * min(share, 1):.1f}" height="{BAR}" '
                     f'fill="{OURS}"/>')
        if torch:
            at = LEFT + across * min(torch, 1)
            parts.append(f'<rect class="torch" x="{at - 2:.1f}" y="{top - 3}" '
                         f'width="4" height="{BAR + 6}" fill="{TORCH}"/>')
        parts.append(text(LEFT + across + 8, middle,
                          f"{tokens:.1f} tok/s, {100 * share:.0f} %"))
        top += BAR + GAP
    for least, what in ((0.5, "50 %"), (0.8, "80 %")):
        at = LEFT + across * least
        parts.append(f'<line x1="{at}" x2="{at}" y1="54" y2="{top}" '
                     f'stroke="{GOAL}" stroke-dasharray="3 3"/>')
        parts.append(text(at, top + 16, what, "middle", GOAL))
    parts.append(text(LEFT, top + 16, "grey: PyTorch's best loop", "start",
                      TORCH))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{top + 30}" font-family="sans-serif" font-size="13">'
            '<rect width="100%" height="100%" fill="white"/>'
            + "".join(parts) + "</svg>\n")
