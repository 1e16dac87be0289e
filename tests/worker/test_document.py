"""The flow that docs/worker.md defines does what it says there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgflow_migrate.worker import Flow

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "worker.md"


def blocks(language: str) -> list[str]:
    """The document's blocks of a language."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def documented_flow() -> Flow:
    """The flow that the document defines."""
    namespace: dict[str, Any] = {}
    (block,) = blocks("python")
    exec(compile(block, str(DOCUMENT), "exec"), namespace)  # noqa: S102
    flow = namespace["orders"]
    assert isinstance(flow, Flow)
    return flow


def test_the_documented_flow_runs(bench: Bench) -> None:
    flow = documented_flow()
    bench.compile(flow)
    start, *_ = blocks("sql")
    run = bench.row(start.replace("select pgflow", "select * from pgflow"))["run_id"]
    assert bench.work_off(flow).completed == 4
    assert bench.run(run)["output"] == {"report": {"charges": ["charged 1", "charged 2"], "customer": "me"}}


def test_the_documented_repair_lets_the_worker_start_again(bench: Bench) -> None:
    flow = documented_flow()
    bench.compile(flow)
    bench.execute("alter sequence pgmq.q_orders_msg_id_seq restart with 12")
    bench.value("""select pgmq.send('orders', '{"flow_slug": "orders"}')""")
    assert bench.work_off(flow).fatal is not None
    *_, look, repair = blocks("sql")
    assert bench.row(look)["msg_id"] == 12
    bench.execute(repair)
    assert bench.work_off(flow).fatal is None
