"""The loss curve as an SVG, from the entries of the training log."""

import math

WIDTH, HEIGHT, LEFT, TOP = 720, 360, 56, 24
COLORS = {"loss": "#2563eb", "mtp_loss": "#d97706", "heldout": "#059669"}
NAMES = {"loss": "train", "mtp_loss": "train, token after next",
         "heldout": "held-out"}


def smooth(points, share=0.9):
    """An exponential mean, its start not pulled to zero."""
    out, mean, weight = [], 0.0, 0.0
    for step, value in points:
        mean, weight = share * mean + (1 - share) * value, (
            share * weight + 1 - share)
        out.append((step, mean / weight))
    return out


def draw(entries, path):
    series = {}
    for name in COLORS:
        points = [(entry["step"], entry[name]) for entry in entries
                  if name in entry]
        if points:
            series[name] = points if name == "heldout" else smooth(points)
    if not series:
        return
    steps = max(points[-1][0] for points in series.values())
    values = [max(value, 1e-3) for points in series.values()
              for _, value in points]
    low, high = math.log(min(values)), math.log(max(values))

    def place(step, value):
        x = LEFT + (WIDTH - LEFT - 12) * step / max(steps, 1)
        y = TOP + (HEIGHT - TOP - 40) * (
            high - math.log(max(value, 1e-3))) / max(high - low, 1e-9)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
             f'height="{HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in range(5):
        value = math.exp(low + (high - low) * tick / 4)
        at = place(0, value).split(",")[1]
        parts.append(f'<path d="M{LEFT},{at}H{WIDTH - 12}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 6}" y="{at}" dy="4" '
                     f'text-anchor="end">{value:.3g}</text>')
        step = steps * tick // 4
        x = place(step, values[0]).split(",")[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - 22}" '
                     f'text-anchor="middle">{step}</text>')
    for at, (name, points) in enumerate(series.items()):
        line = " ".join(place(*point) for point in points)
        parts.append(f'<polyline points="{line}" fill="none" '
                     f'stroke="{COLORS[name]}" stroke-width="1.5"/>')
        parts.append(f'<text x="{WIDTH - 20}" y="{TOP + 16 * at}" '
                     f'text-anchor="end" fill="{COLORS[name]}">'
                     f'{NAMES[name]}</text>')
    parts.append(f'<text x="{WIDTH // 2}" y="{HEIGHT - 6}" '
                 'text-anchor="middle">step; loss in nats a token, '
                 'logarithmic</text></svg>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")
