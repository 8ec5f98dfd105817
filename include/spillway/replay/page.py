"""A comparison as one page that loads nothing: its style, tables and plots are in it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from spillway.replay.plots import costs, demand, over_time, waits
from spillway.replay.report import HEADER, Comparison, rows

COLOURS = 8
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8") + "".join(
    f".bar.c{at}{{fill:var(--c{at})}}.curve.c{at}{{stroke:var(--c{at})}}.key i.c{at}{{background:var(--c{at})}}"
    for at in range(COLOURS)
)
_EXPLAINED = (
    "Waits are in minutes and the response, from submission to end, in hours. Idle is the part of the paid cloud "
    "GPU-hours that no job used, boots among them. A flap is an order of nodes within half an hour of giving some "
    "back. What is lost was trained by runs on spot that lost their nodes before they had committed it."
)
_LEAST = (
    "The least knows the whole trace beforehand and lets no job wait: once with jobs that stay where they start, once "
    "with jobs that move freely. Below the second one only waiting can go."
)


def page(comparison: Comparison) -> str:
    """The whole page as HTML; names of traces, policies and jobs may hold anything."""
    results = [(result.policy, result, f"c{at % COLOURS}") for at, result in enumerate(comparison.results)]
    begins, ends = (comparison.moment(seconds) for seconds in comparison.results[0].measured)
    cost = [(found.policy, float(found.cloud_cost), f"c{at % COLOURS}") for at, found in enumerate(comparison.figures)]
    most = 1.06 * max(
        max(float(wanted.max()), comparison.local_gpus + float(paid.max()))
        for wanted, _, _, paid in map(over_time, comparison.results)
    )
    key = "".join(f'<span><i class="{colour}"></i>{escape(name)}</span>' for name, _, colour in results)
    panels = "".join(
        f"<h3>{escape(name)}</h3>{demand(result, most, comparison.local_gpus)}" for name, result, _ in results
    )
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in comparison.remarks())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Replay of {escape(comparison.trace)}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>Replay of {escape(comparison.trace)}</h1>"
        f"<p>{comparison.figures[0].jobs:,} jobs from {begins:%d %B %Y} to {ends:%d %B %Y} on "
        f"{comparison.local_gpus:,} on-premises GPUs; a cloud GPU-hour costs {comparison.cloud_price_per_gpu_hour}.</p>"
        f'<h2>Figures</h2><p>{_EXPLAINED}</p><div class="card">{_table(comparison)}</div>'
        f'<h2>Cloud cost</h2><p>{_LEAST}</p><div class="card">{costs(comparison, cost)}</div>'
        f"<h2>Waits</h2><p>The part of the jobs that waits longer than so long for its first start.</p>"
        f'<div class="card"><div class="key">{key}</div>{waits(results)}</div>'
        f"<h2>Demand and capacity</h2><p>What clouds give is drawn on top of the on-premises GPUs.</p>"
        f'<div class="card"><div class="key">{_KEY}</div>{panels}</div>'
        + (f'<h2>Notes</h2><div class="card"><ul>{remarks}</ul></div>' if remarks else "")
        + "</main></body></html>\n"
    )


def _table(comparison: Comparison) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in HEADER)
    body = "".join(
        f"<tr{'' if at < len(comparison.results) else ' class=least'}>"
        + "".join(f"<td>{'–' if cell is None else escape(cell)}</td>" for cell in row)
        + "</tr>"
        for at, row in enumerate(rows(comparison))
    )
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


_KEY = (
    '<span><i class="line"></i>wanted (running and waiting)</span><span><i class="limit"></i>on-premises GPUs</span>'
    '<span><i class="local"></i>used on-premises</span><span><i class="used"></i>used in clouds</span>'
    '<span><i class="paid"></i>paid for in clouds, idle</span>'
)
