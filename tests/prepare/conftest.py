"""The command `python -m experiments.prepare`, run in this process."""

import pytest

from experiments.prepare import main


@pytest.fixture
def command(capsys):
    """The command in this process: (exit code, what it printed, what it said of errors)."""

    def call(*arguments: str):
        code = main(list(arguments))
        printed = capsys.readouterr()
        told = [line for line in printed.err.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in printed.err
        assert len(told) == (code == 1)
        return code, printed.out.strip(), told[0] if told else ""

    return call
