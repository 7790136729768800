from rlvr_core.api import TrackedRun
from rlvr_csv_tracker import Table
from rlvr_devkit.conformance.as_tests import component_conformance

test_table_conforms = component_conformance("tracker", Table)


def play(folder, begin, end):
    table = Table(Table.Config(columns=["loss", "lr"]))
    table.start(TrackedRun(folder, "run", {}), begin)
    for step in range(begin, end):
        table.metrics(step, {"loss": step / 2})
    table.close()


def test_a_resumed_run_has_each_step_once(tmp_path):
    play(tmp_path, 0, 3)
    play(tmp_path, 2, 4)
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert rows == ["step,loss,lr", "0,0.0,", "1,0.5,", "2,1.0,", "3,1.5,"]
