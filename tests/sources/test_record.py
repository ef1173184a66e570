"""Blocks, batches and traits of every kind of source are those that ``source_record.py`` wrote."""

import json
from functools import cache

import pytest
from source_record import PARTS, RECORD, differences


@cache
def known():
    return json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_record_has_every_part():
    assert list(known()) == list(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_the_record(part):
    assert differences(PARTS[part](), known()[part]) == []
