"""The ledgers that tests begin with."""

from __future__ import annotations

from pathlib import Path

from spillway.ledger import open_ledger
from spillway.testing.ledger_files import new_ledger


def test_each_ledger_of_a_test_is_empty_and_of_an_installation_of_its_own(tmp_path: Path) -> None:
    ledgers = [open_ledger(new_ledger(tmp_path / f"{name}.db")) for name in ("a", "b")]
    assert [ledger.runs() for ledger in ledgers] == [(), ()]
    assert ledgers[0].installation() != ledgers[1].installation()
