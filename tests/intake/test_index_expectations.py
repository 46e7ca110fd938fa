"""The index of what really came in, in every format, meets the table-level expectations."""

from intake_world import world
from mutations import samples

from ratchet.intake import index
from ratchet.intake.formats import formats
from resources.expectations import COLUMNS, check_index


def test_the_index_of_every_format_meets_its_suite(tmp_path):
    home = world(tmp_path)
    for name, content in samples():
        home.land(name, content)
    home.ingest()
    frame = index(home.store, "acme")
    assert tuple(frame.columns) == COLUMNS
    found = check_index(frame, grants={"g"}, formats=set(formats()), segments=())
    assert [one for one in found if not one.passed] == []
    empty = check_index(index(home.store, "other"), grants={"g"}, formats=set(formats()), segments=())
    assert [one.expectation for one in empty if not one.passed] == ["expect_table_row_count_to_be_between"]
