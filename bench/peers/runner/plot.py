"""The figures as a picture: one panel for each, one bar for each peer. It has its colours for light and for dark."""

from .report import COLUMNS, figure, text

WIDTH, MARGIN, GUTTER = 960, 28, 36
LABEL, BAR, STEP = 142, 14, 22
TITLE = 34
PANEL = (WIDTH - 2 * MARGIN - GUTTER) / 2

# Title, workload, the figure of the bar, one more that the bar's whisker ends at, and which way is better.
PANELS = [
    ("Drain: jobs a second", "drain", "per_second", None, "more is better"),
    ("Bulk submit: jobs a second", "bulk", "per_second", None, "more is better"),
    ("Single submits, 64 callers: jobs a second", "single", "per_second", None, "more is better"),
    ("Steady, 64 callers and a worker: jobs a second", "steady", "per_second", None, "more is better"),
    ("Pickup when idle: ms, p50 and p99", "pickup", "p50_ms", "p99_ms", "less is better"),
    ("Pickup at half load: ms, p50 and p99", "half", "p50_ms", "p99_ms", "less is better"),
    ("Drain: bytes of WAL a job", "drain", "wal_bytes_per_job", None, "less is better"),
    ("Steady: commits a job", "steady", "commits_per_job", None, "less is better"),
]

STYLE = """
  svg { --paper: #ffffff; --ink: #1f2328; --soft: #656d76; --line: #d8dee4; --bar: #b6c2cf; --ours: #0969da; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #e6edf3; --soft: #8d96a0; --line: #30363d; --bar: #4a5563; --ours: #4493f8; }
  }
  text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
  .title { font-size: 13px; font-weight: 600; } .soft { fill: var(--soft); font-size: 11px; } .own { font-weight: 600; }
  .paper { fill: var(--paper); } .bar { fill: var(--bar); } .bar.own { fill: var(--ours); }
  .axis { stroke: var(--line); } .whisker { stroke: var(--soft); stroke-width: 1.5; fill: none; }
"""


def svg(found: dict) -> str:
    peers = found["peers"]
    cells = []
    for title, workload, name, far, better in PANELS:
        rows = [(peer, figure(peers[peer], workload, name), far and figure(peers[peer], workload, far)) for peer in peers]
        rows = [row for row in rows if row[1] is not None]
        if rows:
            cells.append((title, better, rows))
    parts, y = [], float(MARGIN)
    for pair in (cells[i : i + 2] for i in range(0, len(cells), 2)):
        for column, (title, better, rows) in enumerate(pair):
            parts += panel(MARGIN + column * (PANEL + GUTTER), y, title, better, rows)
        y += TITLE + STEP * max(len(rows) for _, _, rows in pair) + GUTTER
    height = y - GUTTER + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img">'
    paper = f'<rect class="paper" width="{WIDTH}" height="{height:.0f}"/>'
    title = "<title>Plimsoll and its peers side by side</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", paper, *parts, "</svg>"]) + "\n"


def panel(x: float, y: float, title: str, better: str, rows: list) -> list[str]:
    """A linear scale from zero: a bar is as long as its figure."""
    room = PANEL - LABEL - 84
    longest = max(far or near for _, near, far in rows) or 1
    bars, height = x + LABEL, STEP * len(rows)
    parts = [
        f'<text class="title" x="{x:.1f}" y="{y + 12:.1f}">{title}</text>',
        f'<text class="soft" x="{x + PANEL:.1f}" y="{y + 12:.1f}" text-anchor="end">{better}</text>',
        f'<line class="axis" x1="{bars:.1f}" x2="{bars:.1f}" y1="{y + TITLE - 8:.1f}" y2="{y + TITLE + height - 6:.1f}"/>',
    ]
    for row, (peer, near, far) in enumerate(rows):
        top, own = y + TITLE - 4 + row * STEP, " own" if peer.startswith("plimsoll") else ""
        middle, length = top + BAR / 2, max(1.0, near / longest * room)
        end = bars + length
        parts += [
            f'<text class="{own.strip()}" x="{bars - 8:.1f}" y="{middle + 4:.1f}" text-anchor="end">{peer}</text>',
            f'<rect class="bar{own}" x="{bars:.1f}" y="{top:.1f}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        ]
        label = text(near)
        if far is not None:
            end, label = max(end, bars + far / longest * room), f"{label} · {text(far)}"
            parts.append(f'<path class="whisker" d="M{bars + length:.1f} {middle:.1f}H{end:.1f}m0 -4v8"/>')
        parts.append(f'<text class="{own.strip()}" x="{end + 6:.1f}" y="{middle + 4:.1f}">{label}</text>')
    return parts
