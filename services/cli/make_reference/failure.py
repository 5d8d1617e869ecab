"""A failure that ends the command, with words for a person."""


class Failure(Exception):
    """`code`: the exit status; 2 for a wrong command line."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code
