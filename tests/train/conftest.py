from tests.support.train.processes import alone, folder, started, together, worker

__all__ = ["alone", "folder", "started", "together", "worker"]
