"""Exit codes of `up` and `down`; listed in deploy/local/README.md."""

OK = 0
UNEXPECTED = 1
USAGE = 2
SETUP_FAILED = 3  # by the shell script around us
BUILD_FAILED = 4  # by the shell script around us
NO_MODEL = 5
NOT_READY = 6  # a process died, or readiness did not come in time
IN_USE = 7  # the port, or the run folder
INTERRUPTED = 130  # told to stop before the cluster was ready


class Failure(Exception):
    """Ends the command with `code` and a message for a person."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
