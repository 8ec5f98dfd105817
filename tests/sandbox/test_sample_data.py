import pytest

from spillway.sandbox.sample_data import digits_shards


@pytest.mark.parametrize("count", [1, 4, 7])
def test_the_digits_are_all_there_however_they_are_cut(count: int) -> None:
    shards = digits_shards(count)
    assert list(shards) == [f"shard-{number:03d}.csv" for number in range(count)]
    lines = b"".join(shards.values()).splitlines()
    assert len(lines) == 1797
    assert {len(line.split(b",")) for line in lines} == {65}
    assert max(len(body.splitlines()) for body in shards.values()) <= 1797 // count + 1
